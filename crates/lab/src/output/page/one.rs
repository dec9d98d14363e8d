//! The page of one run.

use maud::{Markup, html};

use super::bars::{bars, caption};
use super::curves::curves;
use super::frame;
use super::number;
use super::run::{CaseRun, Run};
use crate::harness::claim::Verdict;
use crate::output::record::{Claimed, Curve, Head, MetricHead, Record};

/// Metrics that a case shows as bars at most; the table has all.
const BARS: usize = 3;

/// The name under which the raw numbers are given back.
const RAW: &str = "afterwork-run.jsonl";

/// Makes the page of a run.
#[must_use]
pub fn page(run: &Run) -> String {
    let title = title(&run.head);
    let body = html! {
        h1 { (title) }
        (machine(&run.head))
        (warnings(&run.head.warnings))
        (summary(run))
        @for bench in benches(run) {
            h2 id=(bench) { (bench) }
            div.cases {
                @for case in run.cases.iter().filter(|case| case.head.bench == bench) { (question(case)) }
            }
        }
        h2 { "The machine" }
        pre { (run.head.drawing) }
        h2 { "Raw numbers" }
        p { "One JSON object a line, as " code { "afterwork bench --json" } " prints it: "
            (frame::download(RAW, &run.lines)) }
    };
    frame::page(&title, &body)
}

fn title(head: &Head) -> String {
    let cpu = head.fingerprint.cpu.as_deref().unwrap_or("an unnamed CPU");
    format!("Deferred work on {cpu}")
}

/// What was measured on what, in the words that head every result.
pub fn machine(head: &Head) -> Markup {
    html! {
        pre { (head.fingerprint.lines().join("\n")) "\norder    shuffled with --seed " (head.seed) }
    }
}

fn warnings(warnings: &[String]) -> Markup {
    html! {
        @for warning in warnings { p.warning { "Warning: " (warning) } }
    }
}

fn benches(run: &Run) -> Vec<&str> {
    let mut benches: Vec<&str> = run
        .cases
        .iter()
        .map(|case| case.head.bench.as_str())
        .collect();
    benches.dedup();
    benches
}

/// Claim, what was measured here, and whether it holds.
fn summary(run: &Run) -> Markup {
    let claims: Vec<&Claimed> = run.cases.iter().flat_map(|case| &case.claims).collect();
    let judged = |verdict| {
        claims
            .iter()
            .filter(|claim| claim.verdict == verdict)
            .count()
    };
    let (hold, fail) = (judged(Verdict::Holds), judged(Verdict::Fails));
    let close = claims.iter().filter(|claim| claim.close).count();
    html! {
        h2 { "What is claimed, and what was measured here" }
        p {
            b.good { (hold) " hold" } ", " b.bad { (fail) " do not" } "; " (close)
            " lie so near their bound that another run may say the opposite. Each is a ratio of two ways to do "
            "the same thing, measured in turns in this very run; ± is the median absolute deviation."
        }
        p.quiet {
            "Elsewhere: the same ratio as it was measured where the idea comes from, or by a prototype; other machines, "
            "other programs. It is not judged."
        }
        (rows(claims.iter().filter(|claim| claim.verdict != Verdict::Shown)))
        details {
            summary { "Ratios that are shown, with nothing claimed" }
            (rows(claims.iter().filter(|claim| claim.verdict == Verdict::Shown)))
        }
    }
}

fn rows<'a>(claims: impl Iterator<Item = &'a &'a Claimed>) -> Markup {
    html! {
        table.claims {
            thead { tr {
                th { "where" } th { "ratio" } th { "against" } th.n { "measured" } th.n { "claimed" } th { "holds?" }
                th { "elsewhere" }
            } }
            tbody {
                @for claim in claims { (row(claim)) }
            }
        }
    }
}

fn row(claim: &Claimed) -> Markup {
    let (class, answer) = match claim.verdict {
        Verdict::Holds => ("good", "yes"),
        Verdict::Fails => ("bad", "no"),
        Verdict::Shown => ("", "shown only"),
        Verdict::NotMeasured => ("quiet", "not measured"),
    };
    html! {
        tr {
            td { (claim.bench) " " (claim.case) }
            td { (claim.claim) }
            td { (claim.against.as_deref().unwrap_or("-")) }
            td.n { (claim.ratio.map_or_else(|| "-".into(), number::with_spread)) }
            td.n { (claim.bound.as_deref().unwrap_or("")) }
            td class=(class) { (answer) @if claim.close { ", within the noise" } }
            td {
                @if let Some(source) = &claim.source {
                    (source.figure) " " span.quiet { (source.from) }
                }
            }
        }
    }
}

/// A case: what it asks, its plots, its table.
fn question(case: &CaseRun) -> Markup {
    html! {
        section.case {
            h3 { (case.head.case) }
            p.quiet { (case.head.about) }
            (warnings(&case.head.warnings))
            @for metric in shown(case) {
                @let records: Vec<&Record> = case.of_metric(&metric.metric).collect();
                @if !records.is_empty() { (bars(metric, &records)) }
            }
            @for curve in curve_names(case) {
                @let named: Vec<&Curve> = case.curves.iter().filter(|it| it.curve == curve).collect();
                (curves(&named))
            }
            details {
                summary { "All numbers" }
                (table(case))
            }
        }
    }
}

/// The headline, then what claims are about.
fn shown(case: &CaseRun) -> Vec<&MetricHead> {
    let head = &case.head;
    let claimed = case.claims.iter().map(|claim| &claim.metric);
    let mut names: Vec<&String> = Vec::new();
    for name in std::iter::once(&head.headline).chain(claimed) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let metrics = names
        .into_iter()
        .filter_map(|name| head.metrics.iter().find(|metric| metric.metric == *name));
    metrics.take(BARS).collect()
}

fn curve_names(case: &CaseRun) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for curve in &case.curves {
        if !names.contains(&curve.curve.as_str()) {
            names.push(&curve.curve);
        }
    }
    names
}

fn table(case: &CaseRun) -> Markup {
    let measured = |metric: &&MetricHead| case.of_metric(&metric.metric).next().is_some();
    let metrics: Vec<&MetricHead> = case.head.metrics.iter().filter(measured).collect();
    html! {
        div.wide {
            table {
                thead { tr {
                    th { "variant" }
                    @for metric in &metrics { th.n { (caption(&metric.metric)) } }
                } }
                tbody {
                    @for (variant, _) in case.variants() {
                        tr {
                            td { (variant) }
                            @for metric in &metrics { td.n { (cell(case, variant, metric)) } }
                        }
                    }
                }
            }
            @for record in &case.machine {
                span.quiet { (caption(&record.metric)) " " (number::with_unit(record.median, &record.unit)) "  " }
            }
        }
    }
}

fn cell(case: &CaseRun, variant: &str, metric: &MetricHead) -> String {
    let Some(record) = case.record(variant, &metric.metric) else {
        return "-".into();
    };
    let spread = if record.median == 0.0 {
        0.0
    } else {
        (record.mad / record.median).abs() * 100.0
    };
    format!(
        "{} ±{spread:.0} %",
        number::with_unit(record.median, &record.unit)
    )
}
