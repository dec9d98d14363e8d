//! What pools and queues have counted.

use sync::{
    atomic::{AtomicU64, Ordering},
    time,
};
use topology::CpuSet;

use super::{attrs::Attrs, pwq::Counts, queue::Inner, tombstones::Reaped};

/// What a worker pool has counted since it was made. Each figure is read by itself, so they may not add up.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// Where its workers run.
    pub cpus: CpuSet,
    /// Whether they never run elsewhere.
    pub strict: bool,
    /// Their nice value.
    pub nice: i8,
    /// Workers there are.
    pub nr_workers: usize,
    /// Workers that lie down.
    pub nr_idle: usize,
    /// Workers that have said, or were seen, to sleep inside an item.
    pub nr_blocked: usize,
    /// Items that no worker has taken; without those that producers have just left.
    pub nr_pending: usize,
    /// Workers got up, or asked for, because work waited.
    pub kicks: u64,
    /// Workers made.
    pub created: u64,
    /// Workers sent away after idling for too long.
    pub culled: u64,
    /// Items that workers started, of all queues that use it or did.
    pub started: u64,
    /// Items that workers ran to their end.
    pub completed: u64,
    /// CPU time that workers used for them, in microseconds; see [`QueueStats::cpu_time_us`].
    pub cpu_time_us: u64,
    /// Workers got up, or asked for, because another went to sleep inside an item while work waited.
    pub cm_wakeups: u64,
    /// Workers brought home that had been let run outside their pod, when they next took an item.
    pub repatriated: u64,
    /// Workers that a look found asleep inside an item while work waited, without a word to the pool.
    pub seen_asleep: u64,
    /// Items that a look found to have had the CPU for [`Params::cpu_intensive_thresh_us`](crate::params::Params)
    /// while work waited.
    pub cpu_intensive: u64,
    /// Times that its work was told not to move.
    pub stalls: u64,
    /// For how long its work had not moved at the last look, in milliseconds; 0 once it has.
    pub stalled_ms: u64,
    /// Calls of rescuers, because work had wanted for a worker for long.
    pub maydays: u64,
    /// Items that rescuers took.
    pub rescued: u64,
    /// Workers that the system refused to give.
    pub spawn_failed: u64,
}

/// What a queue has counted since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueStats {
    /// Items that workers started; a future counts with each poll.
    pub started: u64,
    /// Items that workers ran to their end. A worker tells of a batch when it next has the pool lock.
    pub completed: u64,
    /// CPU time that workers used for them, in microseconds, sampled: see `tally.rs`. What a worker has run for less
    /// than a millisecond is not told yet.
    pub cpu_time_us: u64,
    /// Items that their joiner ran.
    pub helped: u64,
    /// Items that panicked.
    pub panicked: u64,
    /// Items that had the CPU for [`Params::cpu_intensive_thresh_us`](crate::params::Params) while work waited.
    pub cpu_intensive: u64,
    /// Workers got up, or asked for, because one of its items slept while work waited.
    pub cm_wakeups: u64,
    /// Items whose worker had been brought home from outside its pod just before.
    pub repatriated: u64,
    /// Calls of its rescuer.
    pub maydays: u64,
    /// Items that its rescuer took.
    pub rescued: u64,
    /// Attempts to queue an item that were refused because the queue was being drained, or was destroyed.
    pub refused: u64,
    /// Threads that run its items now.
    pub nr_active: u32,
    /// How many may.
    pub max_active: u32,
    /// Items that wait until one of these ends.
    pub nr_inactive: usize,
}

/// A queue by its name, with all that is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attrs: Attrs,
    /// What it has counted.
    pub stats: QueueStats,
    /// How long items waited for a worker: see [`Workqueue::wait_times`](super::Workqueue::wait_times).
    pub wait: Histogram,
}

/// How often something took how long.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Histogram {
    /// How often.
    pub count: u64,
    /// All together, in nanoseconds.
    pub total_ns: u64,
    /// Bucket `i` counts what took `2^i` up to `2^(i+1)` nanoseconds; bucket 0 those below 2.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Returns the mean in nanoseconds, 0 without any.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.total_ns as f64 / self.count as f64
        }
    }

    /// Returns the upper end of the bucket that holds the share `q` (0 to 1) of all, in nanoseconds.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = (q * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return 2 << bucket;
            }
        }
        0
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.buckets
            .resize(self.buckets.len().max(other.buckets.len()), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
    }
}

const BUCKETS: usize = 40;

/// Counts how often something took how long.
#[derive(Debug)]
pub(crate) struct Times {
    total: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Times {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Times {
    /// Adds one that took so many cycles.
    pub(crate) fn record(&self, cycles: u64) {
        let ns = cycles * 1000 / time::cycles_per_us();
        let bucket = (ns.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.total.fetch_add(ns, Ordering::Relaxed);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        Histogram {
            count: buckets.iter().sum(),
            total_ns: self.total.load(Ordering::Relaxed),
            buckets,
        }
    }
}

impl Inner {
    pub(super) fn stats(&self) -> QueueStats {
        let core = &self.core;
        let plan = self.plan.lock();
        // What was cancelled waits for nothing. As long as the plan has a link it is there.
        let reaped: Vec<_> = plan.links().iter().filter_map(|link| link.reap()).collect();
        let (mut counts, mut nr_inactive) = (Counts::default(), 0);
        for link in plan.links() {
            let dispatch = link.pool.lock();
            let link = dispatch.link(link.slot);
            counts.add(&link.counts);
            nr_inactive += link.inactive.len();
        }
        let stats = QueueStats {
            started: counts.nr_started,
            completed: counts.nr_completed,
            cpu_time_us: counts.cpu_ns / 1000,
            helped: core.nr_helped.load(Ordering::Relaxed),
            panicked: core.nr_panicked.load(Ordering::Relaxed),
            refused: core.nr_refused.load(Ordering::Relaxed),
            cpu_intensive: counts.nr_cpu_intensive,
            cm_wakeups: counts.nr_cm_wakeups,
            repatriated: counts.nr_repatriated,
            maydays: counts.nr_maydays,
            rescued: counts.nr_rescued,
            nr_active: plan.nr_active(),
            max_active: plan.max_active(),
            nr_inactive,
        };
        drop(plan);
        reaped.into_iter().for_each(Reaped::finish);
        stats
    }

    /// Returns all that is known of the queue, unless it has gone.
    pub(super) fn report(&self) -> Option<QueueReport> {
        let plan = self.plan.lock();
        let attrs = plan.attrs().clone();
        let is_dead = plan.is_dead();
        drop(plan);
        (!is_dead).then(|| QueueReport {
            name: self.core.name.to_string(),
            attrs,
            stats: self.stats(),
            wait: self.core.wait.read(),
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn holds_fall_into_the_bucket_of_their_power_of_two() {
        let stat = Times::default();
        let per_us = time::cycles_per_us();
        for us in [1, 1, 1, 100] {
            stat.record(us * per_us);
        }
        let hold = stat.read();
        assert_eq!(hold.count, 4);
        assert_eq!(hold.total_ns, 103_000);
        assert_eq!(hold.quantile_ns(0.5), 1024);
        assert_eq!(hold.quantile_ns(1.0), 131_072);
        let mut twice = hold.clone();
        twice.merge(&hold);
        assert_eq!(twice.mean_ns(), hold.mean_ns());
    }

    #[test]
    fn no_hold_has_no_mean() {
        assert_eq!(Histogram::default().mean_ns(), 0.0);
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }
}
