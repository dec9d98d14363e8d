//! What a run yields: a number with a name, a unit and a column.

use serde::{Deserialize, Serialize};

/// Scale of a column in microseconds, of nanoseconds.
pub const NS_PER_US: f64 = 1e3;
/// Scale of a column in milliseconds, of nanoseconds.
pub const NS_PER_MS: f64 = 1e6;
/// Scale of a column in millions.
pub const MILLION: f64 = 1e6;
/// Scale of a column in percent, of a share.
pub const PERCENT: f64 = 0.01;

/// Which way a metric is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Throughput.
    Higher,
    /// Time, switches.
    Lower,
}

/// A number that a run may yield.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// As records spell it.
    pub name: &'static str,
    /// Unit of the recorded value.
    pub unit: &'static str,
    /// Which way it is good; decides what the best peer is.
    pub better: Better,
    /// Group of the table's column, "" for none.
    pub group: &'static str,
    /// Head of the table's column; "" for a metric that only records tell.
    pub head: &'static str,
    /// What the recorded value is divided by for the table.
    pub scale: f64,
}

impl From<Metric> for &'static str {
    fn from(metric: Metric) -> Self {
        metric.name
    }
}

/// A metric that is good when it is low, under `(group, head)` of the table.
#[must_use]
pub const fn lower(
    name: &'static str,
    unit: &'static str,
    (group, head): (&'static str, &'static str),
    scale: f64,
) -> Metric {
    Metric {
        name,
        unit,
        better: Better::Lower,
        group,
        head,
        scale,
    }
}

/// A metric that is good when it is high, under `(group, head)` of the table.
#[must_use]
pub const fn higher(
    name: &'static str,
    unit: &'static str,
    column: (&'static str, &'static str),
    scale: f64,
) -> Metric {
    Metric {
        better: Better::Higher,
        ..lower(name, unit, column, scale)
    }
}
