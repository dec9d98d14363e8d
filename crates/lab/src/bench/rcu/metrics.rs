//! The metrics of this bench.

use crate::harness::metric::{MILLION, Metric, NS_PER_US, higher, lower};

pub const READ: Metric = lower("read_ns", "ns", ("", "ns/read"), 1.0);
pub const READ_CYCLES: Metric = lower("read_cycles", "cycles", ("", "cycles"), 1.0);
pub const REPLACE_MEAN: Metric = lower("replace_mean", "ns", (REPLACE, "mean"), NS_PER_US);
pub const REPLACE_P50: Metric = lower("replace_p50", "ns", (REPLACE, "p50"), NS_PER_US);
pub const REPLACE_P95: Metric = lower("replace_p95", "ns", (REPLACE, "p95"), NS_PER_US);
pub const REPLACE_MIN: Metric = lower("replace_min", "ns", (REPLACE, "min"), NS_PER_US);
pub const REPLACE_MAX: Metric = lower("replace_max", "ns", (REPLACE, "max"), NS_PER_US);
pub const REPLACES: Metric = higher("replaces_per_s", "1/s", ("", "replaces/s"), 1.0);
pub const READS: Metric = higher("reads_per_s", "1/s", ("", "M reads/s"), MILLION);
pub const CALLS: Metric = higher("calls_per_s", "1/s", ("", "M calls/s"), MILLION);
pub const CALL_TO_RUN: Metric = lower("call_to_run_p50", "ns", ("", "us to run"), NS_PER_US);
pub const BARRIER: Metric = lower("idle_barrier_p50", "ns", ("", "us/barrier"), NS_PER_US);
pub const BRIDGE: Metric = lower("bridge_mean", "ns", ("", "us/bridge"), NS_PER_US);

const REPLACE: &str = "replace us";

pub const REPLACE_LATENCY: &[Metric] =
    &[REPLACE_MEAN, REPLACE_P50, REPLACE_P95, REPLACE_MIN, REPLACE_MAX];
