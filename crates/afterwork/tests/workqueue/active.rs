//! `max_active` limits the number of threads that run a queue's items at once.

use crate::support::*;

fn holds_by(scope: AffinityScope) {
    let registry = registry("64 core");
    for max in [1, 2, 4] {
        let most = crowd(&[queue("crowd").affinity(scope).max_active(max).on(&registry)]);
        assert!(most <= max as usize, "{most} at once, {max} allowed");
    }
}

#[test]
fn max_active_holds_in_one_pool() {
    holds_by(System);
}

#[test]
fn max_active_holds_over_all_pools_together() {
    holds_by(Cpu);
}

#[test]
fn a_helper_waits_for_a_seat_as_a_worker_does() {
    let queue = queue("helped").max_active(1).on(&registry("1 core"));
    joiner_waits_for_a_seat(&queue, &queue);
}

#[test]
fn a_worker_waits_for_the_seat_of_a_helper() {
    // No other worker replaces the one that is blocked in an item, so the joiner helps.
    let (registry, other) = queue("other").on_own(unwatched("1 core"));
    let keeps_worker = plug_into(&other);
    let queue = queue("helped").max_active(1).on(&registry);
    thread::scope(|scope| {
        let (_, plug) = stuck(|hole| {
            let work = Work::new(move || hole.sit());
            queue.enqueue(&work);
            scope.spawn(move || work.flush().unwrap());
        });
        assert_eq!((queue.stats().nr_active, queue.stats().helped), (1, 1));
        let count = Count::default();
        assert!(queue.enqueue(&counting(count)));
        keeps_worker.release();
        wait_until(|| {
            let pool = &registry.pool_stats()[0];
            pool.nr_idle == pool.nr_workers && waiting(&queue) > 0
        });
        assert_eq!(count.get(), 0);
        assert_eq!(plug.release_and_count(&queue, count), 1);
    });
}

#[test]
fn as_many_items_as_allowed_run_at_once() {
    let queue = queue("meet").max_active(4).on(&registry("8 core"));
    run_at_once(&queue, 4);
}

#[test]
fn queues_that_share_a_pool_have_their_own_limits() {
    let registry = registry("2 core");
    let queues = [(); 6].map(|()| queue("shared").max_active(1).on(&registry));
    let all = Shared::new(Barrier::new(queues.len()));
    queues.iter().for_each(|queue| queue.detach(move || _ = all.wait()));
    queues.iter().for_each(|queue| queue.drain().unwrap());
    assert_eq!(registry.pool_stats().len(), 1);
}

#[test]
fn raising_max_active_lets_waiting_items_run_at_once() {
    let (queue, plug) = queue("raise").max_active(1).plugged_on(&registry("8 core"));
    let (second, hole) = stopper();
    queue.detach(move || hole.sit());
    let third = queue.spawn(|| 3);
    assert_eq!(queue.stats().nr_active, 1);
    queue.set_max_active(2).unwrap();
    second.wait_until_stuck();
    assert_eq!(queue.stats().nr_active, 2);
    queue.set_max_active(3).unwrap();
    wait_until(|| third.is_finished());
    plug.release();
    second.release();
    queue.drain().unwrap();
}

#[test]
fn after_max_active_is_lowered_no_item_starts_above_it() {
    let queue = queue("lower").max_active(4).on(&registry("8 core"));
    let plugs: Vec<_> = (0..4).map(|_| plug_into(&queue)).collect();
    queue.set_max_active(1).unwrap();
    let (gauge, early, all_released) = (Gauge::default(), Count::default(), Count::default());
    for _ in 0..200 {
        queue.detach(move || {
            if all_released.get() == 0 {
                early.add();
            }
            gauge.within(thread::yield_now);
        });
    }
    plugs[1..].iter().for_each(Plug::release);
    // Either three seats are released, or an item starts without a free seat.
    wait_until(|| queue.stats().nr_active == 1 || early.get() > 0);
    all_released.add();
    plugs[0].release_and_drain(&queue);
    assert_eq!(early.get(), 0, "ran although the only seat was taken");
    assert_eq!(gauge.most(), 1);
}

