//! The end of futures (ready, cancelled, panicked, without handle and wakers), and of their queue.

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
};

use afterwork::workqueue::JoinError;

use crate::{
    spawn_async::{Door, Lure, yields},
    support::*,
};

#[test]
fn drain_waits_for_futures_that_wait() {
    ends(|| {
        let queue = alone_on_two(queue("drain"));
        let (door, done) = (Door::default(), Count::default());
        for _ in 0..3 {
            let (door, done) = (door.clone(), done.clone());
            drop(queue.spawn_async(async move {
                door.pass().await;
                yields().await;
                done.add();
            }));
        }
        eventually("all wait", || door.nr_waiting() == 3);
        thread::scope(|scope| {
            scope.spawn(|| {
                queue.drain().unwrap();
                assert_eq!(done.get(), 3);
            });
            door.open();
        });
    });
}

#[test]
fn dropping_the_queue_waits_for_its_futures() {
    ends(|| {
        let queue = alone_on_two(queue("drop"));
        let (door, done) = (Door::default(), Count::default());
        let (there, counted) = (door.clone(), done.clone());
        drop(queue.spawn_async(async move {
            there.pass().await;
            counted.add();
        }));
        eventually("it waits", || door.nr_waiting() == 1);
        let opener = thread::spawn(move || door.open());
        drop(queue);
        assert_eq!(done.get(), 1);
        opener.join().unwrap();
    });
}

#[test]
fn a_future_may_own_the_last_handle_of_its_queue() {
    ends(|| {
        for nr_waits in 0..3 {
            let queue = alone_on_two(queue("own"));
            let owned = queue.clone();
            let (waits, ended) = (nr_waits, Count::default());
            let counted = ended.clone();
            drop(queue.spawn_async(async move {
                for _ in 0..waits {
                    yields().await;
                }
                drop(owned);
                counted.add();
            }));
            drop(queue);
            eventually("it ends", || ended.get() == 1);
        }
    });
}

#[test]
fn a_cancelled_future_that_waits_is_dropped_by_a_worker_before_the_join_returns() {
    ends(|| {
        struct Where(Arc<Mutex<Option<thread::ThreadId>>>);
        impl Drop for Where {
            fn drop(&mut self) {
                *self.0.lock().unwrap() = Some(thread::current().id());
            }
        }
        let queue = alone_on_two(queue("cancel"));
        let (door, place) = (Door::default(), Arc::new(Mutex::new(None)));
        let (inside, guard) = (door.clone(), Where(place.clone()));
        let mut handle = queue.spawn_async(async move {
            let _guard = guard;
            inside.pass().await;
        });
        eventually("it waits", || door.nr_waiting() == 1);
        assert!(handle.cancel());
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        let dropped_by = place.lock().unwrap().expect("it is dropped");
        assert_ne!(dropped_by, thread::current().id());
    });
}

#[test]
fn a_future_cancelled_before_its_first_poll_is_never_polled() {
    ends(|| {
        let queue = alone_on_two(queue("cancel").max_active(1));
        let (plug, polls) = (plug_into(&queue), Count::default());
        let counted = polls.clone();
        let mut handle = queue.spawn_async(async move { counted.add() });
        assert!(handle.cancel());
        assert!(handle.is_finished() && !handle.cancel());
        plug.release();
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        assert_eq!(polls.get(), 0);
    });
}

#[test]
fn futures_cancelled_before_their_first_poll_leave_no_memory() {
    ends(|| {
        for builder in [
            queue("cancel"),
            queue("cancel").capacity(1),
            queue("cancel").ordered().capacity(1),
        ] {
            let queue = alone_on_two(builder);
            queue.pause();
            let kept = Arc::new(());
            // Each call of the closure creates 10 MiB of futures.
            leaves_less_than(4096, "cancelled futures", || {
                for number in 0..10_000 {
                    let theirs = (kept.clone(), [7_u8; 1024]);
                    let future = async move { drop(theirs) };
                    if number % 2 == 0 {
                        assert!(queue.spawn_async(future).cancel());
                    } else {
                        let mut canceller = afterwork::workqueue::CancelHandle::default();
                        let handle = queue
                            .task()
                            .cancel_handle(&mut canceller)
                            .spawn_async(future);
                        drop(handle);
                        assert!(canceller.cancel());
                    }
                    assert_eq!(Arc::strong_count(&kept), 1, "dropped by the cancel");
                }
            });
            assert_eq!(queue.stats().nr_inactive, 0);
            queue.resume();
            queue.drain().unwrap();
        }
    });
}

