//! Rescuers: calls to a rescuer that is about to sleep, and workers that arrive late.

use crate::support::*;

/// Time after which a pool that lacks a worker calls its rescuers.
const LONG_NS: u64 = 10_000_000;

/// No worker arrives, and the rescuer is called while it may be about to sleep.
fn called_to_sleep() {
    let (machine, queue) = set_up(1, 1, plain().with_rescuer());
    let work = Work::new(|| ());
    queue.enqueue(&work);
    machine.mayday(0);
    machine.mayday(LONG_NS);
    // Deadlocks if the call is lost.
    work.flush().unwrap();
    loom::stop_exploring();
    machine.make_workers();
    drop(queue);
}

/// A worker arrives just after the rescuer was called. There is one seat for two items.
fn late_worker_arrives() {
    let machine = machine(1, 1);
    let queue = plain().with_rescuer().max_active(1);
    let queue = queue.build_in(machine.registry()).unwrap();
    let (count, nr_runs) = counter();
    let work = Work::new(count);
    queue.enqueue(&work);
    machine.mayday(0);
    machine.mayday(LONG_NS);
    machine.make_workers();
    work.flush().unwrap();
    assert!(queue.enqueue(&work));
    work.flush().unwrap();
    assert_eq!(nr_runs.load(Ordering::Relaxed), 2);
    wind_up(queue);
}

models! {
    fn call_reaches_a_rescuer_that_prepares_to_sleep() =
        bounded(3, called_to_sleep).detects(["mayday: notifies before it writes"]);
    fn rescuer_and_a_late_worker_share_the_work() =
        bounded(1, late_worker_arrives).detects(["rescue: keeps its seat"]);
}
