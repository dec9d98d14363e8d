//! Drains, `destroy` and `pause`.

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
    let gauge = Gauge::default();
    gauge.crowd(&queue, 200);
    queue.resume();
    queue.flush().unwrap();
    assert!(gauge.most() <= 2);
}

#[test]
fn pausing_one_queue_leaves_others_of_the_same_pool_alone() {
    let [paused, other] = ["paused", "other"].map(queue).on(&registry("2 core"));
    paused.pause();
    let handle = paused.spawn(|| 1);
    assert_eq!(other.spawn(|| 2).join().unwrap(), 2);
    assert!(!handle.is_finished());
    paused.resume();
    assert_eq!(handle.join().unwrap(), 1);
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

#[test]
fn destroying_a_queue_cancels_its_delayed_items() {
    let [going, other] = ["going", "other"].map(|name| queue(name).alone());
    let (runs, lives) = (Count::default(), Census::default());
    let kept = DelayedWork::new(keeping(lives.life(), runs.adder()));
    let gone = DelayedWork::new(owning(lives.life()));
    assert!(going.enqueue_after(&kept, HOUR) && going.enqueue_after(&gone, HOUR));
    let awaits = RcuWork::new(owning(lives.life()));
    assert!(going.task().enqueue_rcu(&awaits));
    drop(gone);
    going.shutdown(Duration::MAX).unwrap();
    assert!(!kept.is_pending());
    assert_eq!(kept.flush(), Ok(false));
    assert!(!kept.cancel());
    assert!(other.enqueue_after(&kept, Duration::ZERO));
    // A worker may have run the item before.
    kept.flush().unwrap();
    assert_eq!(runs.get(), 1);
    assert!(!going.enqueue_after(&kept, Duration::ZERO));
    drop((kept, awaits));
    lives.all_dropped(3);
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
