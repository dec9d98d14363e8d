//! Histograms of durations.

use sync::time;

/// A histogram of durations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Histogram {
    /// Number of durations.
    pub count: u64,
    /// Sum in nanoseconds; `u64::MAX` (584 years) if it is larger.
    pub total_ns: u64,
    /// Bucket `i` counts durations of `2^i` to `2^(i+1)` nanoseconds. Bucket 0 also counts those of
    /// zero. The last one, the 40th, counts all that are longer: 9 minutes and more.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Returns the mean in nanoseconds, or 0 if the histogram is empty.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.total_ns as f64 / self.count as f64
        }
    }

    /// Returns the upper end of the bucket that contains the quantile `q` (0 to 1), in nanoseconds.
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

    /// Returns an estimate of the quantile `q` (0 to 1) in nanoseconds, as if the durations of a
    /// bucket were spread evenly over it. The error is less than a factor of two.
    /// [`quantile_ns`](Self::quantile_ns) is never too low, except in the last bucket.
    pub fn about_ns(&self, q: f64) -> u64 {
        let rank = (q * self.count as f64).ceil().max(1.0);
        let mut seen = 0.0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let count = count as f64;
            if count > 0.0 && seen + count >= rank {
                let least = if bucket == 0 {
                    0.0
                } else {
                    (1_u64 << bucket) as f64
                };
                let most = (2_u64 << bucket) as f64;
                return (least + (most - least) * (rank - seen - 0.5) / count) as u64;
            }
            seen += count;
        }
        0
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.buckets
            .resize(self.buckets.len().max(other.buckets.len()), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
    }
}

const BUCKETS: usize = 40;

/// Number of bits that subdivide a power of two, so that a count of cycles falls into about the
/// right power of two of nanoseconds.
const PARTS_LOG2: u32 = 2;
/// Number of powers of two of cycles: more than 20 minutes at 3 GHz.
const POWERS: usize = 42;
const PLACES: usize = (POWERS - 1) << PARTS_LOG2;

/// A histogram of durations in cycles, under a lock. Counting needs no division and no clock rate.
#[derive(Debug)]
pub(crate) struct Cycles {
    /// Sum in cycles. A million items that wait for two hours exceed a `u64`.
    total: u128,
    counts: [u64; PLACES],
}

impl Default for Cycles {
    fn default() -> Self {
        Self {
            total: 0,
            counts: [0; PLACES],
        }
    }
}

/// Returns the index of the count for `cycles`.
fn place(cycles: u64) -> usize {
    let power = (cycles | 1).ilog2();
    let place = match power.checked_sub(PARTS_LOG2) {
        // The power, and the two bits below the top bit.
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
        self.counts[place(cycles)] += count;
        self.total += u128::from(cycles) * u128::from(count);
    }

    /// Adds `count` durations of about `cycles` each, whose sum is `total`.
    pub(crate) fn add_measured(&mut self, cycles: u64, count: u64, total: u64) {
        self.counts[place(cycles)] += count;
        self.total += u128::from(total);
    }

    /// Removes `count` durations of `cycles` each that were added before.
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

    pub(crate) fn told(&self) -> Histogram {
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
    use super::*;

    #[test]
    fn each_number_of_cycles_has_a_place_and_places_are_in_order() {
        for cycles in (0..5000).chain((3..41).flat_map(|i| [(1 << i) - 1, 1 << i, (1 << i) + 1])) {
            let at = place(cycles);
            assert!(cycles <= most(at), "{cycles} at {at}");
            assert!(at == 0 || most(at - 1) < cycles, "{cycles} at {at}");
        }
        assert_eq!(place(u64::MAX), PLACES - 1);
        assert!((0..PLACES - 1).all(|at| most(at) < most(at + 1)));
    }

    #[test]
    fn cycles_are_told_as_nanoseconds_of_about_the_right_bucket() {
        let mut cycles = Cycles::default();
        let per_us = time::cycles_per_us();
        cycles.add(100 * per_us, 3);
        cycles.add_measured(5_000_000 * per_us, 1, 5_000_000 * per_us);
        let told = cycles.told();
        assert_eq!((told.count, told.total_ns), (4, 5_000_300_000));
        assert!((100_000..=262_144).contains(&told.quantile_ns(0.5)));
        assert!((5_000_000_000..20_000_000_000).contains(&told.quantile_ns(1.0)));
    }

    #[test]
    fn what_many_waited_for_hours_is_told_or_the_most_that_a_word_holds() {
        let mut cycles = Cycles::default();
        let hour = 3_600_000_000 * time::cycles_per_us();
        cycles.add(4 * hour, 1_000_000);
        assert_eq!(cycles.told().mean_ns(), 4.0 * 3.6e12);
        cycles.add(4 * hour, 1_000_000);
        cycles.take_back(4 * hour, 1_000_000);
        assert_eq!(cycles.told().total_ns, 4 * 3_600_000_000_000 * 1_000_000);
        let mut twice = cycles.told();
        twice.merge(&cycles.told());
        cycles.add(4 * hour, 1_000_000);
        assert_eq!(
            (cycles.told().total_ns, twice.total_ns),
            (u64::MAX, u64::MAX)
        );
    }

    #[test]
    fn a_quantile_is_about_there_where_its_bucket_is_full() {
        let mut buckets = vec![0; 33];
        // 20 durations of 4.3 to 8.6 s, and one of a microsecond.
        (buckets[32], buckets[10]) = (20, 1);
        let times = Histogram {
            count: 21,
            total_ns: 0,
            buckets,
        };
        let about_ms = |q| times.about_ns(q) / 1_000_000;
        assert_eq!(times.quantile_ns(0.5), 1 << 33);
        assert_eq!(
            (about_ms(0.0), about_ms(0.5), about_ms(1.0)),
            (0, 6335, 8482)
        );
        assert_eq!(Histogram::default().about_ns(0.5), 0);
    }

    #[test]
    fn no_hold_has_no_mean() {
        assert_eq!(Histogram::default().mean_ns(), 0.0);
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }
}
