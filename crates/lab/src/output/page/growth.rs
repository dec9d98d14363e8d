//! A plot of how a cost grows: for each variant what it is at each number of things, both logarithmic.
//!
//! The numbers are the metrics `ns@N` of a case, whatever bench it is of.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::number;
use crate::output::run::CaseRun;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 240.0;

/// What the metrics begin with.
const TIME_AT: &str = "ns@";

/// A variant and its points, in the order of the numbers.
type Grown<'a> = (&'a str, Vec<(f64, f64)>);

/// Draws how the variants of a case grow; nothing for a case that has no such metrics.
pub fn growth(case: &CaseRun) -> Markup {
    let lines = lines(case);
    let points = || lines.iter().flat_map(|(_, points)| points).copied();
    let x = Range::of(points().map(|point| point.0));
    let y = Range::of(points().map(|point| point.1));
    let Some((x, y)) = x.zip(y) else {
        return html! {};
    };
    html! {
        figure.curves data-points=(points().count()) {
            figcaption {
                b { "time as the number grows" }
                " " span.quiet { (number::with_unit(y.least, "ns")) " at the bottom, "
                    (number::with_unit(y.most, "ns")) " at the top; lower is better; both logarithmic" }
            }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                aria-label=(format!("growth of {}", case.head.case)) {
                (PreEscaped(grid(&x, &y)))
                @for (index, (_, points)) in lines.iter().enumerate() {
                    polyline class=(format!("line c{index}")) points=(drawn(points, &x, &y)) {}
                }
            }
            div.axis {
                @for tick in x.ticks() {
                    span style=(format!("left:{:.2}%", x.share(tick) * 100.0)) { (tick) }
                }
            }
            div.legend {
                @for (index, (variant, _)) in lines.iter().enumerate() {
                    span { i class=(format!("c{index}")) {} (variant) }
                }
            }
        }
    }
}

fn lines(case: &CaseRun) -> Vec<Grown<'_>> {
    let variants = case.variants().into_iter();
    let lines = variants.map(|(variant, _)| {
        let records = case
            .records
            .iter()
            .filter(|record| record.variant == variant);
        let points = records.filter_map(|record| {
            let number: f64 = record.metric.strip_prefix(TIME_AT)?.parse().ok()?;
            (number > 0.0 && record.median > 0.0).then_some((number, record.median))
        });
        (variant, points.collect::<Vec<_>>())
    });
    lines.filter(|(_, points)| points.len() > 1).collect()
}

/// An axis of logarithms.
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let least = values.clone().reduce(f64::min)?;
        let most = values.reduce(f64::max)?;
        // A single value still has a place.
        let most = if most > least { most } else { least * 2.0 };
        Some(Self { least, most })
    }

    fn share(&self, value: f64) -> f64 {
        (value / self.least).ln() / (self.most / self.least).ln()
    }

    /// Powers of ten inside.
    fn ticks(&self) -> Vec<f64> {
        let (from, to) = (self.least.log10().ceil(), self.most.log10().floor());
        (from as i32..=to as i32)
            .map(|power| 10_f64.powi(power))
            .collect()
    }
}

fn grid(x: &Range, y: &Range) -> String {
    let mut grid = String::new();
    for tick in x.ticks() {
        let at = x.share(tick) * WIDTH;
        // Writing to a String cannot fail.
        let _ = write!(
            grid,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="0" y2="{HEIGHT}"/>"#
        );
    }
    for tick in y.ticks() {
        let at = (1.0 - y.share(tick)) * HEIGHT;
        let _ = write!(
            grid,
            r#"<line class="grid" x1="0" x2="{WIDTH}" y1="{at:.1}" y2="{at:.1}"/>"#
        );
    }
    grid
}

fn drawn(points: &[(f64, f64)], x: &Range, y: &Range) -> String {
    let mut text = String::new();
    for &(number, ns) in points {
        let (across, down) = (x.share(number) * WIDTH, (1.0 - y.share(ns)) * HEIGHT);
        let _ = write!(text, "{across:.1},{down:.1} ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_steps_between_the_ends() {
        let range = Range::of([10.0, 1000.0, 100.0].into_iter()).unwrap();
        let shares = [10.0, 100.0, 1000.0].map(|value| range.share(value));
        assert!((shares[0], shares[2]) == (0.0, 1.0) && (shares[1] - 0.5).abs() < 1e-9);
        assert_eq!(range.ticks(), [10.0, 100.0, 1000.0]);
        assert!(Range::of([].into_iter()).is_none());
    }

    #[test]
    fn a_cost_that_grows_is_drawn_upwards_to_the_right() {
        let range = || Range::of([1.0, 100.0].into_iter()).unwrap();
        let text = drawn(
            &[(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)],
            &range(),
            &range(),
        );
        assert_eq!(text, "0.0,240.0 300.0,120.0 600.0,0.0 ");
    }
}
