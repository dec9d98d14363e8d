//! Flushes of an item.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    mpsc,
};

use afterwork::workqueue::{AffinityScope, FlushError, Work};

use crate::support::*;

#[test]
fn flush_of_an_idle_item_says_that_there_was_nothing() {
    let work = Work::new(|| ());
    assert_eq!(work.flush(), Ok(false));
}

#[test]
fn flush_waits_for_the_run_and_sees_what_it_wrote() {
    for help in [true, false] {
        let queue = alone_on_two(queue("flush").help(help));
        let written = Arc::new(AtomicUsize::new(0));
        let write = written.clone();
        let work = Work::new(move || {
            let before = write.load(Ordering::Relaxed);
            write.store(before + 1, Ordering::Relaxed);
        });
        for i in 1..5000 {
            assert!(queue.enqueue(&work));
            work.flush().unwrap();
            assert_eq!(written.load(Ordering::Relaxed), i);
        }
    }
}

#[test]
fn flush_waits_for_the_present_run_and_the_one_that_is_queued() {
    let queue = alone_on_two(queue("flush"));
    let (plug, hole) = stopper();
    let nr_ended = Count::default();
    let ended = nr_ended.clone();
    let work = Work::new(move || {
        hole.sit();
        ended.add();
    });
    assert!(queue.enqueue(&work));
    plug.wait_until_stuck();
    assert!(queue.enqueue(&work));
    let flusher = {
        let (work, nr_ended) = (work.clone(), nr_ended.clone());
        std::thread::spawn(move || {
            assert_eq!(work.flush(), Ok(true));
            nr_ended.get()
        })
    };
    eventually("the flusher sleeps", || is_slept_for(&work));
    plug.release();
    plug.wait_until_stuck();
    eventually("the flusher sleeps on", || is_slept_for(&work));
    plug.release();
    assert_eq!(flusher.join().unwrap(), 2);
}

#[test]
fn flush_does_not_wait_for_runs_that_are_queued_later() {
    ends(|| {
        let queue = alone_on_two(queue("flush"));
        let (again, stop) = (queue.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let work = Work::with_handle(move |this| {
            if !stopped.load(Ordering::SeqCst) {
                again.enqueue(this);
            }
        });
        queue.enqueue(&work);
        for _ in 0..100 {
            assert_eq!(work.flush(), Ok(true));
        }
        stop.store(true, Ordering::SeqCst);
        queue.drain().unwrap();
    });
}

#[test]
fn flush_waits_for_the_present_run_although_a_later_one_is_cancelled() {
    for ordered in [false, true] {
        let builder = if ordered {
            queue("flush").ordered()
        } else {
            queue("flush")
        };
        let queue = alone_on_two(builder);
        let ((plug, hole), over) = (stopper(), Arc::new(AtomicBool::new(false)));
        let ended = over.clone();
        let work = Work::new(move || {
            hole.sit();
            ended.store(true, Ordering::SeqCst);
        });
        assert!(queue.enqueue(&work));
        plug.wait_until_stuck();
        let flusher = {
            let work = work.clone();
            std::thread::spawn(move || {
                work.flush().unwrap();
                over.load(Ordering::SeqCst)
            })
        };
        eventually("the flusher sleeps", || is_slept_for(&work));
        assert!(queue.enqueue(&work));
        assert!(work.cancel());
        // Gives a flusher that wakes too early the time to return. The test passes without it.
        holds_within(std::time::Duration::from_millis(50), || {
            flusher.is_finished()
        });
        plug.release();
        assert!(
            flusher.join().unwrap(),
            "flush ended before the run that it waited for"
        );
        queue.drain().unwrap();
    }
}

#[test]
fn flush_of_a_pending_item_ends_when_it_is_cancelled() {
    for ordered in [false, true] {
        let builder = if ordered {
            queue("flush").ordered()
        } else {
            queue("flush").max_active(1)
        };
        let queue = alone_on_two(builder);
        let plug = plug_into(&queue);
        let work = Work::new(|| ());
        assert!(queue.enqueue(&work));
        let flusher = {
            let work = work.clone();
            std::thread::spawn(move || work.flush())
        };
        eventually("the flusher sleeps", || is_slept_for(&work));
        assert!(work.cancel());
        assert_eq!(flusher.join().unwrap(), Ok(true));
        plug.release();
        queue.drain().unwrap();
    }
}

#[test]
fn flush_of_a_running_and_pending_item_ends_when_the_pending_run_is_cancelled() {
    let queue = alone_on_two(queue("flush"));
    let (plug, hole) = stopper();
    let work = Work::new(move || hole.sit());
    assert!(queue.enqueue(&work));
    plug.wait_until_stuck();
    assert!(queue.enqueue(&work));
    let flusher = {
        let work = work.clone();
        std::thread::spawn(move || work.flush())
    };
    eventually("the flusher sleeps", || is_slept_for(&work));
    assert!(work.cancel());
    plug.release();
    ends(move || assert_eq!(flusher.join().unwrap(), Ok(true)));
}

#[test]
fn many_flushers_of_one_item_all_wake() {
    let queue = alone_on_two(queue("flush").help(false));
    let (plug, hole) = stopper();
    let work = Work::new(move || hole.sit());
    assert!(queue.enqueue(&work));
    plug.wait_until_stuck();
    let flushers: Vec<_> = (0..8)
        .map(|_| {
            let work = work.clone();
            std::thread::spawn(move || work.flush())
        })
        .collect();
    eventually("somebody sleeps", || is_slept_for(&work));
    plug.release();
    for flusher in flushers {
        flusher.join().unwrap().unwrap();
    }
}

#[test]
fn an_item_that_flushes_itself_is_told_so() {
    let queue = alone_on_two(queue("own"));
    let (send, receive) = mpsc::channel();
    let work = Work::with_handle(move |this| send.send(this.flush()).unwrap());
    queue.enqueue(&work);
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(Err(FlushError::OwnItem)));
    // The same holds if a helper runs the item, and if the item is pending again.
    let (again, (send, receive)) = (queue.clone(), mpsc::channel());
    let work = Work::with_handle(move |this| {
        if send.send(this.flush()).is_ok() {
            again.enqueue(this);
            let _ = send.send(this.flush());
        }
    });
    queue.enqueue(&work);
    work.flush().unwrap();
    for _ in 0..2 {
        assert_eq!(receive.recv_timeout(PATIENCE), Ok(Err(FlushError::OwnItem)));
    }
    drop(receive);
    queue.drain().unwrap();
}

