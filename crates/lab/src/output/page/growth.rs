//! The growth of costs: plots of the cost per thing over the number of things, on logarithmic axes,
//! and a table of all growth factors.
//!
//! They use the metrics `ns@N`, `bytes@N` and `growth` of the cases of any bench.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::number;
use crate::output::run::CaseRun;
use crate::output::words;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 240.0;

/// The metric for the factor by which a time grows when the number of things doubles.
pub const GROWTH: &str = "growth";

/// The prefix of the metrics of memory.
pub const BYTES_AT: &str = "bytes@";

/// The minimum distance of two labels, as a share of the axis.
const LABELS_APART: f64 = 0.07;

/// A quantity that is drawn.
struct Quantity {
    /// The prefix of its metrics.
    start: &'static str,
    /// The units of labels with their sizes, in ascending order.
    units: &'static [(f64, &'static str)],
}

const TIME: Quantity =
    Quantity { start: "ns@", units: &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")] };
const BYTES: Quantity =
    Quantity { start: BYTES_AT, units: &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")] };
/// The units for numbers of things.
const NUMBERS: &[(f64, &str)] = &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];

/// A number of things, and the cost of one of them.
type Point = (f64, f64);

/// A variant and its points, in ascending order of the numbers.
type Grown<'a> = (&'a str, Vec<Point>);

/// Returns `true` for the name of a limit, which is not an implementation.
pub fn is_limit(variant: &str) -> bool {
    variant.starts_with('(')
}

/// Draws the growth of time and bytes. Returns empty markup if there are no metrics for two
/// numbers.
pub fn growth(case: &CaseRun) -> Markup {
    let (_, one) = words::of_axis(&case.head.case);
    html! {
        (plot(case, &TIME, &format!("time of {one}")))
        (plot(case, &BYTES, "bytes of each"))
    }
}

fn plot(case: &CaseRun, quantity: &Quantity, title: &str) -> Markup {
    let lines = lines(case, quantity);
    let points = || lines.iter().flat_map(|(_, points)| points).copied();
    let x = Range::of(points().map(|point| point.0));
    let y = Range::of(points().map(|point| point.1)).map(Range::in_decades);
    let Some((x, y)) = x.zip(y) else {
        return html! {};
    };
    let (things, _) = words::of_axis(&case.head.case);
    let ticks = x.labels(points().map(|point| point.0));
    let limit = limit(case, &lines, &x).filter(|_| quantity.start == TIME.start);
    html! {
        figure.curves.grown data-points=(points().count()) {
            figcaption {
                b { (title) }
                " " span.quiet { "lower is better; both axes logarithmic" }
            }
            div.plot {
                @for tick in y.powers() {
                    span.tick style=(format!("top:{:.2}%", (1.0 - y.share(tick)) * 100.0)) {
                        (label(tick, quantity.units))
                    }
                }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                    aria-label=(format!("{title}, by {things}")) {
                    (PreEscaped(grid(&ticks, &x, &y)))
                    @if let Some((_, points)) = &limit {
                        polyline class="line limit" points=(drawn(points, &x, &y)) {}
                    }
                    @for (index, (_, points)) in lines.iter().enumerate() {
                        polyline class=(format!("line c{index}")) points=(drawn(points, &x, &y)) {}
                    }
                }
            }
            div.axis {
                @for &tick in &ticks {
                    span style=(format!("left:{:.2}%", x.share(tick) * 100.0)) { (label(tick, NUMBERS)) }
                }
            }
            div.things { (things) }
            div.legend {
                @for (index, (variant, _)) in lines.iter().enumerate() {
                    span { i class=(format!("c{index}")) {} (variant) }
                }
                @if let Some((name, _)) = &limit {
                    span { i.limit {} (name) @if is_claimed(case) { ", the steepest that ours may be" } }
                }
            }
        }
    }
}

fn lines<'a>(case: &'a CaseRun, quantity: &Quantity) -> Vec<Grown<'a>> {
    let variants = case.variants().into_iter();
    let lines = variants.map(|(variant, _)| {
        let records = case.records.iter().filter(|record| record.variant == variant);
        let points = records.filter_map(|record| {
            let number: f64 = record.metric.strip_prefix(quantity.start)?.parse().ok()?;
            (number > 0.0 && record.median > 0.0).then_some((number, record.median))
        });
        (variant, points.collect::<Vec<_>>())
    });
    lines.filter(|(_, points)| points.len() > 1).collect()
}

/// Returns `true` if a claim of the case bounds the growth. Other claims only show the limit.
fn is_claimed(case: &CaseRun) -> bool {
    let mut claims = case.claims.iter();
    claims.any(|claim| claim.metric == GROWTH && claim.bound.is_some())
}

