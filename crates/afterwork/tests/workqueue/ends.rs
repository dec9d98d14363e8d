//! Destroying queues: on threads that must not wait, and while timers fire.

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
        let (queue, plug, _) = stuck(&registry, 0);
        let own = queue.clone();
        let work = Work::new(move || unreachable!("{own:?}: cancelled"));
        assert!(queue.enqueue(&work) && work.cancel());
        registry.refuse_threads(refuses);
        // From now on, only the item owns the queue, and only the list refers to the item.
        drop((work, queue));
        plug.release();
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
    let (other, count) = (queue("other").on(&registry), Count::default());
    let work = DelayedWork::new(count.adder());
    let armed = || {
        let queue = queue("brief").on(&registry);
        assert!(queue.enqueue_after(&work, HOUR) && work.is_pending());
        drop(queue);
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
    let [other, brief] = ["other", "brief"].map(|name| queue(name).on(&registry));
    let count = Count::default();
    let work = RcuWork::new(count.adder());
    let guard = rcu::read();
    assert!(brief.task().enqueue_rcu(&work) && work.is_pending());
    drop(brief);
    assert!(!work.is_pending());
    assert!(other.task().enqueue_rcu(&work) && work.is_pending());
    drop(guard);
    // The item may have run already.
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
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
    let mut drain = first.drain_async();
    assert!(poll_with(&mut drain, &waker).is_pending());
    drop(plug);
    wait_until(|| dropped.get() == 1);
    assert_eq!(items.map(|item| item.join().unwrap()), [0, 1, 2, 3]);
    drop(drain);
    drop(first);
    shut_down(registry);
}
