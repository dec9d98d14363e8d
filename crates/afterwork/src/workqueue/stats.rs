//! What pools and queues have counted.

use sync::{
    atomic::{AtomicU64, Ordering},
    time,
};
use topology::CpuSet;

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
    /// Items that no worker has taken; without those that producers have just left.
    pub nr_pending: usize,
    /// Workers got up, or asked for, because work waited.
    pub kicks: u64,
    /// Workers made.
    pub created: u64,
    /// Workers sent away after idling for too long.
    pub culled: u64,
    /// Workers brought home that had been let run outside their pod.
    pub repatriated: u64,
    /// Workers that a look found asleep inside an item while work waited, without a word to the pool.
    pub seen_asleep: u64,
    /// Items that a look found to have had the CPU for [`Params::cpu_intensive_thresh_us`](crate::params::Params)
    /// while work waited.
    pub cpu_intensive: u64,
    /// Times that its work was told not to move.
    pub stalls: u64,
    /// Calls of rescuers, because work had wanted for a worker for long.
    pub maydays: u64,
    /// Workers that the system refused to give.
    pub spawn_failed: u64,
}

/// What a queue has counted since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueStats {
    /// Items that workers took to run.
    pub started: u64,
    /// Items that their joiner ran.
    pub helped: u64,
    /// Items that panicked.
    pub panicked: u64,
    /// Items that its rescuer took.
    pub rescued: u64,
    /// Threads that run its items now.
    pub nr_active: u32,
    /// How many may.
    pub max_active: u32,
}

/// How long `queue()` held the pool lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LockHold {
    /// How often it was held.
    pub count: u64,
    /// All holds together, in nanoseconds.
    pub total_ns: u64,
    /// Bucket `i` counts the holds of `2^i` up to `2^(i+1)` nanoseconds; bucket 0 those below 2.
    pub buckets: Vec<u64>,
}

impl LockHold {
    /// Returns the mean hold in nanoseconds, 0 without any.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.total_ns as f64 / self.count as f64
        }
    }

    /// Returns the upper end of the bucket that holds the share `q` (0 to 1) of all holds, in nanoseconds.
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
    pub fn merge(&mut self, other: &LockHold) {
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

/// Counts holds of one pool's lock, in cycles.
#[derive(Debug)]
pub(crate) struct HoldStat {
    total: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for HoldStat {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl HoldStat {
    pub(crate) fn record(&self, cycles: u64) {
        let ns = cycles * 1000 / time::cycles_per_us();
        let bucket = (ns.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.total.fetch_add(ns, Ordering::Relaxed);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> LockHold {
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        LockHold {
            count: buckets.iter().sum(),
            total_ns: self.total.load(Ordering::Relaxed),
            buckets,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn holds_fall_into_the_bucket_of_their_power_of_two() {
        let stat = HoldStat::default();
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
        assert_eq!(LockHold::default().mean_ns(), 0.0);
        assert_eq!(LockHold::default().quantile_ns(0.5), 0);
    }
}
