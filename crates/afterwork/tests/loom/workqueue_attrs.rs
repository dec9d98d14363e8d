//! Attributes that change while items are queued.

use std::sync::Arc;

use afterwork::workqueue::{Work, Workqueue};
use sync::{
    atomic::{AtomicUsize, Ordering},
    twin::must_fail,
};

use crate::support::{bounded, exhaustive, machine, plain, spawn};

/// An item is queued while the queue gets another pool; then both pools run what they have.
fn an_item_meets_a_change() {
    let machine = machine(2, 1);
    let queue = plain().build_in(machine.registry()).unwrap();
    let nr_runs = Arc::new(AtomicUsize::new(0));
    let work = Work::new({
        let nr_runs = nr_runs.clone();
        move || {
            nr_runs.fetch_add(1, Ordering::Relaxed);
        }
    });
    let enqueuer = spawn({
        let queue = queue.clone();
        move || assert!(queue.enqueue(&work))
    });
    queue.set_nice(5).unwrap();
    enqueuer.join().unwrap();
    loom::stop_exploring();
    machine.help_out();
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1);
    // Those that enqueuers asked for; they find nothing to do.
    machine.make_workers();
    drop(queue);
}

/// Two items are queued one after the other on an ordered queue that gets another pool meanwhile; then the pools run
/// what they may, the new one first.
fn an_order_meets_a_change() {
    let machine = machine(2, 1);
    let queue = Workqueue::builder("model").ordered();
    let queue = queue.build_in(machine.registry()).unwrap();
    // The digits of those that have run, the first one in front. No assertion in the items: their panics are caught.
    let order = Arc::new(AtomicUsize::new(0));
    let works = [1, 2].map(|digit| {
        let order = order.clone();
        Work::new(move || {
            let before = order.load(Ordering::Relaxed);
            order.store(before * 10 + digit, Ordering::Relaxed);
        })
    });
    let enqueuer = spawn({
        let queue = queue.clone();
        move || {
            for work in &works {
                assert!(queue.enqueue(work));
            }
        }
    });
    queue.set_nice(5).unwrap();
    enqueuer.join().unwrap();
    loom::stop_exploring();
    machine.help_out_last_first();
    machine.help_out();
    assert_eq!(order.load(Ordering::Relaxed), 12, "out of order, or lost");
    // Those that enqueuers asked for; they find nothing to do.
    machine.make_workers();
    drop(queue);
}

#[test]
fn items_follow_the_routes_and_none_is_lost() {
    exhaustive(an_item_meets_a_change);
}

#[test]
fn an_ordered_queue_keeps_its_order_while_its_attributes_change() {
    bounded(2, an_order_meets_a_change);
}

#[test]
fn new_routes_must_be_published() {
    must_fail("routes: relaxed publish", || {
        exhaustive(an_item_meets_a_change)
    });
}

#[test]
fn the_new_link_of_an_ordered_queue_must_be_plugged() {
    must_fail("reroute: forgets the plug", || {
        bounded(2, an_order_meets_a_change)
    });
}

#[test]
fn enqueuers_of_an_ordered_queue_must_be_waited_for() {
    must_fail("enqueue barrier: no check of who is inside", || {
        bounded(2, an_order_meets_a_change)
    });
}

#[test]
fn the_barrier_of_an_ordered_queue_needs_its_fence() {
    must_fail("enqueue barrier: no fence", || {
        bounded(2, an_order_meets_a_change)
    });
}
