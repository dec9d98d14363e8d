//! Counts of the runs of a worker since it last reported to its pwq.
//!
//! The worker adds to the counts by plain stores after each batch. It takes them when it next
//! acquires the pool lock, which it needs anyway. Counting therefore shares no cache line.
//!
//! CPU time is read from the thread's own clock (0.3 µs) once the batches together have taken a
//! millisecond. It is then charged to the pwq whose batch has just ended, as with a timer tick.
//! Longer batches are charged more often, so over time each queue is charged what it used, together
//! with the worker's own work around it.

use sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    thread::ThreadId,
    time, usage,
};

/// Time in batches after which the CPU clock is read. A guess: reading it costs 0.03 % of that.
const TICK_US: u64 = 1_000;

/// The items that a worker has taken and run since it last recorded their times at a pwq.
///
/// Recording each batch would move the cache lines of the pwq's histograms between workers. A
/// worker therefore records one batch at intervals, which represents all since the last one: the
/// items taken are counted with the wait of this batch, and the items run with the duration of its
/// first item. The moment does not depend on any measured value, so each batch has its share of the
/// samples. Counts that are not recorded when the worker changes to another pwq, or when the
/// statistics are read, are recorded with the last wait.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    slot: usize,
    /// Time at which a wait was last recorded, in cycles.
    at: u64,
    nr_taken: u64,
    /// The wait that was recorded last, in cycles.
    waited: Option<u64>,
    /// Set if it was recorded for each item of the local batch.
    is_told: bool,
    ran: Ran,
    /// Set if the local batch is to be recorded after it has run.
    tells: bool,
}

/// Number of items that have run, and their total duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) count: u64,
    pub(crate) cycles: u64,
}

/// The counts that no batch has recorded, and the wait to record them with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rest {
    pub(crate) nr_taken: u64,
    pub(crate) waited: Option<u64>,
    pub(crate) ran: Ran,
}

impl Sampling {
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Takes the counts that were not recorded. Called by a worker with an empty local batch.
    pub(crate) fn take_rest(&mut self) -> Rest {
        Rest {
            nr_taken: std::mem::take(&mut self.nr_taken),
            waited: self.waited,
            ran: std::mem::take(&mut self.ran),
        }
    }

    /// Adds a batch of pwq `slot` that is taken `now`, in cycles. Returns `true` if its wait must
    /// be recorded, which is the case after a change of pwq, and every `every_us` microseconds.
    pub(crate) fn takes(&mut self, slot: usize, nr_taken: u64, now: u64, every_us: u64) -> bool {
        if self.slot != slot {
            *self = Self {
                slot,
                ..Self::default()
            };
        }
        self.nr_taken += nr_taken;
        self.is_told = false;
        let passed = now.saturating_sub(self.at);
        self.tells = passed >= every_us.saturating_mul(time::known_cycles_per_us());
        self.tells
    }

    /// Notes that the wait of the batch taken `now` is recorded; returns the number of its items.
    pub(crate) fn tells(&mut self, waited: u64, now: u64) -> u64 {
        (self.at, self.waited, self.is_told) = (now, Some(waited), true);
        std::mem::take(&mut self.nr_taken)
    }

    /// Returns the wait that was recorded for each item of the local batch, if any.
    pub(crate) fn told(&self) -> Option<u64> {
        self.waited.filter(|_| self.is_told)
    }

    /// Notes that `count` items of the local batch are returned to the pool, or were found
    /// cancelled. Returns the wait that was recorded for them, if any.
    pub(crate) fn gave_back(&mut self, count: u64) -> Option<u64> {
        if !self.is_told {
            self.nr_taken = self.nr_taken.saturating_sub(count);
        }
        self.told()
    }

    /// Adds the counts for pwq `slot`; returns all runs since the last record, if that is due.
    pub(crate) fn ran(&mut self, slot: usize, told: &Told) -> Option<Ran> {
        if self.slot != slot || told.nr_run == 0 {
            return None;
        }
        self.ran.count += u64::from(told.nr_run);
        self.ran.cycles += told.cycles;
        std::mem::take(&mut self.tells).then(|| std::mem::take(&mut self.ran))
    }
}

/// A worker's counts. Only the worker calls the methods that change them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    nr_taken: AtomicU32,
    nr_not_run: AtomicU32,
    /// Total duration, and that of the first item of the last batch.
    cycles: AtomicU64,
    first_cycles: AtomicU64,
    /// Duration of batches since the CPU clock was read.
    busy_cycles: AtomicU64,
    /// The last reading of the CPU clock.
    cpu_ns: AtomicU64,
}

