//! Attributes that change while items are queued.

use crate::support::*;

fn item_races_with_a_change() {
    let (machine, queue) = set_up(2, 1, plain());
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
    fn items_follow_the_routes_and_none_is_lost() =
        exhaustive(item_races_with_a_change).detects(["routes: relaxed publish"]);
}
