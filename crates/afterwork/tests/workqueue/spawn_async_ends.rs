//! The end of futures (ready, cancelled, panicked, without handle and wakers), and of their queue.

use crate::spawn_async::{Door, yields};
use crate::support::*;

/// Starts futures that wait for a door to open, and then count their end.
fn wait_at_a_door(queue: &Workqueue, nr: usize) -> (Door, Count) {
    let (door, ended) = (Door::default(), Count::default());
    for _ in 0..nr {
        let door = door.clone();
        drop(queue.spawn_async(async move {
            door.await;
            yields().await;
            ended.add();
        }));
    }
    wait_until(|| door.nr_waiting() == nr);
    (door, ended)
}

#[test]
fn drain_waits_for_futures_that_wait() {
    let queue = queue("drain").alone();
    let (door, ended) = wait_at_a_door(&queue, 3);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(ended.after_drain(&queue), 3);
        });
        door.open();
    });
}

#[test]
fn dropping_the_queue_waits_for_its_futures() {
    let queue = queue("drop").alone();
    let (door, ended) = wait_at_a_door(&queue, 1);
    let opener = thread::spawn(move || door.open());
    drop(queue);
    assert_eq!(ended.get(), 1);
    opener.join().unwrap();
}

#[test]
fn a_future_may_own_the_last_handle_of_its_queue() {
    for nr_waits in 0..3 {
        let queue = queue("own").alone();
        let (owned, ended) = (queue.clone(), Count::default());
        drop(queue.spawn_async(async move {
            for _ in 0..nr_waits {
                yields().await;
            }
            drop(owned);
            ended.add();
        }));
        drop(queue);
        wait_until(|| ended.get() == 1);
    }
    let queue = queue("cancel").capacity(1).paused();
    let inner = queue.clone();
    let mut handle = queue.spawn_async(async move { drop(inner) });
    drop(queue);
    assert!(handle.cancel());
    assert!(is_cancelled(handle.join()));
}

#[test]
fn a_worker_drops_a_cancelled_future_before_the_join_returns() {
    let queue = queue("cancel").alone();
    let (door, (send, receive)) = (Door::default(), mpsc::channel());
    let inside = door.clone();
    let guard = at_drop(move || send.send(thread::current().id()).unwrap());
    let mut handle = queue.spawn_async(async move {
        let _guard = guard;
        inside.await;
    });
    wait_until(|| door.nr_waiting() == 1);
    assert!(handle.cancel());
    assert!(is_cancelled(handle.join()));
    assert_ne!(receive.try_recv().expect("it is dropped"), thread::current().id());
}

#[test]
fn a_future_cancelled_before_its_first_poll_is_never_polled() {
    let (queue, plug) = queue("cancel").max_active(1).plugged();
    let mut handle = queue.spawn_async(async { unreachable!("cancelled") });
    assert!(handle.cancel());
    assert!(handle.is_finished() && !handle.cancel());
    plug.release();
    assert!(is_cancelled::<()>(handle.join()));
    assert_eq!(queue.drained().panicked, 0);
}

#[test]
fn futures_cancelled_before_their_first_poll_leave_no_memory() {
    for builder in
        [queue("cancel"), queue("cancel").capacity(1), queue("cancel").ordered().capacity(1)]
    {
        let queue = builder.paused();
        let kept = Arc::new(());
        // Each call of the closure creates 10 MiB of futures.
        retains_less_than(4096, "cancelled futures", || {
            for number in 0..10_000 {
                let theirs = (kept.clone(), [7_u8; 1024]);
                let future = async move { drop(theirs) };
                if number % 2 == 0 {
                    assert!(queue.spawn_async(future).cancel());
                } else {
                    let (handle, canceller) = cancellable(&queue, |task| task.spawn_async(future));
                    drop(handle);
                    assert!(canceller.cancel());
                }
                assert_eq!(Arc::strong_count(&kept), 1, "dropped by the cancel");
            }
        });
        assert_eq!(waiting(&queue), 0);
        queue.resume_and_drain();
    }
}

#[test]
fn a_cancel_before_the_first_poll_wakes_the_task_that_awaits() {
    let queue = queue("cancel").paused();
    let (mut handle, canceller) = cancellable(&queue, |task| task.spawn_async(pending::<()>()));
    let (waker, rings) = counting_waker();
    assert!(poll_with(&mut handle, &waker).is_pending());
    assert!(canceller.cancel());
    assert_eq!(rings.get(), 1);
    assert!(matches!(poll_with(&mut handle, &waker), Poll::Ready(Err(JoinError::Cancelled))));
}

#[test]
fn a_future_cancelled_in_its_poll_is_not_polled_again() {
    let (queue, polls) = (queue("cancel").alone(), Count::default());
    let (mut handle, plug) = stuck(|hole| {
        queue.spawn_async(poll_fn(move |context| {
            polls.add();
            hole.sit();
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }))
    });
    assert!(handle.cancel());
    plug.release();
    assert!(is_cancelled(handle.join()));
    assert_eq!(polls.get(), 1);
}

