//! Items that wait for readers.

use crate::support::*;

fn counting(count: Count) -> RcuWork {
    RcuWork::new(count.adder())
}

fn counted() -> (RcuWork, Count) {
    let count = Count::default();
    (counting(count), count)
}

/// A read-side critical section on its own thread. Grace periods that begin while it is open wait
/// for it.
pub struct Section(thread::JoinHandle<()>, Plug);

impl Section {
    pub fn open() -> Self {
        let (thread, plug) = stuck(|hole| {
            thread::spawn(move || {
                let _guard = rcu::read();
                hole.sit();
            })
        });
        Self(thread, plug)
    }

    pub fn close(self) {
        self.1.release_and_join(self.0);
    }
}

#[test]
fn an_rcu_work_runs_after_the_open_sections_and_not_before() {
    let queue = queue("rcu").alone();
    let (is_open, seen) = (Shared::new(AtomicBool::new(true)), Log::default());
    let work = RcuWork::new(move || seen.push(is_open.load(Ordering::Relaxed)));
    for _ in 0..10 {
        is_open.store(true, Ordering::Relaxed);
        let section = Section::open();
        assert!(queue.task().enqueue_rcu(&work));
        // A drain does not wait for the item.
        queue.drain().unwrap();
        assert!(work.is_pending());
        is_open.store(false, Ordering::Relaxed);
        section.close();
        work.flush().unwrap();
        assert_eq!(seen.take(), [false]);
    }
}

#[test]
fn an_item_that_waits_for_readers_is_pending() {
    let (queue, (work, count)) = (queue("rcu").alone(), counted());
    assert!(!work.is_pending());
    let section = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    assert!(work.is_pending() && !work.busy().executing);
    assert!(!queue.task().enqueue_rcu(&work));
    section.close();
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn flush_waits_for_the_grace_period_and_for_the_run() {
    let (queue, (work, count)) = (queue("rcu").alone(), counted());
    assert_eq!(work.flush(), Ok(false));
    for nr_runs in 1..=100 {
        assert!(queue.task().enqueue_rcu(&work));
        work.flush().unwrap();
        assert_eq!(count.get(), nr_runs);
        assert!(!work.is_pending());
    }
}

#[test]
fn a_cancelled_rcu_work_waits_for_a_later_grace_period() {
    let (queue, (work, count)) = (queue("rcu").alone(), counted());
    let first = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    assert!(work.cancel());
    assert!(!work.is_pending() && !work.cancel());
    let second = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    first.close();
    // The callback of the first enqueue has no effect.
    assert!(!rcu::poll_state(rcu::start_poll()));
    assert!(work.is_pending() && count.get() == 0);
    second.close();
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn a_disabled_item_does_not_wait_for_readers() {
    let (queue, (work, count)) = (queue("rcu").alone(), counted());
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
fn an_rcu_work_without_handles_is_queued_after_its_readers() {
    let (queue, lives, count) = (queue("rcu").alone(), Census::default(), Count::default());
    let work = RcuWork::new(keeping(lives.life(), count.adder()));
    let section = Section::open();
    assert!(queue.task().enqueue_rcu(&work));
    drop(work);
    section.close();
    lives.all_dropped(1);
    assert_eq!(count.get(), 1);
}

#[test]
fn an_rcu_work_whose_queue_ends_may_be_queued_elsewhere() {
    let (work, count) = counted();
    let registry = registry("2 core");
    let section = Section::open();
    let gone = queue("gone").on(&registry);
    assert!(gone.task().enqueue_rcu(&work));
    drop(gone);
    section.close();
    registry.shutdown().unwrap();
    wait_until(|| !work.is_pending());
    assert_eq!(count.get(), 0);
    let queue = queue("here").alone();
    assert!(queue.task().enqueue_rcu(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn an_rcu_work_may_queue_itself_until_it_is_cancelled() {
    let queue = queue("rcu").alone();
    let (again, count) = (queue.clone(), Count::default());
    let work = RcuWork::with_handle(move |this| {
        count.add();
        assert!(again.task().enqueue_rcu(this));
    });
    assert!(queue.task().enqueue_rcu(&work));
    wait_until(|| count.get() > 5);
    work.cancel_sync();
    assert!(!work.is_pending() && !work.busy().executing);
    let before = count.get();
    rcu::barrier();
    assert_eq!(count.after_drain(&queue), before);
}

#[test]
fn rcu_works_of_many_threads_are_neither_lost_nor_doubled() {
    let (queue, count) = (queue("storm").alone(), Count::default());
    let works: Vec<_> = (0..4).map(|_| counting(count)).collect();
    let nr_due = changed_by_threads(&works, |step, work| {
        let guard = rcu::read();
        let change = match step % 3 == 0 && work.cancel() {
            true => -1,
            false => queue.task().enqueue_rcu(work).into(),
        };
        drop(guard);
        if step % 16 == 0 {
            work.flush().unwrap();
        }
        change
    });
    works.iter().for_each(|work| _ = work.flush().unwrap());
    assert_eq!(count.after_drain(&queue) as i64, nr_due);
}

/// A cancelled item leaves an entry in the list of its former queue. If that queue is busy, the end
/// of the next grace period arms a timer instead of queueing the item.
#[test]
fn a_timer_that_a_grace_period_arms_wakes_the_manager() {
    // Without the wake-up, the manager sleeps until it culls idle workers.
    let registry = tuned("2 cores", |it| it.idle_timeout_ms = 3_600_000);
    let busy = queue("busy").max_active(1).on(&registry);
    let (other, (work, count)) = (queue("other").on(&registry), counted());
    let plug = plug_into(&busy);
    assert!(busy.task().enqueue_rcu(&work));
    rcu::barrier();
    assert!(work.cancel());
    assert!(other.task().enqueue_rcu(&work));
    rcu::barrier();
    plug.release_and_drain(&busy);
    block_on(registry.sleep(MS));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}
