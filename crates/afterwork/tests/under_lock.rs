//! Workers allocate no memory under their pool's lock. This test is a separate program, because its
//! allocator counts allocations.
#![cfg(all(debug_assertions, not(any(loom, shuttle))))]

#[path = "support/counting.rs"]
mod counting;

use std::cell::Cell;
use std::sync::atomic::*;

use afterwork::params::Params;
use afterwork::workqueue::{Registry, Work, Workqueue};
use topology::Topology;

static NR_UNDER_LOCK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Counts the allocations that workers make while they hold a lock.
#[global_allocator]
static ALLOCATOR: counting::Reporting = counting::Reporting {
    on_alloc: |_| {
        if IS_WORKER.get() && sync::lock::is_any_held() {
            NR_UNDER_LOCK.fetch_add(1, Ordering::Relaxed);
        }
    },
    on_free: |_| (),
};

#[test]
fn worker_allocates_nothing_under_the_pool_lock() {
    const ROUNDS: usize = 1000;
    let machine = Topology::synthetic("1 core").unwrap();
    let registry = Registry::new(machine, Params::default()).unwrap();
    // Only workers run the items, and each adoption includes items of several pwqs.
    let queues = ["one", "two"]
        .map(|name| Workqueue::builder(name).help(false).build_in(&registry).unwrap());
    let works: Vec<_> = (0..8).map(|_| Work::new(|| IS_WORKER.set(true))).collect();
    let go_round = || {
        for (work, queue) in works.iter().zip(queues.iter().cycle()) {
            assert!(queue.enqueue(work));
        }
        works.iter().for_each(|work| _ = work.flush().unwrap());
    };
    // In this round, the lists of workers and pwqs grow.
    go_round();
    let before = NR_UNDER_LOCK.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| go_round());
    let count = NR_UNDER_LOCK.load(Ordering::Relaxed) - before;
    // Another worker may still start and make a list grow. Each round has at least one adoption.
    assert!(count < ROUNDS / 10, "{count} allocations in {ROUNDS} rounds");
}
