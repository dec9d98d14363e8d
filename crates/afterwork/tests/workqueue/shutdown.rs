//! Bulk cancels, drains with a timeout, asynchronous drains, and queues that end in the background.

use std::{
    future,
    pin::pin,
    sync::{Arc, Mutex, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use afterwork::{
    rcu,
    workqueue::{
        AffinityScope, CpuId, DelayedWork, Doing, DrainError, JoinError, RcuWork, Registry,
        StillBusy, Work, Workqueue, block_on,
    },
};

use crate::support::*;

const LATER: Duration = Duration::from_secs(3600);
const TICK: Duration = Duration::from_micros(100);

/// Builds a paused queue.
fn paused() -> Workqueue {
    let queue = alone_on_two(queue("shutdown"));
    queue.pause();
    queue
}

fn is_cancelled<T>(outcome: Result<T, JoinError>) -> bool {
    matches!(outcome, Err(JoinError::Cancelled))
}

#[test]
fn all_that_is_queued_is_cancelled_and_its_joiners_are_told() {
    ends(|| {
        let (lives, count) = (Census::default(), Count::default());
        let queue = paused();
        let handles: Vec<_> = (0..50)
            .map(|i| {
                let life = lives.life();
                queue.spawn(move || (i, drop(life)))
            })
            .collect();
        for _ in 0..50 {
            let life = lives.life();
            queue.spawn_detached(move || drop(life)).unwrap();
        }
        let works: Vec<_> = (0..50).map(|_| counting(&count)).collect();
        assert_eq!(queue.enqueue_all(&works), 50);
        drop(queue.spawn(|| unreachable!("nobody joins it, and it is cancelled")));
        assert_eq!(queue.cancel_all(), 151);
        assert_eq!((lives.alive(), lives.dropped()), (0, 100));
        assert!(works.iter().all(|work| !work.is_busy()));
        assert!(
            handles
                .into_iter()
                .all(|handle| is_cancelled(handle.join()))
        );
        assert_eq!(queue.cancel_all(), 0);
        // The queue and its items can be used again.
        assert_eq!(queue.enqueue_all(&works), 50);
        queue.resume();
        queue.drain().unwrap();
        assert_eq!(count.get(), 50);
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    });
}

#[test]
fn those_who_wait_are_told_at_once() {
    ends(|| {
        let queue = paused();
        let work = Work::new(|| ());
        queue.enqueue(&work);
        let (joined, awaited) = (queue.spawn(|| ()), queue.spawn(|| ()));
        let other = Workqueue::builder("waits").build().unwrap();
        let awaited = other.spawn_async(awaited);
        thread::scope(|scope| {
            scope.spawn(|| assert!(work.flush().unwrap()));
            scope.spawn(|| assert!(is_cancelled(joined.join())));
            eventually("it is slept for", || is_slept_for(&work));
            assert_eq!(queue.cancel_all(), 3);
        });
        assert!(is_cancelled(awaited.join().unwrap()));
    });
}

#[test]
fn what_runs_goes_on_and_what_is_queued_behind_it_does_not() {
    ends(|| {
        let queue = alone_on_two(queue("running"));
        for handed_over in [false, true] {
            let (plug, hole) = stopper();
            let (count, ran) = (Count::default(), Count::default());
            let runs = count.clone();
            let work = Work::new(move || {
                runs.add();
                hole.sit();
            });
            queue.enqueue(&work);
            plug.wait_until_stuck();
            if !handed_over {
                queue.pause();
            }
            assert!(queue.enqueue(&work));
            if handed_over {
                eventually("a worker came to it", || {
                    format!("{work:?}").contains("handoff")
                });
                // The item is on no list, so the cancel takes effect at the end of the run.
                queue.cancel_all();
            } else {
                assert_eq!(queue.cancel_all(), 0, "it runs");
                assert!(!work.is_pending() && work.is_busy());
                queue.resume();
            }
            let other = counting(&ran);
            queue.enqueue(&other);
            plug.release();
            queue.drain().unwrap();
            assert_eq!(
                (count.get(), ran.get()),
                (1, 1),
                "handed over: {handed_over}"
            );
            assert!(!work.is_busy());
        }
    });
}

#[test]
fn what_is_queued_behind_a_run_after_all_was_cancelled_runs() {
    ends(|| {
        let queue = alone_on_two(queue("again"));
        let (plug, hole) = stopper();
        let count = Count::default();
        let runs = count.clone();
        let work = Work::new(move || {
            runs.add();
            hole.sit();
        });
        queue.enqueue(&work);
        plug.wait_until_stuck();
        // A worker pops the item and hands it over to the run. Then it is cancelled twice.
        queue.enqueue(&work);
        eventually("a worker came to it", || {
            format!("{work:?}").contains("handoff")
        });
        assert!(work.cancel());
        queue.cancel_all();
        assert!(queue.enqueue(&work));
        plug.release();
        plug.wait_until_stuck();
        plug.release();
        queue.drain().unwrap();
        assert_eq!(count.get(), 2);
    });
}

/// A waker that reads an item's state, which takes the lock of its timer.
struct Asks(DelayedWork, Count);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let _ = self.0.is_pending();
        self.1.add();
    }
}

