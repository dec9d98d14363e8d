//! The metrics of this bench.

use crate::harness::metric::{MILLION, Metric, NS_PER_US, higher, lower};

/// A section with one look at the value.
pub const READ: Metric = lower("read_ns", "ns", ("", "ns/read"), 1.0);
/// The same in cycles of the CPU's counter.
pub const READ_CYCLES: Metric = lower("read_cycles", "cycles", ("", "cycles"), 1.0);
/// From the replacement until the old value has been freed.
pub const REPLACE_MEAN: Metric = lower("replace_mean", "ns", (REPLACE, "mean"), NS_PER_US);
/// See [`REPLACE_MEAN`].
pub const REPLACE_P50: Metric = lower("replace_p50", "ns", (REPLACE, "p50"), NS_PER_US);
/// See [`REPLACE_MEAN`].
pub const REPLACE_P95: Metric = lower("replace_p95", "ns", (REPLACE, "p95"), NS_PER_US);
/// See [`REPLACE_MEAN`].
pub const REPLACE_MIN: Metric = lower("replace_min", "ns", (REPLACE, "min"), NS_PER_US);
/// See [`REPLACE_MEAN`].
pub const REPLACE_MAX: Metric = lower("replace_max", "ns", (REPLACE, "max"), NS_PER_US);
/// Replacements of all updaters together.
pub const REPLACES: Metric = higher("replaces_per_s", "1/s", ("", "replaces/s"), 1.0);
/// Sections of the readers beside them.
pub const READS: Metric = higher("reads_per_s", "1/s", ("", "M reads/s"), MILLION);
/// Callbacks handed over and run.
pub const CALLS: Metric = higher("calls_per_s", "1/s", ("", "M calls/s"), MILLION);
/// From handing a callback over until it has run.
pub const CALL_TO_RUN: Metric = lower("call_to_run_p50", "ns", ("", "us to run"), NS_PER_US);
/// A barrier when no callback waits.
pub const BARRIER: Metric = lower("idle_barrier_p50", "ns", ("", "us a barrier"), NS_PER_US);
/// One bridge: add, configure, delete.
pub const BRIDGE: Metric = lower("bridge_mean", "ns", ("", "us a bridge"), NS_PER_US);

const REPLACE: &str = "replace us";

/// Of the case `read`.
pub const READS_ALONE: &[Metric] = &[READ, READ_CYCLES];

/// Of the replace cases, in the table's order.
pub const REPLACE_LATENCY: &[Metric] = &[
    REPLACE_MEAN,
    REPLACE_P50,
    REPLACE_P95,
    REPLACE_MIN,
    REPLACE_MAX,
];

/// Of the cases with many updaters.
pub const UPDATERS: &[Metric] = &[REPLACES, READS];

/// Of the case `call`.
pub const CALLBACKS: &[Metric] = &[CALLS, CALL_TO_RUN, BARRIER];

/// Of the case `bridge`.
pub const BRIDGES: &[Metric] = &[BRIDGE, READS];