#[test]
fn an_item_that_flushes_itself_from_within_one_that_it_helps_is_told_so() {
    ends(|| {
        let queue = alone_on_two(queue("own").max_active(1));
        let (inner_queue, (send, receive)) = (queue.clone(), mpsc::channel());
        let work = Work::with_handle(move |this| {
            let (outer, send) = (this.clone(), send.clone());
            // We hold the only seat, so no worker can run the inner item.
            let inner = Work::new(move || send.send(outer.flush()).unwrap());
            inner_queue.enqueue(&inner);
            inner.flush().unwrap();
        });
        queue.enqueue(&work);
        assert_eq!(
            receive.recv_timeout(PATIENCE / 4),
            Ok(Err(FlushError::OwnItem))
        );
        queue.drain().unwrap();
    });
}

#[test]
fn a_panicked_run_is_reported_and_a_good_one_clears_it() {
    for help in [true, false] {
        let queue = alone_on_two(queue("panics").help(help));
        let mut nr_runs = 0;
        let work = Work::new(move || {
            nr_runs += 1;
            assert!(nr_runs != 2, "the second run fails");
        });
        for outcome in [Ok(true), Err(FlushError::Panicked), Ok(true)] {
            let plug = (!help).then(|| plug_into(&queue));
            queue.enqueue(&work);
            let flusher = {
                let work = work.clone();
                std::thread::spawn(move || work.flush())
            };
            if let Some(plug) = plug {
                plug.release();
            }
            let flushed = flusher.join().unwrap();
            // The run may have ended before the flush began.
            assert!(
                flushed == outcome || flushed == Ok(false),
                "{flushed:?} for {outcome:?}"
            );
            queue.drain().unwrap();
        }
        assert_eq!(queue.stats().panicked, 1);
    }
}

#[test]
fn a_flush_that_helps_reports_the_panic() {
    let queue = alone_on_two(queue("panics").max_active(4));
    let work = Work::new(|| panic!("as told"));
    // With a limit of one, no worker can start the item before the flusher.
    queue.set_max_active(1).unwrap();
    let plug = plug_into(&queue);
    queue.enqueue(&work);
    let flusher = {
        let work = work.clone();
        std::thread::spawn(move || work.flush())
    };
    eventually("the flusher sleeps", || is_slept_for(&work));
    plug.release();
    assert_eq!(flusher.join().unwrap(), Err(FlushError::Panicked));
    assert_eq!(FlushError::Panicked.to_string(), "the work item panicked");
    assert_eq!(
        FlushError::OwnItem.to_string(),
        "a work item cannot wait for its own end"
    );
}

#[test]
fn flushing_from_another_item_lets_the_pool_go_on() {
    ends(|| {
        // The pool has one CPU and no helper runs the item: the flusher's worker sleeps, so another
        // worker must run the flushed item.
        let registry = registry("1 core");
        let queue = queue("chain")
            .help(false)
            .affinity(AffinityScope::System)
            .build_in(&registry)
            .unwrap();
        let count = Count::default();
        let mut work = counting(&count);
        queue.enqueue(&work);
        for _ in 0..20 {
            let (inner, again, count) = (work, queue.clone(), count.clone());
            work = Work::new(move || {
                again.enqueue(&inner);
                inner.flush().unwrap();
                count.add();
            });
        }
        queue.enqueue(&work);
        work.flush().unwrap();
        assert!(count.get() >= 21, "{}", count.get());
    });
}

#[test]
fn a_flush_tells_of_a_run_that_panicked_before_it() {
    let queue = alone_on_two(queue("panics"));
    let mut is_first = true;
    let work = Work::new(move || {
        if std::mem::take(&mut is_first) {
            std::panic::panic_any("the first run");
        }
    });
    assert_eq!(work.flush(), Ok(false));
    queue.enqueue(&work);
    queue.flush().unwrap();
    for _ in 0..2 {
        assert_eq!(work.flush(), Err(FlushError::Panicked));
    }
    queue.enqueue(&work);
    queue.flush().unwrap();
    assert_eq!(work.flush(), Ok(false));
}
