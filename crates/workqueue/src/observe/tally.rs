//! Statistics: counts of a worker's runs, histograms of durations, and ages of pending items.
//!
//! # The counts of a worker
//!
//! The counts of each leg of a batch cover the runs since the worker last reported to its pwq. The
//! worker adds to the counts with plain stores after each leg. It hands them over when it next
//! acquires the pool lock, which it needs anyway. Counting therefore writes to no shared cache
//! line. The worker reads the cycle counter between two legs, so the time of a leg is its own.
//!
//! CPU time is read from the thread's own clock (0.3 µs) once the legs together have taken a
//! millisecond. The CPU time is then charged to the pwq whose leg completes the millisecond, as
//! with a timer tick. Longer legs are charged more often, so over time each queue is charged what
//! it used, together with the worker's own work around it.
//!
//! # The ages of pending items
//!
//! An item has no space for a timestamp, and reading the clock would cost more than queueing it.
//! The pending list is first in, first out, so the arrival time of the nth item suffices:
//!
//! ```text
//! producer: finds the injector empty: records the time     it owns that cache line at this moment
//! pool:     takes all items, and reads the clock           a span: n items of a pwq in an interval
//! worker:   takes an item, the nth that arrived            the span of the nth has its time
//! ```
//!
//! Items of one span count as if they had arrived at even intervals. The error is therefore at most
//! the length of the span, during which its items waited in the injector: a wait is accurate to
//! within a factor of two, and usually much better. A wait is never attributed to the wrong item,
//! because *every* item is in a span.
//!
//! A pwq keeps a few spans. If it needs more, the two adjacent spans with the smallest total length
//! are merged. Items that leave the middle of the list because they have been cancelled shorten all
//! spans alike, because it is not known to which spans they belong.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::thread::ThreadId;
use sync::{time, usage};

/// The time spent in batches after which the CPU clock is read. The value is a guess: reading the
/// clock costs 0.03 % of this time.
const TICK_US: u64 = 1_000;

/// The items that a worker has taken and run since it last recorded times at a pwq. Recording each
/// batch would move the cache lines of the pwq's histograms between workers, so a worker records
/// one batch at intervals, on behalf of all since the last record: the items taken are counted with
/// the wait of this batch, and the items run with the duration of its first item. The moment does
/// not depend on a measured value, so each batch is equally likely to be sampled. If the worker
/// switches to another pwq, the former pwq keeps the state for its next worker. Counts that have
/// not been recorded when the statistics are read are recorded with the last wait.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    slot: usize,
    state: Kept,
    /// Set if the wait was recorded for each item of the local batch.
    is_recorded: bool,
    /// Set if the local batch is to be recorded after it has run.
    is_due: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) count: u64,
    pub(crate) cycles: u64,
}

/// The counts that no batch has recorded, and the wait to record them with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rest {
    pub(crate) nr_taken: u64,
    /// The wait that was recorded last, in cycles.
    pub(crate) waited: Option<u64>,
    pub(crate) ran: Ran,
}

/// The sampling state of a pwq, which the worker has or, between two workers, the pwq.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kept {
    /// The time at which a wait was last recorded, in cycles.
    at: u64,
    rest: Rest,
}

impl Kept {
    fn add(&mut self, other: Self) {
        if other.at >= self.at {
            (self.at, self.rest.waited) = (other.at, other.rest.waited);
        }
        self.rest.nr_taken += other.rest.nr_taken;
        self.rest.ran.count += other.rest.ran.count;
        self.rest.ran.cycles += other.rest.ran.cycles;
    }

    fn take(&mut self) -> Self {
        Self { at: self.at, rest: self.take_rest() }
    }

    pub(crate) fn take_rest(&mut self) -> Rest {
        let rest = self.rest;
        (self.rest.nr_taken, self.rest.ran) = Default::default();
        rest
    }
}

impl Sampling {
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Stores the state in `kept`. A worker with an empty local batch calls this.
    pub(crate) fn keep(&mut self, kept: &mut Kept) {
        kept.add(self.state.take());
    }

