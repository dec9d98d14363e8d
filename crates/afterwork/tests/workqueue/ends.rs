//! The end of queues, on threads that must not wait and while timers fire. Reapers, which run
//! destructors that may wait for anything, including each other.

use crate::support::*;

const SOON: Duration = Duration::from_micros(50);

/// Returns a queue whose only seat is in use, and that has `nr_items` items that wait for it.
fn stuck(registry: &Registry, nr_items: usize) -> (Workqueue, Plug, Count) {
    let queue = queue("stuck").max_active(1).on(registry);
    let (plug, count) = (plug_into(&queue), Count::default());
    count.spawn(nr_items, &queue);
    (queue, plug, count)
}

fn all_gone(registry: Registry) {
    wait_until(|| registry.pool_stats().is_empty());
    shut_down(registry);
}

#[test]
fn a_bottom_half_that_drops_the_last_handle_does_not_wait() {
    let (registry, bh) = queue("bh").bh().on_own(registry("2 core"));
    for _ in 0..20 {
        let (queue, plug, count) = stuck(&registry, 100);
        bh.spawn(move || drop(queue)).join().unwrap();
        assert_eq!(count.get(), 0);
        plug.release();
        wait_until(|| count.get() == 100);
    }
    drop(bh);
    all_gone(registry);
}

#[test]
fn a_callback_of_rcu_that_drops_the_last_handle_does_not_wait() {
    let registry = registry("2 core");
    let (queue, plug, count) = stuck(&registry, 1);
    rcu::call(move || drop(queue));
    rcu::barrier();
    assert_eq!(count.get(), 0);
    plug.release();
    all_gone(registry);
    assert_eq!(count.get(), 1);
}

#[test]
fn the_manager_that_drops_the_last_handle_does_not_wait() {
    let registry = registry("2 core");
    let (stuck, plug, count) = stuck(&registry, 1);
    let [timers, others] = ["timers", "others"].map(|name| queue(name).on(&registry));
    let census = Census::default();
    let work = DelayedWork::new(owning((census.life(), stuck)));
    timers.enqueue_after(&work, MS);
    drop(work);
    // The manager then drops the item's last handle, unless the timer has already fired.
    let ender = thread::spawn(move || drop(timers));
    census.all_dropped(1);
    let fired = Count::default();
    others.enqueue_after(&DelayedWork::new(fired.adder()), SOON);
    wait_until(|| fired.get() == 1);
    assert_eq!(count.get(), 0);
    plug.release();
    drop(others);
    ender.join().unwrap();
    all_gone(registry);
    assert_eq!(count.get(), 1);
}

#[test]
fn end_without_a_thread_is_completed_anyway() {
    for (builder, refuses) in
        [(queue("own"), false), (queue("own"), true), (queue("reclaims").with_rescuer(), true)]
    {
        let registry = registry("2 core");
        let (queue, census) = (builder.max_active(1).on(&registry), Census::default());
        arm_for_an_hour(&queue, census.life());
        let (plug, count) = (plug_of_owner(&queue), Count::default());
        registry.refuse_threads(refuses);
        count.spawn(10, &queue);
        drop(queue);
        plug.release();
        all_gone(registry);
        assert_eq!(count.get(), 10);
        census.all_dropped(1);
    }
}

#[test]
fn a_queue_ends_with_an_item_that_was_cancelled_on_it() {
    for refuses in [false, true] {
        let registry = registry("2 core");
        let ((queue, plug, _), census) = (stuck(&registry, 0), Census::default());
        let work = Work::new(owning((queue.clone(), census.life())));
        assert!(queue.enqueue(&work) && work.cancel());
        registry.refuse_threads(refuses);
        // From now on, only the item owns the queue, and only the list refers to the item.
        drop((work, queue));
        plug.release();
        census.all_dropped(1);
        all_gone(registry);
    }
}

