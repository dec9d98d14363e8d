//! Reusable items: enqueues, runs and lifetime.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    mpsc,
};

use afterwork::workqueue::{self, AffinityScope, Work, Workqueue};

use crate::support::*;

#[test]
fn queueing_a_pending_item_says_false_and_runs_it_once() {
    let queue = alone_on_two(queue("pending").max_active(1));
    let plug = plug_into(&queue);
    let count = Count::default();
    let work = counting(&count);
    assert!(!work.is_pending() && !work.is_busy());
    assert!(queue.enqueue(&work));
    assert!(work.is_pending() && work.is_busy());
    for _ in 0..10 {
        assert!(!queue.enqueue(&work));
    }
    plug.release();
    queue.drain().unwrap();
    assert!(!work.is_busy());
    assert_eq!(count.get(), 1);
}

#[test]
fn queueing_a_running_item_says_true_once_and_runs_it_exactly_once_more() {
    let queue = alone_on_two(queue("running"));
    let (plug, hole) = stopper();
    let count = Count::default();
    let runs = count.clone();
    let work = Work::new(move || {
        runs.add();
        hole.sit();
    });
    assert!(queue.enqueue(&work));
    plug.wait_until_stuck();
    assert!(!work.is_pending() && work.is_busy());
    assert!(queue.enqueue(&work));
    assert!(!queue.enqueue(&work) && !queue.enqueue(&work));
    plug.release();
    plug.wait_until_stuck();
    assert_eq!(count.get(), 2);
    plug.release();
    queue.drain().unwrap();
    assert_eq!(count.get(), 2);
}

/// Queues one item from eight threads. Checks that its runs never overlap and that none is missing.
fn hammer(queues: &[Workqueue], cancelling: bool) {
    const THREADS: usize = 8;
    let inside = Arc::new(AtomicBool::new(false));
    let nr_runs = Count::default();
    let work = {
        let nr_runs = nr_runs.clone();
        Work::new(move || {
            assert!(!inside.swap(true, Ordering::SeqCst), "two runs at once");
            nr_runs.add();
            inside.store(false, Ordering::SeqCst);
        })
    };
    let nr_due = AtomicUsize::new(0);
    threads(THREADS, |i| {
        pin(i);
        for n in 0..5000 {
            let queue = &queues[(n + i) % queues.len()];
            nr_due.fetch_add(usize::from(queue.enqueue(&work)), Ordering::SeqCst);
            if cancelling && n % 5 == 0 {
                nr_due.fetch_sub(usize::from(work.cancel()), Ordering::SeqCst);
            }
            if n % 50 == i {
                work.flush().unwrap();
            }
        }
    });
    for queue in queues {
        queue.drain().unwrap();
    }
    assert!(!work.is_busy(), "{work:?}");
    assert_eq!(nr_runs.get(), nr_due.load(Ordering::SeqCst));
    let nr_panicked: u64 = queues.iter().map(|queue| queue.stats().panicked).sum();
    assert_eq!(nr_panicked, 0);
}

#[test]
fn runs_of_one_item_never_overlap_under_eight_threads() {
    hammer(&[alone_on_two(queue("one"))], false);
    hammer(&[alone_on_two(queue("one").help(false))], true);
}

#[test]
fn runs_of_one_item_never_overlap_over_pods() {
    let registry = registry("64 core");
    let queue = queue("pods")
        .affinity(AffinityScope::Cpu)
        .build_in(&registry)
        .unwrap();
    hammer(&[queue], true);
}

#[test]
fn one_item_may_be_queued_on_two_queues_in_turn() {
    let registry = registry("64 core");
    let first = queue("first")
        .affinity(AffinityScope::Cpu)
        .build_in(&registry)
        .unwrap();
    let second = queue("second")
        .affinity(AffinityScope::System)
        .build_in(&registry)
        .unwrap();
    hammer(&[first.clone(), second.clone()], false);
    hammer(&[first, second], true);
}

#[test]
fn one_item_may_be_queued_on_an_ordered_queue_and_others_in_turn() {
    let plain = alone_on_two(queue("plain"));
    let ordered = alone_on_two(queue("ordered").ordered());
    let single = alone_on_two(queue("single").max_active(1));
    hammer(&[plain.clone(), ordered.clone()], false);
    hammer(&[plain, ordered, single], true);
}

