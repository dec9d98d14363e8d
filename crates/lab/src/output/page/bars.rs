//! A plot of one number for each variant: bars, ours and peers told apart, with whiskers of one MAD.
//!
//! Bars are boxes of the page and no picture, so that names and numbers stay readable on a narrow screen and to whoever
//! has the page read aloud.

use maud::{Markup, html};

use super::number;
use crate::harness::metric::Better;
use crate::output::record::{MetricHead, Record};

/// Above this ratio of the longest to the shortest bar lengths are logarithms: otherwise the short ones cannot be seen.
const LINEAR_UP_TO: f64 = 50.0;

/// The shortest bar, in percent of the longest: it has to be seen.
const SHORTEST: f64 = 1.0;

/// Draws the bars of one metric; nothing where there is nothing to draw.
pub fn bars(metric: &MetricHead, records: &[&Record]) -> Markup {
    let scale = Scale::of(records.iter().map(|record| record.median));
    let best = match metric.better {
        Better::Higher => "longer is better",
        Better::Lower => "shorter is better",
    };
    html! {
        figure.bars data-points=(records.len()) {
            figcaption {
                b { (caption(&metric.metric)) }
                " " span.quiet { (metric.unit) ", " (best) @if scale.is_log { ", logarithmic" } }
            }
            @for record in records {
                @let length = scale.percent(record.median);
                @let (from, to) = (
                    scale.percent(record.median - record.mad),
                    scale.percent(record.median + record.mad),
                );
                div.bar {
                    span.name { (record.variant) }
                    span.track {
                        span.fill.peer[record.peer] style=(format!("width:{length:.2}%")) {}
                        @if record.mad > 0.0 {
                            span.whisker style=(format!("left:{from:.2}%;width:{:.2}%", to - from)) {}
                        }
                    }
                    span.value { (number::with_unit(record.median, &record.unit)) }
                }
            }
        }
    }
}

/// The metric's name as words.
pub fn caption(metric: &str) -> String {
    metric.replace('_', " ")
}

/// From values to lengths in percent.
struct Scale {
    is_log: bool,
    least: f64,
    most: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let least = values.filter(|&value| value > 0.0).fold(most, f64::min);
        Self {
            is_log: least > 0.0 && most / least > LINEAR_UP_TO,
            least,
            most,
        }
    }

    fn percent(&self, value: f64) -> f64 {
        // Room for a whisker beyond the longest bar.
        const LONGEST: f64 = 90.0;
        let share = if self.most <= 0.0 || value <= 0.0 {
            0.0
        } else if self.is_log {
            // A tenth of the way below the least, so that it has a length.
            let floor = self.least.ln() - 0.1 * (self.most / self.least).ln();
            (value.ln() - floor) / (self.most.ln() - floor)
        } else {
            value / self.most
        };
        (share * LONGEST).clamp(if value > 0.0 { SHORTEST } else { 0.0 }, 100.0)
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
        assert!(
            (second - 2.0 * first).abs() < 1e-9,
            "equal ratios, equal steps"
        );
    }

    #[test]
    fn zero_has_no_length_and_whatever_is_not_zero_has_one() {
        let scale = Scale::of([0.0, 1e-9, 1.0].into_iter());
        assert_eq!(scale.percent(0.0), 0.0);
        assert_eq!(scale.percent(-1.0), 0.0);
        assert!(scale.percent(1e-9) >= SHORTEST);
        assert_eq!(Scale::of([0.0].into_iter()).percent(0.0), 0.0);
    }
}
