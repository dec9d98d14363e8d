//! Memory and threads of an unused queue. This is a separate program, because its allocator counts
//! memory.
#![cfg(not(any(loom, shuttle)))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicIsize, Ordering},
};

use afterwork::{
    params::Params,
    workqueue::{Registry, Workqueue},
};
use topology::Topology;

/// Counts the bytes in use.
struct Counting;

static NR_BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NR_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NR_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn nr_threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_thousand_idle_queues_own_no_thread_and_little_memory() {
    const COUNT: usize = 1000;
    /// The seat cache of a CPU has its own cache lines.
    const EACH_CPU: usize = 128;
    // Each further pool costs some 800 bytes per queue.
    for machine in ["2 core", "4 llc x 8 core"] {
        let machine = Topology::synthetic(machine).unwrap();
        let limit = 4096 + (EACH_CPU * machine.allowed().len()) as isize;
        let registry = Registry::new(machine, Params::default()).unwrap();
        let mut queues = Vec::with_capacity(COUNT);
        let (threads, bytes) = (nr_threads(), NR_BYTES.load(Ordering::Relaxed));
        for _ in 0..COUNT {
            queues.push(Workqueue::builder("idle").build_in(&registry).unwrap());
        }
        let each = (NR_BYTES.load(Ordering::Relaxed) - bytes) / COUNT as isize;
        println!("{each} bytes a queue of {} pools", registry.pool_stats().len());
        // There may be fewer threads, because those of the previous registry may just be exiting.
        assert!(nr_threads() <= threads, "a queue has a thread");
        assert!(each <= limit, "{each} bytes each");
        drop(queues);
        let left = NR_BYTES.load(Ordering::Relaxed) - bytes;
        assert!(left < 1 << 16, "{left} bytes are left");
    }
}
