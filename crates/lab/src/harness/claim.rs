//! Claims about the results of a bench, and their verdicts.

use serde::{Deserialize, Serialize};

use super::case::{Series, best_peer};
use super::metric::Metric;
use super::stats::Spread;

#[derive(Clone, Debug)]
pub struct Claim {
    pub variant: String,
    pub metric: &'static str,
    pub against: Against,
    pub bound: Bound,
    /// `true` if the claim fails only when the ratio violates the bound by more than one MAD.
    pub surely: bool,
}

/// The denominator of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// The peer with the best median of the claim's metric.
    BestPeer,
    Variant(String),
}

impl<S: Into<String>> From<S> for Against {
    fn from(variant: S) -> Self {
        Self::Variant(variant.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Holds,
    Fails,
    /// Only one repetition was measured. Its ratio does not predict the next one.
    OneRun,
    NotMeasured,
}

impl Verdict {
    pub fn in_words(self, close: bool) -> String {
        let answer = match self {
            Self::Holds => "yes",
            Self::Fails => "no",
            Self::OneRun => "one run: no verdict",
            Self::NotMeasured => "not measured",
        };
        format!("{answer}{}", if close { ", within the noise" } else { "" })
    }
}

#[derive(Clone, Debug)]
pub struct Judged<'a> {
    pub claim: &'a Claim,
    pub against: Option<String>,
    pub ratio: Option<Spread>,
    pub verdict: Verdict,
    /// `true` if the bound is within one MAD of the median, so that another run may differ.
    pub close: bool,
}

impl Claim {
    /// Claims that the metric of `variant` is at least `least` times that of `against`.
    pub fn at_least(
        variant: impl Into<String>,
        metric: impl Into<&'static str>,
        against: impl Into<Against>,
        least: f64,
    ) -> Self {
        Self {
            variant: variant.into(),
            metric: metric.into(),
            against: against.into(),
            bound: Bound::AtLeast(least),
            surely: false,
        }
    }

    pub fn at_most(
        variant: impl Into<String>,
        metric: impl Into<&'static str>,
        against: impl Into<Against>,
        most: f64,
    ) -> Self {
        Self { bound: Bound::AtMost(most), ..Self::at_least(variant, metric, against, most) }
    }

    pub fn judge<'a>(&'a self, metrics: &[Metric], series: &[Series]) -> Judged<'a> {
        let below = match &self.against {
            Against::Variant(name) => series.iter().find(|series| series.variant == *name),
            Against::BestPeer => metrics
                .iter()
                .find(|metric| metric.name == self.metric)
                .and_then(|metric| best_peer(series, metric)),
        };
        let above = series.iter().find(|series| series.variant == self.variant);
        let ratio = above.zip(below).and_then(|(above, below)| above.ratio(self.metric, below));
        let (verdict, close) = verdict(ratio, self.bound);
        let verdict = match verdict {
            Verdict::Fails if self.surely && close => Verdict::Holds,
            verdict => verdict,
        };
        let against = below.map(|series| series.variant.clone());
        Judged { claim: self, against, ratio, verdict, close }
    }
}

impl Bound {
    fn value(self) -> f64 {
        match self {
            Self::AtLeast(value) | Self::AtMost(value) => value,
        }
    }

    fn is_kept_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Bounds may be fractions such as 1/30, so only three decimals are shown.
        let rounded = (self.value() * 1e3).round() / 1e3;
        match self {
            Self::AtLeast(_) => write!(f, ">= {rounded}"),
            Self::AtMost(_) => write!(f, "<= {rounded}"),
        }
    }
}

fn verdict(ratio: Option<Spread>, bound: Bound) -> (Verdict, bool) {
    match ratio {
        None => (Verdict::NotMeasured, false),
        Some(Spread { n: 1, .. }) => (Verdict::OneRun, false),
        Some(ratio) => {
            let verdict =
                if bound.is_kept_by(ratio.median) { Verdict::Holds } else { Verdict::Fails };
            (verdict, (ratio.median - bound.value()).abs() <= ratio.mad)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_decides_and_a_near_bound_is_reported() {
        use Bound::{AtLeast, AtMost};
        use Verdict::{Fails, Holds, NotMeasured, OneRun};
        let spread = |(median, mad, n)| Spread { median, mad, n };
        for (ratio, bound, expected) in [
            (Some((1.5, 0.05, 5)), AtLeast(1.4), (Holds, false)),
            (Some((1.5, 0.2, 5)), AtLeast(1.4), (Holds, true)),
            (Some((1.3, 0.05, 5)), AtLeast(1.4), (Fails, false)),
            (Some((0.5, 0.05, 5)), AtMost(0.6), (Holds, false)),
            (Some((0.7, 0.2, 5)), AtMost(0.6), (Fails, true)),
            (Some((9.0, 0.0, 1)), AtLeast(1.4), (OneRun, false)),
            (None, AtLeast(1.0), (NotMeasured, false)),
        ] {
            let found = verdict(ratio.map(spread), bound);
            assert_eq!(found, expected, "{ratio:?} {bound:?}");
        }
    }

    #[test]
    fn bounds_are_shown_with_three_decimals() {
        assert_eq!(Bound::AtMost(1.0 / 30.0).to_string(), "<= 0.033");
        assert_eq!(Bound::AtLeast(1.5).to_string(), ">= 1.5");
    }
}
