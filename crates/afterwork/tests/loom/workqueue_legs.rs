//! Batches with items of two queues: their counts, and the seats of a leg that is put back.
//!
//! The pool has one CPU, so its only awake worker takes one item of each queue as one batch.

use crate::support::*;

/// Creates a machine with up to `max_workers` workers, and two queues that share its pool.
fn two_queues(max_workers: usize) -> (Machine, [Workqueue; 2]) {
    static ONE_CPU: OnceLock<Topology> = OnceLock::new();
    let topology = ONE_CPU.get_or_init(|| Topology::synthetic("1 core").unwrap());
    let params = Params { max_workers, max_batch: 2, ..Params::default() };
    let machine = Machine::new(topology, params);
    let build = |_| plain().max_active(3).build_in(machine.registry()).unwrap();
    let queues = [0, 1].map(build);
    (machine, queues)
}

fn flushes_wait_for_their_legs() {
    let (machine, [first, second]) = two_queues(1);
    let places = [(); 2].map(|()| Arc::new(Plain::default()));
    let items = places.clone().map(|place| Work::new(move || place.set(1)));
    first.enqueue(&items[0]);
    second.enqueue(&items[1]);
    machine.start_workers(1);
    // Each deadlocks if the count of its item is released elsewhere.
    second.flush().unwrap();
    assert_eq!(places[1].get(), 1);
    first.flush().unwrap();
    assert_eq!(places[0].get(), 1);
    wind_up([first, second]);
}

/// The item of the first leg blocks. The second leg is put back, and another worker runs it.
fn leg_is_put_back() {
    let (mut machine, [first, second]) = two_queues(2);
    let gate = Arc::new(Barred::default());
    let done = Arc::new(AtomicBool::new(false));
    let blocks = Work::new({
        let gate = gate.clone();
        move || workqueue::blocking(|| gate.pass())
    });
    let item = Work::new({
        let (done, notifier) = (done.clone(), machine.notifier());
        move || {
            done.store(true, Ordering::Release);
            notifier.unpark();
        }
    });
    first.enqueue(&blocks);
    second.enqueue(&item);
    machine.start_workers(1);
    machine.serve_until(|| done.load(Ordering::Acquire));
    // Deadlocks if the blocked worker still has a seat of this queue.
    second.drain().unwrap();
    gate.open();
    first.flush().unwrap();
    wind_up([first, second]);
}

/// The item of the second leg needs a thread that waits for the item of the first leg. Samples
/// release the counts of the first leg.
fn ended_leg_is_settled_during_the_next() {
    let (machine, [first, second]) = two_queues(1);
    let gate = Arc::new(Barred::default());
    let started = Arc::new(AtomicBool::new(false));
    let item = Work::new(|| {});
    // This wait is not reported, as that of a mutex or of a loop.
    let needs_us = Work::new({
        let (gate, started) = (gate.clone(), started.clone());
        move || {
            started.store(true, Ordering::Release);
            gate.pass();
        }
    });
    first.enqueue(&item);
    second.enqueue(&needs_us);
    machine.start_workers(1);
    while !started.load(Ordering::Acquire) {
        thread::yield_now();
    }
    (0..3).for_each(|_| machine.tick());
    first.flush().unwrap();
    gate.open();
    wind_up([first, second]);
}

fn leg_is_cancelled() {
    let (machine, [first, second]) = two_queues(1);
    let (count, nr_runs) = counter();
    let items = [(); 2].map(|()| Work::new(count.clone()));
    first.enqueue(&items[0]);
    second.enqueue(&items[1]);
    machine.start_workers(1);
    let nr_cancelled = second.cancel_all();
    second.flush().unwrap();
    first.flush().unwrap();
    assert_eq!(nr_runs.load(Ordering::Relaxed) as usize + nr_cancelled, 2);
    wind_up([first, second]);
}

models! {
    fn flush_waits_for_the_leg_of_its_queue() =
        bounded(2, flushes_wait_for_their_legs).detects(["take: counts go to the first leg"]);
    fn leg_behind_a_blocked_item_is_put_back_with_its_seat() =
        bounded(1, leg_is_put_back).detects(["take: a leg without items keeps its seat"]);
    fn counts_of_an_ended_leg_are_released_before_the_next_ends() =
        bounded(1, ended_leg_is_settled_during_the_next).detects(["sample: overlooks ended legs"]);
    fn leg_is_run_or_cancelled() = bounded(2, leg_is_cancelled);
}