#[test]
fn max_active_may_change_while_items_run() {
    let queue = queue("change").affinity(Cpu).on(&registry("64 core"));
    let count = Count::default();
    threads(5, |i| {
        if i == 0 {
            let mut dice = Dice::new(7);
            for _ in 0..2000 {
                queue.set_max_active(1 + dice.below(4) as u32).unwrap();
            }
        } else {
            pin(i);
            count.spawn(3000, &queue);
        }
    });
    assert_eq!(count.after_drain(&queue), 4 * 3000);
    let stats = queue.stats();
    assert_eq!((stats.nr_active, stats.started), (0, 4 * 3000));
}

#[test]
fn limit_out_of_range_is_rejected_and_changes_nothing() {
    let plain = queue("limits").max_active(7).alone();
    for wrong in [0, 513, u32::MAX] {
        let refused = plain.set_max_active(wrong);
        assert!(matches!(refused, Err(BuildError::MaxActive(max)) if max == wrong));
    }
    assert_eq!(plain.stats().max_active, 7);
    let ordered = queue("limits").ordered().alone();
    assert!(matches!(ordered.set_max_active(2), Err(BuildError::OrderedMaxActive(2))));
    ordered.set_max_active(1).unwrap();
    assert_eq!(ordered.stats().max_active, 1);
}

fn queue_on(machine: &str, max: u32, scope: MaxActiveScope) -> Workqueue {
    let queue = queue("meant").affinity(Cpu).help(false).max_active(max);
    queue.max_active_scope(scope).on(&registry(machine))
}