/// The counts that a worker reports to a pwq.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) nr_run: u32,
    pub(crate) nr_not_run: u32,
    /// CPU time; 0 if the CPU clock was not read.
    pub(crate) cpu_ns: u64,
    pub(crate) cycles: u64,
    pub(crate) first_cycles: u64,
}

impl Told {
    /// Returns the time charged to a queue with shares, without the sleep in a long batch.
    pub(crate) fn used_ns(&self) -> u64 {
        let ns = self.cycles.saturating_mul(1000) / time::cycles_per_us();
        if self.cpu_ns > 0 {
            ns.min(self.cpu_ns)
        } else {
            ns
        }
    }
}

impl Tally {
    /// Adds a batch that took `cycles`, whose first item took `first_cycles`.
    pub(crate) fn add(&self, nr_taken: u32, cycles: u64, first_cycles: u64) {
        let nr_taken = self.nr_taken.load(Ordering::Relaxed) + nr_taken;
        self.nr_taken.store(nr_taken, Ordering::Relaxed);
        let all = self.cycles.load(Ordering::Relaxed) + cycles;
        self.cycles.store(all, Ordering::Relaxed);
        self.first_cycles.store(first_cycles, Ordering::Relaxed);
        let busy = self.busy_cycles.load(Ordering::Relaxed) + cycles;
        self.busy_cycles.store(busy, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn add_not_run(&self) {
        let nr_not_run = self.nr_not_run() + 1;
        self.nr_not_run.store(nr_not_run, Ordering::Relaxed);
    }

    /// Returns the number of items that were taken and not run since the last report.
    pub(crate) fn nr_not_run(&self) -> u32 {
        self.nr_not_run.load(Ordering::Relaxed)
    }

    /// Takes the counts; `thread` is the worker's.
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
            cycles: self.cycles.load(Ordering::Relaxed),
            first_cycles: self.first_cycles.load(Ordering::Relaxed),
        };
        self.cycles.store(0, Ordering::Relaxed);
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
        tally.add(5, 10, 4);
        tally.add_not_run();
        tally.add(3, 10, 2);
        let told = tally.take(sync::thread::current());
        assert_eq!((told.nr_run, told.nr_not_run, told.cpu_ns), (7, 1, 0));
        assert_eq!((told.cycles, told.first_cycles), (20, 2));
        let told = tally.take(sync::thread::current());
        assert_eq!((told.nr_run, told.nr_not_run), (0, 0));
    }

    #[test]
    fn one_batch_stands_for_all_since_the_last_one_that_was_told() {
        let us = time::cycles_per_us();
        let told = |nr_run, cycles| Told {
            nr_run,
            nr_not_run: 0,
            cpu_ns: 0,
            cycles,
            first_cycles: 1,
        };
        let mut sampling = Sampling::default();
        let takes = |sampling: &mut Sampling, slot, nr_taken, at_us| {
            let tells = sampling.takes(slot, nr_taken, at_us * us, 64);
            tells.then(|| sampling.tells(7, at_us * us))
        };
        let ran = |count, cycles| Some(Ran { count, cycles });
        assert_eq!(takes(&mut sampling, 3, 2, 1000), Some(2), "the first");
        assert_eq!(sampling.ran(3, &told(2, 10)), ran(2, 10));
        assert_eq!(takes(&mut sampling, 3, 5, 1063), None);
        assert_eq!(sampling.ran(3, &told(5, 20)), None);
        assert_eq!(takes(&mut sampling, 3, 1, 1064), Some(6));
        assert_eq!(sampling.ran(3, &told(0, 0)), None, "nothing ran");
        assert_eq!(sampling.ran(3, &told(1, 30)), ran(6, 50));
        assert_eq!(takes(&mut sampling, 3, 4, 1065), None);
        assert_eq!(sampling.ran(3, &told(4, 8)), None);
        let ran = Ran {
            count: 4,
            cycles: 8,
        };
        let rest = Rest {
            nr_taken: 4,
            waited: Some(7),
            ran,
        };
        assert_eq!(sampling.take_rest(), rest);
        assert_eq!(takes(&mut sampling, 4, 7, 1065), Some(7), "another link");
        assert_eq!(sampling.ran(3, &told(1, 30)), None, "of the link before");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not tell a thread's CPU time")]
    fn cpu_time_is_told_after_a_millisecond_of_batches() {
        let tally = Tally::default();
        let me = sync::thread::current();
        let tick = TICK_US * time::cycles_per_us();
        tally.add(1, tick - 1, 1);
        assert_eq!(tally.take(me).cpu_ns, 0);
        tally.add(1, 1, 1);
        assert!(tally.take(me).cpu_ns > 0);
        tally.add(1, 1, 1);
        assert_eq!(tally.take(me).cpu_ns, 0);
    }
}
