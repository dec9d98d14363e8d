//! Latencies. Every sample is kept, and percentiles are computed once at the end.

use super::stats::percentile;

/// Durations in cycles of [`sync::time::cycles`]. A push stores to preallocated memory, so it
/// hardly disturbs the measured code.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    cycles: Vec<u64>,
}

impl Latencies {
    pub fn with_capacity_for(samples: usize) -> Self {
        Self { cycles: Vec::with_capacity(samples) }
    }

    /// Adds the time between two readings of the cycle counter.
    ///
    /// The counters of two CPUs may differ by a few cycles, so a negative time counts as 0.
    #[inline]
    pub fn push(&mut self, start: u64, end: u64) {
        self.cycles.push(end.saturating_sub(start));
    }

    pub fn absorb(&mut self, other: &Self) {
        self.cycles.extend_from_slice(&other.cycles);
    }

    pub fn mean_ns(&self) -> Option<f64> {
        let sum: u64 = self.cycles.iter().sum();
        let mean = sum as f64 / self.cycles.len() as f64;
        let cycles_per_us = sync::time::cycles_per_us() as f64;
        (!self.cycles.is_empty()).then_some(mean * 1000.0 / cycles_per_us)
    }

    pub fn percentiles_ns<const N: usize>(mut self, percents: [f64; N]) -> Option<[f64; N]> {
        self.cycles.sort_unstable();
        self.cycles.first()?;
        let cycles_per_us = sync::time::cycles_per_us() as f64;
        Some(percents.map(|percent| {
            let cycles = percentile(&self.cycles, percent).unwrap_or_default();
            cycles as f64 * 1000.0 / cycles_per_us
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_grow_and_an_end_before_its_start_is_zero() {
        let (mut all, mut latencies) = (Latencies::default(), Latencies::with_capacity_for(8));
        latencies.push(10, 5);
        for time in 1..=100 {
            latencies.push(1_000, 1_000 + time * 1_000);
        }
        all.absorb(&latencies);
        assert_eq!(all.cycles.len(), 101);
        let [least, median, most] = all.percentiles_ns([0.0, 50.0, 100.0]).unwrap();
        assert_eq!(least, 0.0);
        assert!(median > 0.0 && most > median);
    }
}