    /// Continues with the state that pwq `slot` has kept.
    pub(crate) fn resume(&mut self, slot: usize, kept: &mut Kept) {
        *self = Self { slot, state: kept.take(), ..Self::default() };
    }

    /// Takes the counts that have not been recorded. A worker with an empty local batch calls this.
    pub(crate) fn take_rest(&mut self) -> Rest {
        self.state.take_rest()
    }

    /// Adds a batch that was taken at the time `now`, in cycles. Returns `true` if its wait must be
    /// recorded, which is the case every `every_us` microseconds.
    pub(crate) fn takes(&mut self, nr_taken: u64, now: u64, every_us: u64) -> bool {
        self.state.rest.nr_taken += nr_taken;
        self.is_recorded = false;
        let passed = now.saturating_sub(self.state.at);
        self.is_due = passed >= every_us.saturating_mul(time::known_cycles_per_us());
        self.is_due
    }

    /// Notes the recorded wait of the batch taken at `now`. Returns the number of its items.
    pub(crate) fn record(&mut self, waited: u64, now: u64) -> u64 {
        (self.state.at, self.state.rest.waited, self.is_recorded) = (now, Some(waited), true);
        std::mem::take(&mut self.state.rest.nr_taken)
    }

    /// Returns the wait that was recorded for each item of the local batch, if any.
    pub(crate) fn recorded(&self) -> Option<u64> {
        self.state.rest.waited.filter(|_| self.is_recorded)
    }

    /// Records that `count` items of the local batch are returned to the pool, or were found
    /// cancelled. Returns the wait that was recorded for them, if any.
    pub(crate) fn gave_back(&mut self, count: u64) -> Option<u64> {
        if !self.is_recorded {
            self.state.rest.nr_taken = self.state.rest.nr_taken.saturating_sub(count);
        }
        self.recorded()
    }

    /// Adds the counts for pwq `slot`. If a record is due, returns all runs since the last one.
    pub(crate) fn ran(&mut self, slot: usize, counts: &Counts) -> Option<Ran> {
        if self.slot != slot || counts.nr_run == 0 {
            return None;
        }
        self.state.rest.ran.count += u64::from(counts.nr_run);
        self.state.rest.ran.cycles += counts.cycles;
        std::mem::take(&mut self.is_due).then(|| std::mem::take(&mut self.state.rest.ran))
    }
}

/// A worker's counts for a leg. Only the worker calls the methods that change them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    nr_taken: AtomicU32,
    nr_not_run: AtomicU32,
    /// The total duration, and that of the first item of the last leg.
    cycles: AtomicU64,
    first_cycles: AtomicU64,
}

/// The CPU time of a worker's thread. Only the worker calls its methods.
#[derive(Debug, Default)]
pub(crate) struct CpuClock {
    /// The duration of batches since the CPU clock was read.
    busy_cycles: AtomicU64,
    cpu_ns: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) nr_run: u32,
    pub(crate) nr_not_run: u32,
    /// The CPU time; 0 if the CPU clock was not read.
    pub(crate) cpu_ns: u64,
    pub(crate) cycles: u64,
    pub(crate) first_cycles: u64,
}

impl Counts {
    /// Returns the time to charge to a queue with shares. In a long batch, sleep is not charged.
    pub(crate) fn used_ns(&self) -> u64 {
        let ns = self.cycles.saturating_mul(1000) / time::cycles_per_us();
        if self.cpu_ns > 0 { ns.min(self.cpu_ns) } else { ns }
    }
}

