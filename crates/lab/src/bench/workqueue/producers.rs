//! Producer threads that start together, and the measurement while they run.

use std::ops::Range;
use std::sync::Barrier;
use std::{process, thread};

use sync::time::now_ns;
use top::exit::Exit;
use topology::{CpuId, CpuSet};

use crate::harness::switches::Usage;

/// The timed items for each warm-up item, which ensures awake threads and warm caches.
pub const WARM_UP_SHARE: usize = 10;

#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub wall_ns: u64,
    pub spent: Usage,
    pub counts: Option<Counts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub wakeups: u64,
    /// The CPU time of waits for the pool lock. It is 0 if the pool does not measure it.
    pub lock_wait_ns: u64,
}

/// A gate that separates the measured work of each producer from its set-up, warm-up and tear-down.
pub struct Gate<'g> {
    barrier: &'g Barrier,
}

pub type Stretch = Range<u64>;

impl Gate<'_> {
    pub fn pass<T>(&self, work: impl FnOnce() -> T) -> (T, Stretch) {
        self.barrier.wait(); // All are ready: the counters are read now.
        self.barrier.wait(); // Go.
        let start_ns = now_ns();
        let result = work();
        let end_ns = now_ns();
        self.barrier.wait(); // All are done: the counters are read again.
        self.barrier.wait();
        (result, start_ns..end_ns)
    }
}

/// Runs `body(index, gate)` on each of `producers` threads, pinned to `pins` in turn. Each must
/// pass the gate once. A panic in a producer ends the process, because the others would wait at the
/// gate forever.
pub fn run<T: Send>(
    producers: usize,
    pins: &[CpuId],
    counts: impl Fn() -> Option<Counts>,
    body: impl Fn(usize, &Gate<'_>) -> (T, Stretch) + Sync,
) -> (Vec<T>, Window) {
    let barrier = Barrier::new(producers + 1);
    let (barrier, body) = (&barrier, &body);
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(producers);
        for index in 0..producers {
            let pin = pins.iter().cycle().nth(index).copied();
            let name = format!("producer-{index}");
            handles.push(spawn(scope, &name, pin, move || body(index, &Gate { barrier })));
        }
        barrier.wait();
        let (usage, counted) = (Usage::now(), counts());
        barrier.wait();
        barrier.wait();
        let (usage_after, counted_after) = (Usage::now(), counts());
        barrier.wait();
        let mut results = Vec::with_capacity(producers);
        let (mut first, mut last) = (u64::MAX, 0);
        for handle in handles {
            let (result, stretch) = joined(handle);
            first = first.min(stretch.start);
            last = last.max(stretch.end);
            results.push(result);
        }
        let window = Window {
            wall_ns: last.saturating_sub(first).max(1),
            spent: usage_after.since(usage),
            counts: counted.zip(counted_after).map(|(before, after)| Counts {
                wakeups: after.wakeups - before.wakeups,
                lock_wait_ns: after.lock_wait_ns - before.lock_wait_ns,
            }),
        };
        (results, window)
    })
}

/// Starts a thread, on `cpu` if given. Ends the process on failure, because others wait for it.
pub(in crate::bench) fn spawn<'s, T: Send + 's>(
    scope: &'s thread::Scope<'s, '_>,
    name: &str,
    cpu: Option<CpuId>,
    body: impl FnOnce() -> T + Send + 's,
) -> thread::ScopedJoinHandle<'s, T> {
    let body = move || {
        scopeguard::defer_on_unwind! { exit() }
        cpu.into_iter().for_each(pin_to);
        body()
    };
    let thread = thread::Builder::new().name(name.into()).spawn_scoped(scope, body);
    thread.unwrap_or_else(|error| die(&format!("cannot start the thread {name}: {error}")))
}

/// Runs `body` on a thread of its own, on `cpu` if one is given: a pinned thread stays pinned.
pub(in crate::bench) fn on_own_thread<T: Send>(
    cpu: Option<CpuId>,
    body: impl FnOnce() -> T + Send,
) -> T {
    thread::scope(|scope| joined(spawn(scope, "pinned", cpu, body)))
}

/// Returns the result of a thread that [`spawn`] started.
pub(in crate::bench) fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("a panic has ended the process")
}

pub(in crate::bench) fn pin_to(cpu: CpuId) {
    let cpus: CpuSet = [cpu].into_iter().collect();
    if let Err(error) = sync::cpu::set_affinity(None, &cpus) {
        die(&format!("cannot pin a producer to CPU {cpu}: {error}"));
    }
}

/// Ends the process, because the other producers would wait at the gate forever.
fn die(reason: &str) -> ! {
    top::talk::say(format_args!("error: {reason}"));
    exit()
}

fn exit() -> ! {
    process::exit(i32::from(Exit::CouldNotRun.code()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_start_when_all_are_ready_and_counters_span_the_work() {
        let (ready, counted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = || {
            let wakeups = counted.load(Ordering::SeqCst) as u64;
            Some(Counts { wakeups, lock_wait_ns: 2 * wakeups })
        };
        let (results, window) = run(4, &[], counts, |index, gate| {
            ready.fetch_add(1, Ordering::SeqCst);
            gate.pass(|| {
                counted.fetch_add(10, Ordering::SeqCst);
                (index, ready.load(Ordering::SeqCst))
            })
        });
        assert_eq!(results, [(0, 4), (1, 4), (2, 4), (3, 4)]);
        let expected = Counts { wakeups: 40, lock_wait_ns: 80 };
        assert_eq!(window.counts, Some(expected));
    }

    #[test]
    fn pinned_producers_share_the_cpus_in_turn() {
        let cpus: Vec<CpuId> = sync::cpu::affinity().unwrap().iter().collect();
        let (results, _) = run(5, &cpus, || None, |_, gate| gate.pass(sync::cpu::current));
        let wanted: Vec<CpuId> = (0..5).map(|index| cpus[index % cpus.len()]).collect();
        assert_eq!(results, wanted);
    }
}
