//! The page of two runs. It shows, for each variant in both, whether the second run is better.
//!
//! Runs minutes apart differ by more than the repetitions of one run, because the machine drifts.
//! Each variant is therefore compared with the best peer of its own run. A change counts only if it
//! is larger than each of these: the spread of both ratios, the usual spread of the case's
//! variants, the peers' own change between the runs, and a few percent. There is no verdict if the
//! runs share no peer, or if the machine was in another mode. If the host moves virtual CPUs to
//! other cores, a cache line takes 400 ns in place of 60, which slows some variants more.

use maud::{Markup, html};

use super::bars::breakable;
use super::frame;
use super::number;
use super::one::{machine, warnings};
use crate::harness::metric::Better;
use crate::output::record::{MetricHead, Record};
use crate::output::run::{CaseRun, Run};
use crate::output::table::three_digits;
use crate::output::words;

/// Minimum share that counts as a change, even for a small spread. Guess: two builds of the same
/// code have different memory layouts.
const FLOOR: f64 = 0.05;

/// Factor of the spread of both runs. Guess: the MAD of a few repetitions is a rough estimate.
const SPREADS: f64 = 3.0;

/// Minimum number of repetitions with a known spread.
const ENOUGH: usize = 3;

/// Ratio of cache line round trips above which the machine is in another mode. Measured: modes of
/// 27, 65 and 320 ns, of which the first two hardly differ in ratios.
const OTHER_MODE: f64 = 3.0;

/// End of the small axis, as a factor of change.
const AXIS_END: f64 = 4.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Better,
    Worse,
    NoneSeen,
    FewRuns,
    NoPeer,
    OtherMode,
}

/// A variant of the second run compared with the first run.
struct Row<'a> {
    variant: &'a str,
    one: &'a Record,
    other: &'a Record,
    /// Factor by which the second run is better, corrected for the drift of the machine.
    times: f64,
    /// Minimum change that counts, as a share.
    threshold: f64,
    change: Change,
}

/// The change of the peers between the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drift {
    /// Median of second / first.
    factor: f64,
    /// Spread of the peers' changes, as a share.
    swing: f64,
}

/// Returns the page of two runs, with the names that the user gave them.
#[must_use]
pub fn page((first, a): (&str, &Run), (second, b): (&str, &Run)) -> String {
    let title = "Two runs of the lab";
    let shared: Vec<(&CaseRun, &CaseRun)> = a
        .cases
        .iter()
        .filter_map(|case| {
            let same =
                |it: &&CaseRun| it.head.bench == case.head.bench && it.head.case == case.head.case;
            Some((case, b.cases.iter().find(same)?))
        })
        .collect();
    let compared: Vec<_> = shared
        .iter()
        .filter_map(|&(one, other)| Some((one, compare(one, other)?)))
        .collect();
    let all = || compared.iter().flat_map(|(_, (_, _, rows))| rows);
    let of = |change| all().filter(|row| row.change == change).count();
    let body = html! {
        h1 { (title) }
        p {
            b { "Of " (all().count()) " rows " (of(Change::Better)) " are better in the second, " (of(Change::Worse)) " worse" }
            @for (change, why) in [
                (Change::FewRuns, "have too few repetitions"),
                (Change::NoPeer, "have no peer to tell drift from change"),
                (Change::OtherMode, "differ, but the machine was in another mode"),
            ] {
                @if of(change) > 0 { "; " (of(change)) " " (why) ": no verdict" }
            }
            "."
        }
        p { "A row is a variant of ours by the metric that its case is ranked by, as a ratio to the best peer of its own run. A "
            "change counts when it exceeds " (SPREADS) " times the spread of both ratios (or what half of the case's variants are "
            "spread by, if that is more), what peers changed by among themselves, and " (FLOOR * 100.0) " %." }
        @if shared.is_empty() { p.warning { "The two runs have no case in common." } }
        @if a.head.fingerprint.cpu != b.head.fingerprint.cpu || a.head.fingerprint.kernel != b.head.fingerprint.kernel {
            p.warning { "The two are of different machines: the ratios to their own peers tell more than the values." }
        }
        @for (name, run) in [(first, a), (second, b)] {
            @let rows_of: Vec<String> = run.head.warnings.iter().chain(run.cases.iter().flat_map(|case| &case.head.warnings))
                .map(|warning| format!("{name}: {warning}")).collect();
            @if rows_of.len() > MOST_WARNINGS {
                details { summary { (rows_of.len()) " warnings of " (name) } (warnings(&rows_of)) }
            } @else { (warnings(&rows_of)) }
        }
        @for (case, (metric, drift, rows)) in &compared { (table(case, metric, *drift, rows)) }
        @for (name, run) in [(first, a), (second, b)] {
            h2 { (name) }
            p.quiet { (run.head.started) ", " code { (run.head.command) } }
            (machine(&run.head))
        }
    };
    frame::page(title, &body)
}