impl Tally {
    /// Adds a leg that took `cycles`, whose first item took `first_cycles`.
    pub(crate) fn add(&self, nr_taken: u32, cycles: u64, first_cycles: u64) {
        let nr_taken = self.nr_taken.load(Ordering::Relaxed) + nr_taken;
        self.nr_taken.store(nr_taken, Ordering::Relaxed);
        let all = self.cycles.load(Ordering::Relaxed) + cycles;
        self.cycles.store(all, Ordering::Relaxed);
        self.first_cycles.store(first_cycles, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn add_not_run(&self) {
        let nr_not_run = self.nr_not_run() + 1;
        self.nr_not_run.store(nr_not_run, Ordering::Relaxed);
    }

    pub(crate) fn nr_not_run(&self) -> u32 {
        self.nr_not_run.load(Ordering::Relaxed)
    }

    /// Takes the counts. `cpu_clock` is that of the worker, and `thread` its thread.
    pub(crate) fn take(&self, cpu_clock: &CpuClock, thread: ThreadId) -> Counts {
        let take = |count: &AtomicU32| {
            let value = count.load(Ordering::Relaxed);
            count.store(0, Ordering::Relaxed);
            value
        };
        let nr_taken = take(&self.nr_taken);
        if nr_taken == 0 {
            return Counts::default();
        }
        let nr_not_run = take(&self.nr_not_run);
        let cycles = self.cycles.load(Ordering::Relaxed);
        self.cycles.store(0, Ordering::Relaxed);
        Counts {
            nr_run: nr_taken - nr_not_run,
            nr_not_run,
            cpu_ns: cpu_clock.used_ns(cycles, thread),
            cycles,
            first_cycles: self.first_cycles.load(Ordering::Relaxed),
        }
    }
}

impl CpuClock {
    /// Adds the duration of a leg. If it completes a tick, returns the CPU time since the last
    /// tick, otherwise 0.
    fn used_ns(&self, cycles: u64, thread: ThreadId) -> u64 {
        let busy = self.busy_cycles.load(Ordering::Relaxed) + cycles;
        self.busy_cycles.store(busy, Ordering::Relaxed);
        if busy >= TICK_US * time::cycles_per_us()
            && let Some(now_ns) = usage::cpu_ns(thread)
        {
            self.busy_cycles.store(0, Ordering::Relaxed);
            let before = self.cpu_ns.load(Ordering::Relaxed);
            self.cpu_ns.store(now_ns, Ordering::Relaxed);
            return now_ns.saturating_sub(before);
        }
        0
    }
}

/// The number of spans that a pwq keeps. The value is a guess: enough for a list adopted in parts.
const NR_SPANS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Span {
    /// Item numbers, in the order of arrival.
    first: u64,
    end: u64,
    from: u64,
    to: u64,
}

/// The arrival times of a pending list. The pool lock guards them. There are usually two spans,
/// which are next to the counts in memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Arrivals {
    nr_spans: usize,
    /// The number of items that have arrived, except those that left from the middle of the list.
    nr_arrived: u64,
    spans: [Span; NR_SPANS],
}

impl Arrivals {
    /// Records that `count` items joined a list of `nr_listed`. The first one found the injector
    /// empty at `from`, and all had arrived at `to`, in cycles.
    #[inline]
    pub(crate) fn add_arrivals(&mut self, nr_listed: usize, count: usize, from: u64, to: u64) {
        let first = self.nr_arrived;
        self.nr_arrived += count as u64;
        if let Some(last) = self.spans[..self.nr_spans].last_mut()
            && last.to == to
        {
            // These items belong to the same adoption.
            last.end = self.nr_arrived;
            return;
        }
        self.forget(nr_listed + count);
        if self.nr_spans == NR_SPANS {
            self.join_two();
        }
        self.spans[self.nr_spans] = Span { first, end: self.nr_arrived, from: from.min(to), to };
        self.nr_spans += 1;
    }

    /// Removes all spans whose items have left the list. Keeps the last of them, because items of a
    /// local batch may be returned.
    fn forget(&mut self, nr_listed: usize) {
        let front = self.front(nr_listed);
        let passed = self.spans[..self.nr_spans].partition_point(|span| span.end <= front);
        let nr_gone = passed.saturating_sub(1);
        self.spans.copy_within(nr_gone..self.nr_spans, 0);
        self.nr_spans -= nr_gone;
    }

    fn join_two(&mut self) {
        let span_of = |i: &usize| self.spans[i + 1].to.saturating_sub(self.spans[*i].from);
        let at = (0..self.nr_spans - 1).min_by_key(span_of).unwrap_or(0);
        let next = self.spans[at + 1];
        let to = self.spans[at].to.max(next.to);
        (self.spans[at].end, self.spans[at].to) = (next.end, to);
        self.spans.copy_within(at + 2..self.nr_spans, at + 1);
        self.nr_spans -= 1;
    }

