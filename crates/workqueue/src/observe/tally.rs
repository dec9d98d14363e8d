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

/// What a worker has taken and run since it last told a link how long that took.
///
/// To tell it for each batch would take the lines of the link's histograms from worker to worker. So it is told once in a
/// while, and then one batch stands for all since: what was taken is counted by the wait of this batch, what was run by its
/// first item. When, depends on nothing that is measured, so each batch has its share of the samples. What has not been told when
/// the worker goes to another link, or when somebody asks, is told as what was told last.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// Of what link all this is.
    slot: usize,
    /// When the last wait was told, in cycles.
    at: u64,
    nr_taken: u64,
    /// The wait that was told last, in cycles.
    waited: Option<u64>,
    /// It was told as that of each item of the batch in hand.
    is_told: bool,
    ran: Ran,
    /// The batch in hand is to be told of when it has run.
    tells: bool,
}

/// How many items have run, and for how long together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) count: u64,
    pub(crate) cycles: u64,
}

/// What was told of no batch: so many items, and as what wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rest {
    pub(crate) nr_taken: u64,
    pub(crate) waited: Option<u64>,
    pub(crate) ran: Ran,
}

impl Sampling {
    /// Of what link all this is.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Takes what has not been told. Of who has nothing in hand.
    pub(crate) fn take_rest(&mut self) -> Rest {
        Rest {
            nr_taken: std::mem::take(&mut self.nr_taken),
            waited: self.waited,
            ran: std::mem::take(&mut self.ran),
        }
    }

    /// Takes note of a batch of `slot` that is taken `now`, in cycles; returns `true` if its wait is to be told: with another link,
    /// and every so many microseconds.
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

    /// Takes note of the wait that is told of the batch that was taken `now`; returns for how many items.
    pub(crate) fn tells(&mut self, waited: u64, now: u64) -> u64 {
        (self.at, self.waited, self.is_told) = (now, Some(waited), true);
        std::mem::take(&mut self.nr_taken)
    }

    /// Returns as what wait each item of the batch in hand was told, if they were.
    pub(crate) fn told(&self) -> Option<u64> {
        self.waited.filter(|_| self.is_told)
    }

    /// Takes note that `count` items of the batch in hand are taken back, or were found cancelled; returns as what wait they were
    /// told, if they were.
    pub(crate) fn gave_back(&mut self, count: u64) -> Option<u64> {
        if !self.is_told {
            self.nr_taken = self.nr_taken.saturating_sub(count);
        }
        self.told()
    }

    /// Takes note of what was `told` of `slot`; returns what all ran since the last time, if that is to be told.
    pub(crate) fn ran(&mut self, slot: usize, told: &Told) -> Option<Ran> {
        if self.slot != slot || told.nr_run == 0 {
            return None;
        }
        self.ran.count += u64::from(told.nr_run);
        self.ran.cycles += told.cycles;
        std::mem::take(&mut self.tells).then(|| std::mem::take(&mut self.ran))
    }
}

/// A worker's counts; written by the worker alone.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    nr_taken: AtomicU32,
    nr_not_run: AtomicU32,
    /// What all of it took, and the first item of the last batch.
    cycles: AtomicU64,
    first_cycles: AtomicU64,
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
    /// 0 where the CPU clock was not read.
    pub(crate) cpu_ns: u64,
    /// What the items took.
    pub(crate) cycles: u64,
    /// What the first of them took.
    pub(crate) first_cycles: u64,
}

impl Told {
    /// Returns what a queue that has shares pays for it: what was slept through in a long batch is not the CPU's.
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
    /// Adds a batch that took so many cycles, and its first item so many. The worker alone.
    pub(crate) fn add(&self, nr_taken: u32, cycles: u64, first_cycles: u64) {
        let nr_taken = self.nr_taken.load(Ordering::Relaxed) + nr_taken;
        self.nr_taken.store(nr_taken, Ordering::Relaxed);
        let all = self.cycles.load(Ordering::Relaxed) + cycles;
        self.cycles.store(all, Ordering::Relaxed);
        self.first_cycles.store(first_cycles, Ordering::Relaxed);
        let busy = self.busy_cycles.load(Ordering::Relaxed) + cycles;
        self.busy_cycles.store(busy, Ordering::Relaxed);
    }

    /// Adds an item of the batch that is not run. The worker alone.
    #[cold]
    pub(crate) fn add_not_run(&self) {
        let nr_not_run = self.nr_not_run() + 1;
        self.nr_not_run.store(nr_not_run, Ordering::Relaxed);
    }

    /// Returns how many items were taken and not run since that was told.
    pub(crate) fn nr_not_run(&self) -> u32 {
        self.nr_not_run.load(Ordering::Relaxed)
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
