//! Plots of one number per variant, with whiskers of one MAD above an axis with ticks. Bars are
//! HTML boxes, so that narrow screens and screen readers can present them. A logarithmic axis has
//! dots, because the length of a bar would suggest a proportion.

use maud::{Markup, html};

use super::number;
use crate::harness::metric::Better;
use crate::output::record::{MetricHead, Record};

/// The ratio of bars above which a linear axis would hide the short ones.
const LINEAR_UP_TO: f64 = 50.0;

/// The length of the shortest bar that is visible, as a percentage of the axis.
const SHORTEST: f64 = 1.0;

/// The length of the longest bar whose whisker fits, as a percentage of the axis.
const LONGEST: f64 = 90.0;

fn is_limit(variant: &str) -> bool {
    variant.starts_with('(')
}

pub fn bars(name: &str, metric: &MetricHead, records: &[&Record]) -> Markup {
    let scale = Scale::of(records.iter().map(|record| record.median));
    let best = match (metric.better, scale.is_log) {
        (Better::Higher, false) => "longer is better",
        (Better::Lower, false) => "shorter is better",
        (Better::Higher, true) => "further right is better; logarithmic axis",
        (Better::Lower, true) => "further left is better; logarithmic axis",
    };
    html! {
        figure.bars.log[scale.is_log] data-points=(records.len()) {
            figcaption {
                b { (name) }
                " " span.quiet { (best) "; " (repetitions(records)) }
                div.legend {
                    span { i.fill {} "ours" }
                    @if records.iter().any(|record| record.peer) { span { i.fill.peer {} "peers" } }
                    @if records.iter().any(|record| is_limit(&record.variant)) { span { i.fill.bound {} "limit" } }
                }
            }
            @for record in records {
                @let side = if scale.is_log { "left" } else { "width" };
                @let length = scale.percent(record.median);
                @let (from, to) = (
                    scale.percent(record.median - record.mad),
                    scale.percent(record.median + record.mad),
                );
                div.bar {
                    span.name { (breakable(&record.variant)) }
                    span.track {
                        span.fill.peer[record.peer].bound[is_limit(&record.variant)] style=(format!("{side}:{length:.2}%")) {}
                        @if record.mad > 0.0 {
                            span.whisker style=(format!("left:{from:.2}%;width:{:.2}%", to - from)) {}
                        }
                    }
                    span.value { (number::with_unit(record.median, &record.unit)) }
                }
            }
            div.bar.ticks aria-hidden="true" {
                span.name {}
                span.axis {
                    @for tick in scale.ticks() {
                        span style=(format!("left:{:.2}%", scale.percent(tick))) {
                            (label(tick, &metric.unit))
                        }
                    }
                }
                span.value {}
            }
        }
    }
}

/// Returns the label of a tick: a round number, with the part of its unit that is scaled (`ns` for
/// `ns/item`).
fn label(tick: f64, unit: &str) -> String {
    let short = match unit {
        "ns" | "bytes" | "share" | "ratio" => unit,
        "ns/item" => "ns",
        rate if rate.ends_with("/s") => "1/s",
        _ => "",
    };
    if tick == 0.0 {
        return "0".into();
    }
    let shown = number::with_unit(tick, short);
    let end = shown.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, rest) = shown.split_at(end.unwrap_or(shown.len()));
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    format!("{digits}{}", rest.trim_end())
}

pub fn breakable(name: &str) -> Markup {
    html! {
        @for part in name.split_inclusive(['+', '_']) { (part) wbr; }
    }
}

fn repetitions(records: &[&Record]) -> String {
    let counts = || records.iter().map(|record| record.n);
    match (counts().min(), counts().max()) {
        (Some(1), Some(1)) => "one run".into(),
        (Some(least), Some(most)) if least == most => format!("n\u{a0}=\u{a0}{most}"),
        (Some(least), Some(most)) => format!("n\u{a0}=\u{a0}{least} to {most}"),
        _ => String::new(),
    }
}