    /// Records that `count` of `nr_listed` items leave the list, from arbitrary positions.
    pub(crate) fn cut(&mut self, nr_listed: usize, count: usize) {
        let front = self.front(nr_listed);
        let left = nr_listed.saturating_sub(count) as u64;
        let shorten = |number: u64| match number.checked_sub(front) {
            Some(behind) => front + share(behind, left, nr_listed as u64),
            None => number,
        };
        for span in &mut self.spans[..self.nr_spans] {
            (span.first, span.end) = (shorten(span.first), shorten(span.end));
        }
        self.nr_arrived = front + left;
    }

    /// Returns the time in cycles at which item `nth` (from 0) of a list of `nr_listed` arrived;
    /// `None` if that was not recorded.
    pub(crate) fn arrived_at(&self, nr_listed: usize, nth: usize) -> Option<u64> {
        let number = self.front(nr_listed) + nth as u64;
        let spans = &self.spans[..self.nr_spans];
        let span = spans.iter().find(|span| number < span.end)?;
        let behind = number.saturating_sub(span.first);
        let length = span.end.saturating_sub(span.first);
        Some(span.from + share(span.to - span.from, behind, length))
    }

    /// Returns the number of the first item of a list of `nr_listed`.
    fn front(&self, nr_listed: usize) -> u64 {
        self.nr_arrived.saturating_sub(nr_listed as u64)
    }
}

/// Returns `whole * part / of`, which must fit into a `u64`. A 128-bit division costs as much as
/// the rest of a start, so it is used only for products that need it.
#[inline]
fn share(whole: u64, part: u64, of: u64) -> u64 {
    if part == 0 {
        return 0;
    }
    let of = of.max(1);
    match whole.checked_mul(part) {
        Some(product) => product / of,
        None => (u128::from(whole) * u128::from(part) / u128::from(of)) as u64,
    }
}

/// A histogram of durations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// The sum in nanoseconds, or `u64::MAX` (584 years) if the sum is larger.
    pub total_ns: u64,
    /// Bucket `i` counts durations of `2^i` to `2^(i+1)` nanoseconds. Bucket 0 also counts
    /// durations of zero. The last bucket, the 40th, counts longer durations: 9 minutes and more.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Returns the mean in nanoseconds, or 0 if the histogram is empty.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_ns as f64 / self.count as f64 }
    }

    /// Returns the upper end of the bucket that contains the quantile `q` (0 to 1), in nanoseconds.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        self.find(q).map_or(0, |(bucket, _)| 2 << bucket)
    }

    /// Returns an estimate of the quantile `q` (0 to 1) in nanoseconds, as if the durations of a
    /// bucket were spread evenly over it. The error is less than a factor of two.
    /// [`quantile_ns`](Self::quantile_ns) is never too low, except in the last bucket.
    pub fn about_ns(&self, q: f64) -> u64 {
        self.find(q).map_or(0, |(bucket, part)| {
            let least = if bucket == 0 { 0.0 } else { (1_u64 << bucket) as f64 };
            let most = (2_u64 << bucket) as f64;
            (least + (most - least) * part) as u64
        })
    }

    /// Returns the bucket that contains the quantile `q`, and the fraction of the bucket's
    /// durations that are shorter. Returns `None` if the histogram is empty.
    fn find(&self, q: f64) -> Option<(usize, f64)> {
        let rank = (q * self.count as f64).ceil().max(1.0);
        let mut seen = 0.0;
        self.buckets.iter().enumerate().find_map(|(bucket, &count)| {
            let (below, count) = (seen, count as f64);
            seen += count;
            (seen >= rank).then(|| (bucket, (rank - below - 0.5) / count))
        })
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
    }
}

const BUCKETS: usize = 40;

/// The number of bits that subdivide each power of two of cycles, so that a duration in cycles maps
/// to approximately the right power of two of nanoseconds.
const PARTS_LOG2: u32 = 2;
/// The number of powers of two of cycles: more than 20 minutes at 3 GHz.
const POWERS: usize = 42;
const PLACES: usize = (POWERS - 1) << PARTS_LOG2;

