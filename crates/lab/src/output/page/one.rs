//! The page of one run.

use maud::{Markup, html};

use super::bars::bars;
use super::standings::standings;
use super::{frame, number};
use crate::harness::claim::Verdict;
use crate::harness::stats::Spread;
use crate::output::record::{Claimed, MetricHead, Record, Why};
use crate::output::run::{CaseRun, Run};
use crate::output::table;
use crate::output::verdict::{self, Totals, benches};
use crate::output::words::{self, distinct};

/// The maximum number of metrics that are shown as bars for a case. The table contains all of them.
const BARS: usize = 3;

const RAW: &str = "afterwork-run.jsonl";

pub fn page(run: &Run) -> String {
    let cpu = run.head.fingerprint.cpu.as_deref().unwrap_or("an unnamed CPU");
    let title = format!("Deferred work on {cpu}");
    let body = html! {
        h1 { (title) }
        p.quiet {
            (run.head.started) ", " code { (run.head.command) } ", "
            @match &run.end {
                Some(end) => { (format!("{:.0} s", end.seconds)) },
                None => { "truncated" },
            }
        }
        @if run.end.as_ref().is_none_or(|end| end.ended == Why::Interrupted) {
            p.warning { "Interrupted: the last case has fewer repetitions, and later cases are missing." }
        }
        h2 { "Verdict" }
        (standings(run))
        @for (bench, cases) in benches(run) {
            h2 id=(bench) { (bench) }
            div.cases { @for case in cases { (question(case)) } }
        }
        (claims(run))
        (warnings(run))
        h2 { "The machine" }
        pre { (run.head.text().join("\n")) }
        pre { (run.head.drawing) }
        h2 { "Raw numbers" }
        p { "One JSON object per line, as " code { "afterwork-lab bench --json" } " prints it: "
            (frame::download(RAW, &run.lines)) }
    };
    frame::page(&title, &body)
}

fn warnings(run: &Run) -> Markup {
    let of_cases = run.cases.iter().flat_map(|case| {
        case.head.warnings.iter().map(move |warning| (warning.as_str(), Some(case)))
    });
    let mut all: Vec<(&str, Vec<&CaseRun>)> = Vec::new();
    let of_run = run.head.warnings.iter().map(|warning| (warning.as_str(), None));
    for (warning, case) in of_run.chain(of_cases) {
        match all.iter_mut().find(|it| it.0 == warning) {
            Some((_, cases)) => cases.extend(case),
            None => all.push((warning, case.into_iter().collect())),
        }
    }
    html! {
        @if !all.is_empty() {
            h2 { "Warnings" }
            @for (warning, cases) in all {
                p.warning {
                    (warning)
                    @for case in cases { " " a href=(format!("#{}", anchor(case))) { (case.head.case) } }
                }
            }
        }
    }
}

pub(super) fn words_of(case: &CaseRun) -> String {
    words::of_case(&case.head.bench, &case.head.case, &case.head.about)
}

pub(super) fn metric_of(case: &CaseRun, metric: &MetricHead) -> String {
    words::of_metric(&case.head.bench, &case.head.case, &metric.metric)
}

pub(super) fn anchor(case: &CaseRun) -> String {
    format!("{}-{}", case.head.bench, case.head.case)
}

/// Returns all claims by outcome, folded except those that do not hold.
fn claims(run: &Run) -> Markup {
    let all = || run.cases.iter().flat_map(|case| case.claims.iter().map(move |it| (case, it)));
    let of = |verdict| all().filter(move |(_, claim)| claim.verdict == verdict);
    html! {
        h2 id="claims" { "All claims" }
        p { b { (Totals::of(&run.cases).in_words()) } "." }
        p {
            "Each is a ratio of two ways to do the same thing, measured in turns in this run; ± is the median absolute "
            "deviation, n the number of repetitions."
        }
        @for (head, verdict) in [
            ("do not hold", Verdict::Fails),
            ("hold", Verdict::Holds),
            ("have one run: no verdict", Verdict::OneRun),
            ("were not measured", Verdict::NotMeasured),
        ] {
            @let count = of(verdict).count();
            @if count > 0 {
                details open[verdict == Verdict::Fails] { summary { (count) " " (head) } (rows(of(verdict))) }
            }
        }
    }
}