struct Scale {
    is_log: bool,
    least: f64,
    most: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let least = values.filter(|&value| value > 0.0).fold(most, f64::min);
        Self { is_log: least > 0.0 && most / least > LINEAR_UP_TO, least, most }
    }

    fn percent(&self, value: f64) -> f64 {
        let share = if self.most <= 0.0 || value <= 0.0 {
            0.0
        } else if self.is_log {
            // The axis starts below the smallest value, so that this value has a bar.
            let floor = self.least.ln() - 0.1 * (self.most / self.least).ln();
            (value.ln() - floor) / (self.most.ln() - floor)
        } else {
            value / self.most
        };
        (share * LONGEST).clamp(if value > 0.0 { SHORTEST } else { 0.0 }, 100.0)
    }

    /// Returns at most three round values, so that labels do not overlap.
    fn ticks(&self) -> Vec<f64> {
        if self.most <= 0.0 {
            return Vec::new();
        }
        if !self.is_log {
            let power = 10_f64.powf(self.most.log10().floor());
            let step = if self.most / power >= 2.0 { power } else { power / 2.0 };
            let step = step * (self.most / step / 2.0).floor().max(1.0);
            let mut ticks = vec![0.0, step, step * 2.0];
            ticks.retain(|&tick| tick <= self.most * 1.05);
            return ticks;
        }
        let (from, to) = (self.least.log10().ceil() as i32, self.most.log10().floor() as i32);
        let every = ((to - from + 1) / 2).max(1) as usize;
        let powers = (from..=to).step_by(every).take(3);
        let powers: Vec<f64> = powers.map(|power| 10_f64.powi(power)).collect();
        if powers.len() < 2 {
            return vec![self.least, self.most];
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_proportional_until_the_short_ones_would_vanish() {
        let linear = Scale::of([1.0, 2.0, 4.0].into_iter());
        assert!(!linear.is_log);
        assert_eq!(linear.percent(2.0) * 2.0, linear.percent(4.0));
        let log = Scale::of([1.0, 10.0, 1000.0].into_iter());
        assert!(log.is_log);
        let [a, b, c] = [1.0, 10.0, 1000.0].map(|value| log.percent(value));
        assert!(SHORTEST < a && a < b && b < c && c <= 100.0);
        let [first, second] = [b - a, c - b];
        assert!((second - 2.0 * first).abs() < 1e-9, "equal ratios, equal steps");
    }

    #[test]
    fn only_values_other_than_zero_have_a_length() {
        let scale = Scale::of([0.0, 1e-9, 1.0].into_iter());
        assert_eq!(scale.percent(0.0), 0.0);
        assert_eq!(scale.percent(-1.0), 0.0);
        assert!(scale.percent(1e-9) >= SHORTEST);
        assert_eq!(Scale::of([0.0].into_iter()).percent(0.0), 0.0);
    }

    #[test]
    fn labels_of_ticks_are_short() {
        for (tick, unit, shown) in [
            (0.0, "items/s", "0"),
            (1e5, "items/s", "100 k/s"),
            (2.5e6, "items/s", "2.5 M/s"),
            (5.0, "1/s", "5/s"),
            (1e4, "ns/item", "10 µs"),
            (200.0, "1/1000 items", "200"),
            (50.0, "threads", "50"),
            (0.2, "share", "20 %"),
        ] {
            assert_eq!(label(tick, unit), shown);
        }
    }

    #[test]
    fn axis_has_two_or_three_ticks_within_it() {
        let decades = [[1.0, 4.0], [9.7, 9.9], [1.0, 1000.0], [0.003, 2e9]];
        let others = [[7.0, 90.0], [1.1, 90.0], [2.0, 101.0]];
        for values in decades.into_iter().chain(others) {
            let scale = Scale::of(values.into_iter());
            let ticks = scale.ticks();
            let within = ticks.iter().all(|&tick| scale.percent(tick) <= 100.0);
            assert!(within && (2..=3).contains(&ticks.len()), "{values:?}: {ticks:?}");
        }
        assert!(Scale::of([0.0].into_iter()).ticks().is_empty());
    }
}