#[test]
fn a_cancel_before_the_first_poll_wakes_the_task_that_awaits() {
    struct WakeFlag(Count);
    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.add();
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("cancel"));
        queue.pause();
        let mut canceller = afterwork::workqueue::CancelHandle::default();
        let mut handle = queue
            .task()
            .cancel_handle(&mut canceller)
            .spawn_async(pending::<()>());
        let rings = Count::default();
        let waker = Waker::from(Arc::new(WakeFlag(rings.clone())));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut handle).poll(&mut context).is_pending());
        assert!(canceller.cancel());
        assert_eq!(rings.get(), 1);
        let outcome = Pin::new(&mut handle).poll(&mut context);
        assert!(matches!(outcome, Poll::Ready(Err(JoinError::Cancelled))));
        queue.resume();
    });
}

#[test]
fn a_future_that_is_cancelled_may_own_the_last_handle_of_its_queue() {
    ends(|| {
        let queue = alone_on_two(queue("cancel").capacity(1));
        queue.pause();
        let inner = queue.clone();
        let mut handle = queue.spawn_async(async move { drop(inner) });
        drop(queue);
        assert!(handle.cancel());
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    });
}

#[test]
fn a_future_cancelled_in_its_poll_is_not_polled_again() {
    ends(|| {
        let queue = alone_on_two(queue("cancel"));
        let (plug, hole) = stopper();
        let polls = Count::default();
        let counted = polls.clone();
        let mut handle = queue.spawn_async(poll_fn(move |context| {
            counted.add();
            hole.sit();
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        plug.wait_until_stuck();
        assert!(handle.cancel());
        plug.release();
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        assert_eq!(polls.get(), 1);
    });
}

#[test]
fn a_future_that_ends_in_the_poll_in_which_it_was_cancelled_keeps_its_value() {
    ends(|| {
        let queue = alone_on_two(queue("cancel"));
        let (plug, hole) = stopper();
        let mut handle = queue.spawn_async(poll_fn(move |_| {
            hole.sit();
            Poll::Ready(9)
        }));
        plug.wait_until_stuck();
        assert!(handle.cancel());
        plug.release();
        assert_eq!(handle.join().unwrap(), 9);
    });
}

#[test]
fn a_future_that_has_ended_is_not_cancelled() {
    let queue = alone_on_two(queue("cancel"));
    let mut handle = queue.spawn_async(async { 3 });
    queue.drain().unwrap();
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 3);
}

#[test]
fn a_panic_in_a_poll_reaches_the_joiner_and_drops_the_future() {
    ends(|| {
        let queue = alone_on_two(queue("panic"));
        let census = Census::default();
        let life = census.life();
        let handle = queue.spawn_async(async move {
            let _life = life;
            yields().await;
            panic!("in a poll");
        });
        let error = handle.join().unwrap_err();
        assert_eq!(error.to_string(), "the work item panicked: in a poll");
        census.all_dropped(1);
        assert_eq!(queue.stats().panicked, 1);
    });
}

#[test]
fn a_future_that_panics_as_it_is_dropped_panicked() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("panic"));
        let mut cancelled = queue.spawn_async(async {
            let _bomb = Bomb;
            pending::<()>().await;
        });
        cancelled.cancel();
        let ready = queue.spawn_async(poll_fn({
            let bomb = Bomb;
            move |_| {
                let _ = &bomb;
                Poll::Ready(())
            }
        }));
        for handle in [cancelled, ready] {
            assert!(matches!(
                handle.join(),
                Err(JoinError::Panicked(_) | JoinError::Cancelled)
            ));
        }
        queue.drain().unwrap();
    });
}

#[test]
fn a_future_without_handle_and_wakers_is_dropped_and_not_waited_for() {
    ends(|| {
        let queue = alone_on_two(queue("forlorn"));
        let census = Census::default();
        for _ in 0..20 {
            let life = census.life();
            drop(queue.spawn_async(async move {
                let _life = life;
                pending::<()>().await;
            }));
        }
        queue.drain().unwrap();
        census.all_dropped(20);
    });
}

