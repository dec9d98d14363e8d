//! The metrics of this bench.

use crate::measure::metric::{Metric, NS_PER_MS, NS_PER_US, higher, lower};

/// Items done.
pub const ITEMS: &str = "items_per_s";
/// From before an item is queued until it has ended.
pub const LATENCY_P50: &str = "latency_p50";
/// See [`LATENCY_P50`].
pub const LATENCY_P99: &str = "latency_p99";
/// The most threads that the crews had at once.
pub const THREADS: &str = "threads";
/// By how much the resident memory of the process grew at most.
pub const MEMORY: &str = "memory_growth";
/// Context switches of the whole process.
pub const SWITCHES: &str = "switches_per_item";
/// CPU time of the whole process.
pub const CPU: &str = "cpu_per_item";

/// The metric that variants are ranked by.
pub const HEADLINE: &str = ITEMS;

const MIB: f64 = 1024.0 * 1024.0;

const LATENCY: &str = "queue to end ms";

/// In the table's order.
pub const ALL: &[Metric] = &[
    higher(ITEMS, "1/s", ("", "items/s"), 1.0),
    lower(LATENCY_P50, "ns", (LATENCY, "p50"), NS_PER_MS),
    lower(LATENCY_P99, "ns", (LATENCY, "p99"), NS_PER_MS),
    lower(THREADS, "threads", ("", "threads"), 1.0),
    lower(MEMORY, "bytes", ("", "MiB"), MIB),
    lower(SWITCHES, "1/item", ("", "switches"), 1.0),
    lower(CPU, "ns/item", ("", "cpu us"), NS_PER_US),
];
