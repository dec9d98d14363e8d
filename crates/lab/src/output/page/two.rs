//! The page of two runs: for each number that both have, how the second stands to the first.

use maud::{Markup, html};

use super::frame;
use super::number;
use super::one::machine;
use super::run::{CaseRun, Run};
use crate::harness::metric::Better;
use crate::output::record::{MetricHead, Record};
use crate::output::table::three_digits;

/// A difference counts when the medians are further apart than both spreads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Better,
    Worse,
    WithinNoise,
}

/// Makes the page of two runs, by the names that the user gave them.
#[must_use]
pub fn page((first, a): (&str, &Run), (second, b): (&str, &Run)) -> String {
    let title = "Two runs of the lab";
    let shared = || {
        a.cases.iter().filter_map(|case| {
            let same =
                |it: &&CaseRun| it.head.bench == case.head.bench && it.head.case == case.head.case;
            Some((case, b.cases.iter().find(same)?))
        })
    };
    let body = html! {
        h1 { (title) }
        h2 { "First: " (first) }
        (machine(&a.head))
        h2 { "Second: " (second) }
        (machine(&b.head))
        @if a.head.fingerprint.cpu != b.head.fingerprint.cpu || a.head.fingerprint.kernel != b.head.fingerprint.kernel {
            p.warning { "The two are of different machines: their ratios to their own peers tell more than the values." }
        }
        h2 { "What changed" }
        p { "The metric that each case is ranked by. A change counts when the medians lie further apart than both "
            "spreads together; runs minutes apart differ by more than runs in turns do, so look for ones that are large." }
        @if shared().next().is_none() { p.warning { "The two runs have no case in common." } }
        @for (one, other) in shared() { (case(one, other)) }
    };
    frame::page(title, &body)
}

fn case(a: &CaseRun, b: &CaseRun) -> Markup {
    let headline = a
        .head
        .metrics
        .iter()
        .find(|metric| metric.metric == a.head.headline);
    html! {
        h3 { (a.head.bench) " " (a.head.case) }
        @if let Some(metric) = headline {
            div.wide {
                table {
                    thead { tr {
                        th { "variant" } th.n { "first" } th.n { "second" } th.n { "second / first" } th { "" }
                        th.n { "vs peer, first" } th.n { "vs peer, second" }
                    } }
                    tbody {
                        @for (variant, _) in a.variants() {
                            @if let Some((one, other)) = a.record(variant, &metric.metric).zip(b.record(variant, &metric.metric)) {
                                tr {
                                    td { (variant) }
                                    td.n { (number::with_unit(one.median, &one.unit)) }
                                    td.n { (number::with_unit(other.median, &other.unit)) }
                                    td.n { (three_digits(other.median / one.median)) }
                                    (verdict(change(metric, one, other)))
                                    td.n { (vs_peer(a, variant, metric)) }
                                    td.n { (vs_peer(b, variant, metric)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn vs_peer(case: &CaseRun, variant: &str, metric: &MetricHead) -> String {
    let name = format!("{}.vs_best_peer", metric.metric);
    case.record(variant, &name)
        .map_or_else(|| "-".into(), |record| three_digits(record.median))
}

fn change(metric: &MetricHead, one: &Record, other: &Record) -> Change {
    let difference = other.median - one.median;
    if difference.abs() <= one.mad + other.mad {
        return Change::WithinNoise;
    }
    match (metric.better, difference > 0.0) {
        (Better::Higher, true) | (Better::Lower, false) => Change::Better,
        _ => Change::Worse,
    }
}

fn verdict(change: Change) -> Markup {
    html! {
        @match change {
            Change::Better => td.good { "better" },
            Change::Worse => td.bad { "worse" },
            Change::WithinNoise => td.quiet { "within the noise" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(median: f64, mad: f64) -> Record {
        Record {
            bench: "b".into(),
            case: "c".into(),
            variant: "v".into(),
            metric: "m".into(),
            unit: "ns".into(),
            median,
            mad,
            n: 5,
            peer: false,
        }
    }

    #[test]
    fn which_way_is_better_is_the_metrics_to_say() {
        let metric = |better| MetricHead {
            metric: "m".into(),
            unit: "ns".into(),
            better,
        };
        let (one, two) = (record(1.0, 0.1), record(2.0, 0.1));
        assert_eq!(change(&metric(Better::Higher), &one, &two), Change::Better);
        assert_eq!(change(&metric(Better::Lower), &one, &two), Change::Worse);
        assert_eq!(change(&metric(Better::Lower), &two, &one), Change::Better);
        let near = record(1.2, 0.1);
        assert_eq!(
            change(&metric(Better::Lower), &one, &near),
            Change::WithinNoise
        );
    }
}
