//! Plots of distributions. For each variant, a curve shows the share of samples that do not exceed
//! a value (ECDF).

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::number;
use crate::output::record::Curve;
use crate::output::words;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 240.0;

/// The maximum numbers of lines that can be distinguished, for our variants and for peers. The
/// table contains the others.
const MOST_OURS: usize = 6;
const MOST_PEERS: usize = 4;

/// Draws the curves of one quantity over a logarithmic axis.
///
/// Variants in `claimed` are drawn before other variants.
pub fn curves(curves: &[&Curve], claimed: &[&str]) -> Markup {
    let mut sorted = curves.to_vec();
    sorted.sort_by_key(|curve| !claimed.contains(&curve.variant.as_str()));
    let of = |peer| sorted.iter().copied().filter(move |curve| curve.peer == peer);
    let shown: Vec<&Curve> = of(false).take(MOST_OURS).chain(of(true).take(MOST_PEERS)).collect();
    let Some((axis, first)) = Axis::of(&shown).zip(shown.first()) else {
        return html! {};
    };
    html! {
        figure.curves data-points=(shown.iter().map(|curve| curve.points.len()).sum::<usize>()) {
            figcaption {
                b { (words::of_other(&first.curve)) }
                " " span.quiet { "percent of samples that took no longer than this; further left is better; logarithmic axis" }
            }
            div.y aria-hidden="true" { @for percent in PERCENTS { span { (percent) " %" } } }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                aria-label=(format!("distribution of {}", words::of_other(&first.curve))) {
                (PreEscaped(axis.grid()))
                @for (index, curve) in shown.iter().enumerate() {
                    polyline class=(format!("line c{}", color(index, curve.peer))) points=(axis.points(curve)) {}
                }
            }
            div.axis {
                @for tick in axis.ticks() {
                    span style=(format!("left:{:.2}%", axis.x(tick) / WIDTH * 100.0)) {
                        (number::with_unit(tick, &first.unit))
                    }
                }
            }
            div.legend {
                @for (index, curve) in shown.iter().enumerate() {
                    span { i class=(format!("c{}", color(index, curve.peer))) {} (curve.variant) @if curve.peer { " (peer)" } }
                }
                @if shown.len() < curves.len() {
                    span.quiet { (shown.len()) " of " (curves.len()) " are drawn" }
                }
            }
        }
    }
}

/// The ticks of the axis of shares, from the top.
const PERCENTS: [u8; 5] = [100, 75, 50, 25, 0];

/// Returns the index of a color. Our variants use the first colors. Peers use the last colors and
/// dashes.
fn color(index: usize, peer: bool) -> usize {
    if peer { MOST_OURS + index % MOST_PEERS } else { index }
}

struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// Returns an axis from the 1st percentile of the fastest variant to the 99.9th percentile of
    /// the slowest.
    fn of(curves: &[&Curve]) -> Option<Self> {
        let inner = curves.iter().flat_map(|curve| &curve.points);
        let inner = inner.filter(|(percent, value)| (1.0..=99.9).contains(percent) && *value > 0.0);
        let values = inner.map(|&(_, value)| value);
        let least = values.clone().reduce(f64::min)?;
        let most = values.reduce(f64::max)?;
        // The axis is widened if there is only a single value.
        let most = if most > least { most } else { least * 2.0 };
        Some(Self { least, most })
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        share.min(1.0) * WIDTH
    }

    fn y(percent: f64) -> f64 {
        HEIGHT * (1.0 - percent / 100.0)
    }

    /// Returns at most four powers of ten within the axis. A short axis has its ends as ticks.
    fn ticks(&self) -> Vec<f64> {
        let from = self.least.log10().ceil() as i32;
        let to = self.most.log10().floor() as i32;
        let every = ((to - from) / 4 + 1).max(1) as usize;
        let powers = (from..=to).step_by(every).map(|power| 10_f64.powi(power));
        let powers: Vec<f64> = powers.collect();
        if powers.len() < 2 {
            return vec![self.least, self.most];
        }
        powers
    }

    fn grid(&self) -> String {
        let mut grid = String::new();
        for percent in PERCENTS {
            let y = Self::y(percent.into());
            // Writing to a `String` cannot fail.
            let _ =
                write!(grid, r#"<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.1}" y2="{y:.1}"/>"#);
        }
        for tick in self.ticks() {
            let x = self.x(tick);
            let _ = write!(
                grid,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="0" y2="{HEIGHT}"/>"#
            );
        }
        grid
    }

    fn points(&self, curve: &Curve) -> String {
        let mut points = String::new();
        for &(percent, value) in &curve.points {
            let _ = write!(points, "{:.1},{:.1} ", self.x(value), Self::y(percent));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve {
            bench: "b".into(),
            case: "c".into(),
            variant: "v".into(),
            peer: false,
            curve: "completion".into(),
            unit: "ns".into(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn a_curve_rises_from_left_to_right_inside_its_frame() {
        let curve = curve(&[(0.0, 1.0), (1.0, 10.0), (50.0, 100.0), (99.9, 1e6), (100.0, 1e9)]);
        let axis = Axis::of(&[&curve]).unwrap();
        let points: Vec<(f64, f64)> = axis
            .points(&curve)
            .split_whitespace()
            .map(|point| {
                let (x, y) = point.split_once(',').unwrap();
                (x.parse().unwrap(), y.parse().unwrap())
            })
            .collect();
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
        assert!(
            points.iter().all(|&(x, y)| (0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y))
        );
        assert!((1..=5).contains(&axis.ticks().len()));
    }

    #[test]
    fn without_a_value_above_zero_there_is_no_plot() {
        assert!(Axis::of(&[&curve(&[(50.0, 0.0)])]).is_none());
        assert!(Axis::of(&[]).is_none());
        let single = curve(&[(50.0, 7.0)]);
        assert!(Axis::of(&[&single]).unwrap().x(7.0) == 0.0);
    }
}