#[test]
fn a_future_that_ends_in_its_cancelled_poll_keeps_its_value() {
    let queue = queue("cancel").alone();
    let (mut handle, plug) = stuck(|hole| {
        queue.spawn_async(async move {
            hole.sit();
            9
        })
    });
    assert!(handle.cancel());
    plug.release();
    assert_eq!(handle.join().unwrap(), 9);
}

#[test]
fn a_future_that_has_ended_is_not_cancelled() {
    let queue = queue("cancel").alone();
    let mut handle = queue.spawn_async(async { 3 });
    queue.drain().unwrap();
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 3);
}

#[test]
fn a_panic_in_a_poll_reaches_the_joiner_and_drops_the_future() {
    let (queue, census) = (queue("panic").alone(), Census::default());
    let life = census.life();
    let handle = queue.spawn_async(async move {
        let _life = life;
        yields().await;
        panic!("in a poll");
    });
    assert_eq!(handle.join().unwrap_err().to_string(), "the work item panicked: in a poll");
    census.all_dropped(1);
    assert_eq!(queue.stats().panicked, 1);
}

#[test]
fn a_future_that_panics_as_it_is_dropped_panicked() {
    let queue = queue("panic").alone();
    let fuse = |text| at_drop(move || panic_any(text));
    let mut cancelled = queue.spawn_async(async move {
        let _fuse = fuse("a future");
        pending::<()>().await;
    });
    cancelled.cancel();
    assert!(matches!(cancelled.join(), Err(JoinError::Panicked(_) | JoinError::Cancelled)));
    queue.drain().unwrap();
    let before = queue.stats().panicked;
    // The drops of a future and of its value may both panic.
    for _ in 0..4 {
        let first = fuse("a future");
        let ready = queue.spawn_async(poll_fn(move |_| {
            let _ = &first;
            Poll::Ready(fuse("its value"))
        }));
        assert!(matches!(ready.join(), Err(JoinError::Panicked(_))));
    }
    assert_eq!(queue.drained().panicked, before + 4);
    // A waker that panics when it is dropped delays no drain.
    let mut handle = pending_in(&queue);
    let bomb = fuse("a waker");
    let waker = waker(move || _ = &bomb);
    assert!(poll_with(&mut handle, &waker).is_pending());
    // Only the handle keeps the waker now.
    drop(waker);
    drop(handle);
    queue.drain().unwrap();
}

#[test]
fn a_future_without_handle_and_wakers_is_dropped() {
    let (queue, census) = (queue("forlorn").alone(), Census::default());
    (0..20).for_each(|_| drop(queue.spawn_async(census.future())));
    queue.drain().unwrap();
    census.all_dropped(20);
}

#[test]
fn the_last_waker_of_a_detached_future_drops_it() {
    let queue = queue("forlorn").alone();
    let (door, census) = (Door::default(), Census::default());
    let (there, life) = (door.clone(), census.life());
    drop(queue.spawn_async(async move {
        let _life = life;
        there.await;
    }));
    wait_until(|| door.nr_waiting() == 1);
    let waker = door.0.lock().unwrap().1.pop().unwrap();
    // The future also owns the door, but no waker of its own task.
    assert_eq!(census.alive(), 1);
    drop(waker);
    census.all_dropped(1);
    queue.drain().unwrap();
}

#[test]
fn a_detached_future_that_a_waker_keeps_is_polled() {
    let queue = queue("detached").alone();
    let (door, ended) = wait_at_a_door(&queue, 1);
    door.open();
    assert_eq!(ended.after_drain(&queue), 1);
}

/// Starts a future that returns `value` when the door has been opened.
fn behind<T: Send + 'static>(queue: &Workqueue, door: &Door, value: T) -> JoinHandle<T> {
    let its = door.clone();
    let handle = queue.spawn_async(async move {
        its.await;
        value
    });
    wait_until(|| door.nr_waiting() == 1);
    handle
}

#[test]
fn a_waker_may_outlive_its_future_and_its_queue() {
    let (door, census) = (Door::default(), Census::default());
    let queue = queue("outlived").alone();
    let handle = behind(&queue, &door, census.life());
    let wakers: Vec<_> = (0..4).map(|_| door.waker()).collect();
    door.unlock();
    wakers[0].wake_by_ref();
    drop(handle.join().unwrap());
    census.all_dropped(1);
    drop(queue);
    wakers[1].wake_by_ref();
    drop(wakers[1].clone());
    threads(2, |_| wakers.iter().for_each(Waker::wake_by_ref));
    assert!(wakers[2].will_wake(&wakers[3]));
}

#[test]
fn a_result_without_a_handle_is_dropped() {
    let queue = queue("unwanted").alone();
    let (census, door) = (Census::default(), Door::default());
    // One future is detached before its end, and one after its end.
    drop(behind(&queue, &door, census.life()));
    let waker = door.waker();
    door.unlock();
    waker.wake_by_ref();
    let life = census.life();
    let after = queue.spawn_async(async move { life });
    queue.drain().unwrap();
    drop(after);
    census.all_dropped(2);
    drop(waker);
}
