//! Attributes that change while items are queued.

use crate::support::*;

/// An item is queued while the queue changes its pool. Then both pools run their items.
fn item_races_with_a_change() {
    let machine = machine(2, 1);
    let queue = plain().build_in(machine.registry()).unwrap();
    let (count, nr_runs) = counter();
    let work = Work::new(count);
    let enqueuer = spawn_with(queue.clone(), move |queue| assert!(queue.enqueue(&work)));
    queue.set_attrs(|attrs| attrs.nice = 5).unwrap();
    enqueuer.join().unwrap();
    loom::stop_exploring();
    machine.help_out();
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1);
    // Creates the workers that enqueuers requested; they find no work.
    machine.make_workers();
    drop(queue);
}

models! {
    fn items_follow_the_routes_and_none_is_lost() = exhaustive(item_races_with_a_change);
    fn new_routes_must_be_published() =
        must_fail("routes: relaxed publish", || exhaustive(item_races_with_a_change));
}
