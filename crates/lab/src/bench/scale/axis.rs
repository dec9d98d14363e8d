//! An axis: of how many things costs are told.

use super::fit;
use crate::exit::Stop;
use crate::harness::case::Sample;
use crate::harness::interrupt::Interrupt;
use crate::harness::metric::{Metric, lower};

/// The metric that the cases are ranked by.
pub const EXPONENT: &str = "exponent";

/// Fewer things tell nothing of memory, which comes in pages.
const LEAST_WEIGHED: usize = 1_000;

/// The numbers at which a case is measured, ascending, with their metrics.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The numbers.
    pub places: &'static [usize],
    /// What grows: the cost of all things, or that of one action beside them.
    pub grows: Grows,
}

/// Whose growth the exponent tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// The cost of one, times their number.
    All,
    /// The cost of what is done once, however many there are.
    One,
}

/// What is measured at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Nanoseconds of one thing, or of one action.
    pub ns: f64,
    /// Bytes of each thing, where memory belongs to it.
    pub bytes: Option<f64>,
}

impl Axis {
    /// Returns the metrics of a case on this axis: the exponent, then time at each place, then memory where it is weighed.
    ///
    /// They live as long as the process, as the tables of other benches do.
    #[must_use]
    pub fn metrics(&self) -> &'static [Metric] {
        let mut metrics = vec![lower(EXPONENT, "exponent", ("", "grows n^"), 1.0)];
        for &place in self.places {
            let head = Box::leak(short(place).into_boxed_str());
            metrics.push(lower(time_at(place), "ns", ("ns, of so many", head), 1.0));
        }
        let last = self.places.last();
        for &place in self.weighed() {
            // The table has the last one; records have all.
            let head = if Some(&place) == last { "bytes" } else { "" };
            metrics.push(lower(bytes_at(place), "B", ("", head), 1.0));
        }
        Vec::leak(metrics)
    }

    fn weighed(&self) -> impl Iterator<Item = &'static usize> {
        let places = self.places.iter();
        places.filter(|place| **place >= LEAST_WEIGHED)
    }

    /// Returns the metric of memory at the last place.
    #[must_use]
    pub fn last_bytes(&self) -> &'static str {
        bytes_at(self.places.last().copied().unwrap_or_default())
    }

    /// Measures at each place and fits the exponent; `None` if it was interrupted.
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
            if let Some(bytes) = cost.bytes.filter(|_| place >= LEAST_WEIGHED) {
                sample.set(bytes_at(place), bytes);
            }
            let of_all = match self.grows {
                Grows::All => cost.ns * place as f64,
                Grows::One => cost.ns,
            };
            points.push((place as f64, of_all));
        }
        if let Some(exponent) = fit::exponent(&points) {
            sample.set(EXPONENT, exponent);
        }
        Ok(Some(sample))
    }

    /// Makes the sample of what grows as n log n, and takes no more bytes each than `bytes`.
    #[must_use]
    pub fn limit(&self, bytes: Option<f64>) -> Sample {
        let mut sample = Sample::default();
        if let Some(exponent) = fit::of_n_log_n(self.places) {
            sample.set(EXPONENT, exponent);
        }
        if let Some(bytes) = bytes {
            sample.set(self.last_bytes(), bytes);
        }
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
        grows: Grows::All,
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

    #[test]
    fn what_costs_the_same_each_grows_as_their_number() {
        let sample = measured(AXIS, |_| 20.0);
        assert!((sample.value(EXPONENT).unwrap() - 1.0).abs() < 1e-9);
        let one = Axis {
            grows: Grows::One,
            ..AXIS
        };
        assert!(measured(one, |_| 20.0).value(EXPONENT).unwrap().abs() < 1e-9);
    }

    #[test]
    fn what_costs_more_the_more_there_are_is_beyond_the_limit() {
        let limit = AXIS.limit(None).value(EXPONENT).unwrap();
        assert!(measured(AXIS, |n| 20.0 * n.sqrt()).value(EXPONENT).unwrap() > limit);
        assert!(measured(AXIS, |n| 20.0 + n.ln()).value(EXPONENT).unwrap() < limit);
    }

    #[test]
    fn every_value_has_its_metric_and_memory_is_weighed_where_there_is_enough() {
        let sample = measured(AXIS, |_| 20.0);
        let metrics = AXIS.metrics();
        assert_eq!(metrics.len(), 1 + 3 + 1);
        assert!(
            metrics
                .iter()
                .all(|metric| sample.value(metric.name).is_some())
        );
        assert_eq!(sample.value(AXIS.last_bytes()), Some(48.0));
        assert_eq!(sample.value("bytes@100"), None);
        assert_eq!(AXIS.limit(Some(64.0)).value(AXIS.last_bytes()), Some(64.0));
    }

    #[test]
    fn places_are_short_in_heads() {
        assert_eq!(
            [1, 999, 1_000, 100_000, 10_000_000].map(short),
            ["1", "999", "1k", "100k", "10M"]
        );
    }
}