/// Returns the limit of a case as a line that starts at the first point of the claim's variant.
fn limit<'a>(case: &'a CaseRun, lines: &[Grown<'_>], x: &Range) -> Option<Grown<'a>> {
    let claim = case.claims.iter().find(|claim| claim.metric == GROWTH)?;
    let limit = claim.against.as_deref()?;
    let growth = case.record(limit, GROWTH)?.median;
    let mut ours = lines.iter().filter(|(name, _)| *name == claim.variant);
    let &(from, cost) = ours.next()?.1.first()?;
    let end = cost * (x.most / from).powf(growth.log2());
    Some((limit, vec![(from, cost), (x.most, end)]))
}

/// A logarithmic axis of at least a decade.
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let least = values.clone().reduce(f64::min)?;
        let most = values.reduce(f64::max)?.max(least * 10.0);
        Some(Self { least, most })
    }

    /// Extends the axis to powers of ten.
    fn in_decades(self) -> Self {
        Self {
            least: 10_f64.powf(self.least.log10().floor()),
            most: 10_f64.powf(self.most.log10().ceil()),
        }
    }

    fn share(&self, value: f64) -> f64 {
        (value / self.least).ln() / (self.most / self.least).ln()
    }

    /// Returns the powers of ten within the axis.
    fn powers(&self) -> Vec<f64> {
        let (from, to) = (self.least.log10().ceil(), self.most.log10().floor());
        (from as i32..=to as i32).map(|power| 10_f64.powi(power)).collect()
    }

    /// Returns the numbers that have enough space for a label, in ascending order.
    fn labels(&self, numbers: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let mut shown: Vec<f64> = Vec::new();
        for number in numbers {
            let last = shown.last().map(|&last| self.share(last));
            if last.is_none_or(|last| self.share(number) - last >= LABELS_APART) {
                shown.push(number);
            }
        }
        shown
    }
}

/// Formats a round value in the largest unit that does not exceed it, such as `100 ns` or `10k`.
fn label(value: f64, units: &[(f64, &str)]) -> String {
    let fits = units.iter().rev().find(|(size, _)| value >= size * 0.999);
    let &(size, unit) = fits.unwrap_or(&units[0]);
    let scaled = (value / size * 1e6).round() / 1e6;
    let blank = if unit.len() > 1 || unit == "B" || unit == "s" { "\u{a0}" } else { "" };
    format!("{scaled}{blank}{unit}")
}

