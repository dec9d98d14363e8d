//! The metrics of this bench.

use crate::measure::metric::{Metric, NS_PER_US, PERCENT, higher, lower};

/// How often the owner slept and was woken.
pub const WAKEUPS: &str = "wakeups_per_1000";
/// From the moment before the post until the owner has the item.
pub const LATENCY_P50: &str = "latency_p50";
/// See [`LATENCY_P50`].
pub const LATENCY_P99: &str = "latency_p99";
/// CPU time of the owner's thread.
pub const OWNER_CPU: &str = "owner_cpu_per_item";
/// The call that posts.
pub const POST: &str = "post_mean";

/// Responses sent.
pub const REQUESTS: &str = "requests_per_s";
/// Bytes of requests received; as many are sent.
pub const GBITS: &str = "gbit_per_s";
/// Task work's part of the owner's CPU time.
pub const SHARE: &str = "task_work_share";
/// The same by the item.
pub const TASK_WORK: &str = "task_work_per_item";
/// Items taken by a drain that found any.
pub const PER_DRAIN: &str = "items_per_drain";
/// Sections of task work that lost their CPU, and count as the mean of the others.
pub const LOST: &str = "sections_lost";

/// The metric that variants of the service cases are ranked by.
pub const SERVICE_HEADLINE: &str = REQUESTS;

/// The metric that variants of the wake cases are ranked by.
pub const WAKE_HEADLINE: &str = OWNER_CPU;

const LATENCY: &str = "post to run us";

/// Of the wake cases, in the table's order.
pub const WAKE: &[Metric] = &[
    lower(WAKEUPS, "1/1000 items", ("", "wakes/1000"), 1.0),
    lower(OWNER_CPU, "ns/item", ("", "owner ns/item"), 1.0),
    lower(LATENCY_P50, "ns", (LATENCY, "p50"), NS_PER_US),
    lower(LATENCY_P99, "ns", (LATENCY, "p99"), NS_PER_US),
    lower(POST, "ns", ("", "ns/post"), 1.0),
];

/// Of the service cases, in the table's order.
pub const SERVICE: &[Metric] = &[
    higher(REQUESTS, "1/s", ("", "requests/s"), 1.0),
    higher(GBITS, "Gbit/s", ("", "Gbit/s"), 1.0),
    lower(SHARE, "share", ("task work", "% of CPU"), PERCENT),
    lower(TASK_WORK, "ns/item", ("task work", "ns/item"), 1.0),
    lower(POST, "ns", ("", "ns/post"), 1.0),
    lower(WAKEUPS, "1/1000 items", ("", "wakes/1000"), 1.0),
    higher(PER_DRAIN, "items", ("", "items/drain"), 1.0),
    lower(OWNER_CPU, "ns/item", ("", "owner ns/item"), 1.0),
    lower(LOST, "sections", ("", ""), 1.0),
];