/// Queues four items on each CPU, and checks that at most `expected` items run at once.
fn most_at_once(queue: &Workqueue, nr_cpus: u32, expected: usize) {
    let (entered, may_end) = (Count::default(), Count::default());
    let spawn = |i| {
        on_cpu(queue, i / 4).spawn(move || {
            entered.add();
            wait_until(|| may_end.get() > 0);
        })
    };
    let handles: Vec<_> = (0..4 * nr_cpus).map(spawn).collect();
    wait_until(|| entered.get() >= expected);
    assert_eq!((queue.stats().nr_active as usize, entered.get()), (expected, expected));
    may_end.add();
    handles.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
fn max_active_applies_to_the_process_the_node_or_the_cpu() {
    let machine = "2 numa x 2 core";
    most_at_once(&queue_on(machine, 2, MaxActiveScope::System), 4, 2);
    most_at_once(&queue_on(machine, 2, MaxActiveScope::Node), 4, 4);
    most_at_once(&queue_on(machine, 2, MaxActiveScope::Cpu), 4, 8);
}

#[test]
fn max_active_for_each_cpu_counts_the_cpus_of_a_pool() {
    let queue = one_seat("pods").affinity(System).max_active_scope(MaxActiveScope::Cpu);
    let queue = queue.on(&registry("4 core"));
    most_at_once(&queue, 4, 4);
    queue.set_max_active(2).unwrap();
    most_at_once(&queue, 4, 8);
}

#[test]
fn an_ordered_queue_runs_one_at_a_time_in_each_max_active_scope() {
    let registry = tuned("4 core", |it| it.max_active_scope = MaxActiveScope::Cpu);
    let queue = queue("ordered").ordered().on(&registry);
    most_at_once(&queue, 4, 1);
}

#[test]
fn queues_without_a_limit_use_that_of_the_registry() {
    let registry = tuned("4 core", |it| {
        it.max_active = 3;
        it.default_affinity_scope = Numa;
    });
    let queue = queue("default").on(&registry);
    assert_eq!(queue.stats().max_active, 3);
    assert_eq!(queue.report().attrs.affinity, Numa);
}

#[test]
fn pools_that_wait_for_a_seat_take_turns() {
    let (registry, queue) = one_seat("turns").affinity(Cpu).on_own(registry("4 core"));
    let (plug, log) = (plug_as(on_cpu(&queue, 0)), Log::default());
    let spawn = |i| on_cpu(&queue, 1 + i % 3).spawn(log.note(i % 3));
    let handles: Vec<_> = (0..3 * 4u32).map(spawn).collect();
    // All three pools wait for the seat, and their workers park.
    wait_until(|| {
        let pools = registry.pool_stats();
        let are_parked = pools.iter().filter(|it| it.nr_idle == it.nr_workers);
        let have_nothing = |it: &PoolStats| it.nr_workers > 0 && it.nr_pending == 0;
        are_parked.count() == 3 && pools.iter().all(have_nothing)
    });
    plug.release();
    handles.into_iter().for_each(|it| it.join().unwrap());
    let log = log.take();
    for round in log.chunks(3) {
        assert_eq!(round, &log[..3], "out of turn: {log:?}");
    }
    // If the worker loses its CPU during the first item, it expects long items and takes fewer.
    wait_until(|| taken_with_a_seat(64) > 1);
}

/// A seat that a pwq gets when the queue resumes does not allow a start after the next pause.
#[test]
fn nothing_starts_after_a_pause_on_a_seat_from_before_it() {
    let registry = tuned("1 core", |it| it.max_workers = 1);
    let other = queue("other").help(false).on(&registry);
    for limit in [1, 4] {
        let queue = queue("paused").help(false).max_active(limit).on(&registry);
        queue.pause();
        let before = queue.spawn(|| ());
        // A worker that reaches the next item has already put the pwq into the wait queue.
        let plug = plug_into(&other);
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

/// Queues `nr` tiny items. Returns the number that a worker takes at once when it gets a seat.
fn taken_with_a_seat(nr: usize) -> usize {
    let registry = tuned("1 core", |it| {
        it.max_workers = 1;
        // The manager does not return the items of the worker's local batch to the pool.
        it.watch_tick_us = 0;
    });
    let other = queue("other").help(false).on(&registry);
    let queue = queue("seats").help(false).max_active(4).on(&registry);
    let rest = |queue: &Workqueue| (1..nr).for_each(|_| queue.detach(|| ()));
    let plug = take_a_batch(&queue, &other, rest);
    let nr_left = waiting(&queue);
    plug.release_and_drain(&queue);
    nr - nr_left
}

/// Calls the closure that `prepare` returns on a thread that runs no item, while the queue's only
/// seat is in use. The closure runs a destructor that queues an item and waits for it. Checks that
/// the item runs after the seat is released.
fn waits_for_a_seat<F: FnOnce() + Send>(
    prepare: impl FnOnce(&Workqueue, AtDrop<Box<dyn FnOnce() + Send>>) -> F,
) {
    let (queue, gauge) = (queue("seat").max_active(1).alone(), Gauge::default());
    let work = Work::new(move || gauge.within(|| ()));
    let (own, flushed) = (queue.clone(), work.clone());
    let flushes = at_drop(Box::new(move || {
        assert!(own.enqueue(&flushed));
        flushed.flush().unwrap();
    }) as Box<dyn FnOnce() + Send>);
    let act = prepare(&queue, flushes);
    let (_, plug) = stuck(|hole| queue.detach(move || gauge.within(|| hole.sit())));
    thread::scope(|scope| {
        let acting = scope.spawn(act);
        wait_until(|| is_slept_for(&work) || acting.is_finished());
        plug.release();
    });
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1);
}

#[test]
fn an_item_awaited_by_a_dropped_closure_or_future_takes_a_seat() {
    waits_for_a_seat(|queue, flushes| {
        let queue = queue.clone();
        move || {
            queue.detach(move || drop(flushes));
            assert_eq!(queue.cancel_all(), 1);
        }
    });
    waits_for_a_seat(|queue, flushes| {
        let (send, receive) = mpsc::channel::<Waker>();
        drop(queue.spawn_async(poll_fn(move |context| {
            let _ = &flushes;
            send.send(context.waker().clone()).unwrap();
            Poll::<()>::Pending
        })));
        let waker = receive.recv().unwrap();
        // This item needs the only seat, so the poll has ended once the item has run.
        queue.spawn(|| ()).join().unwrap();
        move || drop(waker)
    });
}

#[test]
fn a_run_lends_its_seat_to_an_item_of_another_cpu() {
    let queue = queue("lent").affinity(Cpu).max_active(1);
    let queue = queue.max_active_scope(MaxActiveScope::Cpu).alone();
    let plug = plug_as(on_cpu(&queue, 1));
    let own = queue.clone();
    let joins = move || on_cpu(&own, 1).spawn(|| ()).join().unwrap();
    on_cpu(&queue, 0).spawn(joins).join().unwrap();
    plug.release_and_drain(&queue);
}
