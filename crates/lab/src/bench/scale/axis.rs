//! An axis: the numbers of things for which costs are measured.

use top::exit::Stop;
use top::interrupt::Interrupt;

use super::fit;
use crate::harness::case::Sample;
use crate::harness::metric::{Metric, lower};

/// The factor by which the cost of one thing grows when the number of things doubles. It is 2 to
/// the power of the fitted exponent. Unlike the exponent, it is positive, so ratios are meaningful.
pub const GROWTH: &str = "growth";

/// The minimum number of things for which memory is reported. For fewer, the result would be
/// imprecise, because memory is allocated in pages.
const LEAST_WEIGHED: usize = 1_000;

/// The numbers at which a case is measured, in ascending order, and the metrics for them.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The numbers.
    pub places: &'static [usize],
    /// The heading of the time columns.
    pub head: &'static str,
    /// The limit for the growth of the time per thing.
    pub limit: Limit,
    /// `true` if the memory of the things is measured.
    pub weighs: bool,
}

/// A limit for the growth of the time per thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The time grows as log n, so that the time of all n things grows as n log n.
    LogN,
    /// The time grows as n log n, because an action visits all n things.
    NLogN,
    /// The time grows as n, because an item burns n nanoseconds.
    N,
}

/// The result at one place of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The nanoseconds per thing or action.
    pub ns: f64,
    /// The number of bytes per thing, if memory is measured.
    pub bytes: Option<f64>,
}

impl Limit {
    /// Returns the name of the variant that represents the limit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LogN => "(log n)",
            Self::NLogN => "(n log n)",
            Self::N => "(n)",
        }
    }

    /// Returns the limit for `n` things. It uses log 2n, so that the value for one thing is
    /// positive.
    fn of(self, n: f64) -> f64 {
        match self {
            Self::LogN => (2.0 * n).log2(),
            Self::NLogN => n * (2.0 * n).log2(),
            Self::N => n,
        }
    }
}

impl Axis {
    /// Returns the metrics of a case: times at all places, growth, and memory if it is measured.
    ///
    /// The metrics are leaked, because metrics must be `'static`.
    #[must_use]
    pub fn metrics(&self) -> &'static [Metric] {
        let mut metrics = Vec::new();
        for &place in self.places {
            let head = Box::leak(short(place).into_boxed_str());
            metrics.push(lower(time_at(place), "ns", (self.head, head), 1.0));
        }
        metrics.push(lower(GROWTH, "x", ("times, as n", "doubles"), 1.0));
        let last = self.places.last();
        for &place in self.weighed() {
            // Tables show memory only at the last place. Records contain it at all places.
            let head = if Some(&place) == last { "bytes" } else { "" };
            metrics.push(lower(bytes_at(place), "B", ("", head), 1.0));
        }
        Vec::leak(metrics)
    }

    fn weighed(&self) -> impl Iterator<Item = &'static usize> {
        let (places, weighs) = (self.places.iter(), self.weighs);
        places.filter(move |place| weighs && **place >= LEAST_WEIGHED)
    }

    /// Returns the metric by which variants are ranked, which is the time at the last place.
    #[must_use]
    pub fn last_time(&self) -> &'static str {
        time_at(self.places.last().copied().unwrap_or_default())
    }

    /// Returns the metric for memory at the last place.
    #[must_use]
    pub fn last_bytes(&self) -> &'static str {
        bytes_at(self.places.last().copied().unwrap_or_default())
    }

    /// Measures the cost at each place and fits the growth. Returns `None` if interrupted.
    pub fn measure(
        &self,
        mut at: impl FnMut(usize) -> Result<Option<Cost>, Stop>,
        interrupt: &Interrupt,
    ) -> Result<Option<Sample>, Stop> {
        let mut sample = Sample::default();
        let mut points = Vec::new();
        for &place in self.places {
            if interrupt.requested() {
                return Ok(None);
            }
            // The machine may be too small for this number.
            let Some(cost) = at(place)? else { continue };
            sample.set(time_at(place), cost.ns);
            let bytes = cost.bytes.filter(|_| self.weighs);
            if let Some(bytes) = bytes.filter(|_| place >= LEAST_WEIGHED) {
                sample.set(bytes_at(place), bytes);
            }
            points.push((place as f64, cost.ns));
        }
        if let Some(growth) = fit::growth(&points) {
            sample.set(GROWTH, growth);
        }
        Ok(Some(sample))
    }

    /// Creates a sample that grows exactly like the limit.
    #[must_use]
    pub fn limit(&self) -> Sample {
        let mut sample = Sample::default();
        let numbers = self.places.iter().map(|&place| place as f64);
        let points: Vec<_> = numbers.map(|n| (n, self.limit.of(n))).collect();
        if let Some(growth) = fit::growth(&points) {
            sample.set(GROWTH, growth);
        }
        sample
    }

    /// Creates a sample with `bytes` bytes per thing at the last place.
    #[must_use]
    pub fn room(&self, bytes: f64) -> Sample {
        let mut sample = Sample::default();
        sample.set(self.last_bytes(), bytes);
        sample
    }
}

