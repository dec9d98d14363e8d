//! Pools: parking, kicks, culling, the monitor.

use crate::support::*;

fn one_worker_one_item() {
    let (_machine, queue) = queue(1, false);
    let work = Work::new(|| ());
    assert!(queue.enqueue(&work));
    // Deadlocks if the item is left to a sleeping worker.
    work.flush().unwrap();
    wind_up(queue);
}

/// A flusher may take the item out of the injector just when the parking worker checks it. The pwq
/// of an urgent item then has a seat and waits for the worker.
fn flush_adopts(is_urgent: bool) {
    let (machine, queue) = set_up(2, 1, plain().max_active(1));
    let lane = if is_urgent { queue.urgent().unwrap() } else { queue.clone() };
    machine.start_workers(1);
    let flusher = spawn_with(queue.clone(), move |queue| queue.flush().unwrap());
    let work = Work::new(|| ());
    lane.enqueue(&work);
    work.flush().unwrap();
    flusher.join().unwrap();
    drop(lane);
    wind_up(queue);
}

/// An item is queued for a busy pool while the monitor is about to disarm itself.
fn pushed_while_the_monitor_ends() {
    let (mut machine, queue) = set_up(1, 1, plain());
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

fn kick_races_with_cull(nr_workers: usize) {
    let (mut machine, queue) = set_up(2, 2, plain());
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
    fn item_is_never_stranded_at_sleeping_workers() =
        bounded(3, one_worker_one_item).detects([
            "push: no fence",
            "worker park: no fence",
            "worker park: no second check",
            "wake queue: forgets to fire",
        ]);
    fn item_never_waits_behind_a_blocked_one() =
        bounded(1, || first_waits_for_second(2, Barred::pass))
            .detects(["take: no fence", "take: no chained kick"]);
    fn an_item_adopted_by_a_flush_is_not_left_to_a_sleeping_worker() =
        bounded(1, || flush_adopts(false)).detects(["worker park: checks after the lock"]);
    fn urgent_item_adopted_by_a_flush_wakes_a_worker() =
        bounded(1, || flush_adopts(true)).detects(["lanes: forgets to request a seat"]);
    fn stuck_work_is_seen_by_the_monitor() =
        exhaustive(pushed_while_the_monitor_ends).detects(["watch: no fence"]);
    fn a_kicked_worker_is_never_culled_and_its_item_is_run() =
        bounded(2, || kick_races_with_cull(1)).detects(["kick: no claim"]);
}
