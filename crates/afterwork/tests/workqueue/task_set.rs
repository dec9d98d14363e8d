//! Task sets, and handles that can only cancel.

use crate::support::*;

#[test]
fn results_arrive_in_the_order_of_the_ends() {
    let queue = queue("set").alone();
    let (mut set, gates) = (TaskSet::new(&queue), [(); 4].map(|()| Count::default()));
    for (number, gate) in gates.into_iter().enumerate() {
        set.spawn(move || {
            wait_until(|| gate.get() == 1);
            number
        });
    }
    assert_eq!(set.len(), 4);
    assert!(set.try_join_next().is_none());
    for number in [2, 0, 3, 1] {
        gates[number].add();
        assert_eq!(set.join_next_blocking().unwrap().unwrap(), number);
    }
    assert!(set.is_empty() && set.join_next_blocking().is_none());
}

#[test]
fn closures_futures_panics_and_refusals_come_out_of_one_set() {
    let [queue, gone] = ["set", "gone"].map(|name| queue(name).alone());
    gone.shutdown(Duration::MAX).unwrap();
    let mut set = TaskSet::new(&queue);
    set.spawn(|| 1);
    set.spawn_async(async {
        sleep(SHORT).await;
        2
    });
    set.spawn(|| panic!("on purpose"));
    set.spawn_async(async { panic!("on purpose") });
    set.add(gone.spawn(|| 7));
    // This item has ended before it is added.
    let ended = queue.spawn(|| 4);
    wait_until(|| ended.is_finished());
    set.add(ended);
    let (mut sum, mut nr_panics, mut nr_refused) = (0, 0, 0);
    for result in set.results() {
        match result {
            Ok(number) => sum += number,
            Err(JoinError::Panicked(_)) => nr_panics += 1,
            Err(JoinError::Closed) => nr_refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((sum, nr_panics, nr_refused), (7, 2, 1));
}

#[test]
fn a_set_and_its_slots_are_used_again() {
    let queue = queue("set").alone();
    let mut set = TaskSet::new(&queue);
    let mut sum = 0;
    for round in 0..200 {
        for number in 0..round % 7 {
            set.spawn(move || number);
        }
        if round % 3 == 0 {
            sum += set.results().map(Result::unwrap).sum::<i32>();
        } else if let Some(result) = set.join_next_blocking() {
            sum += result.unwrap();
        }
    }
    sum += set.results().map(Result::unwrap).sum::<i32>();
    let expected: i32 = (0..200).map(|round| (0..round % 7).sum::<i32>()).sum();
    assert_eq!(sum, expected);
    // Detached items run, and the set can be used again.
    let (queue, count) = (self::queue("set").alone(), Count::default());
    let mut set = TaskSet::new(&queue);
    (0..3).for_each(|_| set.spawn(count.adder()));
    set.detach_all();
    assert!(set.is_empty());
    assert_eq!(count.after_drain(&queue), 3);
    set.spawn(|| ());
    assert!(set.join_next_blocking().unwrap().is_ok());
    assert!(set.try_join_next().is_none());
}

fn stuck_in_set(set: &mut TaskSet<()>) -> Plug {
    stuck(|hole| set.spawn(move || hole.sit())).1
}

#[test]
fn a_waiter_of_a_set_is_woken_once_for_each_end() {
    let queue = queue("set").alone();
    let mut set = TaskSet::new(&queue);
    let plugs = [(); 2].map(|()| stuck_in_set(&mut set));
    let mut nr_polls = 0;
    for plug in plugs {
        let waits = poll_fn(|context| {
            nr_polls += 1;
            let polled = set.poll_join_next(context);
            if polled.is_pending() {
                plug.release();
            }
            polled
        });
        block_on(waits).unwrap().unwrap();
    }
    assert!(nr_polls <= 4, "{nr_polls}");
}

#[test]
fn a_dropped_set_cancels_its_waiting_items_and_futures() {
    let queue = queue("set").max_active(1).alone();
    let (mut set, census) = (TaskSet::new(&queue), Census::default());
    (0..4).for_each(|_| set.spawn_async(census.future()));
    // With one seat, the futures have been polled when this item runs.
    queue.in_worker(|_| ());
    let plug = plug_into(&queue);
    (0..4).for_each(|_| set.spawn(keeping(census.life(), || unreachable!("cancelled"))));
    drop(set);
    // The canceller drops the closures.
    assert_eq!(census.alive(), 4);
    plug.release();
    census.all_dropped(8);
    assert_eq!(queue.drained().panicked, 0);
    // It cancels the others if the drop of one panics.
    let queue = self::queue("set").paused();
    let (mut set, census) = (TaskSet::new(&queue), Census::default());
    (0..3).for_each(|_| set.spawn(owning((bomb(), census.life()))));
    drop(set);
    census.all_dropped(3);
}

#[test]
fn aborted_items_still_come_out_of_a_set() {
    let queue = queue("set").max_active(1).alone();
    let mut set = TaskSet::new(&queue);
    let plug = stuck_in_set(&mut set);
    for _ in 0..3 {
        set.spawn(|| ());
        set.spawn_async(pending());
    }
    set.cancel_all();
    set.cancel_all();
    assert_eq!(set.len(), 7);
    (0..3).for_each(|_| assert!(is_cancelled(set.try_join_next().unwrap())));
    plug.release();
    let results = Vec::from_iter(set.results().map(|it| it.is_ok()));
    assert_eq!((results.len(), results.into_iter().filter(|it| *it).count()), (4, 1));
}

#[test]
fn cancelled_or_expired_items_wake_the_waiter_of_a_set() {
    let (queue, plug) = queue("set").max_active(1).plugged();
    let mut set = TaskSet::new(&queue);
    set.spawn(|| ());
    set.spawn_async(pending());
    let waiting = thread::spawn(move || set.results().collect::<Vec<_>>());
    assert_eq!(queue.cancel_all(), 2);
    let mut late = TaskSet::new(&queue);
    late.add(queue.task().deadline(Instant::now() + SHORT).spawn(|| ()));
    thread::sleep(2 * SHORT);
    plug.release();
    let results = waiting.join().unwrap();
    assert!(results.len() == 2 && results.into_iter().all(is_cancelled));
    assert!(has_expired(late.join_next_blocking().unwrap()));
    // A deadline wakes the waiter.
    let queue = self::queue("set").paused();
    let mut set = TaskSet::new(&queue);
    set.add(queue.task().deadline(Instant::now() + SHORT).spawn(|| 1));
    set.spawn(|| 2);
    let next = set.join_next_blocking();
    assert!(matches!(next, Some(Err(JoinError::Expired))), "{next:?}");
    assert!(set.try_join_next().is_none());
    queue.resume();
    assert_eq!(set.join_next_blocking().unwrap().unwrap(), 2);
    assert!(set.is_empty());
}

#[test]
fn item_started_by_its_deadline_leaves_a_set_once() {
    let queue = queue("set").alone();
    let result = before_deadline(|deadline| {
        let mut set = TaskSet::new(&queue);
        set.add(queue.task().deadline(deadline).spawn(move || {
            wait_until(|| Instant::now() > deadline);
            1
        }));
        let joined = set.join_next_blocking().unwrap();
        assert!(set.join_next_blocking().is_none());
        joined
    });
    assert_eq!(result, 1);
}

#[test]
fn a_task_that_waits_for_a_set_may_be_dropped_and_loses_nothing() {
    let queue = queue("set").alone();
    let mut set = TaskSet::new(&queue);
    let plug = stuck_in_set(&mut set);
    for _ in 0..3 {
        assert!(block_on(timeout(SHORT, async { set.join_next().await })).is_err());
    }
    plug.release();
    assert!(set.join_next_blocking().unwrap().is_ok());
}

#[test]
fn an_abort_handle_cancels_an_item_that_another_thread_joins() {
    let (queue, census) = (queue("abort").alone(), Census::default());
    let (handle, canceller) = cancellable(&queue, |task| task.spawn_async(census.future()));
    let other = canceller.clone();
    assert!(!canceller.is_finished());
    let joiner = thread::spawn(move || handle.join());
    assert!(other.cancel());
    assert!(is_cancelled(joiner.join().unwrap()));
    census.all_dropped(1);
    assert!(canceller.is_finished() && !canceller.cancel());
}

#[test]
fn an_abort_handle_outlives_the_join_handle() {
    let (queue, census) = (queue("abort").paused(), Census::default());
    let func = keeping(census.life(), || unreachable!("cancelled"));
    let (handle, canceller) = cancellable(&queue, |task| task.spawn(func));
    drop(handle);
    assert!(canceller.cancel());
    census.all_dropped(1);
    queue.resume_and_drain();
    assert_eq!(queue.stats().panicked, 0);
    let (handle, canceller) = cancellable(&queue, |task| task.spawn(|| 7));
    assert_eq!(handle.join().unwrap(), 7);
    assert!(!canceller.cancel());
    // The handle of a rejected item has no effect.
    queue.shutdown(Duration::MAX).unwrap();
    let (handle, canceller) = cancellable(&queue, |task| task.spawn(|| 7));
    assert!(canceller.is_finished() && !canceller.cancel());
    assert!(is_refused(handle.join()));
}

#[test]
fn a_future_without_wakers_stays_for_its_abort_handle() {
    let (queue, census) = (queue("abort").max_active(1).alone(), Census::default());
    let (handle, canceller) = cancellable(&queue, |task| task.spawn_async(census.future()));
    drop(handle);
    // With one seat, the future has been polled when this item runs.
    queue.in_worker(|_| ());
    assert_eq!(census.alive(), 1);
    drop(canceller);
    census.all_dropped(1);
}

#[test]
fn a_handle_whose_result_was_taken_yields_an_error() {
    let queue = queue("taken").alone();
    let spawns: [fn(&Workqueue) -> JoinHandle<i32>; 2] =
        [|queue| queue.spawn(|| 7), |queue| queue.spawn_async(async { 7 })];
    for spawn in spawns {
        let taken = || {
            let mut handle = spawn(&queue);
            assert_eq!(block_on(&mut handle).unwrap(), 7);
            handle
        };
        let is_taken = |joined| matches!(joined, Err(JoinError::Taken));
        let (mut handle, mut set) = (taken(), TaskSet::new(&queue));
        assert!(is_taken(block_on(&mut handle)));
        assert!(handle.is_finished() && !handle.cancel());
        set.add(handle);
        set.spawn(|| 8);
        let mut results: Vec<_> = set.results().map(|it| it.ok()).collect();
        results.sort();
        assert_eq!(results, [None, Some(8)]);
        assert!(set.is_empty() && set.join_next_blocking().is_none());
        assert!(is_taken(taken().join()));
        assert!(is_taken(taken().try_join().unwrap()));
    }
}