/// A histogram of durations in cycles, under a lock. Counting needs no division and no clock rate.
pub(crate) struct Cycles {
    /// The sum in cycles. If a million items wait for two hours each, the sum exceeds a `u64`.
    total: u128,
    counts: [u64; PLACES],
}

impl Default for Cycles {
    fn default() -> Self {
        Self { total: 0, counts: [0; PLACES] }
    }
}

fn place(cycles: u64) -> usize {
    let power = (cycles | 1).ilog2();
    let place = match power.checked_sub(PARTS_LOG2) {
        // The index is made of the power and the two bits below the top bit.
        Some(shift) => (cycles >> shift) + (u64::from(shift) << PARTS_LOG2),
        None => cycles,
    };
    (place as usize).min(PLACES - 1)
}

/// Returns the maximum number of cycles that belong to the index `place`.
fn most(place: usize) -> u64 {
    let place = place as u64 + 1;
    match (place >> PARTS_LOG2).checked_sub(1) {
        Some(shift) => (((place & ((1 << PARTS_LOG2) - 1)) | 1 << PARTS_LOG2) << shift) - 1,
        None => place - 1,
    }
}

impl Cycles {
    pub(crate) fn add(&mut self, cycles: u64, count: u64) {
        self.total += u128::from(cycles) * u128::from(count);
        self.add_measured(cycles, count, 0);
    }

    /// Adds `count` durations of about `cycles` each, whose sum is `total`.
    pub(crate) fn add_measured(&mut self, cycles: u64, count: u64, total: u64) {
        self.counts[place(cycles)] += count;
        self.total += u128::from(total);
    }

    pub(crate) fn take_back(&mut self, cycles: u64, count: u64) {
        let there = &mut self.counts[place(cycles)];
        *there = there.saturating_sub(count);
        let total = u128::from(cycles) * u128::from(count);
        self.total = self.total.saturating_sub(total);
    }

    pub(crate) fn add_all(&mut self, other: &Cycles) {
        self.total += other.total;
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum += more;
        }
    }

    pub(crate) fn recorded(&self) -> Histogram {
        let mut buckets = vec![0; BUCKETS];
        for (place, &count) in self.counts.iter().enumerate() {
            buckets[bucket(time::cycles_to_ns(most(place)))] += count;
        }
        Histogram {
            count: buckets.iter().sum(),
            total_ns: u64::try_from(self.total * 1000 / u128::from(time::cycles_per_us()))
                .unwrap_or(u64::MAX),
            buckets,
        }
    }
}

