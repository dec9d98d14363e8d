//! Sets of items: an item ends while the set's owner waits for it, and while the set is dropped.

use crate::support::*;

fn end_races_with_join_next() {
    let (_machine, queue) = queue(1, false);
    let mut set = TaskSet::new(&queue);
    set.spawn(|| 7);
    assert_eq!(block_on(set.join_next()).unwrap().unwrap(), 7);
    assert!(block_on(set.join_next()).is_none());
    drop(set);
    wind_up(queue);
}

fn two_ends_race_with_join_next() {
    let (_machine, queue) = queue(2, false);
    let mut set = TaskSet::new(&queue);
    set.spawn(|| 1);
    set.spawn_async(async { 2 });
    let mut sum = 0;
    while let Some(result) = block_on(set.join_next()) {
        sum += result.unwrap();
    }
    assert_eq!(sum, 3);
    drop(set);
    wind_up(queue);
}

/// All items are cancelled while one starts or ends. The set still returns cancelled items.
fn end_races_with_abort() {
    let (machine, queue) = queue(1, false);
    let nr_dropped = Arc::new(AtomicU32::new(0));
    let mut set = TaskSet::new(&queue);
    let (closure, future) = (Life(nr_dropped.clone()), Life(nr_dropped.clone()));
    set.spawn(move || drop(closure));
    set.spawn_async(async move { drop(future) });
    set.cancel_all();
    let mut nr_results = 0;
    while let Some(result) = block_on(set.join_next()) {
        assert!(matches!(result, Ok(()) | Err(JoinError::Cancelled)));
        nr_results += 1;
    }
    assert_eq!((nr_results, nr_dropped.load(Ordering::Relaxed)), (2, 2));
    drop(set);
    wind_up(queue);
    // At the end of the queue, a reaper drops the item that a task awaited.
    machine.reap();
}

fn end_races_with_drop() {
    let (_machine, queue) = queue(1, false);
    let nr_dropped = Arc::new(AtomicU32::new(0));
    let mut set = TaskSet::new(&queue);
    let life = Life(nr_dropped.clone());
    set.spawn(move || life);
    drop(set);
    drop(queue);
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 1);
    // Loom reports an item that is leaked or freed twice.
}

models! {
    fn set_waiter_is_woken_by_the_end_of_an_item() =
        bounded(2, end_races_with_join_next).detects(["task set: checks for a waiter first"]);
    fn every_result_of_a_set_is_taken_once() = bounded(1, two_ends_race_with_join_next);
    fn item_cancelled_as_it_ends_yields_one_result() = bounded(1, end_races_with_abort);
    fn set_dropped_as_an_item_ends_drops_the_result_once() = bounded(2, end_races_with_drop);
}