/// Number of warnings of a run that are shown. More are folded.
const MOST_WARNINGS: usize = 3;

/// Compares a case by its headline metric. Returns `None` if the runs have no variant in common.
fn compare<'a>(
    a: &'a CaseRun,
    b: &'a CaseRun,
) -> Option<(&'a MetricHead, Option<Drift>, Vec<Row<'a>>)> {
    let metric = a
        .head
        .metrics
        .iter()
        .find(|metric| metric.metric == a.head.headline)?;
    let pair =
        |variant: &str, metric: &str| a.record(variant, metric).zip(b.record(variant, metric));
    let peers = a
        .of_metric(&metric.metric)
        .filter(|it| it.peer && it.median != 0.0);
    let drift = drift(
        peers
            .filter_map(|it| Some(b.record(&it.variant, &it.metric)?.median / it.median))
            .collect(),
    );
    let ratio = format!("{}.vs_best_peer", metric.metric);
    let is_same_best =
        best_peer(a, &ratio).is_some() && best_peer(a, &ratio) == best_peer(b, &ratio);
    let usual = usual(a, b, &metric.metric);
    let is_other_mode = is_other_mode(a, b);
    let ours = a.variants().into_iter().filter(|(_, peer)| !peer);
    let rows: Vec<Row<'_>> = ours
        .filter_map(|(variant, _)| {
            let (one, other) = pair(variant, &metric.metric)?;
            // Ratios that are paired by repetition with the same peer need no correction for drift.
            let paired = is_same_best.then(|| pair(variant, &ratio)).flatten();
            let (below, above) = paired.unwrap_or((one, other));
            let drift_left = drift
                .filter(|_| paired.is_none())
                .map_or(1.0, |drift| drift.factor);
            let factor = above.median / below.median / drift_left;
            let times = match metric.better {
                Better::Higher => factor,
                Better::Lower => factor.recip(),
            };
            let spread = |record| relative(record).max(usual);
            let spread = SPREADS * (spread(below) + spread(above));
            let threshold = FLOOR
                .max(spread)
                .max(drift.map_or(0.0, |drift| drift.swing));
            times.is_finite().then(|| Row {
                variant,
                one,
                other,
                times,
                threshold,
                change: match change(times, threshold, below.n.min(above.n)) {
                    _ if drift.is_none() => Change::NoPeer,
                    Change::Better | Change::Worse if is_other_mode => Change::OtherMode,
                    seen => seen,
                },
            })
        })
        .collect();
    (!rows.is_empty()).then_some((metric, drift, rows))
}

fn best_peer<'a>(case: &'a CaseRun, ratio: &'a str) -> Option<&'a str> {
    let best = case
        .of_metric(ratio)
        .find(|it| it.peer && it.median == 1.0 && it.mad == 0.0)?;
    Some(&best.variant)
}

fn drift(mut factors: Vec<f64>) -> Option<Drift> {
    factors.retain(|factor| factor.is_finite() && *factor > 0.0);
    factors.sort_by(f64::total_cmp);
    let factor = *factors.get(factors.len() / 2)?;
    let swing = (factors.last()? / factors.first()?).sqrt() - 1.0;
    Some(Drift { factor, swing })
}

