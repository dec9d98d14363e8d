//! Raw items, timers, callbacks and short joins allocate no memory when queued or waited for.

#![cfg(not(any(loom, shuttle)))]

#[path = "support/counting.rs"]
mod counting;

use std::cell::Cell;
use std::ptr::NonNull;
use std::time::Duration;

use afterwork::rcu;
use afterwork::workqueue::Workqueue;
use raw::{RawDelayed, RawWork};

thread_local!(static NR_TAKEN: Cell<u64> = const { Cell::new(0) });

#[global_allocator]
static COUNTING: counting::Reporting = counting::Reporting {
    // The counter does not exist while a thread exits.
    on_alloc: |_| _ = NR_TAKEN.try_with(|nr| nr.set(nr.get() + 1)),
    on_free: |_| (),
};

unsafe extern "C-unwind" fn nothing(_: *mut RawWork) {}

unsafe extern "C-unwind" fn forget(_: *mut rcu::Head) {}

/// Calls `act` once, which may allocate process-wide state. Later calls must allocate nothing.
fn takes_nothing(what: &str, mut act: impl FnMut()) {
    act();
    let before = NR_TAKEN.get();
    for _ in 0..100 {
        act();
    }
    let nr_taken = NR_TAKEN.get() - before;
    // A list of the pool may grow if more workers than ever before are awake.
    assert!(nr_taken < 10, "{what}: {nr_taken} in 100 times");
}

#[test]
fn nothing_is_allocated_for_an_item_a_timer_or_a_callback() {
    let queue = Workqueue::builder("memory").max_active(4).build().unwrap();
    let hour = Duration::from_secs(3600);
    // SAFETY: `nothing` may be called anywhere.
    let mut item = unsafe { RawDelayed::new(nothing) };
    let item = NonNull::from(&mut item);
    let work = RawDelayed::work(item);
    takes_nothing("short joins, after a thread's first few hundred", || {
        for _ in 0..500 {
            queue.join(|| (), || ());
        }
    });
    let mut heads: Vec<rcu::Head> = (0..101).map(|_| rcu::Head::new()).collect();
    let mut heads = heads.iter_mut();
    // SAFETY: in all of these, the item and the queue are valid, and idle before they are dropped.
    takes_nothing("items", || unsafe {
        RawWork::queue(work, &queue, None).unwrap();
        RawWork::flush(work).unwrap();
        RawWork::queue(work, &queue, None).unwrap();
        RawWork::cancel_sync(work).unwrap();
    });
    // SAFETY: as above.
    takes_nothing("timers", || unsafe {
        RawDelayed::queue(item, &queue, None, hour).unwrap();
        RawDelayed::modify(item, &queue, None, 2 * hour).unwrap();
        RawDelayed::cancel_sync(item).unwrap();
        RawDelayed::queue(item, &queue, None, hour).unwrap();
        RawDelayed::flush(item).unwrap();
    });
    // SAFETY: each head is queued once, and valid until the barrier below.
    takes_nothing("callbacks", || unsafe {
        rcu::raw::call_c(heads.next().unwrap(), forget);
    });
    rcu::barrier();
}