#[test]
fn a_timer_that_takes_an_item_back_from_a_run_holds_no_lock_while_it_wakes_tasks() {
    ends(|| {
        let registry = registry("2 core");
        let builder = queue("timer").help(false).affinity(AffinityScope::Cpu);
        let queue = builder.build_in(&registry).unwrap();
        for by_flush in [true, false] {
            let (plug, hole) = stopper();
            let count = Count::default();
            let runs = count.clone();
            let work = DelayedWork::new(move || {
                runs.add();
                if runs.get() == 1 {
                    hole.sit();
                }
            });
            let [first, second] = [0, 1].map(CpuId::new);
            // It runs in one pool. The other one, which a drain checks first, hands it over.
            assert!(
                queue
                    .task()
                    .on_cpu(second)
                    .enqueue_after(&work, Duration::ZERO)
            );
            plug.wait_until_stuck();
            assert!(
                queue
                    .task()
                    .on_cpu(first)
                    .enqueue_after(&work, Duration::ZERO)
            );
            eventually("a worker came to it", || {
                format!("{work:?}").contains("handoff")
            });
            assert!(work.cancel());
            let delay = if by_flush { LATER } else { 100 * TICK };
            assert!(queue.task().on_cpu(second).enqueue_after(&work, delay));
            let notified = Count::default();
            let waker = Waker::from(Arc::new(Asks(work.clone(), notified.clone())));
            let mut drain = pin!(queue.drain_async());
            let poll = drain.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
            if !format!("{work:?}").contains("handoff") {
                // The timer has fired before the drain.
                plug.release();
                continue;
            }
            thread::scope(|scope| {
                if by_flush {
                    scope.spawn(|| work.flush().unwrap());
                }
                eventually("the task is woken", || notified.get() > 0);
                plug.release();
            });
            eventually("it has run again", || count.get() == 2);
        }
    });
}

/// Queues an item while it runs, lets a worker hand it over to that run, and cancels all items.
/// Calls `queue_anew` before the handover, and `then` after the cancel. Returns the number of runs.
fn runs_when_all_is_cancelled_behind_a_run(
    queue_anew: impl Fn(&Workqueue, &Work),
    then: impl Fn(&Workqueue, &Work),
) -> usize {
    let queue = alone_on_two(queue("anew"));
    let (plug, hole) = stopper();
    let count = Count::default();
    let runs = count.clone();
    let work = Work::new(move || {
        runs.add();
        if runs.get() == 1 {
            hole.sit();
        }
    });
    queue.enqueue(&work);
    plug.wait_until_stuck();
    queue.pause();
    assert!(queue.enqueue(&work));
    queue_anew(&queue, &work);
    queue.resume();
    eventually("a worker came to it", || {
        format!("{work:?}").contains("handoff")
    });
    queue.cancel_all();
    then(&queue, &work);
    plug.release();
    queue.drain().unwrap();
    count.get()
}

