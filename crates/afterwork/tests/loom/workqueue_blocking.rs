//! Workers that block in an item, with and without a report to their pool.

use crate::support::*;

/// The other item needs a worker that only the report of the blocking item requests.
fn blocks_for_another() {
    first_waits_for_second(1, |gate| workqueue::blocking(|| gate.pass()));
}

/// The monitor finds the only worker asleep. Later the worker takes an item, and is needed again.
fn sampled_asleep_then_awake() {
    let (machine, queue) = set_up(1, 1, plain());
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
    fn item_is_never_stranded_at_a_blocked_worker() =
        bounded(2, blocks_for_another).detects(["blocking: no fence", "blocking: no recheck"]);
    fn sleeping_worker_is_counted_again_when_it_takes_a_batch() =
        bounded(2, sampled_asleep_then_awake).detects(["take: still asleep"]);
}
