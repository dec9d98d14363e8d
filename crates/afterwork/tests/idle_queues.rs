//! Memory and threads of unused objects. This is a separate program, because its allocator counts
//! memory. `docs/workqueue.md` has its output.
#![cfg(not(any(loom, shuttle)))]

#[path = "support/counting.rs"]
mod counting;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use std::{fs, iter, thread};

use afterwork::mailbox::Mailbox;
use afterwork::params::Params;
use afterwork::percpu::PerCpu;
use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{self};
use afterwork::workqueue::{DelayedWork, Registry, Work, Workqueue, sleep};
use topology::Topology;

const HOUR: Duration = Duration::from_secs(3600);

static NR_BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: counting::Reporting = counting::Reporting {
    on_alloc: |layout| _ = NR_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed),
    on_free: |layout| _ = NR_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed),
};

/// Returns the threads of this process, by ID.
fn threads() -> BTreeSet<OsString> {
    fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().file_name()).collect()
}

/// Returns `true` if `id` is a thread of the library. Other tests may start threads at any time.
fn is_ours(id: &OsString) -> bool {
    // The thread may have exited.
    let name = fs::read_to_string(Path::new("/proc/self/task").join(id).join("comm"));
    name.is_ok_and(|name| name.starts_with("aw") || name.starts_with("rcu"))
}

/// Serializes the tests of this program, because they measure the memory of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bytes that the process has allocated, and its resident memory without code.
fn in_use() -> [isize; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: isize = line.trim_end_matches("kB").trim().parse().unwrap();
    [NR_BYTES.load(Ordering::Relaxed), kib << 10]
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
    const COUNT: usize = 1000;
    /// The seat cache of a CPU has its own cache lines.
    const EACH_CPU: usize = 128;
    // Each additional pool costs about 800 bytes per queue.
    for machine in ["2 core", "4 llc x 8 core"] {
        let machine = Topology::synthetic(machine).unwrap();
        let limit = 4096 + (EACH_CPU * machine.allowed().len()) as isize;
        let registry = Registry::new(machine, Params::default()).unwrap();
        let mut queues = Vec::with_capacity(COUNT);
        let (before, bytes) = (threads(), NR_BYTES.load(Ordering::Relaxed));
        let build = || Workqueue::builder("idle").build_in(&registry).unwrap();
        queues.extend(iter::repeat_with(build).take(COUNT));
        let each = (NR_BYTES.load(Ordering::Relaxed) - bytes) / COUNT as isize;
        println!("{each} bytes a queue of {} pools", registry.pool_stats().len());
        // A reaper of the previous registry may still run. A thread of a queue would never exit.
        while threads().difference(&before).any(is_ours) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(each <= limit, "{each} bytes each");
        drop(queues);
        let left = NR_BYTES.load(Ordering::Relaxed) - bytes;
        assert!(left < 1 << 16, "{left} bytes are left");
    }
}
