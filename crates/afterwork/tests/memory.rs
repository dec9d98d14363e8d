//! Memory and threads of unused objects, and calls that allocate no memory. `docs/workqueue.md` has
//! the output of the first test.
#![cfg(not(any(loom, shuttle)))]

mod children;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::*;
use std::task::{Context, Waker};
use std::time::Duration;
use std::{fs, iter, thread};

use afterwork::mailbox::Mailbox;
use afterwork::params::Params;
use afterwork::percpu::PerCpu;
use afterwork::rcu;
use afterwork::rcu::srcu::Domain;
use afterwork::workqueue::{DelayedWork, Registry, Work, Workqueue, sleep};
// The tests measure the memory of the whole process.
use children::{alone, number_in};
use raw::{RawDelayed, RawWork};
use topology::Topology;

const HOUR: Duration = Duration::from_secs(3600);

static NR_BYTES: AtomicIsize = AtomicIsize::new(0);
/// Number of allocations that workers made while they held a lock.
static NR_UNDER_LOCK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NR_TAKEN: Cell<u64> = const { Cell::new(0) };
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

impl Counting {
    fn count(layout: Layout) {
        NR_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        NR_TAKEN.set(NR_TAKEN.get() + 1);
        if IS_WORKER.get() && sync::lock::is_any_held() {
            NR_UNDER_LOCK.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: the system allocator does all the work, and counting allocates no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc(layout) }
    }

    // The default implementation clears the memory itself, and writes to pages that are never used.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NR_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.dealloc(place, layout) }
    }
}

fn threads() -> BTreeSet<OsString> {
    fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().file_name()).collect()
}

/// Returns `true` if `id` is a thread of the library. Other tests may start threads at any time.
fn is_ours(id: &OsString) -> bool {
    // The thread may have exited.
    let name = fs::read_to_string(Path::new("/proc/self/task").join(id).join("comm"));
    name.is_ok_and(|name| name.starts_with("aw") || name.starts_with("rcu"))
}

/// Returns the bytes that the process has allocated, and its resident memory without code.
fn in_use() -> [isize; 2] {
    let kib = number_in("/proc/self/status", "RssAnon:").unwrap();
    [NR_BYTES.load(Ordering::Relaxed), (kib << 10) as isize]
}

/// Creates objects of at most `limit` bytes. Returns them, so that no other reuses their memory.
fn weigh<T: 'static>(
    name: &str,
    limit: isize,
    count: usize,
    create: impl FnMut() -> T,
) -> Box<dyn std::any::Any> {
    let mut all = Vec::with_capacity(count);
    let before = in_use();
    all.extend(iter::repeat_with(create).take(count));
    let after = in_use();
    let [each, resident] = [0, 1].map(|at| (after[at] - before[at]) / count as isize);
    println!("| {name} | {each} | {resident} |");
    assert!(each <= limit, "{name}: {each} bytes each");
    Box::new(all)
}

#[test]
fn idle_objects_take_little_memory() {
    let _alone = alone();
    println!("| one of | allocated | resident |");
    let bare = in_use();
    let queue = Workqueue::builder("first").build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    rcu::synchronize();
    let [allocated, resident] = [0, 1].map(|at| in_use()[at] - bare[at]);
    println!("| first queue, with an item, and RCU | {allocated} | {resident} |");
    let nr_cpus = Topology::detect().unwrap().allowed().len() as isize;
    let _all = [
        weigh("queue", 4352 + 128 * nr_cpus, 1000, || Workqueue::builder("idle").build().unwrap()),
        weigh("ordered queue", 4352 + 128 * nr_cpus, 1000, || {
            Workqueue::builder("idle").ordered().build().unwrap()
        }),
        weigh("strand", 192, 10_000, || queue.strand(0_u64)),
        weigh("mailbox with a poster", 1280, 10_000, || {
            let mailbox = Mailbox::<u64>::new();
            (mailbox.poster(), mailbox)
        }),
        weigh("`Work`", 64, 10_000, || Work::new(|| ())),
        weigh("`DelayedWork`", 256, 10_000, || DelayedWork::new(|| ())),
        weigh("`DelayedWork` that is armed", 256, 10_000, || {
            let work = DelayedWork::new(|| ());
            assert!(queue.enqueue_after(&work, HOUR));
            work
        }),
        weigh("sleep", 128, 10_000, || {
            let mut sleep = Box::pin(sleep(HOUR));
            let polled = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            sleep
        }),
        weigh("SRCU domain", 1792, 1200, Domain::new),
        weigh("SRCU domain that was read", 3072, 1200, || {
            let domain = Domain::new();
            drop(domain.read());
            domain
        }),
        weigh("per-CPU counter", 1024 + 256 * nr_cpus, 1000, || {
            PerCpu::builder().build(|_| 0_u64).unwrap()
        }),
    ];
}

