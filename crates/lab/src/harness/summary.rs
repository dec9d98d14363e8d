//! Computes the table of a case from its samples: medians, spreads, and ratios to the best peer.

use super::case::Series;
use super::metric::{Better, Metric};
use super::stats::{Spread, paired_ratio};

#[derive(Clone, Debug)]
pub struct Row {
    pub variant: String,
    pub peer: bool,
    pub cells: Vec<Cell>,
}

/// One metric of one variant. Both fields are `None` if the variant does not measure the metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    pub spread: Option<Spread>,
    pub vs_best_peer: Option<Spread>,
}

/// Returns a row for each variant that completed at least one run.
pub fn summarize(metrics: &[Metric], all: &[Series]) -> Vec<Row> {
    let best: Vec<Option<&Series>> = metrics.iter().map(|metric| best_peer(all, metric)).collect();
    let cell = |series: &Series, (metric, best): (&Metric, &Option<&Series>)| {
        let (name, spread) = (metric.name, series.spread(metric.name));
        let ratio = |best: &Series| paired_ratio(&series.points(name), &best.points(name));
        Cell { spread, vs_best_peer: best.and_then(ratio) }
    };
    let row = |series: &Series| Row {
        variant: series.variant.clone(),
        peer: series.peer,
        cells: metrics.iter().zip(&best).map(|of| cell(series, of)).collect(),
    };
    all.iter().filter(|series| !series.samples.is_empty()).map(row).collect()
}

/// Returns the peer with the best median of `metric` over all repetitions. The best peer of each
/// repetition would be a mixture that no single peer achieves. Readers of a QSBR flavor must report
/// quiescent states, which no other variant requires, so such a peer is never the best one.
pub fn best_peer<'a>(all: &'a [Series], metric: &Metric) -> Option<&'a Series> {
    best_of(all.iter().filter(|it| it.peer && !it.variant.ends_with("-qsbr")), metric)
}

pub fn best_of<'a>(all: impl Iterator<Item = &'a Series>, metric: &Metric) -> Option<&'a Series> {
    let medians = all.filter_map(|series| Some((series, series.spread(metric.name)?.median)));
    let (best, _) = medians.reduce(|best, other| {
        let other_wins = match metric.better {
            Better::Higher => other.1 > best.1,
            Better::Lower => other.1 < best.1,
        };
        if other_wins { other } else { best }
    })?;
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::Sample;
    use crate::harness::case::tests::series as of_samples;
    use crate::harness::metric::{higher, lower};

    const RATE: Metric = higher("rate", "1/s", ("", "rate"), 1.0);
    const TIME: Metric = lower("time", "ns", ("", "time"), 1.0);

    fn series(variant: &str, peer: bool, values: &[(f64, f64)]) -> Series {
        let sample = |&(rate, time): &_| Sample::of([(RATE, rate), (TIME, time)]);
        of_samples(variant, peer, values.iter().map(sample))
    }

    #[test]
    fn each_metric_has_its_own_best_peer() {
        let all = [
            series("ours", false, &[(9.0, 0.1)]),
            series("fast", true, &[(5.0, 7.0)]),
            series("quick", true, &[(2.0, 3.0)]),
        ];
        assert_eq!(best_peer(&all, &RATE).unwrap().variant, "fast");
        assert_eq!(best_peer(&all, &TIME).unwrap().variant, "quick");
        let rows = summarize(&[RATE, TIME], &all);
        assert_eq!(rows[0].cells[0].vs_best_peer.unwrap().median, 9.0 / 5.0);
        assert_eq!(rows[0].cells[1].vs_best_peer.unwrap().median, 0.1 / 3.0);
        assert_eq!(rows[1].cells[0].vs_best_peer.unwrap().median, 1.0);
    }

    #[test]
    fn without_peers_there_is_no_ratio() {
        let rows = summarize(&[RATE], &[series("ours", false, &[(9.0, 0.1), (10.0, 0.1)])]);
        assert_eq!(rows[0].cells[0].vs_best_peer, None);
        assert_eq!(rows[0].cells[0].spread, Some(Spread { median: 9.5, mad: 0.5, n: 2 }));
    }

    #[test]
    fn a_variant_that_never_ran_has_no_row() {
        assert!(summarize(&[RATE], &[series("ours", false, &[])]).is_empty());
    }
}
