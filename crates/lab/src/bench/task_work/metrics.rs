//! The metrics of this bench.

use crate::harness::metric::{Metric, NS_PER_US, lower};

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

/// The metric that variants of the wake cases are ranked by.
pub const WAKE_HEADLINE: &str = OWNER_CPU.name;

const LATENCY: &str = "post to run us";

/// Metrics of the wake cases, in table order.
pub const WAKE: &[Metric] = &[WAKEUPS, OWNER_CPU, LATENCY_P50, LATENCY_P99, POST];
