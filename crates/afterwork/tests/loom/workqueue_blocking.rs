//! Workers that block in an item, with and without a report to their pool.

use crate::support::*;

/// The other item needs a worker that only the report of the blocking item requests.
fn blocks_for_another() {
    first_waits_for_second(1, |gate| workqueue::blocking(|| gate.pass()));
}

/// The monitor finds the only worker asleep. Later the worker takes an item, and is needed again.
fn sampled_asleep_then_awake() {
    let machine = machine(1, 1);
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.start_workers(1);
    let gate = Arc::new(Barred::default());
    let theirs = gate.clone();
    let first = Work::new(move || theirs.pass());
    let second = Work::new(|| ());
    queue.enqueue(&first);
    queue.enqueue(&second);
    machine.tick();
    machine.tick();
    gate.open();
    second.flush().unwrap();
    assert!(queue.enqueue(&second));
    // Deadlocks if no worker is kicked because the parking worker is counted as awake.
    second.flush().unwrap();
    wind_up(queue);
}

models! {
    fn item_is_never_stranded_at_a_blocked_worker() = bounded(2, blocks_for_another);
    fn blocking_needs_its_fence() =
        must_fail("blocking: no fence", || bounded(2, blocks_for_another));
    fn blocking_needs_its_recheck() =
        must_fail("blocking: no recheck", || bounded(2, blocks_for_another));
    fn sleeping_worker_is_counted_again_when_it_takes_a_batch() =
        bounded(2, sampled_asleep_then_awake);
    fn worker_counted_as_asleep_for_ever_is_detected() =
        must_fail("take: still asleep", || bounded(2, sampled_asleep_then_awake));
}
