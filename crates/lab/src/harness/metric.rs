//! Metrics, which are numbers with a name, a unit and a column.

use serde::{Deserialize, Serialize};

/// The scales of columns, for values in nanoseconds and for shares.
pub const NS_PER_US: f64 = 1e3;
pub const NS_PER_MS: f64 = 1e6;
pub const MILLION: f64 = 1e6;
pub const PERCENT: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

pub type Text = &'static str;

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// This determines the best peer.
    pub better: Better,
    /// The group of the table's column, or "".
    pub group: &'static str,
    /// The head of the table's column, or "" if only records contain the metric.
    pub head: &'static str,
    /// The number by which the recorded value is divided before the table shows it.
    pub scale: f64,
}

impl From<Metric> for &'static str {
    fn from(metric: Metric) -> Self {
        metric.name
    }
}

/// Creates a metric. `(group, head)` is the heading of its column in the table.
pub const fn lower(name: Text, unit: Text, (group, head): (Text, Text), scale: f64) -> Metric {
    Metric { name, unit, better: Better::Lower, group, head, scale }
}

pub const fn higher(name: Text, unit: Text, column: (Text, Text), scale: f64) -> Metric {
    Metric { better: Better::Higher, ..lower(name, unit, column, scale) }
}
