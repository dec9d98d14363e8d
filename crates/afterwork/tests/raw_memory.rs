//! Raw items, timers and callbacks take no memory: not when they are queued, armed, cancelled, waited for, or handed over.

#![cfg(not(any(loom, shuttle)))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr::NonNull,
    time::Duration,
};

use afterwork::{rcu, workqueue::Workqueue};
use raw::{RawDelayed, RawWork};

thread_local!(static NR_TAKEN: Cell<u64> = const { Cell::new(0) });

/// Counts what each thread takes.
struct Counting;

// SAFETY: the system's allocator, beside which a number is changed that takes no memory itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Gone while a thread ends.
        NR_TAKEN.try_with(|nr| nr.set(nr.get() + 1)).ok();
        // SAFETY: our caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: our caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

unsafe extern "C-unwind" fn nothing(_: *mut RawWork) {}

unsafe fn forget(_: *mut rcu::Head) {}

/// Does `act` some times, of which the first may make what a process makes once; checks that the others take nothing.
fn takes_nothing(what: &str, mut act: impl FnMut()) {
    act();
    let before = NR_TAKEN.get();
    for _ in 0..100 {
        act();
    }
    let nr_taken = NR_TAKEN.get() - before;
    // A list of the pool's may grow where more workers come together than ever before.
    assert!(nr_taken < 10, "{what}: {nr_taken} in 100 times");
}

#[test]
fn nothing_is_allocated_for_an_item_a_timer_or_a_callback() {
    let queue = Workqueue::builder("memory").max_active(4).build().unwrap();
    let hour = Duration::from_secs(3600);
    // SAFETY: it may be called anywhere.
    let mut item = unsafe { RawDelayed::new(nothing) };
    let item = NonNull::from(&mut item);
    let work = RawDelayed::work(item);
    let mut heads: Vec<rcu::Head> = (0..101).map(|_| rcu::Head::new()).collect();
    let mut heads = heads.iter_mut();
    // SAFETY: (all of these) the item is there, and idle before it goes; so is the queue.
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
    // SAFETY: each head is handed over once, and stays until the barrier below.
    takes_nothing("callbacks", || unsafe {
        rcu::call_head(heads.next().unwrap(), forget);
    });
    rcu::barrier();
}
