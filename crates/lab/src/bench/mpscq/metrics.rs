//! The metrics of this bench: nanoseconds an item, for every number of producers and both ways to poll.

use super::polling::Polling;
use crate::measure::case::{Better, Metric};

/// On a single thread.
pub const ALONE: &str = "ns_alone";

/// The metric that variants are ranked by.
pub const HEADLINE: &str = ALONE;

/// A figure that is taken with producers in threads of their own.
#[derive(Clone, Copy, Debug)]
pub struct FlowMetric {
    /// As records spell it.
    pub metric: &'static str,
    /// How many producers.
    pub producers: usize,
    /// What the consumer does when it finds nothing.
    pub polling: Polling,
}

const fn flow(metric: &'static str, producers: usize, polling: Polling) -> FlowMetric {
    FlowMetric {
        metric,
        producers,
        polling,
    }
}

/// In the table's order.
pub const FLOWS: [FlowMetric; 8] = [
    flow("ns_paused_1", 1, Polling::Paused),
    flow("ns_paused_2", 2, Polling::Paused),
    flow("ns_paused_4", 4, Polling::Paused),
    flow("ns_paused_8", 8, Polling::Paused),
    flow("ns_tight_1", 1, Polling::Tight),
    flow("ns_tight_2", 2, Polling::Tight),
    flow("ns_tight_4", 4, Polling::Tight),
    flow("ns_tight_8", 8, Polling::Tight),
];

/// The most producers of any figure.
pub const MAX_PRODUCERS: usize = 8;

const fn metric(name: &'static str, group: &'static str, head: &'static str) -> Metric {
    Metric {
        name,
        unit: "ns/item",
        better: Better::Lower,
        group,
        head,
        scale: 1.0,
    }
}

const PAUSED: &str = "paused";
const TIGHT: &str = "tight";

/// In the table's order.
pub const ALL: &[Metric] = &[
    metric(ALONE, "", "alone"),
    metric(FLOWS[0].metric, PAUSED, "1"),
    metric(FLOWS[1].metric, PAUSED, "2"),
    metric(FLOWS[2].metric, PAUSED, "4"),
    metric(FLOWS[3].metric, PAUSED, "8"),
    metric(FLOWS[4].metric, TIGHT, "1"),
    metric(FLOWS[5].metric, TIGHT, "2"),
    metric(FLOWS[6].metric, TIGHT, "4"),
    metric(FLOWS[7].metric, TIGHT, "8"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_column_under_its_number_of_producers() {
        assert_eq!(ALL.len(), 1 + FLOWS.len());
        for (metric, flow) in ALL[1..].iter().zip(FLOWS) {
            assert_eq!(metric.name, flow.metric);
            assert_eq!(metric.head, flow.producers.to_string());
            assert!(flow.metric.ends_with(metric.head));
            assert_eq!(metric.group == PAUSED, flow.polling == Polling::Paused);
            assert!(flow.producers <= MAX_PRODUCERS);
        }
    }
}
