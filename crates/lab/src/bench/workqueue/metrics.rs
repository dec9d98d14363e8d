//! The metrics of this bench, and the sample of a run.

use afterwork::workqueue::Histogram;

use super::producers::Window;
use crate::harness::case::Sample;
use crate::harness::latency::Latencies;
use crate::harness::metric::{MILLION, Metric, NS_PER_US, Text, higher, lower};

pub const ITEMS_PER_S: &str = "items_per_s";

pub const COMPLETION_P95: &str = "completion_p95";

pub const WAKEUPS: &str = "wakeups_per_item";

pub const ALL: &[Metric] = &[
    higher(ITEMS_PER_S, "items/s", ("items", "M/s"), MILLION),
    lower("enqueue_p50", "ns", ("enqueue µs", "p50"), NS_PER_US),
    // This is not in the table, which would be too wide.
    lower("enqueue_p95", "ns", ("", ""), 1.0),
    lower("enqueue_p99", "ns", ("enqueue µs", "p99"), NS_PER_US),
    lower("completion_p50", "ns", ("complete µs", "p50"), NS_PER_US),
    lower(COMPLETION_P95, "ns", ("", ""), 1.0),
    lower("completion_p99", "ns", ("complete µs", "p99"), NS_PER_US),
    lower("switches_per_item", "1/item", ("per item", "switch"), 1.0),
    lower(WAKEUPS, "1/item", ("per item", "wake"), 1.0),
    lower("cpu_per_item", "ns/item", ("per item", "CPUµs"), NS_PER_US),
];

pub const LOCK_MEAN: &str = "lock_hold_mean";

pub const LOCK: &[Metric] = &[
    lower(LOCK_MEAN, "ns", ("lock held, ns", "mean"), 1.0),
    lower("lock_hold_p50", "ns", ("", ""), 1.0),
    lower("lock_hold_p99", "ns", ("lock held, ns", "p99"), 1.0),
    lower("lock_hold_p999", "ns", ("lock held, ns", "p99.9"), 1.0),
    lower("lock_holds_per_item", "1/item", ("per item", "holds"), 1.0),
    ALL[8],
    lower("lock_wait_share", "share", ("", ""), 1.0),
    ALL[0],
    ALL[1],
    ALL[2],
    ALL[4],
    ALL[5],
];

/// Adds the hold times of the pool lock during enqueues to a sample.
///
/// Percentiles are upper bounds of buckets that double in size, so only the mean is exact.
pub fn add_lock_hold(sample: &mut Sample, hold: &Histogram, items: usize) {
    if hold.count == 0 {
        return;
    }
    sample.set(LOCK_MEAN, hold.mean_ns());
    sample.set("lock_hold_p50", hold.quantile_ns(0.5) as f64);
    sample.set("lock_hold_p99", hold.quantile_ns(0.99) as f64);
    sample.set("lock_hold_p999", hold.quantile_ns(0.999) as f64);
    sample.set("lock_holds_per_item", hold.count as f64 / items as f64);
}

pub fn sample(items: usize, window: &Window, enqueue: Latencies, completion: Latencies) -> Sample {
    const NS_PER_S: f64 = 1e9;
    let per_item = |count: u64| count as f64 / items as f64;
    let spent = window.spent;
    let percents = |[p50, p95, p99]: [Text; 3]| [(50.0, p50), (95.0, p95), (99.0, p99)];
    let mut sample = Sample::of([
        (ITEMS_PER_S, items as f64 * NS_PER_S / window.wall_ns as f64),
        ("switches_per_item", per_item(spent.switches())),
        ("cpu_per_item", per_item(spent.cpu_ns)),
    ])
    .with_percentiles(enqueue, percents(["enqueue_p50", "enqueue_p95", "enqueue_p99"]))
    .with_percentiles(completion, percents(["completion_p50", COMPLETION_P95, "completion_p99"]));
    if let Some(counts) = window.counts {
        sample.set(WAKEUPS, per_item(counts.wakeups));
        sample.set("lock_wait_share", counts.lock_wait_ns as f64 / spent.cpu_ns as f64);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workqueue::producers::Counts;
    use crate::harness::switches::Usage;

    #[test]
    fn a_run_fills_in_every_metric_it_can() {
        let window = Window {
            wall_ns: 500_000_000,
            spent: Usage { slept: 1_500, preempted: 500, cpu_ns: 1_000_000 },
            counts: Some(Counts { wakeups: 500, lock_wait_ns: 1_000 }),
        };
        let mut timed = Latencies::default();
        timed.push(0, 100);
        let sample = sample(1_000, &window, timed.clone(), timed);
        assert!(ALL.iter().all(|metric| sample.value(metric.name).is_some()));
        let values = [ITEMS_PER_S, "switches_per_item", WAKEUPS, "cpu_per_item"]
            .map(|metric| sample.value(metric).unwrap());
        assert_eq!(values, [2_000.0, 2.0, 0.5, 1_000.0]);
        assert_eq!(sample.value("lock_wait_share"), Some(0.001));
    }

    #[test]
    fn uncounted_metrics_are_omitted() {
        let window = Window { wall_ns: 1, spent: Usage::default(), counts: None };
        let sample = sample(1, &window, Latencies::default(), Latencies::default());
        assert_eq!(sample.value(WAKEUPS), None);
        assert_eq!(sample.value("enqueue_p50"), None);
    }
}
