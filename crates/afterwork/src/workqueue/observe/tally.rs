//! What a worker has run since it last told the link that it runs for.
//!
//! The worker adds to it by plain stores after each batch, and takes it when it next has the pool lock, which it needs
//! anyway. So counting costs no shared line.
//!
//! CPU time is read from the thread's own clock (0.3 µs) once the batches together have taken a millisecond, and then
//! goes to the link whose batch has just ended, as a tick would have it. Long batches are met more often, so over time
//! each queue gets what it used, with the worker's own work around it.

use sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    thread::ThreadId,
    time, usage,
};

/// How much time in batches makes a reading of the CPU clock. A guess: the reading is then 0.03 % of it.
const TICK_US: u64 = 1_000;

/// A worker's counts; written by the worker alone.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    nr_taken: AtomicU32,
    nr_not_run: AtomicU32,
    /// Since the CPU clock was read.
    busy_cycles: AtomicU64,
    /// What the CPU clock said.
    cpu_ns: AtomicU64,
}

/// What a link is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// Items that have run to their end.
    pub(crate) nr_run: u32,
    /// Items that were taken and not run.
    pub(crate) nr_not_run: u32,
    pub(crate) cpu_ns: u64,
}

impl Tally {
    /// Adds a batch. The worker alone.
    pub(crate) fn add(&self, nr_taken: u32, nr_not_run: u32, cycles: u64) {
        let add = |count: &AtomicU32, more| {
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.nr_taken, nr_taken);
        if nr_not_run > 0 {
            add(&self.nr_not_run, nr_not_run);
        }
        let busy = self.busy_cycles.load(Ordering::Relaxed) + cycles;
        self.busy_cycles.store(busy, Ordering::Relaxed);
    }

    /// Takes what there is; `thread` is the worker's. The worker alone.
    pub(crate) fn take(&self, thread: ThreadId) -> Told {
        let take = |count: &AtomicU32| {
            let value = count.load(Ordering::Relaxed);
            count.store(0, Ordering::Relaxed);
            value
        };
        let nr_not_run = take(&self.nr_not_run);
        let mut told = Told {
            nr_run: take(&self.nr_taken) - nr_not_run,
            nr_not_run,
            cpu_ns: 0,
        };
        if self.busy_cycles.load(Ordering::Relaxed) >= TICK_US * time::cycles_per_us()
            && let Some(now_ns) = usage::cpu_ns(thread)
        {
            self.busy_cycles.store(0, Ordering::Relaxed);
            told.cpu_ns = now_ns.saturating_sub(self.cpu_ns.load(Ordering::Relaxed));
            self.cpu_ns.store(now_ns, Ordering::Relaxed);
        }
        told
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_told_once() {
        let tally = Tally::default();
        tally.add(5, 0, 10);
        tally.add(3, 1, 10);
        let told = tally.take(sync::thread::current());
        assert_eq!((told.nr_run, told.nr_not_run, told.cpu_ns), (7, 1, 0));
        let told = tally.take(sync::thread::current());
        assert_eq!((told.nr_run, told.nr_not_run), (0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not tell a thread's CPU time")]
    fn cpu_time_is_told_after_a_millisecond_of_batches() {
        let tally = Tally::default();
        let me = sync::thread::current();
        let tick = TICK_US * time::cycles_per_us();
        tally.add(1, 0, tick - 1);
        assert_eq!(tally.take(me).cpu_ns, 0);
        tally.add(1, 0, 1);
        assert!(tally.take(me).cpu_ns > 0);
        tally.add(1, 0, 1);
        assert_eq!(tally.take(me).cpu_ns, 0);
    }
}