fn relative(record: &Record) -> f64 {
    if record.median == 0.0 {
        0.0
    } else {
        (record.mad / record.median).abs()
    }
}

/// Returns the median spread of the variants in both runs, as a share.
fn usual(a: &CaseRun, b: &CaseRun, metric: &str) -> f64 {
    let both = a.of_metric(metric).chain(b.of_metric(metric));
    let mut spreads: Vec<f64> = both.map(relative).collect();
    spreads.sort_by(f64::total_cmp);
    spreads.get(spreads.len() / 2).copied().unwrap_or(0.0)
}

/// Returns `true` if the fastest or the slowest cache line round trip differs between the runs;
/// `false` if it was not measured.
fn is_other_mode(a: &CaseRun, b: &CaseRun) -> bool {
    let span = |case: &CaseRun| {
        let handovers = case
            .machine
            .iter()
            .filter(|it| it.metric.starts_with("handover"));
        let mut times: Vec<f64> = handovers.map(|it| it.median).collect();
        times.sort_by(f64::total_cmp);
        Some((*times.first()?, *times.last()?))
    };
    let differ = |one: f64, other: f64| one.max(other) > OTHER_MODE * one.min(other);
    span(a)
        .zip(span(b))
        .is_some_and(|((a_least, a_most), (b_least, b_most))| {
            differ(a_least, b_least) || differ(a_most, b_most)
        })
}

fn change(times: f64, threshold: f64, n: usize) -> Change {
    match () {
        () if n < ENOUGH => Change::FewRuns,
        () if times > 1.0 + threshold => Change::Better,
        () if times < 1.0 / (1.0 + threshold) => Change::Worse,
        () => Change::NoneSeen,
    }
}

fn table(case: &CaseRun, metric: &MetricHead, drift: Option<Drift>, rows: &[Row<'_>]) -> Markup {
    html! {
        h3 { (words::of_case(&case.head.bench, &case.head.case)) " " code.quiet { (case.head.bench) " " (case.head.case) } }
        p.quiet {
            "by " (words::of_metric(&case.head.bench, &case.head.case, &metric.metric)) "; "
            @match drift {
                Some(drift) => { "the peers' own change: " (three_digits(drift.factor)) " ×, apart by " (three_digits(drift.swing * 100.0)) " %" },
                None => "no peer tells how the machine drifted between the runs",
            }
        }
        div.wide {
            table.changes {
                thead { tr {
                    th { "variant" } th.n { "first" } th.n { "second" } th.n { "times better" } th { "0.25 × to 4 ×" }
                    th.n { "counts from" } th { "" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (breakable(row.variant)) }
                            td.n { (number::with_unit(row.one.median, &row.one.unit)) }
                            td.n { (number::with_unit(row.other.median, &row.other.unit)) }
                            td.n { (three_digits(row.times)) " ×" }
                            td { (plot(row.times, row.threshold)) }
                            td.n { "±" (three_digits(row.threshold * 100.0)) " %" }
                            (verdict(row.change))
                        }
                    }
                }
            }
        }
    }
}

/// Draws a dot on a logarithmic axis, over the band of changes that do not count.
fn plot(times: f64, threshold: f64) -> Markup {
    let place = |times: f64| (50.0 + 50.0 * times.ln() / AXIS_END.ln()).clamp(0.0, 100.0);
    let from = place(1.0 / (1.0 + threshold));
    html! {
        span.change role="img" aria-label=(format!("{} times", three_digits(times))) {
            i style=(format!("left:{from:.1}%;width:{:.1}%", place(1.0 + threshold) - from)) {}
            b style=(format!("left:{:.1}%", place(times))) {}
        }
    }
}