fn grid(numbers: &[f64], x: &Range, y: &Range) -> String {
    let mut grid = String::new();
    for &number in numbers {
        let at = x.share(number) * WIDTH;
        // Writing to a `String` cannot fail.
        let _ =
            write!(grid, r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="0" y2="{HEIGHT}"/>"#);
    }
    for tick in y.powers() {
        let at = (1.0 - y.share(tick)) * HEIGHT;
        let _ =
            write!(grid, r#"<line class="grid" x1="0" x2="{WIDTH}" y1="{at:.1}" y2="{at:.1}"/>"#);
    }
    grid
}

fn drawn(points: &[Point], x: &Range, y: &Range) -> String {
    let mut text = String::new();
    for &(number, ns) in points {
        let (across, down) = (x.share(number) * WIDTH, (1.0 - y.share(ns)) * HEIGHT);
        let _ = write!(text, "{across:.1},{down:.1} ");
    }
    text
}

/// Returns the table of all growth factors, or empty markup if there are none.
pub fn growths(cases: &[&CaseRun]) -> Markup {
    let grown = |case: &&&CaseRun| case.of_metric(GROWTH).next().is_some();
    let cases: Vec<&CaseRun> = cases.iter().filter(grown).copied().collect();
    if cases.is_empty() {
        return html! {};
    }
    html! {
        p {
            "The factor by which the time of one grows when the number doubles: ×\u{a0}1.00 is no growth, ×\u{a0}2.00 is growth in "
            "proportion to the number. It is the slope of a straight line fitted to all measured points, both axes logarithmic (least "
            "squares). The limit is the same factor for a time of log n over these numbers, or of n log n if one "
            "replacement visits all readers; an item that uses a CPU for n ns grows as n."
        }
        div.wide {
            table.growths {
                thead { tr { th { "case" } th { "ours" } th { "peers" } th { "limit" } } }
                tbody {
                    @for case in cases {
                        tr {
                            td { (words::of_case(&case.head.bench, &case.head.case, &case.head.about)) " " code.quiet { (case.head.case) } }
                            td { (growth_of(case, |name, peer| !peer && !is_limit(name))) }
                            td { (growth_of(case, |_, peer| peer)) }
                            td { (growth_of(case, |name, peer| !peer && is_limit(name))) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the growth factors of the selected variants, one per line.
fn growth_of(case: &CaseRun, which: impl Fn(&str, bool) -> bool) -> Markup {
    let records = case.of_metric(GROWTH);
    html! {
        @for record in records.filter(|it| which(&it.variant, it.peer)) {
            div { (record.variant) " " b { (number::with_unit(record.median, &record.unit)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::claim::Verdict;
    use crate::harness::metric::Better;
    use crate::output::record::{Claimed, Record};
    use crate::output::verdict::tests::case;

    #[test]
    fn equal_ratios_are_equal_steps_between_the_ends() {
        let range = Range::of([10.0, 1000.0, 100.0].into_iter()).unwrap();
        let shares = [10.0, 100.0, 1000.0].map(|value| range.share(value));
        assert!((shares[0], shares[2]) == (0.0, 1.0) && (shares[1] - 0.5).abs() < 1e-9);
        assert_eq!(range.powers(), [10.0, 100.0, 1000.0]);
        assert!(Range::of([].into_iter()).is_none());
    }

    #[test]
    fn an_axis_spans_a_decade_so_that_noise_is_no_slope() {
        let range = Range::of([32.0, 36.0].into_iter()).unwrap();
        assert_eq!(range.most / range.least, 10.0);
        let range = range.in_decades();
        assert_eq!((range.least, range.most), (10.0, 1000.0));
        let one = Range::of([100.0].into_iter()).unwrap().in_decades();
        assert_eq!((one.least, one.most), (100.0, 1000.0));
    }

    #[test]
    fn labels_have_units_and_space() {
        let of_time = [0.1, 1.0, 100.0, 10_f64.powi(4), 1e9].map(|it| label(it, TIME.units));
        let of_time = of_time.map(|it| it.replace('\u{a0}', " "));
        assert_eq!(of_time, ["0.1 ns", "1 ns", "100 ns", "10 µs", "1 s"]);
        let numbers = [1.0, 64.0, 1e3, 1e5, 1e7].map(|it| label(it, NUMBERS));
        assert_eq!(numbers, ["1", "64", "1k", "100k", "10M"]);
        let range = Range::of([1.0, 1e7].into_iter()).unwrap();
        let labels = range.labels([1e7, 1.0, 1.0, 2.0, 10.0].into_iter());
        assert_eq!(labels, [1.0, 10.0, 1e7]);
    }

    #[test]
    fn a_cost_that_grows_is_drawn_upwards_to_the_right() {
        let range = || Range::of([1.0, 100.0].into_iter()).unwrap();
        let text = drawn(&[(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)], &range(), &range());
        assert_eq!(text, "0.0,240.0 300.0,120.0 600.0,0.0 ");
    }

    /// Returns a case of the scale bench in which our variant stays at 20 ns and the limit doubles.
    fn scaled() -> CaseRun {
        let mut scaled = case(Better::Lower, "ns", (0.5, 0.0, 5));
        scaled.head.bench = "scale".into();
        scaled.head.case = "queues".into();
        let like = scaled.records[0].clone();
        let record = |variant: &str, metric: &str, median| Record {
            variant: variant.into(),
            metric: metric.into(),
            median,
            unit: if metric == GROWTH { "x" } else { "ns" }.into(),
            peer: variant == "peer",
            ..like.clone()
        };
        scaled.records = vec![
            record("ours", "ns@1", 20.0),
            record("ours", "ns@10", 20.0),
            record("ours", GROWTH, 1.0),
            record("peer", GROWTH, 1.25),
            record("(n)", GROWTH, 2.0),
        ];
        scaled.claims = vec![Claimed {
            bench: "scale".into(),
            case: "queues".into(),
            claim: "ours, growth".into(),
            variant: "ours".into(),
            metric: GROWTH.into(),
            against: Some("(n)".into()),
            bound: None,
            ratio: None,
            verdict: Verdict::Shown,
            close: false,
        }];
        scaled
    }

    #[test]
    fn both_axes_are_named_and_the_limit_is_no_series() {
        let page = growth(&scaled()).into_string();
        for part in ["time of an item", "queues", "10\u{a0}ns", "100\u{a0}ns"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        // At the top right, the limit is ten times our first value.
        let limit = r#"class="line limit" points="0.0,"#;
        assert!(page.contains(limit), "{page}");
        assert!(!page.contains("the steepest that ours may be"), "{page}");
        let mut claimed = scaled();
        claimed.claims[0].bound = Some("<= 1".into());
        let claimed = growth(&claimed).into_string();
        let limit = "(n), the steepest that ours may be";
        assert!(claimed.contains(limit), "{claimed}");
        assert!(!page.contains("bytes"), "{page}");
    }

    #[test]
    fn all_growths_are_in_one_table() {
        let scaled = scaled();
        let page = growths(&[&scaled]).into_string();
        for part in ["ours <b>×\u{a0}1.00", "peer <b>×\u{a0}1.25", "(n) <b>×\u{a0}2.00"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(growths(&[]).into_string().is_empty());
    }
}
