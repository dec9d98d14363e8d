//! The metrics of this bench.

use crate::measure::metric::{MILLION, Metric, NS_PER_US, higher, lower};

/// A section with one look at the value.
pub const READ: &str = "read_ns";
/// The same in cycles of the CPU's counter.
pub const READ_CYCLES: &str = "read_cycles";
/// From the replacement until the old value has been freed.
pub const REPLACE_MEAN: &str = "replace_mean";
/// See [`REPLACE_MEAN`].
pub const REPLACE_P50: &str = "replace_p50";
/// See [`REPLACE_MEAN`].
pub const REPLACE_P95: &str = "replace_p95";
/// See [`REPLACE_MEAN`].
pub const REPLACE_MIN: &str = "replace_min";
/// See [`REPLACE_MEAN`].
pub const REPLACE_MAX: &str = "replace_max";
/// Replacements of all updaters together.
pub const REPLACES: &str = "replaces_per_s";
/// Sections of the readers beside them.
pub const READS: &str = "reads_per_s";
/// Callbacks handed over and run.
pub const CALLS: &str = "calls_per_s";
/// From handing a callback over until it has run.
pub const CALL_TO_RUN: &str = "call_to_run_p50";
/// A barrier when no callback waits.
pub const BARRIER: &str = "idle_barrier_p50";
/// One bridge: add, configure, delete.
pub const BRIDGE: &str = "bridge_mean";

const REPLACE: &str = "replace us";

/// Of the case `read`.
pub const READS_ALONE: &[Metric] = &[
    lower(READ, "ns", ("", "ns/read"), 1.0),
    lower(READ_CYCLES, "cycles", ("", "cycles"), 1.0),
];

/// Of the replace cases, in the table's order.
pub const REPLACE_LATENCY: &[Metric] = &[
    lower(REPLACE_MEAN, "ns", (REPLACE, "mean"), NS_PER_US),
    lower(REPLACE_P50, "ns", (REPLACE, "p50"), NS_PER_US),
    lower(REPLACE_P95, "ns", (REPLACE, "p95"), NS_PER_US),
    lower(REPLACE_MIN, "ns", (REPLACE, "min"), NS_PER_US),
    lower(REPLACE_MAX, "ns", (REPLACE, "max"), NS_PER_US),
];

/// Of the cases with many updaters.
pub const UPDATERS: &[Metric] = &[
    higher(REPLACES, "1/s", ("", "replaces/s"), 1.0),
    higher(READS, "1/s", ("", "M reads/s"), MILLION),
];

/// Of the case `call`.
pub const CALLBACKS: &[Metric] = &[
    higher(CALLS, "1/s", ("", "M calls/s"), MILLION),
    lower(CALL_TO_RUN, "ns", ("", "us to run"), NS_PER_US),
    lower(BARRIER, "ns", ("", "us a barrier"), NS_PER_US),
];

/// Of the case `bridge`.
pub const BRIDGES: &[Metric] = &[
    lower(BRIDGE, "ns", ("", "us a bridge"), NS_PER_US),
    higher(READS, "1/s", ("", "M reads/s"), MILLION),
];
