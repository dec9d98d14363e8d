//! The metrics of this bench.

use crate::harness::metric::{Metric, NS_PER_US, PERCENT, higher, lower};

pub const WAKEUPS: Metric = lower("wakeups_per_1000", "1/1000 items", ("", "wakes/1000"), 1.0);
pub const LATENCY_P50: Metric = lower("latency_p50", "ns", (LATENCY, "p50"), NS_PER_US);
pub const LATENCY_P99: Metric = lower("latency_p99", "ns", (LATENCY, "p99"), NS_PER_US);
pub const OWNER_CPU: Metric = lower("owner_cpu_per_item", "ns/item", ("", "owner ns/item"), 1.0);
pub const POST: Metric = lower("post_mean", "ns", ("", "ns/post"), 1.0);

pub const REQUESTS: Metric = higher("requests_per_s", "1/s", ("", "requests/s"), 1.0);
pub const GBITS: Metric = higher("gbit_per_s", "Gbit/s", ("", "Gbit/s"), 1.0);
pub const SHARE: Metric = lower("task_work_share", "share", ("task work", "% of CPU"), PERCENT);
pub const POST_SHARE: Metric = lower("post_share", "share", ("", ""), PERCENT);
pub const TASK_WORK: Metric = lower("task_work_per_item", "ns/item", ("task work", "ns/item"), 1.0);
pub const PER_DRAIN: Metric = higher("items_per_drain", "items", ("", "items/drain"), 1.0);
/// The number of sections of task work that were preempted. They are counted as the mean of the
/// others.
pub const LOST: Metric = lower("sections_lost", "sections", ("", ""), 1.0);

const LATENCY: &str = "post to run us";

pub const WAKE: &[Metric] = &[WAKEUPS, OWNER_CPU, LATENCY_P50, LATENCY_P99, POST];

pub const SERVICE: &[Metric] =
    &[REQUESTS, GBITS, SHARE, POST_SHARE, TASK_WORK, POST, WAKEUPS, PER_DRAIN, OWNER_CPU, LOST];
