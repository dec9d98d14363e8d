//! Shutdowns with a time limit, alone and in order, for threads and for tasks.

use crate::shutdown::nr_left;
use crate::support::*;

type Shutdown = fn(&Workqueue, Duration) -> Result<(), DrainError>;

/// The blocking and the asynchronous function that shut down a queue.
const SHUTDOWNS: [Shutdown; 2] =
    [Workqueue::shutdown, |queue, limit| block_on(queue.shutdown_async(limit))];

/// A failed save that is tried again must not be lost without an error.
#[test]
fn own_item_cannot_arm_a_timer_while_its_queue_shuts_down() {
    let (queue, count) = (one_seat("retry").alone(), Count::default());
    let save = DelayedWork::new(count.adder());
    let again = save.clone();
    let (attempt, plug) = stuck(|hole| {
        queue.spawn_own(move |own| {
            hole.sit();
            assert!(own.reschedule(&again, HOUR).unwrap_err().is_closed());
            assert!(!own.enqueue_after(&again, HOUR));
            assert_eq!(own.reschedule(&again, Duration::ZERO), Ok(true));
        })
    });
    let ending = beside(&queue, |queue| queue.shutdown(PATIENCE));
    wait_until(|| queue.try_spawn(|| ()).is_err());
    plug.release_and_join(ending).unwrap();
    attempt.join().unwrap();
    assert_eq!((count.get(), save.is_pending()), (1, false));
}

#[test]
fn shutdown_cancels_and_names_the_items_left_at_its_limit() {
    for shutdown in SHUTDOWNS {
        let (queue, open) = one_seat("busy").plugged();
        let waits = queue.spawn(|| ());
        let saves = [(); 3].map(|()| DelayedWork::new(|| unreachable!("it is cancelled")));
        assert!(saves.iter().all(|save| queue.enqueue_after(save, HOUR)));
        let busy = still_busy(shutdown(&queue, SHORT)).unwrap();
        assert_eq!((busy.queue.as_str(), busy.nr_left), ("busy", 5));
        let states: Vec<_> = busy.left.iter().map(|left| (left.doing, left.count)).collect();
        assert_eq!(states, [(Doing::Runs, 1), (Doing::IsQueued, 1), (Doing::IsDelayed, 3)]);
        let func = busy.left[2].func.unwrap();
        assert!(func.contains("shutdown_cancels_and_names"), "{func}");
        assert!(busy.to_string().ends_with(&format!("3 of {func} are delayed")), "{busy}");
        assert!(!saves.iter().any(DelayedWork::is_pending));
        assert!(is_cancelled(waits.join()));
        assert!(queue.try_spawn(|| ()).is_err(), "it stays closed");
        drop(open);
    }
}

#[test]
fn a_shutdown_waits_for_items_and_for_those_that_they_queue() {
    for shutdown in SHUTDOWNS {
        let queue = one_seat("done").paused();
        let (send, receive) = mpsc::channel();
        let own = queue.clone();
        let items = queue.spawn(move || own.spawn(move || send.send(7).unwrap()));
        let delayed = DelayedWork::new(|| unreachable!("it is cancelled"));
        queue.enqueue_after(&delayed, HOUR);
        shutdown(&queue, PATIENCE).unwrap();
        assert_eq!(receive.recv(), Ok(7));
        assert!(items.join().unwrap().join().is_ok());
        assert!(!delayed.is_pending());
        assert!(queue.try_spawn(|| ()).is_err());
    }
}

#[test]
fn a_queue_that_feeds_another_is_drained_first() {
    type Shutdown = fn(&[&Workqueue]) -> usize;
    let shutdowns: [Shutdown; 2] = [
        |queues| shutdown_in_order(queues, PATIENCE).unwrap().len(),
        |queues| block_on(shutdown_in_order_async(queues, PATIENCE)).unwrap().len(),
    ];
    for shutdown in shutdowns {
        let (parse, store) = (one_seat("parse").alone(), one_seat("store").alone());
        let open = plug_into(&parse);
        let spawn = |number| {
            let store = store.clone();
            parse.spawn(move || store.spawn(move || number))
        };
        let handles: Vec<_> = (0..100).map(spawn).collect();
        let opener = thread::spawn(move || drop(open));
        assert_eq!(shutdown(&[&parse, &store]), 0);
        opener.join().unwrap();
        assert!(handles.into_iter().map(|it| it.join().unwrap().join().unwrap()).eq(0..100));
    }
}

