//! The metrics of this bench.

use crate::harness::metric::{Metric, NS_PER_MS, NS_PER_US, higher, lower};

pub const ITEMS: Metric = higher("items_per_s", "1/s", ("", "items/s"), 1.0);
pub const LATENCY_P50: Metric = lower("latency_p50", "ns", (LATENCY, "p50"), NS_PER_MS);
pub const LATENCY_P99: Metric = lower("latency_p99", "ns", (LATENCY, "p99"), NS_PER_MS);
pub const THREADS: Metric = lower("threads", "threads", ("", "threads"), 1.0);
pub const MEMORY: Metric = lower("memory_growth", "bytes", ("", "MiB"), MIB);
pub const SWITCHES: Metric = lower("switches_per_item", "1/item", ("", "switches"), 1.0);
pub const CPU: Metric = lower("cpu_per_item", "ns/item", ("", "cpu us"), NS_PER_US);

const MIB: f64 = 1024.0 * 1024.0;

const LATENCY: &str = "queue to end ms";

pub const ALL: &[Metric] = &[ITEMS, LATENCY_P50, LATENCY_P99, THREADS, MEMORY, SWITCHES, CPU];