#[test]
fn a_thousand_idle_queues_own_no_thread_and_little_memory() {
    let _alone = alone();
    /// The seat cache of a CPU has its own cache lines.
    const EACH_CPU: usize = 128;
    // Each additional pool costs about 800 bytes per queue.
    for machine in ["2 core", "4 llc x 8 core"] {
        let machine = Topology::synthetic(machine).unwrap();
        let limit = 4096 + (EACH_CPU * machine.allowed().len()) as isize;
        let registry = Registry::new(machine, Params::default()).unwrap();
        let (before, bytes) = (threads(), NR_BYTES.load(Ordering::Relaxed));
        let name = format!("queue of {} pools", registry.pool_stats().len());
        let build = || Workqueue::builder("idle").build_in(&registry).unwrap();
        let queues = weigh(&name, limit, 1000, build);
        // A reaper of the previous registry may still run. A thread of a queue would never exit.
        while threads().difference(&before).any(is_ours) {
            thread::sleep(Duration::from_millis(1));
        }
        drop(queues);
        let left = NR_BYTES.load(Ordering::Relaxed) - bytes;
        assert!(left < 1 << 16, "{left} bytes are left");
    }
}

unsafe extern "C-unwind" fn nothing(_: *mut RawWork) {}

unsafe extern "C-unwind" fn forget(_: *mut rcu::Head) {}

const ATTEMPTS: usize = 20;
const CALLS: usize = 100;

/// Calls `act` once, which may allocate process-wide state. Later calls must allocate nothing. A
/// thread that is preempted in a join may offer many later joins to workers, and each offer
/// allocates memory. One of several attempts must therefore succeed.
fn takes_nothing(what: &str, mut act: impl FnMut()) {
    act();
    let attempts = iter::repeat_with(|| {
        let before = NR_TAKEN.get();
        (0..CALLS).for_each(|_| act());
        NR_TAKEN.get() - before
    });
    let counts: Vec<_> = attempts.take(ATTEMPTS).take_while(|count| *count >= 10).collect();
    // A list of the pool may grow if more workers than ever before are awake.
    assert!(counts.len() < ATTEMPTS, "{what}: {counts:?} in {CALLS} calls");
}

#[test]
fn nothing_is_allocated_for_an_item_a_timer_or_a_callback() {
    let _alone = alone();
    let queue = Workqueue::builder("memory").max_active(4).build().unwrap();
    // SAFETY: `nothing` may be called anywhere.
    let mut item = unsafe { RawDelayed::new(nothing) };
    let item = NonNull::from(&mut item);
    let work = RawDelayed::work(item);
    takes_nothing("short joins, after a thread's first few hundred", || {
        for _ in 0..500 {
            queue.join(|| (), || ());
        }
    });
    let mut heads: Vec<rcu::Head> = (0..=ATTEMPTS * CALLS).map(|_| rcu::Head::new()).collect();
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
        RawDelayed::queue(item, &queue, None, HOUR).unwrap();
        RawDelayed::modify(item, &queue, None, 2 * HOUR).unwrap();
        RawDelayed::cancel_sync(item).unwrap();
        RawDelayed::queue(item, &queue, None, HOUR).unwrap();
        RawDelayed::flush(item).unwrap();
    });
    // SAFETY: each head is queued once, and valid until the barrier below.
    takes_nothing("callbacks", || unsafe {
        rcu::raw::call_c(heads.next().unwrap(), forget);
    });
    rcu::barrier();
}

#[test]
#[cfg(debug_assertions)]
fn worker_allocates_nothing_under_the_pool_lock() {
    let _alone = alone();
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