#[test]
fn an_item_may_queue_itself_a_thousand_times() {
    let queue = alone_on_two(queue("again"));
    let (again, count) = (queue.clone(), Count::default());
    let (runs, (send, receive)) = (count.clone(), mpsc::channel());
    let work = Work::with_handle(move |this| {
        runs.add();
        if runs.get() < 1000 {
            assert!(again.enqueue(this));
        } else {
            send.send(()).unwrap();
        }
    });
    assert!(queue.enqueue(&work));
    receive.recv_timeout(PATIENCE).expect("the chain broke");
    eventually("the last run ended", || !work.is_busy());
    assert_eq!(count.get(), 1000);
}

#[test]
fn an_item_without_handles_may_queue_itself_and_is_freed_after_the_last_run() {
    let queue = alone_on_two(queue("again"));
    let (again, census) = (queue.clone(), Census::default());
    let (life, (send, receive)) = (census.life(), mpsc::channel());
    let mut nr_left = 1000;
    let work = Work::with_handle(move |this| {
        let _ = &life;
        nr_left -= 1;
        if nr_left > 0 {
            assert!(again.enqueue(this));
        } else {
            send.send(()).unwrap();
        }
    });
    assert!(queue.enqueue(&work));
    drop(work);
    receive.recv_timeout(PATIENCE).expect("the chain broke");
    census.all_dropped(1);
}

#[test]
fn an_item_whose_handle_is_dropped_still_runs_and_is_freed_once() {
    let queue = alone_on_two(queue("orphan").max_active(1));
    let (census, count) = (Census::default(), Count::default());
    let plug = plug_into(&queue);
    for _ in 0..100 {
        let (life, count) = (census.life(), count.clone());
        let work = Work::new(move || {
            let _ = &life;
            count.add();
        });
        assert!(queue.enqueue(&work));
    }
    assert_eq!(census.dropped(), 0);
    plug.release();
    queue.drain().unwrap();
    assert_eq!(count.get(), 100);
    census.all_dropped(100);
}

#[test]
fn an_item_whose_handle_is_dropped_while_it_runs_is_freed_after_the_run() {
    let queue = alone_on_two(queue("orphan"));
    let (census, (plug, hole)) = (Census::default(), stopper());
    let life = census.life();
    let work = Work::new(move || {
        let _ = &life;
        hole.sit();
    });
    assert!(queue.enqueue(&work));
    plug.wait_until_stuck();
    drop(work);
    assert_eq!(census.dropped(), 0);
    plug.release();
    queue.drain().unwrap();
    census.all_dropped(1);
}

#[test]
fn an_idle_item_is_freed_with_its_last_handle() {
    let census = Census::default();
    let life = census.life();
    let work = Work::new(move || {
        let _ = &life;
    });
    let other = work.clone();
    drop(work);
    assert_eq!(census.dropped(), 0);
    drop(other);
    census.all_dropped(1);
}

#[test]
fn a_cancelled_item_without_handles_is_freed_when_its_place_is_reached() {
    let queue = alone_on_two(queue("tombstone").max_active(1));
    let plug = plug_into(&queue);
    let census = Census::default();
    for _ in 0..50 {
        let life = census.life();
        let work = Work::new(move || {
            let _ = &life;
        });
        assert!(queue.enqueue(&work));
        assert!(work.cancel());
    }
    plug.release();
    queue.drain().unwrap();
    census.all_dropped(50);
}

#[test]
fn a_run_may_keep_a_handle_of_an_item_that_has_none_left() {
    let queue = alone_on_two(queue("adopt"));
    let (census, (plug, hole)) = (Census::default(), stopper());
    let (life, (send, receive)) = (census.life(), mpsc::channel());
    let mut first = true;
    let work = Work::with_handle(move |this| {
        let _ = &life;
        if std::mem::take(&mut first) {
            hole.sit();
            send.send(this.clone()).unwrap();
        }
    });
    assert!(queue.enqueue(&work));
    plug.wait_until_stuck();
    drop(work);
    plug.release();
    let kept = receive.recv_timeout(PATIENCE).unwrap();
    queue.drain().unwrap();
    assert_eq!(census.dropped(), 0);
    assert!(queue.enqueue(&kept));
    kept.flush().unwrap();
    drop(kept);
    queue.drain().unwrap();
    census.all_dropped(1);
}

