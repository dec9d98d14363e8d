//! Task sets, and handles that can only cancel.

use std::{
    future::pending,
    sync::mpsc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{JoinError, TaskSet, Workqueue, block_on, sleep};

use crate::support::*;

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn results_come_in_the_order_in_which_the_items_end() {
    let queue = alone_on_two(queue("set"));
    let mut set = TaskSet::new(&queue);
    let mut gates = Vec::new();
    for number in 0..4 {
        let (open, gate) = mpsc::channel::<()>();
        set.spawn(move || {
            let _ = gate.recv();
            number
        });
        gates.push(Some(open));
    }
    assert_eq!(set.len(), 4);
    assert!(set.try_join_next().is_none());
    for number in [2, 0, 3, 1] {
        gates[number] = None;
        assert_eq!(set.join_next_blocking().unwrap().unwrap(), number);
    }
    assert!(set.is_empty() && set.join_next_blocking().is_none());
}

#[test]
fn closures_futures_panics_and_refusals_come_out_of_one_set() {
    let queue = alone_on_two(queue("set"));
    let gone = alone_on_two(crate::support::queue("gone"));
    gone.destroy().unwrap();
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
    eventually("it has ended", || ended.is_finished());
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
fn a_set_is_used_again_and_again_and_its_places_too() {
    let queue = alone_on_two(queue("set"));
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
}

#[test]
fn who_waits_for_the_set_is_woken_once_for_what_ends_meanwhile() {
    let queue = alone_on_two(queue("set"));
    let mut set = TaskSet::new(&queue);
    let plugs: Vec<_> = (0..2)
        .map(|_| {
            let (plug, hole) = stopper();
            set.spawn(move || hole.sit());
            plug
        })
        .collect();
    let mut nr_polls = 0;
    for plug in plugs {
        plug.wait_until_stuck();
        let waits = std::future::poll_fn(|context| {
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
fn a_set_that_is_dropped_cancels_what_has_not_started_and_its_futures() {
    let queue = alone_on_two(queue("set").max_active(1));
    let census = Census::default();
    let mut set = TaskSet::new(&queue);
    let started = Count::default();
    for _ in 0..4 {
        let (life, started) = (census.life(), started.clone());
        set.spawn_async(async move {
            let _life = life;
            started.add();
            pending::<()>().await;
        });
    }
    eventually("all wait", || started.get() == 4);
    let plug = plug_into(&queue);
    let never = Count::default();
    for _ in 0..4 {
        let (life, never) = (census.life(), never.clone());
        set.spawn(move || {
            let _life = &life;
            never.add();
        });
    }
    drop(set);
    // The canceller drops the closures.
    assert_eq!((census.alive(), never.get()), (4, 0));
    plug.release();
    census.all_dropped(8);
    queue.drain().unwrap();
    assert_eq!(never.get(), 0);
}

#[test]
fn what_is_aborted_still_comes_out_and_what_ran_goes_on() {
    let queue = alone_on_two(queue("set").max_active(1));
    let mut set = TaskSet::new(&queue);
    let (plug, hole) = stopper();
    set.spawn(move || hole.sit());
    plug.wait_until_stuck();
    for _ in 0..3 {
        set.spawn(|| ());
        set.spawn_async(pending());
    }
    set.cancel_all();
    set.cancel_all();
    assert_eq!(set.len(), 7);
    for _ in 0..3 {
        let cancelled = set.try_join_next().unwrap();
        assert!(matches!(cancelled, Err(JoinError::Cancelled)));
    }
    plug.release();
    let results: Vec<_> = set.results().collect();
    assert_eq!(results.len(), 4);
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 1);
}

#[test]
fn what_its_queue_cancels_or_lets_expire_wakes_who_waits_for_the_set() {
    let queue = alone_on_two(queue("set").max_active(1));
    let plug = plug_into(&queue);
    let mut set = TaskSet::new(&queue);
    set.spawn(|| ());
    set.spawn_async(pending());
    let waiting = thread::spawn(move || set.results().collect::<Vec<_>>());
    assert_eq!(queue.cancel_all(), 2);
    let mut late = TaskSet::new(&queue);
    late.add(queue.task().deadline(Instant::now() + SHORT).spawn(|| ()));
    thread::sleep(2 * SHORT);
    plug.release();
    let is_cancelled = |result: &Result<_, _>| matches!(result, Err(JoinError::Cancelled));
    let results = waiting.join().unwrap();
    assert!(results.len() == 2 && results.iter().all(is_cancelled));
    let expired = late.join_next_blocking().unwrap();
    assert!(matches!(expired, Err(JoinError::Expired)));
}

#[test]
fn the_deadline_of_what_cannot_start_wakes_who_waits_for_the_set() {
    let queue = alone_on_two(queue("set"));
    queue.pause();
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
fn what_has_started_by_its_deadline_comes_out_of_a_set_once() {
    let queue = alone_on_two(queue("set"));
    let mut set = TaskSet::new(&queue);
    let deadline = Instant::now() + 5 * SHORT;
    let (begun, has_begun) = mpsc::channel();
    set.add(queue.task().deadline(deadline).spawn(move || {
        begun.send(()).unwrap();
        // Runs past the deadline.
        while Instant::now() < deadline + 2 * SHORT {
            thread::yield_now();
        }
        1
    }));
    match has_begun.recv() {
        Ok(()) => assert_eq!(set.join_next_blocking().unwrap().unwrap(), 1),
        // The item did not start in time, because the machine is busy.
        Err(_) => assert!(set.join_next_blocking().unwrap().is_err()),
    }
    assert!(set.join_next_blocking().is_none());
}

#[test]
fn a_closure_whose_drop_panics_keeps_no_other_from_being_cancelled() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("on purpose");
            }
        }
    }
    let queue = alone_on_two(queue("set").max_active(1));
    let plug = plug_into(&queue);
    let census = Census::default();
    let mut set = TaskSet::new(&queue);
    for _ in 0..3 {
        let (bomb, life) = (Bomb, census.life());
        set.spawn(move || drop((bomb, life)));
    }
    drop(set);
    census.all_dropped(3);
    plug.release();
}

#[test]
fn what_is_detached_goes_on() {
    let queue = alone_on_two(queue("set"));
    let count = Count::default();
    let mut set = TaskSet::new(&queue);
    for _ in 0..3 {
        let count = count.clone();
        set.spawn(move || count.add());
    }
    set.detach_all();
    assert!(set.is_empty());
    queue.drain().unwrap();
    assert_eq!(count.get(), 3);
    set.spawn(|| ());
    assert!(set.join_next_blocking().unwrap().is_ok());
    assert!(set.try_join_next().is_none());
}

#[test]
fn a_task_that_waits_for_a_set_may_be_dropped_and_loses_nothing() {
    let queue = alone_on_two(queue("set"));
    let mut set = TaskSet::new(&queue);
    let (plug, hole) = stopper();
    set.spawn(move || hole.sit());
    plug.wait_until_stuck();
    for _ in 0..3 {
        let waits = async { set.join_next().await };
        assert!(block_on(afterwork::workqueue::timeout(SHORT, waits)).is_err());
    }
    plug.release();
    assert!(set.join_next_blocking().unwrap().is_ok());
}

#[test]
fn an_abort_handle_cancels_what_somebody_else_joins() {
    let queue = alone_on_two(queue("abort"));
    let census = Census::default();
    let life = census.life();
    let mut canceller = afterwork::workqueue::CancelHandle::default();
    let handle = queue
        .task()
        .cancel_handle(&mut canceller)
        .spawn_async(async move {
            let _life = life;
            pending::<()>().await;
        });
    let other = canceller.clone();
    assert!(!canceller.is_finished());
    let joiner = thread::spawn(move || handle.join());
    assert!(other.cancel());
    assert!(matches!(joiner.join().unwrap(), Err(JoinError::Cancelled)));
    census.all_dropped(1);
    assert!(canceller.is_finished() && !canceller.cancel());
}

#[test]
fn an_abort_handle_outlives_the_join_handle_and_cancels_a_closure_that_has_not_started() {
    let queue = alone_on_two(queue("abort").max_active(1));
    let plug = plug_into(&queue);
    let (census, count) = (Census::default(), Count::default());
    let life = census.life();
    let runs = count.clone();
    let mut canceller = afterwork::workqueue::CancelHandle::default();
    let handle = queue.task().cancel_handle(&mut canceller).spawn(move || {
        let _life = &life;
        runs.add();
    });
    drop(handle);
    assert!(canceller.cancel());
    plug.release();
    census.all_dropped(1);
    queue.drain().unwrap();
    assert_eq!(count.get(), 0);
    let mut canceller = afterwork::workqueue::CancelHandle::default();
    let handle = queue.task().cancel_handle(&mut canceller).spawn(|| 7);
    assert_eq!(handle.join().unwrap(), 7);
    assert!(!canceller.cancel());
}

#[test]
fn an_abort_handle_of_what_was_refused_has_nothing_to_do() {
    let queue = alone_on_two(queue("abort"));
    queue.destroy().unwrap();
    let mut canceller = afterwork::workqueue::CancelHandle::default();
    let handle = queue.task().cancel_handle(&mut canceller).spawn(|| 7);
    assert!(canceller.is_finished() && !canceller.cancel());
    assert!(matches!(handle.join(), Err(JoinError::Closed)));
}

#[test]
fn a_future_that_nobody_can_wake_stays_for_its_abort_handle() {
    let queue = alone_on_two(queue("abort"));
    let census = Census::default();
    let life = census.life();
    let polled = Count::default();
    let polls = polled.clone();
    let mut life = Some(life);
    let mut canceller = afterwork::workqueue::CancelHandle::default();
    let handle = queue
        .task()
        .cancel_handle(&mut canceller)
        .spawn_async(std::future::poll_fn(move |_| {
            let _life = &mut life;
            polls.add();
            Poll::<()>::Pending
        }));
    drop(handle);
    eventually("it waits", || polled.get() == 1);
    assert_eq!(census.alive(), 1);
    drop(canceller);
    census.all_dropped(1);
}

#[test]
fn a_handle_whose_result_was_taken_yields_an_error() {
    ends(|| {
        let queue = alone_on_two(queue("taken"));
        for is_future in [false, true] {
            let spawn = |queue: &Workqueue| {
                if is_future {
                    queue.spawn_async(async { 7 })
                } else {
                    queue.spawn(|| 7)
                }
            };
            let mut handle = spawn(&queue);
            assert_eq!(block_on(&mut handle).unwrap(), 7);
            assert!(matches!(block_on(&mut handle), Err(JoinError::Taken)));
            assert!(handle.is_finished() && !handle.cancel());
            let mut set = TaskSet::new(&queue);
            set.add(handle);
            set.spawn(|| 8);
            let mut results: Vec<_> = set.results().map(|it| it.ok()).collect();
            results.sort();
            assert_eq!(results, [None, Some(8)]);
            assert!(set.is_empty() && set.join_next_blocking().is_none());
            for taken in [0, 1] {
                let mut handle = spawn(&queue);
                block_on(&mut handle).unwrap();
                let joined = match taken {
                    0 => handle.join(),
                    _ => handle.try_join().unwrap(),
                };
                assert!(matches!(joined, Err(JoinError::Taken)));
            }
        }
    });
}
