//! The metrics of this bench: nanoseconds an item, for every number of producers and both ways to poll.

use super::polling::Polling;
use crate::harness::metric::{Metric, lower};

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

const NS: &str = "ns/item";
const PAUSED: &str = "paused";
const TIGHT: &str = "tight";

/// In the table's order.
pub const ALL: &[Metric] = &[
    lower(ALONE, NS, ("", "alone"), 1.0),
    lower(FLOWS[0].metric, NS, (PAUSED, "1"), 1.0),
    lower(FLOWS[1].metric, NS, (PAUSED, "2"), 1.0),
    lower(FLOWS[2].metric, NS, (PAUSED, "4"), 1.0),
    lower(FLOWS[3].metric, NS, (PAUSED, "8"), 1.0),
    lower(FLOWS[4].metric, NS, (TIGHT, "1"), 1.0),
    lower(FLOWS[5].metric, NS, (TIGHT, "2"), 1.0),
    lower(FLOWS[6].metric, NS, (TIGHT, "4"), 1.0),
    lower(FLOWS[7].metric, NS, (TIGHT, "8"), 1.0),
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
