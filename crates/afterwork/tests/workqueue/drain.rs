//! Drains, pauses, and shutdowns with a time limit.

use crate::support::*;

#[test]
fn a_drain_admits_items_of_the_queues_items_only() {
    let (queue, (work, count)) = (queue("drain").alone(), counted());
    let (_, plug) = stuck(|hole| {
        queue.spawn_own(move |own| {
            hole.sit();
            assert!(own.enqueue(&counting(count)));
            own.detach(count.adder());
        })
    });
    let drainer = drain_begun(&queue);
    assert!(!queue.enqueue(&work));
    assert_eq!(queue.task().enqueue_all(&[work.clone(), Work::new(|| ())]), 0);
    assert!(is_refused(queue.spawn(|| ()).join()));
    assert!(queue.spawn_detached(|| unreachable!("refused")).is_err());
    assert!(queue.stats().refused >= 5);
    plug.release_and_join(drainer);
    assert_eq!(count.get(), 2);
    assert!(queue.enqueue(&work), "it is over");
    queue.flush().unwrap();
    assert_eq!(count.get(), 3);
}

#[test]
fn rejected_closure_is_returned_or_dropped() {
    let (queue, lives) = (queue("destroyed").alone(), Census::default());
    queue.shutdown(Duration::MAX).unwrap();
    let refused = queue.try_spawn(lives.closure()).unwrap_err();
    assert_eq!(refused.to_string(), "the workqueue is being drained, or is shut down");
    drop(queue.spawn(lives.closure()));
    drop(queue.spawn_detached(lives.closure()));
    assert_eq!(lives.alive(), 1);
    refused.into_inner()();
    lives.all_dropped(3);
}

#[test]
fn destroy_runs_queued_items_and_rejects_later_ones() {
    let (queue, count) = (queue("destroy").alone(), Count::default());
    count.spawn(100, &queue);
    queue.shutdown(Duration::MAX).unwrap();
    assert_eq!(count.get(), 100);
    let work = counting(count);
    assert!(!queue.enqueue(&work) && !work.is_busy());
    assert!(!queue.enqueue_after(&DelayedWork::new(|| ()), Duration::ZERO));
    queue.drain().unwrap();
    assert!(!queue.enqueue(&work), "a drain does not bring it back");
    queue.shutdown(Duration::MAX).unwrap();
}

fn refused_in_own_item(wait: fn(&Workqueue) -> Result<(), OwnQueueError>) {
    let queue = queue("own").max_active(1).alone();
    let error = queue.spawn_own(wait).join().unwrap().unwrap_err();
    assert_eq!(error.queue(), "own");
    assert_eq!(error.to_string(), "an item of workqueue \"own\" cannot wait for its own queue");
    assert_eq!(queue.in_worker(wait), Err(error));
    queue.drain().unwrap();
    assert!(queue.enqueue(&Work::new(|| ())));
}

#[test]
fn draining_a_queue_from_its_own_item_is_rejected() {
    refused_in_own_item(Workqueue::drain);
}

#[test]
fn flushing_a_queue_from_its_own_item_is_rejected_by_name() {
    refused_in_own_item(Workqueue::flush);
}

#[test]
fn shutting_a_queue_down_from_its_own_item_is_rejected_by_name() {
    refused_in_own_item(|queue| match queue.shutdown(Duration::MAX) {
        Err(DrainError::OwnQueue(error)) => Err(error),
        ended => panic!("{ended:?}"),
    });
}

#[test]
fn a_paused_queue_starts_nothing_until_it_is_resumed() {
    let (queue, plug) = queue("pause").plugged();
    assert!(queue.pause() && !queue.pause());
    let (work, count) = counted();
    assert!(queue.enqueue(&work));
    plug.release();
    wait_until(|| queue.stats().nr_active == 0);
    let flusher = beside(&work, |work| work.flush());
    wait_until(|| is_slept_for(&work));
    assert_eq!(count.get(), 0);
    assert!(queue.resume() && !queue.resume());
    assert_eq!(flusher.join().unwrap(), Ok(true));
    assert_eq!(count.get(), 1);
}

#[test]
fn a_limit_changed_while_paused_holds_after_it() {
    let queue = queue("pause").max_active(8).help(false).paused();
    queue.set_max_active(2).unwrap();
    assert_eq!(queue.stats().max_active, 2);
    assert!(concurrency(&queue, 200) <= 2);
}

#[test]
fn dropping_the_last_handle_of_a_paused_queue_resumes_it() {
    let (queue, count) = (queue("pause").paused(), Count::default());
    queue.detach(count.adder());
    drop(queue);
    assert_eq!(count.get(), 1);
}

#[test]
fn a_drain_of_many_rounds_is_reported_with_the_item() {
    let registry = registry("2 core");
    let reports = reports(&registry);
    let (queue, stop) = (queue("busy").help(false).on(&registry), Count::default());
    // With six items, one is always in flight, and no scan misses all of them.
    (0..6).for_each(|_| _ = queue.enqueue(&restless(&queue, stop)));
    let drainer = beside(&queue, |queue| queue.drain().unwrap());
    let long = reports.iter().filter_map(|report| match report {
        Report::LongDrain { queue, rounds, item } => Some((queue, rounds, item)),
        _ => None,
    });
    let mut is_named = false;
    let expected = [10].into_iter().chain((100..=1000).step_by(100));
    for (expected, (queue, rounds, item)) in expected.zip(long) {
        assert_eq!((queue.as_str(), rounds), ("busy", expected));
        if let Some(item) = item {
            is_named = true;
            assert!(item.func.contains("restless"), "{item}");
        }
        if expected >= 200 && is_named {
            break;
        }
    }
    stop.add();
    drainer.join().unwrap();
    assert!(is_named, "one of all scans finds an item");
}

#[test]
fn drain_delayed_by_items_for_some_rounds_is_not_reported() {
    let registry = registry("2 core");
    let reports = reports(&registry);
    let queue = queue("chain").help(false).on(&registry);
    let (again, mut nr_left) = (queue.clone(), 9);
    queue.enqueue(&Work::with_handle(move |this| {
        nr_left -= 1;
        if nr_left > 0 {
            again.enqueue(this);
        }
    }));
    queue.drain().unwrap();
    assert!(reports.try_recv().is_err());
}

/// Takes a second if the cost of a wait is constant, and minutes if each wait examines all others.
#[test]
fn very_many_tasks_await_a_drain() {
    let queue = queue("many").paused();
    let handle = queue.spawn(|| ());
    let mut drains: Vec<_> = (0..200_000).map(|_| queue.drain_async()).collect();
    for _ in 0..2 {
        for drain in &mut drains {
            assert!(poll_with(drain, Waker::noop()).is_pending());
        }
    }
    // Each of the remaining tasks is woken and finds the queue drained.
    drains.truncate(20_000);
    queue.resume();
    handle.join().unwrap();
    drains.into_iter().for_each(|it| block_on(it).unwrap());
}

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
        let items = queue.spawn_own(|own| own.spawn(move || send.send(7).unwrap()));
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
    let shutdowns: [fn(&[&Workqueue]) -> usize; 2] = [
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