fn verdict(change: Change) -> Markup {
    html! {
        @match change {
            Change::Better => td.good { "better" },
            Change::Worse => td.bad { "worse" },
            Change::NoneSeen => td.quiet { "no change seen" },
            Change::FewRuns => td.quiet { "too few repetitions" },
            Change::NoPeer => td.quiet { "no peer: no verdict" },
            Change::OtherMode => td.quiet { "another mode: no verdict" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::verdict::tests::case;

    fn judged(better: Better, one: (f64, f64, usize), other: (f64, f64, usize)) -> Change {
        let [a, b] = [one, other].map(|ratio| case(better, "ns", ratio));
        let (_, _, rows) = compare(&a, &b).unwrap();
        rows[0].change
    }

    #[test]
    fn a_change_counts_when_it_exceeds_a_few_percent_and_the_spread() {
        use Better::{Higher, Lower};
        assert_eq!(
            judged(Higher, (1.0, 0.01, 5), (2.0, 0.01, 5)),
            Change::Better
        );
        assert_eq!(judged(Lower, (1.0, 0.01, 5), (2.0, 0.01, 5)), Change::Worse);
        assert_eq!(
            judged(Higher, (1.0, 0.0, 5), (1.04, 0.0, 5)),
            Change::NoneSeen
        );
        assert_eq!(
            judged(Higher, (1.0, 0.05, 5), (1.25, 0.05, 5)),
            Change::NoneSeen
        );
        assert_eq!(
            judged(Higher, (1.0, 0.0, 1), (9.0, 0.0, 5)),
            Change::FewRuns
        );
    }

    /// In the second run the machine is twice as fast, for our variant and for the peer.
    #[test]
    fn drift_of_the_machine_is_no_change() {
        let [a, mut b] = [0, 1].map(|_| case(Better::Higher, "1/s", (3.0, 0.01, 5)));
        for record in b.records.iter_mut().filter(|it| it.metric == "m") {
            record.median *= 2.0;
        }
        let (_, drift, rows) = compare(&a, &b).unwrap();
        assert_eq!(
            drift,
            Some(Drift {
                factor: 2.0,
                swing: 0.0
            })
        );
        assert_eq!((rows[0].times, rows[0].change), (1.0, Change::NoneSeen));
        // If the best peer differs, the change of the peers is divided out instead.
        b.records.retain(|it| it.metric == "m");
        let (_, _, rows) = compare(&a, &b).unwrap();
        assert_eq!((rows[0].times, rows[0].change), (1.0, Change::NoneSeen));
    }

    #[test]
    fn a_row_without_a_peer_and_one_of_another_mode_have_no_verdict() {
        let [a, mut b] = [1.0, 2.0].map(|ratio| case(Better::Higher, "1/s", (ratio, 0.01, 5)));
        let changed = |a: &CaseRun, b: &CaseRun| compare(a, b).unwrap().2[0].change;
        assert_eq!(changed(&a, &b), Change::Better);
        let in_mode = |case: &CaseRun, ns: f64| {
            let mut case = case.clone();
            let mut record = case.records[0].clone();
            (record.metric, record.median) = ("handover_before".into(), ns);
            case.machine.push(record);
            case
        };
        assert_eq!(
            changed(&in_mode(&a, 60.0), &in_mode(&b, 80.0)),
            Change::Better
        );
        assert_eq!(
            changed(&in_mode(&a, 60.0), &in_mode(&b, 400.0)),
            Change::OtherMode
        );
        assert_eq!(changed(&in_mode(&a, 400.0), &b), Change::Better);
        b.records.retain(|it| !it.peer);
        assert_eq!(changed(&a, &b), Change::NoPeer);
    }

    /// If five repetitions agree by chance, the next five may not.
    #[test]
    fn a_spread_that_is_small_by_chance_is_taken_for_the_usual_one() {
        let [mut a, mut b] = [1.0, 1.2].map(|ratio| case(Better::Higher, "1/s", (ratio, 0.0, 5)));
        let change = |a: &CaseRun, b: &CaseRun| compare(a, b).unwrap().2[0].change;
        assert_eq!(change(&a, &b), Change::Better);
        for case in [&mut a, &mut b] {
            for record in case
                .records
                .iter_mut()
                .filter(|it| it.peer && it.metric == "m")
            {
                record.mad = record.median * 0.05;
            }
        }
        assert_eq!(change(&a, &b), Change::NoneSeen);
    }

    #[test]
    fn disagreeing_peers_widen_the_no_change_band() {
        let drift = drift(vec![1.3, 0.9, 1.0]).unwrap();
        assert!(drift.factor == 1.0 && drift.swing > 0.2 && drift.swing < 0.21);
        assert_eq!(super::drift(Vec::new()), None);
    }

    /// `real.tsv` contains ten pairs of runs of one binary, on a machine whose cache lines take 27,
    /// 65 or 320 ns. It has the compared numbers of the cases with three repetitions.
    #[test]
    fn of_ten_real_pairs_at_most_one_row_in_twenty_changed() {
        let mut runs: Vec<Vec<CaseRun>> = Vec::new();
        for line in include_str!("real.tsv").lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| words[at].parse::<f64>().unwrap();
            let cases = runs.last_mut();
            match words[0] {
                "run" => runs.push(Vec::new()),
                "case" => {
                    let better = match words[4] {
                        "higher" => Better::Higher,
                        _ => Better::Lower,
                    };
                    let mut case = case(better, words[3], (1.0, 0.0, 1));
                    case.records.clear();
                    (case.head.bench, case.head.case) = (words[1].into(), words[2].into());
                    cases.unwrap().push(case);
                }
                kind => {
                    let case = cases.unwrap().last_mut().unwrap();
                    let record = Record {
                        bench: String::new(),
                        case: String::new(),
                        variant: words[2].into(),
                        metric: words[1].into(),
                        unit: String::new(),
                        median: number(3),
                        mad: number(4),
                        n: words[5].parse().unwrap(),
                        peer: kind == "peer",
                    };
                    match kind {
                        "machine" => case.machine.push(record),
                        _ => case.records.push(record),
                    }
                }
            }
        }
        assert_eq!(runs.len(), 20);
        let mut counts = std::collections::HashMap::new();
        for pair in runs.chunks_exact(2) {
            let shared = pair[0].iter().filter_map(|one| {
                let other = pair[1].iter().find(|it| it.head.case == one.head.case)?;
                compare(one, other)
            });
            for row in shared.flat_map(|(_, _, rows)| rows) {
                *counts.entry(format!("{:?}", row.change)).or_insert(0) += 1;
            }
        }
        let of = |change: &str| counts.get(change).copied().unwrap_or(0);
        let changed = of("Better") + of("Worse");
        assert!(
            of("NoneSeen") > 100 && changed * 20 <= changed + of("NoneSeen"),
            "{counts:?}"
        );
    }

    /// Ten pairs of runs that differ by noise: medians of five draws, 4 % spread, drift up to 30 %.
    #[test]
    fn of_two_runs_of_one_binary_at_most_one_row_in_twenty_changed() {
        let mut rng = fastrand::Rng::with_seed(19);
        let mut changed = 0;
        let mut rows = 0;
        for _ in 0..10 {
            for _ in 0..20 {
                let mut run = || {
                    // The sum of four is nearly normal, with a sigma of 4 %.
                    let mut noise = || (0..4).map(|_| rng.f64() - 0.5).sum::<f64>() * 0.07;
                    let mut draws: Vec<f64> = (0..5).map(|_| 2.0 * (1.0 + noise())).collect();
                    draws.sort_by(f64::total_cmp);
                    let mut off: Vec<f64> = draws.iter().map(|it| (it - draws[2]).abs()).collect();
                    off.sort_by(f64::total_cmp);
                    let scale = 1.0 + 0.3 * rng.f64();
                    let mut case = case(Better::Higher, "1/s", (draws[2], off[2], 5));
                    for record in case.records.iter_mut().filter(|it| it.metric == "m") {
                        record.median *= scale;
                    }
                    case
                };
                let (a, b) = (run(), run());
                let (_, _, rows_of) = compare(&a, &b).unwrap();
                rows += rows_of.len();
                changed += rows_of
                    .iter()
                    .filter(|row| matches!(row.change, Change::Better | Change::Worse))
                    .count();
            }
        }
        assert!(changed * 20 <= rows, "{changed} of {rows}");
    }
}
