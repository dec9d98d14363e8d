//! The metrics of this bench.

use crate::measure::case::{Better, Metric};

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

/// The metric that variants of the wake cases are ranked by.
pub const WAKE_HEADLINE: &str = OWNER_CPU;

const NS_PER_US: f64 = 1000.0;

const fn lower(
    name: &'static str,
    unit: &'static str,
    (group, head): (&'static str, &'static str),
    scale: f64,
) -> Metric {
    Metric {
        name,
        unit,
        better: Better::Lower,
        group,
        head,
        scale,
    }
}

const LATENCY: &str = "post to run us";

/// Of the wake cases, in the table's order.
pub const WAKE: &[Metric] = &[
    lower(WAKEUPS, "1/1000 items", ("", "wakes/1000"), 1.0),
    lower(OWNER_CPU, "ns/item", ("", "owner ns/item"), 1.0),
    lower(LATENCY_P50, "ns", (LATENCY, "p50"), NS_PER_US),
    lower(LATENCY_P99, "ns", (LATENCY, "p99"), NS_PER_US),
    lower(POST, "ns", ("", "ns/post"), 1.0),
];
