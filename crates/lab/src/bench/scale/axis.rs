//! An axis: of how many things costs are told.

use top::exit::Stop;
use top::interrupt::Interrupt;

use super::fit;
use crate::harness::case::Sample;
use crate::harness::metric::{Metric, lower};

/// How many times as long one takes when their number doubles: 2 to the exponent of a power of that number.
///
/// An exponent itself may be negative, or near zero, and no quotient of two such numbers means anything. This is positive.
pub const GROWTH: &str = "growth";

/// Fewer things tell nothing of memory, which comes in pages.
const LEAST_WEIGHED: usize = 1_000;

/// The numbers at which a case is measured, ascending, with their metrics.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The numbers.
    pub places: &'static [usize],
    /// What a column of times is headed by: `ns an item, of so many producers`.
    pub head: &'static str,
    /// What the time of one is held against.
    pub limit: Limit,
    /// Whether the things have memory of their own.
    pub weighs: bool,
}

/// How fast the time of one may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As log n: the time of all n then grows as n log n.
    LogN,
    /// As n log n: one action visits all n.
    NLogN,
    /// As n: an item that burns n nanoseconds takes as long.
    N,
}

/// What is measured at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Nanoseconds of one thing, or of one action.
    pub ns: f64,
    /// Bytes of each thing, where memory belongs to it.
    pub bytes: Option<f64>,
}

impl Limit {
    /// As tables spell it, among the variants.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LogN => "(log n)",
            Self::NLogN => "(n log n)",
            Self::N => "(n)",
        }
    }

    /// The logarithm is that of 2 n, so that one thing costs something.
    fn of(self, n: f64) -> f64 {
        match self {
            Self::LogN => (2.0 * n).log2(),
            Self::NLogN => n * (2.0 * n).log2(),
            Self::N => n,
        }
    }
}

impl Axis {
    /// Returns the metrics of a case on this axis: time at each place, then its growth, then memory where it is weighed.
    ///
    /// They live as long as the process, as the tables of other benches do.
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
            // The table has the last one; records have all.
            let head = if Some(&place) == last { "bytes" } else { "" };
            metrics.push(lower(bytes_at(place), "B", ("", head), 1.0));
        }
        Vec::leak(metrics)
    }

    fn weighed(&self) -> impl Iterator<Item = &'static usize> {
        let (places, weighs) = (self.places.iter(), self.weighs);
        places.filter(move |place| weighs && **place >= LEAST_WEIGHED)
    }

    /// Returns the metric that the cases are ranked by: time at the last place.
    #[must_use]
    pub fn last_time(&self) -> &'static str {
        time_at(self.places.last().copied().unwrap_or_default())
    }

    /// Returns the metric of memory at the last place.
    #[must_use]
    pub fn last_bytes(&self) -> &'static str {
        bytes_at(self.places.last().copied().unwrap_or_default())
    }

    /// Measures at each place and fits the growth; `None` if it was interrupted.
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
            // A machine may not have room for so many.
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

    /// Makes the sample of what grows as the limit does.
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

    /// Makes the sample of what takes so many bytes each at the last place.
    #[must_use]
    pub fn room(&self, bytes: f64) -> Sample {
        let mut sample = Sample::default();
        sample.set(self.last_bytes(), bytes);
        sample
    }
}

/// Returns the metric of time at a place. Asked for again it is another string of the same letters.
fn time_at(place: usize) -> &'static str {
    Box::leak(format!("ns@{place}").into_boxed_str())
}

fn bytes_at(place: usize) -> &'static str {
    Box::leak(format!("bytes@{place}").into_boxed_str())
}

/// Writes a number as the head of a narrow column.
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

    const AXIS: Axis = Axis {
        places: &[1, 100, 10_000],
        head: "ns",
        limit: Limit::LogN,
        weighs: true,
    };

    fn measured(axis: Axis, ns: fn(f64) -> f64) -> Sample {
        let at = |place| {
            let ns = ns(place as f64);
            Ok(Some(Cost {
                ns,
                bytes: Some(48.0),
            }))
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
    fn what_grows_faster_than_its_limit_is_beyond_it() {
        let limit = growth(&AXIS.limit());
        // The limit of all of them, n log n, would let both pass.
        assert!(growth(&measured(AXIS, f64::sqrt)) > limit);
        assert!(growth(&measured(AXIS, |n| n)) > limit);
        assert!(growth(&measured(AXIS, |n| 20.0 + n.ln())) < limit);
        let visits = Axis {
            limit: Limit::NLogN,
            ..AXIS
        };
        assert!(growth(&measured(visits, |n| n)) < growth(&visits.limit()));
        // n log n of all is log n of each.
        let ratio = growth(&visits.limit()) / limit;
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn every_value_has_its_metric_and_memory_is_weighed_where_there_is_enough() {
        let sample = measured(AXIS, |_| 20.0);
        let metrics = AXIS.metrics();
        assert_eq!(metrics.len(), 3 + 1 + 1);
        assert!(
            metrics
                .iter()
                .all(|metric| sample.value(metric.name).is_some())
        );
        assert_eq!(sample.value(AXIS.last_time()), Some(20.0));
        assert_eq!(sample.value(AXIS.last_bytes()), Some(48.0));
        assert_eq!(sample.value("bytes@100"), None);
        assert_eq!(AXIS.room(64.0).value(AXIS.last_bytes()), Some(64.0));
        let weightless = Axis {
            weighs: false,
            ..AXIS
        };
        assert_eq!(weightless.metrics().len(), 3 + 1);
        let sample = measured(weightless, |_| 20.0);
        assert_eq!(sample.value(AXIS.last_bytes()), None);
    }

    #[test]
    fn places_are_short_in_heads() {
        assert_eq!(
            [1, 999, 1_000, 100_000, 10_000_000].map(short),
            ["1", "999", "1k", "100k", "10M"]
        );
    }
}
