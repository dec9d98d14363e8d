//! The metrics: nanoseconds per item, for each number of producers and for both ways of polling.

use super::polling::Polling;
use crate::harness::metric::{Metric, lower};

pub const MAX_PRODUCERS: usize = 8;

const NS: &str = "ns/item";

pub const ALL: &[Metric] = &[
    lower("ns_paused_1", NS, ("paused", "1"), 1.0),
    lower("ns_paused_2", NS, ("paused", "2"), 1.0),
    lower("ns_paused_4", NS, ("paused", "4"), 1.0),
    lower("ns_paused_8", NS, ("paused", "8"), 1.0),
    lower("ns_tight_1", NS, ("tight", "1"), 1.0),
    lower("ns_tight_2", NS, ("tight", "2"), 1.0),
    lower("ns_tight_4", NS, ("tight", "4"), 1.0),
    lower("ns_tight_8", NS, ("tight", "8"), 1.0),
];

pub fn flows() -> impl Iterator<Item = (Metric, Polling, usize)> {
    let flows = |polling| [1, 2, 4, MAX_PRODUCERS].map(|producers| (polling, producers));
    let flows = [Polling::Paused, Polling::Tight].into_iter().flat_map(flows);
    ALL.iter().zip(flows).map(|(metric, (polling, producers))| (*metric, polling, producers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_a_column_under_its_number_of_producers() {
        assert_eq!(flows().count(), ALL.len());
        for (column, (metric, polling, producers)) in ALL.iter().zip(flows()) {
            let group = format!("{polling:?}").to_lowercase();
            let name = format!("ns_{group}_{producers}");
            assert_eq!((column.name, column.group, metric.name), (&*name, &*group, &*name));
            assert_eq!(column.head, producers.to_string());
            assert!(producers <= MAX_PRODUCERS);
        }
    }
}
