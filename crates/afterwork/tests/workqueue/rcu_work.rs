//! Items that wait for readers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};
use std::thread;
use std::time::Duration;

use afterwork::{
    rcu,
    workqueue::{RcuWork, block_on},
};

use crate::support::*;

fn counting(count: &Count) -> RcuWork {
    let count = count.clone();
    RcuWork::new(move || count.add())
}

/// A read-side critical section on its own thread. Grace periods that begin in it wait.
struct Section {
    close: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Section {
    fn open() -> Self {
        let (sender, opened) = mpsc::channel();
        let (close, closing) = mpsc::channel();
        let thread = thread::spawn(move || {
            let guard = rcu::read();
            sender.send(()).unwrap();
            closing.recv().unwrap();
            drop(guard);
        });
        opened.recv().unwrap();
        Self { close, thread }
    }

    fn close(self) {
        self.close.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn an_rcu_work_runs_after_the_sections_that_were_open_and_not_before() {
    let queue = alone_on_two(queue("rcu"));
    let is_open = Arc::new(AtomicBool::new(true));
    let (send, receive) = mpsc::channel();
    let still_open = is_open.clone();
    let work = RcuWork::new(move || send.send(still_open.load(Ordering::Relaxed)).unwrap());
    for _ in 0..10 {
        is_open.store(true, Ordering::Relaxed);
        let section = Section::open();
        assert!(queue.task().enqueue_rcu(&work));
        // A drain does not wait for the item.
        queue.drain().unwrap();
        assert!(work.is_pending());
        is_open.store(false, Ordering::Relaxed);
        section.close();
        assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
        work.flush().unwrap();
    }
}

#[test]
fn an_item_that_waits_for_readers_is_pending_and_not_queued_again() {
    let queue = alone_on_two(queue("rcu"));
    let count = Count::default();
    let work = counting(&count);
    assert!(!work.is_pending());
    let section = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    assert!(work.is_pending() && !work.busy().executing);
    assert!(!queue.task().enqueue_rcu(&work));
    section.close();
    ends(move || work.flush()).unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn flush_waits_for_the_grace_period_and_for_the_run() {
    let queue = alone_on_two(queue("rcu"));
    let count = Count::default();
    let work = counting(&count);
    assert_eq!(work.flush(), Ok(false));
    for nr_runs in 1..=100 {
        assert!(queue.task().enqueue_rcu(&work));
        work.flush().unwrap();
        assert_eq!(count.get(), nr_runs);
        assert!(!work.is_pending());
    }
}

#[test]
fn an_item_that_waits_for_readers_is_cancelled_and_queued_for_a_later_grace_period() {
    let queue = alone_on_two(queue("rcu"));
    let count = Count::default();
    let work = counting(&count);
    let first = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    assert!(work.cancel());
    assert!(!work.is_pending() && !work.cancel());
    let second = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    first.close();
    // The callback of the first enqueue has no effect.
    let cookie = rcu::start_poll();
    assert!(!rcu::poll_state(cookie));
    assert!(work.is_pending() && count.get() == 0);
    second.close();
    ends(move || work.flush()).unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn a_disabled_item_does_not_wait_for_readers() {
    let queue = alone_on_two(queue("rcu"));
    let count = Count::default();
    let work = counting(&count);
    let section = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    assert!(work.disable_sync());
    assert!(!work.is_pending() && !queue.task().enqueue_rcu(&work));
    assert!(work.enable());
    section.close();
    rcu::barrier();
    assert_eq!(count.get(), 0);
    assert!(queue.task().enqueue_rcu(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
    assert!(!work.cancel_sync());
}

#[test]
fn an_item_without_handles_is_still_queued_when_its_readers_have_gone() {
    let lives = Census::default();
    let queue = alone_on_two(queue("rcu"));
    let (send, receive) = mpsc::channel();
    let life = lives.life();
    let work = RcuWork::new(move || {
        let _held = &life;
        send.send(()).unwrap();
    });
    let section = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    drop(work);
    section.close();
    receive.recv_timeout(PATIENCE).unwrap();
    lives.all_dropped(1);
}

#[test]
fn an_item_whose_queue_goes_while_it_waits_for_readers_may_be_queued_elsewhere() {
    let count = Count::default();
    let work = counting(&count);
    let registry = registry("2 core");
    let section = Section::open();
    let gone = queue("gone").build_in(&registry).unwrap();
    assert!(gone.task().enqueue_rcu(&work));
    drop(gone);
    section.close();
    registry.shutdown().unwrap();
    eventually("it waits no more", || !work.is_pending());
    assert_eq!(count.get(), 0);
    let queue = alone_on_two(queue("here"));
    assert!(queue.task().enqueue_rcu(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn an_item_may_queue_itself_to_wait_for_readers_until_it_is_cancelled() {
    ends(|| {
        let queue = alone_on_two(queue("rcu"));
        let (again, count) = (queue.clone(), Count::default());
        let runs = count.clone();
        let work = RcuWork::with_handle(move |this| {
            runs.add();
            assert!(again.task().enqueue_rcu(this));
        });
        assert!(queue.task().enqueue_rcu(&work));
        eventually("it goes round", || count.get() > 5);
        work.cancel_sync();
        assert!(!work.is_pending() && !work.busy().executing);
        let before = count.get();
        rcu::barrier();
        queue.drain().unwrap();
        assert_eq!(count.get(), before);
    });
}

#[test]
fn rcu_works_of_many_threads_are_neither_lost_nor_doubled() {
    ends(|| {
        let queue = alone_on_two(queue("storm"));
        let count = Count::default();
        let works: Vec<_> = (0..4).map(|_| counting(&count)).collect();
        let (nr_queued, nr_cancelled) = (Count::default(), Count::default());
        threads(4, |i| {
            for step in 0..400 {
                let work = &works[(i + step) % works.len()];
                let guard = rcu::read();
                if step % 3 == 0 && work.cancel() {
                    nr_cancelled.add();
                } else if queue.task().enqueue_rcu(work) {
                    nr_queued.add();
                }
                drop(guard);
                if step % 16 == 0 {
                    work.flush().unwrap();
                }
            }
        });
        for work in &works {
            work.flush().unwrap();
        }
        queue.drain().unwrap();
        assert_eq!(count.get() + nr_cancelled.get(), nr_queued.get());
    });
}

/// A cancelled item leaves an entry in the list of its former queue. If that queue is busy, the end
/// of the next grace period arms a timer instead of queueing the item.
#[test]
fn a_timer_that_a_grace_period_arms_wakes_the_manager() {
    ends(|| {
        let registry = registry("2 cores");
        let busy = queue("busy").max_active(1).build_in(&registry).unwrap();
        let other = queue("other").build_in(&registry).unwrap();
        let count = Count::default();
        let work = counting(&count);
        let plug = plug_into(&busy);
        assert!(busy.task().enqueue_rcu(&work));
        rcu::barrier();
        assert!(work.cancel());
        assert!(other.task().enqueue_rcu(&work));
        rcu::barrier();
        plug.release();
        busy.drain().unwrap();
        let (woken, wakes) = mpsc::channel();
        thread::scope(|scope| {
            let registry = &registry;
            scope.spawn(move || {
                block_on(registry.sleep(Duration::from_millis(1)));
                woken.send(()).ok();
            });
            // Without the wake-up, the manager sleeps until it culls idle workers.
            wakes.recv_timeout(Duration::from_secs(8)).unwrap();
        });
        work.flush().unwrap();
        assert_eq!(count.get(), 1);
    });
}