#[test]
fn a_panic_handler_whose_drop_waits_blocks_no_manager() {
    let (registry, other) = queue("other").help(false).on_own(registry("2 core"));
    let (go, gate) = mpsc::channel();
    let waits = Mutex::new(at_drop(move || _ = gate.recv()));
    let handler = move |_: &ItemPanic<'_>| drop(waits.lock());
    let queue = queue("own").nice(3).on_panic(handler).on(&registry);
    let plug = plug_of_owner(&queue);
    registry.refuse_threads(true);
    drop(queue);
    plug.release();
    // The manager may now be in that drop. It still fires timers and destroys queues.
    wait_until(|| registry.pool_stats().iter().all(|pool| pool.nice != 3));
    let timed = DelayedWork::new(|| ());
    assert!(other.enqueue_after(&timed, MS));
    wait_until(|| !timed.is_pending());
    registry.refuse_threads(false);
    go.send(()).unwrap();
    drop((other, timed));
    all_gone(registry);
}

#[test]
fn the_last_handle_waits_for_all_items_while_timers_fire() {
    let (work, stop) = (DelayedWork::new(|| ()), Count::default());
    let flushers = [(); 2].map(|()| {
        beside(&work, move |work| {
            while stop.get() == 0 {
                work.flush().unwrap();
                thread::yield_now();
            }
        })
    });
    for round in 0..20 {
        let registry = registry("2 core");
        for _ in 0..50 {
            let queue = queue("brief").on(&registry);
            queue.enqueue_after(&work, if round % 2 == 0 { SOON } else { HOUR });
            let count = Count::default();
            count.spawn(4, &queue);
            drop(queue);
            assert_eq!(count.get(), 4, "the drop did not wait");
            work.cancel_sync();
        }
        registry.shutdown().unwrap();
    }
    stop.add();
    flushers.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
fn a_timer_ends_with_the_last_handle_of_its_queue() {
    let registry = registry("2 core");
    let other = queue("other").on(&registry);
    let ways: [fn(Workqueue); 2] = [drop, |queue| queue.shutdown(Duration::MAX).unwrap()];
    for end in ways {
        let (count, census) = (Count::default(), Census::default());
        let work = DelayedWork::new(keeping(census.life(), count.adder()));
        let armed = || {
            let queue = queue("brief").on(&registry);
            assert!(queue.enqueue_after(&work, HOUR) && work.is_pending());
            end(queue);
        };
        armed();
        assert_eq!(work.busy(), Busy::default());
        armed();
        assert!(!work.cancel());
        armed();
        assert_eq!(work.flush(), Ok(false));
        armed();
        assert_eq!(other.reschedule(&work, HOUR), Ok(true));
        assert!(work.cancel());
        armed();
        assert!(other.enqueue_after(&work, Duration::ZERO));
        work.flush().unwrap();
        assert_eq!(count.get(), 1);
        // An item that waits for readers outlives its queue.
        let brief = queue("brief").on(&registry);
        let rcu_work = RcuWork::new(keeping(census.life(), count.adder()));
        let guard = rcu::read();
        assert!(brief.task().enqueue_rcu(&rcu_work) && rcu_work.is_pending());
        end(brief);
        assert!(!rcu_work.is_pending());
        assert!(other.task().enqueue_rcu(&rcu_work) && rcu_work.is_pending());
        drop(guard);
        // The item may have run already.
        rcu_work.flush().unwrap();
        assert_eq!(count.get(), 2);
        drop((work, rcu_work));
        census.all_dropped(2);
    }
}

#[test]
fn delayed_items_are_dropped_with_the_last_handle() {
    let registry = registry("2 core");
    let (brief, other) = (queue("brief").on(&registry), queue("other").on(&registry));
    let (census, others) = (Census::default(), Census::default());
    for _ in 0..100 {
        arm_for_an_hour(&brief, census.life());
        arm_for_an_hour(&other, others.life());
    }
    let kept = DelayedWork::new(|| ());
    assert!(brief.enqueue_after(&kept, HOUR));
    drop(brief);
    assert_eq!(census.alive(), 0);
    assert_eq!(others.alive(), 100);
    // A handle that survives its queue can be armed on another queue.
    assert!(other.enqueue_after(&kept, HOUR) && kept.cancel() && !kept.cancel());
    drop((kept, other));
    assert_eq!(others.alive(), 0);
    registry.shutdown().unwrap();
    // An item of the queue waits for the destructor of a timer's item.
    let (queue, dropped) = (queue("brief").alone(), Count::default());
    arm_for_an_hour(&queue, at_drop(dropped.adder()));
    queue.detach(move || wait_until(|| dropped.get() == 1));
    drop(queue);
}

#[test]
fn a_waker_between_items_may_drop_the_next_items_queue() {
    let registry = tuned("1 core", |it| it.max_workers = 1);
    let [first, second] = ["first", "second"].map(|name| queue(name).help(false).on(&registry));
    let plug = plug_into(&first);
    let items = [0, 1, 2, 3].map(|i| second.spawn(move || i));
    let dropped = Count::default();
    let waker = waker_once(move || {
        drop(second);
        dropped.add();
    });
    let drain = polled(first.drain_async(), &waker);
    drop(plug);
    wait_until(|| dropped.get() == 1);
    assert_eq!(items.map(|item| item.join().unwrap()), [0, 1, 2, 3]);
    drop(drain);
    drop(first);
    shut_down(registry);
}

/// Queues and cancels items that own the given values on a queue that starts no item, so that a
/// reaper drops the values.
fn drop_aside(queue: &Workqueue, owned: Vec<Box<dyn Send>>) {
    let works = owned.into_iter().map(|owned| {
        let work = Work::new(owning(owned));
        assert!(queue.enqueue(&work) && work.cancel());
        work
    });
    drop(works.collect::<Vec<_>>());
    assert_eq!(waiting(queue), 0);
}

#[test]
fn a_destructor_that_waits_delays_no_other_and_no_end() {
    let registry = registry("2 core");
    let ((full, stuck, _), go, last) = (stuck(&registry, 0), Count::default(), Count::default());
    let waits = |_| Box::new(at_drop(move || wait_until(|| go.get() > 0))) as Box<dyn Send>;
    let mut owned: Vec<_> = (0..3).map(waits).collect();
    owned.push(Box::new(at_drop(last.adder())));
    drop_aside(&full, owned);
    wait_until(|| last.get() == 1);
    // Nor does it delay the end of a queue.
    let queue = queue("brief").nice(3).on(&registry);
    let plug = plug_of_owner(&queue);
    drop(queue);
    plug.release();
    wait_until(|| registry.pool_stats().iter().all(|pool| pool.nice != 3));
    go.add();
    stuck.release();
    drop(full);
    shut_down(registry);
}

/// Returns a value whose destructor shuts the registry down, the sender that starts the shutdown,
/// and the receiver of its outcome.
fn shuts_down(registry: Registry) -> (AtDrop<impl FnOnce() + Send>, Sender<()>, Receiver<bool>) {
    let (go, stop) = mpsc::channel();
    let (send, receive) = mpsc::channel();
    let shut = at_drop(move || {
        stop.recv().unwrap();
        send.send(registry.shutdown().is_ok()).unwrap();
    });
    (shut, go, receive)
}

#[test]
fn a_destructor_does_not_wait_for_the_end_of_its_own_thread() {
    for on_the_reserve in [false, true] {
        let registry = registry("2 core");
        let (full, plug, _) = stuck(&registry, 0);
        registry.refuse_threads(on_the_reserve);
        let (shut, go, receive) = shuts_down(registry);
        drop_aside(&full, vec![Box::new(shut)]);
        plug.release();
        drop(full);
        go.send(()).unwrap();
        assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
    }
    // The same holds for a local of a worker.
    let (registry, queue) = queue("local").help(false).on_own(registry("2 core"));
    let (shut, go, receive) = shuts_down(registry);
    queue.spawn(move || drop_at_exit(shut)).join().unwrap();
    // The worker exits with its pool.
    drop(queue);
    go.send(()).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
}

/// Creates `nr` values. The destructor of each one waits for the next destructor. Counts the
/// destructors that have begun, and those that have ended.
fn chain(nr: usize) -> (Vec<Box<dyn Send>>, [Count; 2]) {
    let [begun, ended] = [(); 2].map(|()| Count::default());
    let (mut last, mut owned) = (None::<Sender<()>>, Vec::new());
    for _ in 0..nr {
        let (ends, waits_for) = mpsc::channel::<()>();
        let before = last.replace(ends);
        // The last destructor does not wait, because its sender is dropped after the loop.
        owned.push(Box::new(at_drop(move || {
            begun.add();
            _ = waits_for.recv();
            ended.add();
            drop(before);
        })) as Box<dyn Send>);
    }
    (owned, [begun, ended])
}

/// Defers `nr` destructors, each of which waits for the next one, in a registry that cannot create
/// threads. Shuts the registry down when the fallback reaper blocks in the first one. From then on,
/// the registry can create threads if `relents` is set.
fn chain_of_destructors_at_the_end(nr: usize, relents: bool) {
    let registry = registry("2 core");
    let (full, plug, _) = stuck(&registry, 0);
    registry.refuse_threads(true);
    let (owned, [begun, count]) = chain(nr);
    drop_aside(&full, owned);
    wait_until(|| begun.get() > 0);
    plug.release();
    drop(full);
    registry.refuse_threads(!relents);
    shut_down(registry);
    assert_eq!(count.get(), nr);
}

#[test]
fn destructors_that_wait_for_each_other_end_with_their_registry() {
    (0..10).for_each(|_| chain_of_destructors_at_the_end(5, true));
    // On the fallback reaper, a destructor may wait for the next one.
    chain_of_destructors_at_the_end(2, false);
}

/// Each destructor waits for the next one. Thread creation fails sporadically.
#[test]
fn chains_of_destructors_end_with_their_registry() {
    let mut dice = Dice::new(seed());
    for _ in 0..30 {
        let (registry, queue) = queue("brief").on_own(registry("2 core"));
        queue.pause();
        let nr = 1 + dice.below(10);
        let (owned, [_, count]) = chain(nr);
        drop_aside(&queue, owned);
        queue.close_in_background();
        for i in 0..dice.below(4) {
            registry.refuse_threads(i % 2 == 0);
            thread::yield_now();
        }
        registry.refuse_threads(false);
        if dice.below(2) == 0 {
            shut_down(registry);
            assert_eq!(count.get(), nr);
        } else {
            drop(registry);
            wait_until(|| count.get() == nr);
        }
    }
}

#[test]
fn a_report_handler_does_not_wait_for_the_end_of_the_manager() {
    let registry = tuned("1 core", |it| it.watchdog_thresh_ms = 20);
    let (queue, plug) = queue("stalls").bh().plugged_on(&registry);
    let waits = queue.spawn(|| ());
    let (shut, go, receive) = shuts_down(registry.clone());
    let (nr_reports, shut) = (Count::default(), Mutex::new(Some(shut)));
    registry.on_report(move |_| {
        nr_reports.add();
        drop(shut.lock().unwrap().take());
    });
    wait_until(|| nr_reports.get() > 0);
    plug.release();
    waits.join().unwrap();
    drop((queue, registry));
    go.send(()).unwrap();
    assert!(receive.recv_timeout(PATIENCE).is_ok(), "it waits for itself");
}

#[test]
fn very_many_queues_end_in_own_items_and_leave_no_thread() {
    in_own_process(|| {
        let registry = registry("2 core");
        (0..2000).for_each(|_| drop(queue("brief").on(&registry).spawn_own(|_| ())));
        shut_down(registry);
        assert!(our_threads().is_empty());
    });
}
