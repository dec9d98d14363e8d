//! `max_active`: how many threads run a queue's items at once.

use std::{
    pin::Pin,
    sync::{Arc, Barrier, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use afterwork::{
    params::Params,
    workqueue::{AffinityScope, BuildError, MaxActiveScope, Work, Workqueue},
};
use topology::CpuId;

use crate::support::*;

/// Queues from all CPUs, joins some items, and returns the most threads that were in items at once.
fn crowd(queue: &Workqueue) -> usize {
    let gauge = Gauge::default();
    threads(8, |i| {
        pin(i);
        for n in 0..500 {
            let gauge = gauge.clone();
            let handle = queue.spawn(move || gauge.within(std::thread::yield_now));
            if n % 3 == 0 {
                handle.join().unwrap();
            }
        }
    });
    queue.drain().unwrap();
    gauge.most()
}

#[test]
fn max_active_holds_over_all_pools_together() {
    let registry = registry("64 core");
    for max in [1, 2, 3] {
        let queue = queue("crowd").affinity(AffinityScope::Cpu).max_active(max);
        let queue = queue.build_in(&registry).unwrap();
        let most = crowd(&queue);
        assert!(most <= max as usize, "{most} at once, {max} allowed");
        assert_eq!(queue.stats().nr_active, 0);
    }
}

#[test]
fn a_helper_waits_for_a_seat_as_a_worker_does() {
    ends(|| {
        let queue = queue("helped").max_active(1);
        let queue = queue.build_in(&registry("1 core")).unwrap();
        let plug = plug_into(&queue);
        let count = Count::default();
        let work = counting(&count);
        queue.enqueue(&work);
        std::thread::scope(|scope| {
            scope.spawn(|| work.flush().unwrap());
            eventually("it sleeps", || is_slept_for(&work));
            assert_eq!((count.get(), queue.stats().helped), (0, 0));
            plug.release();
        });
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn a_worker_waits_for_the_seat_of_a_helper() {
    ends(|| {
        // No other worker replaces the one that is blocked in an item, so the joiner helps.
        let registry = unwatched("1 core");
        let other = queue("other").build_in(&registry).unwrap();
        let keeps_worker = plug_into(&other);
        let queue = queue("helped").max_active(1).build_in(&registry).unwrap();
        let (plug, hole) = stopper();
        let work = Work::new(move || hole.sit());
        queue.enqueue(&work);
        std::thread::scope(|scope| {
            scope.spawn(|| work.flush().unwrap());
            plug.wait_until_stuck();
            assert_eq!((queue.stats().nr_active, queue.stats().helped), (1, 1));
            let count = Count::default();
            assert!(queue.enqueue(&counting(&count)));
            keeps_worker.release();
            eventually("the worker lies down", || {
                let pool = &registry.pool_stats()[0];
                pool.nr_idle == pool.nr_workers && queue.stats().nr_inactive > 0
            });
            assert_eq!(count.get(), 0);
            plug.release();
            queue.drain().unwrap();
            assert_eq!(count.get(), 1);
        });
    });
}

#[test]
fn max_active_holds_in_one_pool() {
    let registry = registry("64 core");
    for max in [1, 2, 5] {
        let queue = queue("crowd")
            .affinity(AffinityScope::System)
            .max_active(max);
        let most = crowd(&queue.build_in(&registry).unwrap());
        assert!(most <= max as usize, "{most} at once, {max} allowed");
    }
}

#[test]
fn as_many_items_as_allowed_run_at_once() {
    ends(|| {
        let queue = queue("meet")
            .max_active(4)
            .build_in(&registry("8 core"))
            .unwrap();
        let barrier = Arc::new(Barrier::new(4));
        let handles: Vec<_> = (0..4)
            .map(|_| {
                let barrier = barrier.clone();
                queue.spawn(move || {
                    barrier.wait();
                })
            })
            .collect();
        queue.drain().unwrap();
        assert!(handles.iter().all(|handle| handle.is_finished()));
    });
}

#[test]
fn queues_that_share_a_pool_have_limits_of_their_own() {
    ends(|| {
        let registry = registry("2 core");
        let queues: Vec<_> = (0..6)
            .map(|_| queue("shared").max_active(1).build_in(&registry).unwrap())
            .collect();
        let barrier = Arc::new(Barrier::new(queues.len()));
        for queue in &queues {
            let barrier = barrier.clone();
            queue
                .spawn_detached(move || {
                    barrier.wait();
                })
                .unwrap();
        }
        for queue in &queues {
            queue.drain().unwrap();
        }
        assert_eq!(registry.pool_stats().len(), 1);
    });
}

#[test]
fn raising_max_active_lets_waiting_items_run_at_once() {
    let queue = queue("raise")
        .max_active(1)
        .build_in(&registry("8 core"))
        .unwrap();
    let plug = plug_into(&queue);
    let (second, hole) = stopper();
    queue.spawn_detached(move || hole.sit()).unwrap();
    let third = queue.spawn(|| 3);
    assert_eq!(queue.stats().nr_active, 1);
    queue.set_max_active(2).unwrap();
    second.wait_until_stuck();
    assert_eq!(queue.stats().nr_active, 2);
    queue.set_max_active(3).unwrap();
    eventually("the third runs", || third.is_finished());
    plug.release();
    second.release();
    queue.drain().unwrap();
}

#[test]
fn after_max_active_is_lowered_no_item_starts_above_it() {
    let queue = queue("lower")
        .max_active(4)
        .build_in(&registry("8 core"))
        .unwrap();
    let plugs: Vec<_> = (0..4).map(|_| plug_into(&queue)).collect();
    queue.set_max_active(1).unwrap();
    let gauge = Gauge::default();
    let early = Count::default();
    let all_released = Arc::new(std::sync::atomic::AtomicBool::new(false));
    for _ in 0..200 {
        let (gauge, early, all_released) = (gauge.clone(), early.clone(), all_released.clone());
        queue
            .spawn_detached(move || {
                if !all_released.load(std::sync::atomic::Ordering::SeqCst) {
                    early.add();
                }
                gauge.within(std::thread::yield_now);
            })
            .unwrap();
    }
    plugs[1..].iter().for_each(Plug::release);
    eventually(
        "three seats were given up, or kept against the rule",
        || queue.stats().nr_active == 1 || early.get() > 0,
    );
    all_released.store(true, std::sync::atomic::Ordering::SeqCst);
    plugs[0].release();
    queue.drain().unwrap();
    assert_eq!(
        early.get(),
        0,
        "ran although a seat above the limit was taken"
    );
    assert_eq!(gauge.most(), 1);
}

#[test]
fn max_active_may_change_while_items_come_and_go() {
    let queue = queue("change")
        .affinity(AffinityScope::Cpu)
        .build_in(&registry("64 core"))
        .unwrap();
    let gauge = Gauge::default();
    let nr_runs = Count::default();
    threads(5, |i| {
        if i == 0 {
            let mut dice = Dice::new(7);
            for _ in 0..2000 {
                queue.set_max_active(1 + dice.below(4) as u32).unwrap();
            }
            return;
        }
        pin(i);
        for _ in 0..3000 {
            let (gauge, nr_runs) = (gauge.clone(), nr_runs.clone());
            queue
                .spawn_detached(move || gauge.within(|| nr_runs.add()))
                .unwrap();
        }
    });
    queue.drain().unwrap();
    assert_eq!(nr_runs.get(), 4 * 3000);
    let stats = queue.stats();
    assert_eq!((stats.nr_active, stats.started), (0, 4 * 3000));
}

#[test]
fn a_limit_out_of_range_is_refused_and_changes_nothing() {
    let plain = alone_on_two(queue("limits").max_active(7));
    for wrong in [0, 513, u32::MAX] {
        assert!(
            matches!(plain.set_max_active(wrong), Err(BuildError::MaxActive(max)) if max == wrong)
        );
    }
    assert_eq!(plain.stats().max_active, 7);
    let ordered = alone_on_two(queue("limits").ordered());
    assert!(matches!(
        ordered.set_max_active(2),
        Err(BuildError::OrderedMaxActive(2))
    ));
    ordered.set_max_active(1).unwrap();
    assert_eq!(ordered.stats().max_active, 1);
}

/// Builds a queue with a pool for each CPU of `machine`.
fn queue_on(machine: &str, max: u32, scope: MaxActiveScope) -> Workqueue {
    let queue = queue("meant").affinity(AffinityScope::Cpu).help(false);
    let queue = queue.max_active(max).max_active_scope(scope);
    queue.build_in(&registry(machine)).unwrap()
}

/// Queues four items on each CPU, and checks that at most `expected` items run at once.
fn most_at_once(queue: &Workqueue, nr_cpus: u32, expected: usize) {
    let (entered, all_entered) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let handles: Vec<_> = (0..nr_cpus)
        .flat_map(|cpu| std::iter::repeat_n(CpuId::new(cpu), 4))
        .map(|cpu| {
            let (entered, released) = (entered.clone(), released.clone());
            queue.task().on_cpu(cpu).spawn(move || {
                entered.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            })
        })
        .collect();
    for _ in 0..expected {
        all_entered.recv_timeout(PATIENCE).expect("fewer at once");
    }
    assert_eq!(queue.stats().nr_active as usize, expected);
    assert!(all_entered.try_recv().is_err(), "more at once");
    drop(release);
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn max_active_is_for_the_process_the_node_or_the_cpu_as_is_said() {
    ends(|| {
        let machine = "2 numa x 2 core";
        most_at_once(&queue_on(machine, 2, MaxActiveScope::System), 4, 2);
        most_at_once(&queue_on(machine, 2, MaxActiveScope::Node), 4, 4);
        most_at_once(&queue_on(machine, 2, MaxActiveScope::Cpu), 4, 8);
    });
}

#[test]
fn max_active_for_each_cpu_counts_the_cpus_of_a_pool() {
    ends(|| {
        let queue = queue("pods").affinity(AffinityScope::System).help(false);
        let queue = queue.max_active(1).max_active_scope(MaxActiveScope::Cpu);
        let queue = queue.build_in(&registry("4 core")).unwrap();
        most_at_once(&queue, 4, 4);
        queue.set_max_active(2).unwrap();
        most_at_once(&queue, 4, 8);
    });
}

#[test]
fn an_ordered_queue_runs_one_at_a_time_whatever_max_active_is_meant_for() {
    ends(|| {
        let params = Params {
            max_active_scope: MaxActiveScope::Cpu,
            ..Params::default()
        };
        let registry = registry_with("4 core", params);
        let queue = queue("ordered").ordered().build_in(&registry).unwrap();
        most_at_once(&queue, 4, 1);
    });
}

#[test]
fn queues_without_a_limit_of_their_own_have_the_registrys() {
    let params = Params {
        max_active: 3,
        default_affinity_scope: AffinityScope::Numa,
        ..Params::default()
    };
    let registry = registry_with("4 core", params);
    let queue = queue("default").build_in(&registry).unwrap();
    assert_eq!(queue.stats().max_active, 3);
    assert_eq!(queue.attrs().affinity, AffinityScope::Numa);
}

#[test]
fn pools_that_wait_for_a_seat_take_turns() {
    ends(|| {
        let registry = registry("4 core");
        let queue = queue("turns").affinity(AffinityScope::Cpu).help(false);
        let queue = queue.max_active(1).build_in(&registry).unwrap();
        let (plug, hole) = stopper();
        drop(queue.task().on_cpu(CpuId::new(0)).spawn(move || hole.sit()));
        plug.wait_until_stuck();
        let log = Arc::new(std::sync::Mutex::new(Vec::new()));
        let handles: Vec<_> = (0..3 * 4)
            .map(|i| {
                let log = log.clone();
                queue
                    .task()
                    .on_cpu(CpuId::new(1 + i % 3))
                    .spawn(move || log.lock().unwrap().push(i % 3))
            })
            .collect();
        eventually("all stand in line, and their workers lie down", || {
            let pools = registry.pool_stats();
            pools
                .iter()
                .filter(|pool| pool.nr_idle == pool.nr_workers)
                .count()
                == 3
                && pools
                    .iter()
                    .all(|pool| pool.nr_workers > 0 && pool.nr_pending == 0)
        });
        plug.release();
        for handle in handles {
            handle.join().unwrap();
        }
        let log = log.lock().unwrap();
        for round in log.chunks(3) {
            assert_eq!(round, &log[..3], "out of turn: {log:?}");
        }
    });
}

/// A seat that a pwq gets when the queue resumes does not allow a start after the next pause.
#[test]
fn nothing_starts_after_a_pause_on_a_seat_from_before_it() {
    let params = Params {
        max_workers: 1,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let other = queue("other").help(false).build_in(&registry).unwrap();
    for limit in [1, 4] {
        let queue = queue("paused").help(false).max_active(limit);
        let queue = queue.build_in(&registry).unwrap();
        let (plug, hole) = stopper();
        queue.pause();
        let before = queue.spawn(|| ());
        // A worker that reaches the next item has already put the pwq into the wait queue.
        other.spawn_detached(move || hole.sit()).unwrap();
        plug.wait_until_stuck();
        queue.resume();
        queue.pause();
        let after = queue.spawn(|| ());
        plug.release();
        other.spawn(|| ()).join().unwrap();
        other.spawn(|| ()).join().unwrap();
        assert!(!before.is_finished() && !after.is_finished());
        queue.resume();
        after.join().unwrap();
        before.join().unwrap();
    }
}

/// Returns how many of `nr` tiny items a worker takes at once when it gets a seat for them.
fn taken_with_a_seat(nr: usize) -> usize {
    let params = Params {
        max_workers: 1,
        // The manager does not return the items of the worker's local batch to the pool.
        watch_tick_us: 0,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let other = queue("other").help(false).build_in(&registry).unwrap();
    let queue = queue("seats").help(false).max_active(4);
    let queue = queue.build_in(&registry).unwrap();
    let (plug, hole) = stopper();
    queue.pause();
    queue.spawn_detached(move || hole.sit()).unwrap();
    (1..nr).for_each(|_| queue.spawn_detached(|| ()).unwrap());
    // When this item runs, the worker has already set the others aside.
    other.spawn(|| ()).join().unwrap();
    queue.resume();
    plug.wait_until_stuck();
    let nr_left = queue.stats().nr_inactive;
    plug.release();
    queue.drain().unwrap();
    nr - nr_left
}

#[test]
fn items_that_waited_for_a_seat_are_taken_by_the_batch() {
    // If the worker loses its CPU during the first item, it expects long items and takes fewer.
    let tries = (0..50).map(|_| taken_with_a_seat(64));
    assert!(tries.into_iter().any(|nr_taken| nr_taken > 1));
}

/// Queues an item and waits for it when it is dropped.
struct Flushes(Workqueue, Work);

impl Drop for Flushes {
    fn drop(&mut self) {
        assert!(self.0.enqueue(&self.1));
        self.1.flush().unwrap();
    }
}

/// Publishes its waker, and never becomes ready.
struct Waits(
    Arc<Mutex<Option<Waker>>>,
    #[expect(dead_code, reason = "waits when it is dropped")] Flushes,
);

impl Future for Waits {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.0.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Calls the closure that `prepare` returns on a thread that runs no item, while the queue's only
/// seat is in use. The closure runs a destructor that waits for an item. Checks that the item runs
/// after the seat is released.
fn waits_for_a_seat<F: FnOnce() + Send>(prepare: impl FnOnce(&Workqueue, Flushes) -> F) {
    let queue = alone_on_two(queue("seat").max_active(1));
    let gauge = Gauge::default();
    let inside = gauge.clone();
    let work = Work::new(move || inside.within(|| ()));
    let act = prepare(&queue, Flushes(queue.clone(), work.clone()));
    let (plug, hole) = stopper();
    let inside = gauge.clone();
    queue
        .spawn_detached(move || inside.within(|| hole.sit()))
        .unwrap();
    plug.wait_until_stuck();
    thread::scope(|scope| {
        let acting = scope.spawn(act);
        eventually("it waits for the item, or has run it", || {
            is_slept_for(&work) || acting.is_finished()
        });
        plug.release();
    });
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1);
}

#[test]
fn an_item_awaited_by_a_cancelled_closure_takes_a_seat() {
    ends(|| {
        waits_for_a_seat(|queue, flushes| {
            let queue = queue.clone();
            move || {
                queue.spawn_detached(move || drop(flushes)).unwrap();
                assert_eq!(queue.cancel_all(), 1);
            }
        });
    });
}

#[test]
fn an_item_awaited_by_a_freed_future_takes_a_seat() {
    ends(|| {
        waits_for_a_seat(|queue, flushes| {
            let waker = Arc::default();
            drop(queue.spawn_async(Waits(Arc::clone(&waker), flushes)));
            eventually("it has been polled", || waker.lock().unwrap().is_some());
            // This item needs the only seat, so the poll has ended once the item has run.
            queue.spawn(|| ()).join().unwrap();
            move || drop(waker.lock().unwrap().take())
        });
    });
}

#[test]
fn a_run_lends_its_seat_to_an_item_of_another_cpu() {
    ends(|| {
        let queue = queue("lent").affinity(AffinityScope::Cpu).max_active(1);
        let queue = queue.max_active_scope(MaxActiveScope::Cpu);
        let queue = queue.build_in(&registry("2 core")).unwrap();
        let (plug, hole) = stopper();
        drop(queue.task().on_cpu(CpuId::new(1)).spawn(move || hole.sit()));
        plug.wait_until_stuck();
        let own = queue.clone();
        let joins = move || {
            own.task()
                .on_cpu(CpuId::new(1))
                .spawn(|| ())
                .join()
                .unwrap()
        };
        queue
            .task()
            .on_cpu(CpuId::new(0))
            .spawn(joins)
            .join()
            .unwrap();
        plug.release();
        queue.drain().unwrap();
    });
}