fn bucket(ns: u64) -> usize {
    (ns.max(1).ilog2() as usize).min(BUCKETS - 1)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_are_reported_once() {
        let (tally, cpu_clock) = (Tally::default(), CpuClock::default());
        tally.add(5, 10, 4);
        tally.add_not_run();
        tally.add(3, 10, 2);
        let counts = tally.take(&cpu_clock, sync::thread::current());
        assert_eq!((counts.nr_run, counts.nr_not_run, counts.cpu_ns), (7, 1, 0));
        assert_eq!((counts.cycles, counts.first_cycles), (20, 2));
        let counts = tally.take(&cpu_clock, sync::thread::current());
        assert_eq!((counts.nr_run, counts.nr_not_run), (0, 0));
    }

    #[test]
    fn sampled_batch_represents_all_since_the_last_sample() {
        let us = time::cycles_per_us();
        let counts =
            |nr_run, cycles| Counts { nr_run, nr_not_run: 0, cpu_ns: 0, cycles, first_cycles: 1 };
        let mut sampling = Sampling::default();
        let takes = |sampling: &mut Sampling, nr_taken, at_us| {
            let is_due = sampling.takes(nr_taken, at_us * us, 64);
            is_due.then(|| sampling.record(7, at_us * us))
        };
        let ran = |count, cycles| Some(Ran { count, cycles });
        let [mut of_3, mut of_4] = [Kept::default(); 2];
        sampling.resume(3, &mut of_3);
        assert_eq!(takes(&mut sampling, 2, 1000), Some(2), "the first");
        assert_eq!(sampling.ran(3, &counts(2, 10)), ran(2, 10));
        assert_eq!(takes(&mut sampling, 5, 1063), None);
        assert_eq!(sampling.ran(3, &counts(5, 20)), None);
        assert_eq!(takes(&mut sampling, 1, 1064), Some(6));
        assert_eq!(sampling.ran(3, &counts(0, 0)), None, "nothing ran");
        assert_eq!(sampling.ran(3, &counts(1, 30)), ran(6, 50));
        assert_eq!(takes(&mut sampling, 4, 1065), None);
        assert_eq!(sampling.ran(3, &counts(4, 8)), None);
        sampling.keep(&mut of_3);
        let rest = Rest { nr_taken: 4, waited: Some(7), ran: Ran { count: 4, cycles: 8 } };
        assert_eq!(of_3.rest, rest);
        sampling.resume(4, &mut of_4);
        assert_eq!(takes(&mut sampling, 7, 1065), Some(7), "another pwq");
        assert_eq!(sampling.ran(3, &counts(1, 30)), None, "of the previous pwq");
        sampling.keep(&mut of_4);
        sampling.resume(3, &mut of_3);
        assert_eq!(takes(&mut sampling, 1, 1127), None, "as if it had stayed");
        assert_eq!(takes(&mut sampling, 1, 1128), Some(6));
        assert_eq!(sampling.ran(3, &counts(2, 2)), ran(6, 10));
        assert_eq!(of_3.take_rest(), Rest { waited: Some(7), ..Rest::default() });
    }

    #[test]
    fn pwq_keeps_the_counts_of_two_workers_and_the_later_sample() {
        let sampled = |at, waited, nr_taken| {
            let ran = Ran { count: nr_taken, cycles: at };
            let rest = Rest { nr_taken, waited: Some(waited), ran };
            Sampling { state: Kept { at, rest }, ..Sampling::default() }
        };
        let (mut kept, mut next) = (Kept::default(), Sampling::default());
        sampled(20, 5, 2).keep(&mut kept);
        sampled(10, 9, 3).keep(&mut kept);
        next.resume(1, &mut kept);
        assert_eq!(next.state.at, 20);
        let ran = Ran { count: 5, cycles: 30 };
        assert_eq!(next.take_rest(), Rest { nr_taken: 5, waited: Some(5), ran });
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not report a thread's CPU time")]
    fn cpu_time_is_recorded_after_a_millisecond_of_batches() {
        let (tally, cpu_clock) = (Tally::default(), CpuClock::default());
        let me = sync::thread::current();
        let tick = TICK_US * time::cycles_per_us();
        tally.add(1, tick - 1, 1);
        assert_eq!(tally.take(&cpu_clock, me).cpu_ns, 0);
        tally.add(1, 1, 1);
        assert!(tally.take(&cpu_clock, me).cpu_ns > 0);
        tally.add(1, 1, 1);
        assert_eq!(tally.take(&cpu_clock, me).cpu_ns, 0);
    }

    #[test]
    fn single_item_arrives_when_its_producer_finds_nothing() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.arrived_at(0, 0), None);
        arrivals.add_arrivals(0, 1, 100, 170);
        assert_eq!(arrivals.arrived_at(1, 0), Some(100));
        arrivals.add_arrivals(1, 1, 200, 270);
        assert_eq!(arrivals.arrived_at(2, 0), Some(100));
        assert_eq!(arrivals.arrived_at(2, 1), Some(200));
        assert_eq!(arrivals.arrived_at(1, 0), Some(200), "the first was taken");
        assert_eq!(arrivals.arrived_at(2, 0), Some(100), "it was put back");
    }

    #[test]
    fn items_of_one_adoption_have_evenly_spaced_times() {
        let mut arrivals = Arrivals::default();
        // There are two runs of items of one pwq, with another pwq's items between them.
        arrivals.add_arrivals(0, 4, 1000, 2000);
        arrivals.add_arrivals(4, 6, 1000, 2000);
        let at: Vec<_> = (0..10).filter_map(|nth| arrivals.arrived_at(10, nth)).collect();
        assert_eq!(at, (0..10).map(|i| 1000 + i * 100).collect::<Vec<_>>());
    }

    #[test]
    fn share_is_exact_for_products_of_any_size() {
        assert_eq!(share(7, 0, 0), 0);
        assert_eq!(share(7, 3, 2), 10);
        assert_eq!(share(u64::MAX, 3, 4), (u64::MAX / 4) * 3 + 2);
    }

    #[test]
    fn time_recorded_after_the_adoption_is_that_of_the_adoption() {
        let mut arrivals = Arrivals::default();
        arrivals.add_arrivals(0, 1, 130, 120);
        assert_eq!(arrivals.arrived_at(1, 0), Some(120));
    }

    #[test]
    fn long_queue_keeps_its_oldest_and_newest_times() {
        let mut arrivals = Arrivals::default();
        // The distances between the spans grow.
        let start = |i: u64| 1000 * i * i;
        for i in 1..=50 {
            arrivals.add_arrivals(10 * (i as usize - 1), 10, start(i), start(i) + 10);
        }
        for i in 1..=50 {
            let at = arrivals.arrived_at(500, 10 * (i as usize - 1)).unwrap();
            let error = at.abs_diff(start(i));
            assert!(error <= start(50) / 10, "{i}: {at} for {}", start(i));
        }
        assert_eq!(arrivals.arrived_at(500, 0), Some(start(1)));
    }

    #[test]
    fn reset_counter_keeps_the_time_of_each_item() {
        let mut arrivals = Arrivals::default();
        let start = |i: u64| 1_000_000 + 1000 * i - if i > 6 { 900_000 } else { 0 };
        for i in 0..30 {
            arrivals.add_arrivals(10 * i as usize, 10, start(i), start(i) + 10);
        }
        let times = (0..300).map(|nth| arrivals.arrived_at(300, nth));
        assert!(times.into_iter().all(|at| at.is_some_and(|at| at <= start(6) + 10)));
    }

    #[test]
    fn removal_from_the_middle_shortens_all_equally() {
        let mut arrivals = Arrivals::default();
        arrivals.add_arrivals(0, 100, 1000, 2000);
        arrivals.add_arrivals(100, 100, 5000, 6000);
        arrivals.cut(200, 100);
        assert_eq!(arrivals.arrived_at(100, 0), Some(1000));
        assert_eq!(arrivals.arrived_at(100, 50), Some(5000));
        arrivals.add_arrivals(100, 1, 9000, 9000);
        assert_eq!(arrivals.arrived_at(101, 100), Some(9000));
        arrivals.cut(101, 101);
        assert_eq!(arrivals.arrived_at(0, 0), None);
        arrivals.add_arrivals(0, 1, 9500, 9600);
        assert_eq!(arrivals.arrived_at(1, 0), Some(9500));
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "plain data, and hours of it")]
        fn every_item_of_a_queue_has_a_time_and_times_are_in_order(
            steps in prop::collection::vec((0u8..4, any::<u16>()), 1..300),
        ) {
            let (mut arrivals, mut nr_listed, mut now) = (Arrivals::default(), 0, 1);
            for (step, number) in steps {
                let some = usize::from(number) % (nr_listed + 1);
                match step {
                    0 | 1 => {
                        let count = usize::from(number % 20) + 1;
                        let from = now + u64::from(number);
                        now = from + u64::from(number / 2) + 1;
                        arrivals.add_arrivals(nr_listed, count, from, now);
                        nr_listed += count;
                    }
                    2 => nr_listed -= some,
                    _ => {
                        arrivals.cut(nr_listed, some);
                        nr_listed -= some;
                    }
                }
                let times = (0..nr_listed).map(|nth| arrivals.arrived_at(nr_listed, nth));
                let times: Option<Vec<_>> = times.collect();
                prop_assert!(times.as_ref().is_some_and(|it| it.is_sorted()), "{:?}", times);
                prop_assert!(times.unwrap().last().is_none_or(|last| *last <= now));
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod histogram_tests;
