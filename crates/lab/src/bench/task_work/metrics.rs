//! The metrics of this bench.

use crate::harness::metric::{Metric, NS_PER_US, PERCENT, higher, lower};

/// Number of times that the owner slept and was woken.
pub const WAKEUPS: Metric = lower("wakeups_per_1000", "1/1000 items", ("", "wakes/1000"), 1.0);
/// Time from just before the post until the owner has the item.
pub const LATENCY_P50: Metric = lower("latency_p50", "ns", (LATENCY, "p50"), NS_PER_US);
/// See [`LATENCY_P50`].
pub const LATENCY_P99: Metric = lower("latency_p99", "ns", (LATENCY, "p99"), NS_PER_US);
/// CPU time of the owner thread.
pub const OWNER_CPU: Metric = lower("owner_cpu_per_item", "ns/item", ("", "owner ns/item"), 1.0);
/// Time of the call that posts.
pub const POST: Metric = lower("post_mean", "ns", ("", "ns/post"), 1.0);

/// Responses sent.
pub const REQUESTS: Metric = higher("requests_per_s", "1/s", ("", "requests/s"), 1.0);
/// Bytes of requests received; responses have the same size.
pub const GBITS: Metric = higher("gbit_per_s", "Gbit/s", ("", "Gbit/s"), 1.0);
/// Share of task work in the owner's CPU time.
pub const SHARE: Metric = lower("task_work_share", "share", ("task work", "% of CPU"), PERCENT);
/// Time of the workers' posts, relative to the owner's CPU time.
pub const POST_SHARE: Metric = lower("post_share", "share", ("", ""), PERCENT);
/// CPU time of task work per item.
pub const TASK_WORK: Metric = lower("task_work_per_item", "ns/item", ("task work", "ns/item"), 1.0);
/// Items per drain that found any.
pub const PER_DRAIN: Metric = higher("items_per_drain", "items", ("", "items/drain"), 1.0);
/// Sections of task work that were preempted, and are counted as the mean of the others.
pub const LOST: Metric = lower("sections_lost", "sections", ("", ""), 1.0);

/// The metric that variants of the service cases are ranked by.
pub const SERVICE_HEADLINE: &str = REQUESTS.name;

/// The metric that variants of the wake cases are ranked by.
pub const WAKE_HEADLINE: &str = OWNER_CPU.name;

const LATENCY: &str = "post to run us";

/// Metrics of the wake cases, in table order.
pub const WAKE: &[Metric] = &[WAKEUPS, OWNER_CPU, LATENCY_P50, LATENCY_P99, POST];

/// Metrics of the service cases, in table order.
pub const SERVICE: &[Metric] =
    &[REQUESTS, GBITS, SHARE, POST_SHARE, TASK_WORK, POST, WAKEUPS, PER_DRAIN, OWNER_CPU, LOST];