fn rows<'a>(claims: impl Iterator<Item = (&'a CaseRun, &'a Claimed)>) -> Markup {
    html! {
        table.claims {
            thead { tr {
                th { "where" } th { "ratio" } th { "against" } th.n { "measured" } th.n { "claimed" } th { "holds?" }
            } }
            tbody {
                @for (case, claim) in claims { (row(case, claim)) }
            }
        }
    }
}

fn row(case: &CaseRun, claim: &Claimed) -> Markup {
    let class = match claim.verdict {
        Verdict::Holds => "good",
        Verdict::Fails => "bad",
        Verdict::OneRun | Verdict::NotMeasured => "quiet",
    };
    html! {
        tr {
            td { (words_of(case)) " " code.quiet { (claim.bench) " " (claim.case) } }
            td { (claim.claim) }
            td { (claim.against.as_deref().unwrap_or("-")) }
            td.n { (claim.ratio.map_or_else(|| "-".into(), measured)) }
            td.n { (claim.bound.as_deref().unwrap_or_default().replace(">=", "≥").replace("<=", "≤")) }
            td class=(class) { (claim.verdict.in_words(claim.close)) }
        }
    }
}

fn measured(ratio: Spread) -> String {
    let spread = table::ratio(ratio);
    match ratio.n {
        1 => spread,
        n => format!("{spread}, n {n}"),
    }
}

fn question(case: &CaseRun) -> Markup {
    html! {
        section.case id=(anchor(case)) {
            h3 { (words_of(case)) (verdict::of_case(case)) }
            p.quiet { code { (case.head.case) } ": " (case.head.about) }
            @for metric in shown(case) {
                @let records: Vec<&Record> = case.of_metric(&metric.metric).collect();
                @if !records.is_empty() { (bars(&metric_of(case, metric), metric, &records)) }
            }
            details {
                summary { "All numbers" }
                (table(case))
            }
        }
    }
}

fn shown(case: &CaseRun) -> Vec<&MetricHead> {
    let head = &case.head;
    let claimed = case.claims.iter().map(|claim| claim.metric.as_str());
    let names = distinct([head.headline.as_str()].into_iter().chain(claimed)).into_iter();
    let metrics = names.filter_map(|name| head.metrics.iter().find(|it| it.metric == name));
    metrics.take(BARS).collect()
}

fn table(case: &CaseRun) -> Markup {
    let measured = |metric: &&MetricHead| case.of_metric(&metric.metric).next().is_some();
    let metrics: Vec<&MetricHead> = case.head.metrics.iter().filter(measured).collect();
    html! {
        div.wide {
            table {
                thead { tr {
                    th { "variant" }
                    @for metric in &metrics { th.n { (metric_of(case, metric)) } }
                } }
                tbody {
                    @for variant in distinct(case.records.iter().map(|it| it.variant.as_str())) {
                        tr {
                            td { (variant) }
                            @for metric in &metrics { td.n { (cell(case, variant, metric)) } }
                        }
                    }
                }
            }
            @for record in &case.machine {
                span.quiet { (words::of_other(&record.metric)) " " (number::with_unit(record.median, &record.unit)) "  " }
            }
        }
    }
}

fn cell(case: &CaseRun, variant: &str, metric: &MetricHead) -> String {
    let Some(record) = case.record(variant, &metric.metric) else { return "-".into() };
    let value = number::with_unit(record.median, &record.unit);
    if record.n == 1 {
        return format!("{value}, one run");
    }
    let spread =
        if record.median == 0.0 { 0.0 } else { (record.mad / record.median).abs() * 100.0 };
    format!("{value} ±{spread:.0} %, n {}", record.n)
}
