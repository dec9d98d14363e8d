//! The metrics: nanoseconds per item, for each number of producers and for both ways of polling.

use super::polling::Polling;
use crate::harness::metric::{Metric, lower};

/// The metric by which variants are ranked.
pub const HEADLINE: &str = FLOWS[1].metric.name;

/// A figure measured with producer threads.
#[derive(Clone, Copy, Debug)]
pub struct FlowMetric {
    /// The number of nanoseconds per item.
    pub metric: Metric,
    /// The number of producers.
    pub producers: usize,
    /// The way in which the consumer polls an empty queue.
    pub polling: Polling,
}

const fn paused(name: &'static str, head: &'static str, producers: usize) -> FlowMetric {
    FlowMetric {
        metric: lower(name, NS, ("paused", head), 1.0),
        producers,
        polling: Polling::Paused,
    }
}

const fn tight(name: &'static str, head: &'static str, producers: usize) -> FlowMetric {
    FlowMetric { metric: lower(name, NS, ("tight", head), 1.0), producers, polling: Polling::Tight }
}

/// All figures, in table order.
pub const FLOWS: [FlowMetric; 8] = [
    paused("ns_paused_1", "1", 1),
    paused("ns_paused_2", "2", 2),
    paused("ns_paused_4", "4", 4),
    paused("ns_paused_8", "8", 8),
    tight("ns_tight_1", "1", 1),
    tight("ns_tight_2", "2", 2),
    tight("ns_tight_4", "4", 4),
    tight("ns_tight_8", "8", 8),
];

/// The maximum number of producers in any figure.
pub const MAX_PRODUCERS: usize = 8;

const NS: &str = "ns/item";

/// All metrics, in table order.
pub const ALL: &[Metric] = &[
    FLOWS[0].metric,
    FLOWS[1].metric,
    FLOWS[2].metric,
    FLOWS[3].metric,
    FLOWS[4].metric,
    FLOWS[5].metric,
    FLOWS[6].metric,
    FLOWS[7].metric,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_column_under_its_number_of_producers() {
        assert_eq!(ALL.len(), FLOWS.len());
        for (column, flow) in ALL.iter().zip(FLOWS) {
            let name = format!("ns_{}_{}", column.group, flow.producers);
            assert_eq!((column.name, column.name), (&*name, flow.metric.name));
            assert_eq!(column.head, flow.producers.to_string());
            assert!(flow.producers <= MAX_PRODUCERS);
        }
    }
}