#[test]
fn a_handle_kept_by_a_run_survives_the_last_one_dropped_at_the_same_moment() {
    let queue = alone_on_two(queue("adopt").help(false));
    let census = Census::default();
    for _ in 0..3000 {
        let kept = Arc::new(Mutex::new(None));
        let (life, keep) = (census.life(), Arc::downgrade(&kept));
        let work = Work::with_handle(move |this| {
            let _ = &life;
            if let Some(keep) = keep.upgrade() {
                keep.lock().unwrap().get_or_insert_with(|| this.clone());
            }
        });
        assert!(queue.enqueue(&work));
        drop(work);
        queue.drain().unwrap();
        let before = census.dropped();
        let work = kept.lock().unwrap().take().expect("it has run");
        assert_eq!(census.alive(), 1, "freed although a handle is left");
        drop(work);
        queue.drain().unwrap();
        assert_eq!(census.dropped(), before + 1);
    }
    census.all_dropped(3000);
}

#[test]
fn run_sees_writes_of_the_enqueuer_and_of_the_previous_run() {
    let queue = alone_on_two(queue("visible"));
    // No two threads write a cell at the same time. A race detector reports an error if they do.
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let mut last = 0;
    let work = Work::new(move || {
        let now = WRITTEN.load(Ordering::Relaxed);
        assert!(now > last, "{now} after {last}");
        last = now;
    });
    for i in 1..20_000 {
        WRITTEN.store(i, Ordering::Relaxed);
        assert!(queue.enqueue(&work));
        work.flush().unwrap();
    }
}

#[test]
fn an_item_may_queue_other_items_on_any_queue() {
    let (first, second) = (
        alone_on_two(queue("first")),
        alone_on_two(queue("second").ordered()),
    );
    let count = Count::default();
    let others: Vec<_> = (0..100).map(|_| counting(&count)).collect();
    let (to, more) = (second.clone(), others.clone());
    first
        .spawn_detached(move || assert_eq!(to.enqueue_all(&more), 100))
        .unwrap();
    first.drain().unwrap();
    second.drain().unwrap();
    assert_eq!(count.get(), 100);
}

#[test]
fn an_item_is_the_current_one_in_its_run_alone() {
    ends(|| {
        let queue = alone_on_two(queue("current"));
        let seen = Arc::new(Mutex::new(None));
        assert!(workqueue::current_work().is_none());
        let sees = seen.clone();
        let inner = Work::new(|| assert!(workqueue::current_work().is_some_and(|it| it.is_busy())));
        let own = queue.clone();
        let outer = Work::new(move || {
            let before = workqueue::current_work().expect("it runs");
            own.enqueue(&inner);
            // If the item runs on this thread, it is the innermost one.
            inner.flush().unwrap();
            assert!(
                own.spawn(|| workqueue::current_work().is_none())
                    .join()
                    .unwrap()
            );
            *sees.lock().unwrap() = Some(before);
        });
        queue.enqueue(&outer);
        queue.drain().unwrap();
        let handle = seen.lock().unwrap().take().expect("it ran");
        assert!(queue.enqueue(&handle), "it is a handle like any other");
        queue.drain().unwrap();
        assert!(seen.lock().unwrap().is_some(), "it ran again");
    });
}

#[test]
fn an_item_that_goes_with_its_run_is_current_to_nobody_in_its_drop() {
    struct Asks(mpsc::Sender<bool>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let _ = self.0.send(workqueue::current_work().is_some());
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("current"));
        let (send, receive) = mpsc::channel();
        let asks = Asks(send);
        let work = Work::new(move || {
            let _ = &asks;
            drop(workqueue::current_work().expect("it runs"));
        });
        queue.enqueue(&work);
        drop(work);
        assert!(!receive.recv_timeout(PATIENCE).unwrap());
    });
}