#[test]
fn what_was_queued_anew_behind_a_run_is_cancelled_with_all_else() {
    ends(|| {
        let anew = |queue: &Workqueue, work: &Work| {
            assert!(work.cancel());
            assert!(queue.enqueue(work));
            let state = format!("{work:?}");
            assert!(state.contains("revived"), "the place is kept: {state}");
        };
        let nr_runs = runs_when_all_is_cancelled_behind_a_run(anew, |_, _| ());
        assert_eq!(nr_runs, 1);
    });
}

#[test]
fn what_is_queued_once_more_after_a_cancel_of_all_runs_though_it_is_pending() {
    ends(|| {
        let nr_runs = runs_when_all_is_cancelled_behind_a_run(
            |_, _| (),
            |queue, work| assert!(!queue.enqueue(work), "the run has not ended"),
        );
        assert_eq!(nr_runs, 2);
    });
}

#[test]
fn ordered_and_full_queues_are_emptied_and_keep_their_order() {
    ends(|| {
        for builder in [queue("ordered").ordered(), queue("full").max_active(1)] {
            let queue = alone_on_two(builder);
            let plug = plug_into(&queue);
            let notified = Arc::new(Mutex::new(Vec::new()));
            let work = {
                let notified = notified.clone();
                Work::new(move || notified.lock().unwrap().push(99))
            };
            let spawn = |i| {
                let notified = notified.clone();
                queue.spawn(move || notified.lock().unwrap().push(i))
            };
            queue.enqueue(&work);
            let cancelled: Vec<_> = (0..10).map(spawn).collect();
            assert_eq!(queue.cancel_all(), 11);
            let later: Vec<_> = (10..20).map(spawn).collect();
            queue.enqueue(&work);
            plug.release();
            assert!(
                cancelled
                    .into_iter()
                    .all(|handle| is_cancelled(handle.join()))
            );
            later.into_iter().for_each(|handle| handle.join().unwrap());
            queue.drain().unwrap();
            let expected: Vec<_> = (10..20).chain([99]).collect();
            assert_eq!(*notified.lock().unwrap(), expected);
        }
    });
}

#[test]
fn what_is_cancelled_makes_room() {
    ends(|| {
        for builder in [queue("bounded"), queue("bounded").ordered()] {
            let queue = alone_on_two(builder.capacity(4));
            let count = Count::default();
            queue.pause();
            for round in 0..3 {
                let work = counting(&count);
                assert!(queue.try_enqueue(&work).is_ok());
                let handle = queue.spawn(|| ());
                let future = queue.spawn_async(async {});
                queue.spawn_detached(|| ()).unwrap();
                assert!(queue.try_spawn(|| ()).is_err(), "round {round}: it is full");
                assert_eq!(queue.cancel_all(), 4);
                assert!(is_cancelled(handle.join()) && is_cancelled(future.join()));
            }
            queue.resume();
            queue.drain().unwrap();
            assert_eq!(count.get(), 0);
        }
    });
}

#[test]
fn other_queues_of_a_pool_keep_what_they_have() {
    ends(|| {
        let registry = registry("1 core");
        let [first, second] = ["first", "second"].map(|name| {
            let queue = queue(name).build_in(&registry).unwrap();
            queue.pause();
            queue
        });
        let count = Count::default();
        for _ in 0..100 {
            let count = count.clone();
            second.spawn_detached(move || count.add()).unwrap();
            first.spawn_detached(|| unreachable!("cancelled")).unwrap();
        }
        assert_eq!(first.cancel_all(), 100);
        first.resume();
        second.resume();
        second.drain().unwrap();
        assert_eq!(count.get(), 100);
    });
}