/// Returns the name of the time metric at a place. Each call leaks a new string.
fn time_at(place: usize) -> &'static str {
    Box::leak(format!("ns@{place}").into_boxed_str())
}

fn bytes_at(place: usize) -> &'static str {
    Box::leak(format!("bytes@{place}").into_boxed_str())
}

/// Formats a number for the heading of a narrow column.
fn short(place: usize) -> String {
    match place {
        ..1_000 => place.to_string(),
        1_000..1_000_000 => format!("{}k", place / 1_000),
        _ => format!("{}M", place / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXIS: Axis =
        Axis { places: &[1, 100, 10_000], head: "ns", limit: Limit::LogN, weighs: true };

    fn measured(axis: Axis, ns: fn(f64) -> f64) -> Sample {
        let at = |place| {
            let ns = ns(place as f64);
            Ok(Some(Cost { ns, bytes: Some(48.0) }))
        };
        axis.measure(at, &Interrupt::default()).unwrap().unwrap()
    }

    fn growth(sample: &Sample) -> f64 {
        sample.value(GROWTH).unwrap()
    }

    #[test]
    fn growth_is_that_of_the_time_of_one_and_always_positive() {
        assert!((growth(&measured(AXIS, |_| 20.0)) - 1.0).abs() < 1e-9);
        assert!((growth(&measured(AXIS, |n| 3.0 * n)) - 2.0).abs() < 1e-9);
        assert!((growth(&measured(AXIS, |n| 3e9 / n)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn growth_beyond_the_limit_is_detected() {
        let limit = growth(&AXIS.limit());
        // A limit of n log n would accept both of these.
        assert!(growth(&measured(AXIS, f64::sqrt)) > limit);
        assert!(growth(&measured(AXIS, |n| n)) > limit);
        assert!(growth(&measured(AXIS, |n| 20.0 + n.ln())) < limit);
        let visits = Axis { limit: Limit::NLogN, ..AXIS };
        assert!(growth(&measured(visits, |n| n)) < growth(&visits.limit()));
        // The growth factor of n log n is twice that of log n.
        let ratio = growth(&visits.limit()) / limit;
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn every_value_has_a_metric_and_memory_is_measured_if_enough() {
        let sample = measured(AXIS, |_| 20.0);
        let metrics = AXIS.metrics();
        assert_eq!(metrics.len(), 3 + 1 + 1);
        assert!(metrics.iter().all(|metric| sample.value(metric.name).is_some()));
        assert_eq!(sample.value(AXIS.last_time()), Some(20.0));
        assert_eq!(sample.value(AXIS.last_bytes()), Some(48.0));
        assert_eq!(sample.value("bytes@100"), None);
        assert_eq!(AXIS.room(64.0).value(AXIS.last_bytes()), Some(64.0));
        let weightless = Axis { weighs: false, ..AXIS };
        assert_eq!(weightless.metrics().len(), 3 + 1);
        let sample = measured(weightless, |_| 20.0);
        assert_eq!(sample.value(AXIS.last_bytes()), None);
    }

    #[test]
    fn positions_are_short_in_heads() {
        assert_eq!(
            [1, 999, 1_000, 100_000, 10_000_000].map(short),
            ["1", "999", "1k", "100k", "10M"]
        );
    }
}
