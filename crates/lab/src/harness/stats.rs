//! The statistics of the lab: medians, their spread, and ratios of paired runs.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    /// The median absolute deviation. Half of the values are within this distance of the median.
    pub mad: f64,
    pub n: usize,
}

impl Spread {
    /// The values must be finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = median(values.to_vec())?;
        let deviations = values.iter().map(|value| (value - median).abs()).collect();
        Some(Self { median, mad: self::median(deviations)?, n: values.len() })
    }

    /// Returns the MAD as a share of the median, or 0 if the median is 0.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.mad / self.median).abs() }
    }
}

/// Returns the smallest value such that at least `percent` of `sorted`, which is in ascending
/// order, do not exceed it (nearest rank), or `None` if there is none.
pub fn percentile(sorted: &[u64], percent: f64) -> Option<u64> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    // The values are halved before the addition, which could otherwise overflow.
    Some(values[values.len() / 2 - 1] / 2.0 + upper / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_spread_and_an_outlier_moves_none() {
        let spread = |values: &[f64]| Spread::of(values).map(|it| (it.median, it.mad, it.n));
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), Some((2.5, 1.0, 4)));
        assert_eq!(spread(&[10.0, 10.0, 10.0, 10.0, 1e9]), Some((10.0, 0.0, 5)));
        assert_eq!((spread(&[]), percentile(&[], 50.0)), (None, None));
    }

    proptest! {
        #[test]
        fn median_splits_the_values(values in prop::collection::vec(-1e9..1e9_f64, 1..50)) {
            let spread = Spread::of(&values).unwrap();
            let half = values.len().div_ceil(2);
            prop_assert!(values.iter().filter(|&&v| v <= spread.median).count() >= half);
            prop_assert!(values.iter().filter(|&&v| v >= spread.median).count() >= half);
            prop_assert_eq!(spread.n, values.len());
        }

        #[test]
        fn half_of_the_values_lie_within_the_mad(values in prop::collection::vec(-1e6..1e6_f64, 1..50)) {
            let Spread { median, mad, .. } = Spread::of(&values).unwrap();
            // The tolerance allows for the rounding of the subtraction.
            let within = values.iter().filter(|&&v| (v - median).abs() <= mad + 1e-6).count();
            prop_assert!(mad >= 0.0 && within >= values.len().div_ceil(2));
        }

        #[test]
        fn percentile_is_the_nearest_rank(
            mut values in prop::collection::vec(0..1000_u64, 1..200),
            percent in 0.0..=100.0_f64,
        ) {
            values.sort_unstable();
            let found = percentile(&values, percent).unwrap();
            let reached = values.iter().filter(|&&v| v <= found).count() as f64;
            prop_assert!(reached >= percent / 100.0 * values.len() as f64);
            let below = values.iter().filter(|&&v| v < found).count() as f64;
            prop_assert!(below < (percent / 100.0 * values.len() as f64).max(1.0));
        }
    }
}