#[test]
fn items_that_wait_for_their_time_are_cancelled_and_can_be_armed_again() {
    ends(|| {
        let queue = alone_on_two(queue("delayed"));
        let (count, lives) = (Count::default(), Census::default());
        let runs = count.clone();
        let work = DelayedWork::new(move || runs.add());
        assert!(queue.enqueue_after(&work, LATER));
        let life = lives.life();
        let owned = DelayedWork::new(move || {
            let _ = &life;
        });
        assert!(queue.enqueue_after(&owned, LATER));
        drop(owned);
        assert_eq!(queue.cancel_all(), 2);
        lives.all_dropped(1);
        assert!(!work.is_pending() && !work.cancel());
        assert!(queue.enqueue_after(&work, LATER));
        assert!(work.flush().unwrap());
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn items_that_wait_for_readers_are_cancelled_and_can_be_armed_again() {
    ends(|| {
        let queue = alone_on_two(queue("rcu"));
        let count = Count::default();
        let runs = count.clone();
        let work = RcuWork::new(move || runs.add());
        let guard = rcu::read();
        assert!(queue.task().enqueue_rcu(&work));
        queue.cancel_all();
        assert!(!work.is_pending());
        assert!(
            queue.task().enqueue_rcu(&work),
            "it waits for the same readers, anew"
        );
        drop(guard);
        work.flush().unwrap();
        rcu::barrier();
        queue.drain().unwrap();
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn a_future_that_has_been_polled_goes_on_and_others_are_dropped() {
    ends(|| {
        let queue = alone_on_two(queue("futures"));
        let (lives, (send, receive)) = (Census::default(), mpsc::channel());
        let mut polled = false;
        let waits = queue.spawn_async(future::poll_fn(move |context| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(7);
            }
            send.send(context.waker().clone()).unwrap();
            Poll::Pending
        }));
        let waker: Waker = receive.recv().unwrap();
        eventually("it waits", || named(&queue, Doing::Waits) == 1);
        queue.pause();
        let life = lives.life();
        let fresh = queue.spawn_async(async move { drop(life) });
        waker.wake_by_ref();
        assert_eq!(queue.cancel_all(), 1);
        lives.all_dropped(1);
        assert!(is_cancelled(fresh.join()));
        queue.resume();
        assert_eq!(waits.join().unwrap(), 7);
    });
}

#[test]
fn destructors_of_what_is_cancelled_may_do_anything() {
    struct Act<F: FnOnce() + Send>(Option<F>);
    impl<F: FnOnce() + Send> Drop for Act<F> {
        fn drop(&mut self) {
            self.0.take().unwrap()();
        }
    }
    fn act<F: FnOnce() + Send>(act: F) -> Act<F> {
        Act(Some(act))
    }
    ends(|| {
        let registry = registry("2 core");
        let queue = queue("wild").build_in(&registry).unwrap();
        queue.pause();
        let count = Count::default();
        let panics = act(|| panic!("in a destructor"));
        let panicked = queue.spawn(move || drop(panics));
        let (again, runs) = (queue.clone(), count.clone());
        let spawns = act(move || {
            assert_eq!(again.cancel_all(), 0);
            again.spawn_detached(move || runs.add()).unwrap();
        });
        queue.spawn_detached(move || drop(spawns)).unwrap();
        // The item owns a handle of the queue.
        let own = queue.clone();
        let work = Work::new(move || drop(own.clone()));
        queue.enqueue(&work);
        drop(work);
        let last = queue.clone();
        queue.spawn_detached(move || drop(last)).unwrap();
        assert_eq!(queue.cancel_all(), 4);
        assert!(is_cancelled(panicked.join()));
        queue.resume();
        queue.drain().unwrap();
        assert_eq!(count.get(), 1);
        // The last item drops the last handle.
        queue.pause();
        let last = queue.clone();
        queue.spawn_detached(move || drop(last)).unwrap();
        queue.shutdown_background();
        shut_down(registry);
    });
}

#[test]
fn an_item_may_cancel_all_of_its_own_queue() {
    ends(|| {
        let queue = alone_on_two(queue("own").max_active(1));
        let plug = plug_into(&queue);
        let own = queue.clone();
        let cancels = queue.spawn(move || own.cancel_all());
        // They may be in the local batch of the worker.
        for _ in 0..20 {
            queue.spawn_detached(|| unreachable!("cancelled")).unwrap();
        }
        plug.release();
        assert_eq!(cancels.join().unwrap(), 20);
        queue.drain().unwrap();
    });
}

#[test]
fn to_cancel_many_takes_a_walk_and_not_one_for_each() {
    ends(|| {
        for ordered in [false, true] {
            let builder = queue("many");
            let queue = alone_on_two(if ordered { builder.ordered() } else { builder });
            queue.pause();
            for _ in 0..300_000 {
                queue.spawn_detached(|| unreachable!("cancelled")).unwrap();
            }
            let handles: Vec<_> = (0..100_000).map(|i| queue.spawn(move || i)).collect();
            assert_eq!(queue.cancel_all(), 400_000);
            assert!(handles.iter().all(|handle| handle.is_finished()));
        }
    });
}

#[test]
fn each_item_runs_or_is_cancelled_whoever_queues_meanwhile() {
    const NR_ITEMS: usize = 20_000;
    ends(|| {
        let seed = seed();
        for ordered in [false, true] {
            let builder = queue("meanwhile");
            let queue = alone_on_two(if ordered { builder.ordered() } else { builder });
            let (lives, nr_reported) = (Census::default(), Count::default());
            let cancelled = Count::default();
            threads(3, |i| {
                let mut dice = Dice::new(seed ^ (i as u64) << 20);
                if i == 0 {
                    while lives.dropped() < 2 * NR_ITEMS {
                        (0..queue.cancel_all()).for_each(|_| cancelled.add());
                        thread::yield_now();
                    }
                    return;
                }
                for _ in 0..NR_ITEMS {
                    let (life, notified) = (lives.life(), nr_reported.clone());
                    let run = move || {
                        drop(life);
                        notified.add();
                    };
                    match dice.below(4) {
                        0 => drop(queue.spawn_detached(run)),
                        1 => drop(queue.spawn(run)),
                        2 => {
                            let outcome = queue.spawn(run).join();
                            assert!(outcome.is_ok() || is_cancelled(outcome));
                        }
                        _ => drop(queue.spawn_async(async move { run() })),
                    }
                }
            });
            queue.drain().unwrap();
            lives.all_dropped(2 * NR_ITEMS);
            assert_eq!(cancelled.get() + nr_reported.get(), 2 * NR_ITEMS);
        }
    });
}

/// Returns the number of items of the queue that `drain_timeout` reports with `doing`.
fn named(queue: &Workqueue, doing: Doing) -> usize {
    match queue.drain_timeout(Duration::ZERO) {
        Ok(()) => 0,
        Err(DrainError::StillBusy(busy)) => {
            let left = busy.left.iter().filter(|it| it.doing == doing);
            left.map(|it| it.count).sum()
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_drain_that_takes_too_long_names_what_is_left() {
    ends(|| {
        let queue = alone_on_two(queue("slow").max_active(1));
        let plug = plug_into(&queue);
        for _ in 0..3 {
            queue.spawn_detached(|| ()).unwrap();
        }
        let waits = queue.spawn_async(future::pending::<()>());
        let Err(DrainError::StillBusy(busy)) = queue.drain_timeout(Duration::from_millis(1)) else {
            panic!("it is stuck");
        };
        assert_eq!((busy.queue.as_str(), busy.nr_left), ("slow", 5), "{busy}");
        assert_eq!(busy.left[0].doing, Doing::Runs);
        assert!(busy.left[0].func.unwrap().contains("plug_into"), "{busy}");
        assert!(queue.try_spawn(|| ()).is_ok(), "it takes items again");
        plug.release();
        drop(plug);
        eventually("all has run but the future", || {
            named(&queue, Doing::IsQueued) == 0
        });
        let Err(DrainError::StillBusy(busy)) = queue.drain_timeout(Duration::from_millis(1)) else {
            panic!("nobody wakes it");
        };
        assert_eq!(
            (busy.nr_left, busy.left[0].doing),
            (1, Doing::Waits),
            "{busy}"
        );
        assert!(busy.left[0].func.unwrap().contains("Pending<()>"), "{busy}");
        let StillBusy { ref left, .. } = busy;
        assert_eq!(left.len(), 1);
        let mut waits = waits;
        waits.cancel();
        queue.drain_timeout(Duration::MAX).unwrap();
    });
}

#[test]
fn a_drain_with_a_time_refuses_as_any_drain_and_not_after_it() {
    ends(|| {
        let queue = alone_on_two(queue("timed"));
        let plug = plug_into(&queue);
        let drains = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain_timeout(PATIENCE))
        };
        eventually("the drain has begun", || queue.try_spawn(|| ()).is_err());
        plug.release();
        drains.join().unwrap().unwrap();
        queue.spawn(|| ()).join().unwrap();
        let own = queue.clone();
        let error = queue.spawn(move || own.drain_timeout(PATIENCE)).join();
        let error = error.unwrap().unwrap_err();
        assert!(matches!(error, DrainError::OwnQueue(_)));
        assert_eq!(
            error.to_string(),
            "an item of workqueue \"timed\" cannot wait for its own queue"
        );
        queue
            .drain_timeout(Duration::ZERO)
            .or_else(|_| queue.drain_timeout(PATIENCE))
            .unwrap();
    });
}

#[test]
fn tasks_await_drains_and_are_woken() {
    ends(|| {
        let queue = alone_on_two(queue("awaited"));
        let tasks = Workqueue::builder("tasks").build().unwrap();
        for _ in 0..100 {
            let count = Count::default();
            for _ in 0..20 {
                let (count, chained) = (count.clone(), queue.clone());
                queue
                    .spawn_detached(move || {
                        chained.spawn_detached(move || count.add()).unwrap();
                    })
                    .unwrap();
            }
            let drains: Vec<_> = (0..3)
                .map(|_| {
                    let (queue, count) = (queue.clone(), count.clone());
                    tasks.spawn_async(async move {
                        queue.drain_async().await.unwrap();
                        count.get()
                    })
                })
                .collect();
            for drain in drains {
                assert_eq!(drain.join().unwrap(), 20);
            }
        }
        assert!(queue.try_spawn(|| ()).is_ok(), "it is over");
    });
}

#[test]
fn a_drain_that_is_dropped_lets_others_queue_again() {
    ends(|| {
        let queue = alone_on_two(queue("dropped"));
        let plug = plug_into(&queue);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut drain = pin!(queue.drain_async());
            assert!(queue.try_spawn(|| ()).is_ok(), "not before the first poll");
            for _ in 0..3 {
                assert!(drain.as_mut().poll(&mut context).is_pending());
            }
            assert!(queue.try_spawn(|| ()).is_err());
            assert!(format!("{drain:?}").contains("is_under_way: true"));
        }
        assert!(queue.try_spawn(|| ()).is_ok());
        plug.release();
        queue.drain().unwrap();
        let mut drain = pin!(queue.drain_async());
        for _ in 0..2 {
            assert_eq!(drain.as_mut().poll(&mut context), Poll::Ready(Ok(())));
            assert!(queue.try_spawn(|| ()).unwrap().join().is_ok());
            queue.flush().unwrap();
        }
    });
}

#[test]
fn a_task_of_the_queue_cannot_await_its_drain() {
    ends(|| {
        let queue = alone_on_two(queue("own drain"));
        let own = queue.clone();
        let task = queue.spawn_async(async move { own.drain_async().await });
        let error = task.join().unwrap().unwrap_err();
        assert_eq!(error.queue(), "own drain");
        queue.drain().unwrap();
    });
}

#[test]
fn closing_in_the_background_waits_for_nothing_and_runs_all() {
    ends(|| {
        let registry = registry("2 core");
        let queue = queue("closed").build_in(&registry).unwrap();
        let count = Count::default();
        let plug = plug_into(&queue);
        for _ in 0..100 {
            let count = count.clone();
            queue.spawn_detached(move || count.add()).unwrap();
        }
        let other = queue.clone();
        other.close_in_background();
        queue.spawn(|| ()).join().unwrap();
        queue.pause();
        queue.close_in_background();
        plug.release();
        shut_down(registry);
        assert_eq!(count.get(), 100);
    });
}

#[test]
fn shutting_down_in_the_background_cancels_and_waits_for_nothing() {
    ends(|| {
        let registry = registry("2 core");
        let queue = queue("shut").max_active(1).build_in(&registry).unwrap();
        let (lives, count) = (Census::default(), Count::default());
        let plug = plug_into(&queue);
        let life = lives.life();
        let queued = queue.spawn(move || drop(life));
        let runs = count.clone();
        let delayed = DelayedWork::new(move || runs.add());
        queue.enqueue_after(&delayed, LATER);
        let other = queue.clone();
        queue.shutdown_background();
        assert!(is_cancelled(queued.join()));
        lives.all_dropped(1);
        assert!(other.try_spawn(|| ()).is_err() && !delayed.is_pending());
        assert_eq!(named(&other, Doing::Runs), 1);
        plug.release();
        other.drain_timeout(PATIENCE).unwrap();
        other.shutdown_background();
        shut_down(registry);
        assert_eq!(count.get(), 0);
    });
}

#[test]
fn a_queue_shut_down_where_no_thread_can_be_had_ends_when_one_can() {
    ends(|| {
        let registry: Registry = registry("1 core");
        let queue = queue("refused").build_in(&registry).unwrap();
        queue.spawn(|| ()).join().unwrap();
        queue.pause();
        let handle = queue.spawn(|| ());
        registry.refuse_threads(true);
        queue.shutdown_background();
        registry.refuse_threads(false);
        assert!(is_cancelled(handle.join()));
        shut_down(registry);
    });
}

#[test]
fn what_is_cancelled_with_all_else_gives_its_room_back() {
    ends(|| {
        let queue = alone_on_two(queue("shutdown").capacity(3));
        queue.pause();
        let work = Work::new(|| ());
        for _ in 0..3 {
            let handle = queue.spawn(|| ());
            queue.spawn_detached(|| ()).unwrap();
            assert_eq!(queue.try_enqueue(&work), Ok(true));
            assert_eq!(
                (queue.report().nr_free, queue.stats().nr_inactive),
                (Some(0), 3)
            );
            assert_eq!(queue.cancel_all(), 3);
            assert!(is_cancelled(handle.join()));
            assert_eq!(
                (queue.report().nr_free, queue.stats().nr_inactive),
                (Some(3), 0)
            );
        }
        // The queue is dropped while it is paused.
    });
}

#[test]
fn a_drain_of_a_paused_queue_waits_for_nothing_that_was_cancelled_or_has_expired() {
    let queue = alone_on_two(queue("paused"));
    queue.pause();
    assert!(queue.spawn(|| ()).cancel());
    queue.drain_timeout(PATIENCE).unwrap();
    let expired = queue
        .task()
        .deadline(Instant::now() + Duration::from_millis(2))
        .spawn(|| ());
    assert!(matches!(expired.join(), Err(JoinError::Expired)));
    queue.drain().unwrap();
    block_on(async {
        assert!(queue.spawn(|| ()).cancel());
        queue.drain_async().await.unwrap();
    });
}
