//! How often something took how long: a histogram that many threads add to, and what is read of it.

use sync::{
    atomic::{AtomicU64, Ordering},
    time,
};

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
