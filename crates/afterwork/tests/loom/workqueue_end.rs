//! The end of a queue while a timer queues an item, and by a drop in a bottom half.

use crate::support::*;

fn timer_races_with_end() {
    let machine = Arc::new(machine(1, 1));
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.start_workers(1);
    let (runs, count) = counter();
    let work = DelayedWork::new(runs);
    assert!(queue.enqueue_after(&work, SOON));
    let firing = spawn(move || machine.fire_timers(2 * SOON));
    drop(queue);
    let nr_runs = count.load(Ordering::Relaxed);
    assert_eq!(work.busy(), Busy::default(), "it waits in a destroyed queue");
    firing.join().unwrap();
    assert_eq!(work.busy(), Busy::default(), "it was queued on a destroyed queue");
    assert_eq!(count.load(Ordering::Relaxed), nr_runs);
}

/// The last handles to a queue and to an item whose timer is armed on it are dropped at once.
fn far_timer_races_with_end(cancels: bool) {
    let machine = Arc::new(machine(1, 1));
    let queue = plain().build_in(machine.registry()).unwrap();
    let nr_dropped = Arc::new(AtomicU32::new(0));
    let owned = Life(nr_dropped.clone());
    let work = DelayedWork::new(move || _ = &owned);
    assert!(queue.enqueue_after(&work, SOON));
    let other = spawn(move || {
        if cancels {
            work.cancel();
        }
        drop(work);
    });
    drop(queue);
    other.join().unwrap();
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 1);
}

/// A bottom-half item drops the last handle to a queue that has an item, all on one thread.
fn bottom_half_drops_the_last_handle() {
    let machine = machine(1, 1);
    let bh = plain().bh().build_in(machine.registry()).unwrap();
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.pretend_busy(true);
    let (runs, count) = counter();
    // A future keeps the queue's memory alive, so the model continues if the queue ends early.
    let item = queue.spawn_async(async move { runs() });
    let dropped = bh.spawn(move || drop(queue));
    go(&machine);
    machine.reap();
    dropped.join().expect("the end unwound");
    item.join().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(bh);
}

/// An item drops the last handle to its queue on the worker. A reaper then destroys the queue.
fn item_drops_its_own_queue() {
    let (machine, queue) = set_up(1, 1, plain());
    machine.start_workers(1);
    let own = queue.clone();
    queue.spawn_detached(move || drop(own)).unwrap();
    drop(queue);
    machine.end();
}

models! {
    fn a_queue_does_not_end_while_a_timer_leaves_an_item() =
        bounded(2, timer_races_with_end).detects(["queue: a lease without its queue"]);
    fn delayed_items_are_dropped_with_their_queue() =
        bounded(2, || far_timer_races_with_end(true)),
        bounded(2, || far_timer_races_with_end(false)).detects(["end: leaves its timers"]);
    fn bottom_half_item_may_drop_the_last_handle_of_a_busy_queue() =
        bounded(2, bottom_half_drops_the_last_handle).detects(["queue: an end unwinds"]);
    fn queue_dropped_by_its_own_item_is_destroyed_completely() =
        bounded(2, item_drops_its_own_queue)
            .detects(["cleanups: the first does not wake the manager"]);
}
