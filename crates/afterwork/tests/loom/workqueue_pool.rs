//! Pools: parking, kicks, culling, the monitor.

use crate::support::*;

/// An item is queued while a worker is about to park. The item runs.
fn one_worker_one_item() {
    let (_machine, queue) = queue(1, false);
    let work = Work::new(|| ());
    assert!(queue.enqueue(&work));
    // Deadlocks if the item is left to a sleeping worker.
    work.flush().unwrap();
    wind_up(queue);
}

/// A flusher may take the item out of the injector just when the parking worker checks it.
fn flush_adopts() {
    let (_machine, queue) = queue(1, false);
    let flusher = spawn_with(queue.clone(), move |queue| queue.flush().unwrap());
    let work = Work::new(|| ());
    queue.enqueue(&work);
    work.flush().unwrap();
    flusher.join().unwrap();
    wind_up(queue);
}

/// Like [`flush_adopts`], with an urgent item, whose pwq then has a seat and waits for the worker.
fn flush_adopts_urgent() {
    let machine = machine(2, 1);
    let queue = plain().max_active(1).build_in(machine.registry()).unwrap();
    let urgent = queue.urgent().unwrap();
    machine.start_workers(1);
    let flusher = spawn_with(queue.clone(), move |queue| queue.flush().unwrap());
    let work = Work::new(|| ());
    urgent.enqueue(&work);
    work.flush().unwrap();
    flusher.join().unwrap();
    drop(urgent);
    wind_up(queue);
}

/// An item is queued for a busy pool while the monitor is about to disarm itself.
fn pushed_while_the_monitor_ends() {
    let mut machine = machine(1, 1);
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.pretend_busy(true);
    machine.watch();
    assert!(machine.was_notified());
    let work = Work::new(|| ());
    let producer =
        spawn_with((queue.clone(), work.clone()), move |(queue, work)| queue.enqueue(&work));
    machine.tick();
    producer.join().unwrap();
    // Arming wakes the manager. A monitor that was never disarmed needs no wake-up.
    assert!(machine.is_watching(), "work waits and no monitor runs");
    go(&machine);
    drop(queue);
}

/// A worker is kicked and culled at the same time. A missing worker is created again.
fn kick_races_with_cull(nr_workers: usize) {
    let mut machine = machine(2, 2);
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.start_workers(nr_workers);
    let ((count, nr_runs), notifier) = (counter(), machine.notifier());
    let work = Work::new(move || {
        count();
        notifier.unpark();
    });
    let culler = machine.culler();
    let culler = spawn(move || culler.cull());
    queue.enqueue(&work);
    machine.serve_until(|| nr_runs.load(Ordering::Relaxed) == 1);
    culler.join().unwrap();
    wind_up(queue);
}

models! {
    fn item_is_never_stranded_at_sleeping_workers() = bounded(3, one_worker_one_item);
    fn item_never_waits_behind_a_blocked_one() =
        bounded(1, || first_waits_for_second(2, Barred::pass));
    fn an_item_adopted_by_a_flush_is_not_left_to_a_sleeping_worker() = bounded(1, flush_adopts);
    fn urgent_item_adopted_by_a_flush_wakes_a_worker() = bounded(1, flush_adopts_urgent);
    fn urgent_item_that_skips_the_wait_queue_is_missed() =
        must_fail("lanes: forgets to request a seat", || bounded(1, flush_adopts_urgent));
    fn pushing_needs_its_fence() = must_fail("push: no fence", || bounded(3, one_worker_one_item));
    fn parking_needs_its_fence() =
        must_fail("worker park: no fence", || bounded(3, one_worker_one_item));
    fn parking_needs_a_recheck() =
        must_fail("worker park: no second check", || bounded(3, one_worker_one_item));
    fn checking_after_the_lock_misses_items_adopted_by_a_flush() =
        must_fail("worker park: checks after the lock", || bounded(1, flush_adopts));
    fn taking_needs_its_fence() =
        must_fail("take: no fence", || bounded(1, || first_waits_for_second(2, Barred::pass)));
    fn taking_needs_the_chained_kick() = must_fail("take: no chained kick",
        || bounded(1, || first_waits_for_second(2, Barred::pass)));
    fn forgotten_wake_up_is_detected() =
        must_fail("wake queue: forgets to fire", || bounded(2, one_worker_one_item));
    fn stuck_work_is_seen_by_the_monitor() = exhaustive(pushed_while_the_monitor_ends);
    fn monitor_needs_its_fence() =
        must_fail("watch: no fence", || exhaustive(pushed_while_the_monitor_ends));
    fn a_kicked_worker_is_never_culled_and_its_item_is_run() =
        bounded(2, || kick_races_with_cull(1));
    fn a_kick_must_claim() = must_fail("kick: no claim", || bounded(2, || kick_races_with_cull(1)));
}