#[test]
fn the_last_waker_of_a_detached_future_takes_it_along() {
    ends(|| {
        let queue = alone_on_two(queue("forlorn"));
        let (door, census) = (Door::default(), Census::default());
        let (there, life) = (door.clone(), census.life());
        drop(queue.spawn_async(async move {
            let _life = life;
            there.pass().await;
        }));
        eventually("it waits", || door.nr_waiting() == 1);
        let waker = door.0.lock().unwrap().1.pop().unwrap();
        // The future also owns the door, but no waker of its own task.
        assert_eq!(census.alive(), 1);
        drop(waker);
        census.all_dropped(1);
        queue.drain().unwrap();
    });
}

#[test]
fn a_detached_future_that_a_waker_keeps_goes_on() {
    ends(|| {
        let queue = alone_on_two(queue("detached"));
        let (door, done) = (Door::default(), Count::default());
        let (there, counted) = (door.clone(), done.clone());
        drop(queue.spawn_async(async move {
            there.pass().await;
            counted.add();
        }));
        eventually("it waits", || door.nr_waiting() == 1);
        door.open();
        queue.drain().unwrap();
        assert_eq!(done.get(), 1);
    });
}

#[test]
fn a_waker_may_outlive_its_future_and_its_queue() {
    ends(|| {
        let lure = Lure::default();
        let queue = alone_on_two(queue("outlived"));
        let census = Census::default();
        let life = census.life();
        let handle = queue.spawn_async({
            let lure = lure.clone();
            async move {
                lure.await;
                life
            }
        });
        eventually("it is polled", || lure.is_polled());
        let wakers: Vec<_> = (0..4).map(|_| lure.waker().unwrap()).collect();
        lure.end();
        wakers[0].wake_by_ref();
        drop(handle.join().unwrap());
        census.all_dropped(1);
        drop(queue);
        wakers[1].wake_by_ref();
        drop(wakers[1].clone());
        threads(2, |_| wakers.iter().for_each(Waker::wake_by_ref));
        assert!(wakers[2].will_wake(&wakers[3]));
    });
}

#[test]
fn a_result_that_nobody_wants_is_dropped() {
    ends(|| {
        let queue = alone_on_two(queue("unwanted"));
        let (census, lure) = (Census::default(), Lure::default());
        // Detached before its end, and after its end.
        let life = census.life();
        let before = queue.spawn_async({
            let lure = lure.clone();
            async move {
                lure.await;
                life
            }
        });
        eventually("it is polled", || lure.is_polled());
        let waker = lure.waker().unwrap();
        drop(before);
        lure.end();
        waker.wake_by_ref();
        let life = census.life();
        let after = queue.spawn_async(async move { life });
        queue.drain().unwrap();
        drop(after);
        census.all_dropped(2);
        drop(waker);
    });
}

/// A waker whose drop panics.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any("the waker is dropped");
    }
}

#[test]
fn a_forlorn_future_whose_tasks_waker_panics_as_it_is_dropped_holds_up_no_drain() {
    ends(|| {
        let queue = alone_on_two(queue("forlorn"));
        let (send, polled) = mpsc::channel();
        let mut handle = queue.spawn_async(poll_fn(move |_| {
            send.send(()).unwrap();
            Poll::<()>::Pending
        }));
        polled.recv_timeout(PATIENCE).unwrap();
        let waker = Waker::from(Arc::new(Bomb));
        let poll = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        // Only the handle keeps the waker now.
        drop(waker);
        drop(handle);
        queue.drain().unwrap();
    });
}

#[test]
fn a_worker_survives_a_future_whose_drop_and_whose_value_both_panic() {
    struct Fuse(&'static str);
    impl Drop for Fuse {
        fn drop(&mut self) {
            std::panic::panic_any(self.0);
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("both"));
        for _ in 0..4 {
            let fuse = Fuse("the future");
            let handle = queue.spawn_async(poll_fn(move |_| {
                let _ = &fuse;
                Poll::Ready(Fuse("its value"))
            }));
            assert!(matches!(handle.join(), Err(JoinError::Panicked(_))));
        }
        queue.drain().unwrap();
        assert_eq!(queue.stats().panicked, 4);
    });
}