#[test]
fn at_the_limit_later_queues_are_closed_and_cancelled_too() {
    let (first, second, third) =
        (one_seat("first").alone(), one_seat("second").alone(), one_seat("third").alone());
    let gates = [plug_into(&second), plug_into(&third)];
    let waits = third.spawn(|| ());
    let delayed = DelayedWork::new(|| unreachable!("it is cancelled"));
    assert!(third.enqueue_after(&delayed, HOUR));
    let left = shutdown_in_order(&[&first, &second, &third], SHORT).unwrap();
    let names: Vec<_> = left.iter().map(|it| (&*it.queue, it.nr_left)).collect();
    assert_eq!(names, [("second", 1), ("third", 3)]);
    assert!(is_cancelled(waits.join()));
    assert!(third.try_spawn(|| ()).is_err());
    drop(gates);
    // An item of one of the queues shuts none down.
    let (one, other) = (one_seat("one").alone(), one_seat("other").alone());
    let queues = (other.clone(), one.clone());
    let refused = one.spawn(move || shutdown_in_order(&[&queues.0, &queues.1], PATIENCE).is_err());
    assert!(refused.join().unwrap());
    assert_eq!(other.spawn(|| 7).join().unwrap(), 7);
    assert!(workqueue::system().unwrap().shutdown(SHORT).is_err());
}

#[test]
fn drain_of_a_task_names_the_items_left_at_its_limit() {
    let (queue, is_polled) = (one_seat("waits").alone(), Count::default());
    let mut handle = queue.spawn_async(async move {
        is_polled.add();
        pending::<()>().await;
    });
    wait_until(|| is_polled.get() > 0);
    // The poll may still be running.
    wait_until(|| nr_left(&queue, Doing::Waits) == 1);
    assert_eq!(block_on(workqueue::timeout(SHORT, queue.drain_async())), Err(workqueue::Elapsed));
    let busy = still_busy(queue.drain_timeout(Duration::ZERO)).unwrap();
    assert_eq!((busy.nr_left, busy.left[0].doing), (1, Doing::Waits));
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7, "it is open again");
    assert!(handle.cancel());
    block_on(workqueue::timeout(PATIENCE, queue.drain_async())).unwrap().unwrap();
}

#[test]
fn the_closures_of_strands_are_cancelled_at_the_limit() {
    let queue = one_seat("strands").alone();
    let strand = queue.strand(());
    let (open, hole) = stopper();
    strand.spawn_detached(move |()| hole.sit()).unwrap();
    let waits = strand.spawn(|()| ());
    let other = queue.strand(()).spawn(|()| ());
    open.wait_until_stuck();
    assert!(queue.shutdown(SHORT).is_err());
    assert!(is_cancelled(other.join()));
    assert!(!waits.is_finished());
    drop(open);
    assert!(is_cancelled(waits.join()));
}

#[test]
fn a_shutdown_at_its_limit_reaches_the_items_that_run() {
    let (queue, started) = (queue("cancelled").help(false).alone(), Count::default());
    let sleeper = queue.spawn(move || {
        let token = CancellationToken::current();
        started.add();
        token.wait_timeout(HOUR)
    });
    queue.detach(move || {
        started.add();
        wait_until(workqueue::is_cancelled);
    });
    wait_until(|| started.get() == 2);
    let busy = queue.shutdown(Duration::ZERO).unwrap_err();
    assert!(busy.to_string().contains("still has 2 items"), "{busy}");
    assert!(sleeper.join().unwrap());
}
