//! The verdict of a run in words: each case compared with its best peer, and the outcomes of the
//! claims.

use super::outcome::{self, OUTCOMES, three_digits};
use super::record::CaseHead;
use super::run::{CaseRun, Run};
use super::words;
use crate::harness::claim::Verdict;
use crate::harness::metric::Better;

/// The maximum number of programs that are named. If there are more, only their number is printed.
const MOST_NAMED: usize = 6;

/// The comparison of our default variant of a case with the best peer, by the headline metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing<'a> {
    pub ours: &'a str,
    pub peer: &'a str,
    pub rivals: Vec<&'a str>,
    /// The factor by which `ours` is better: a quotient of rates, or an inverse one of times.
    pub times: f64,
    /// The median absolute deviation of the ratio, as a share of the ratio.
    pub spread: f64,
    pub n: usize,
    is_speed: bool,
}

impl<'a> Standing<'a> {
    /// Compares the two variants of a case. Returns `None` if the case has no peer, or if a value
    /// is not positive, because a quotient with a negative number is meaningless.
    pub fn of(case: &'a CaseRun) -> Option<Self> {
        let headline = &case.head.headline;
        let mut metrics = case.head.metrics.iter();
        let metric = metrics.find(|metric| metric.metric == *headline)?;
        let ratio = format!("{headline}.vs_best_peer");
        let peer =
            case.of_metric(&ratio).find(|it| it.peer && it.median == 1.0 && it.mad == 0.0)?;
        let ours = || case.of_metric(&ratio).filter(|it| !it.peer);
        let variant = words::ours(&case.head.case, || ours().map(|it| it.variant.as_str()))?;
        let measured = ours().find(|it| it.variant == variant)?;
        let times = match metric.better {
            Better::Higher => measured.median,
            Better::Lower => measured.median.recip(),
        };
        let is_positive = |variant: &str| {
            let record = case.record(variant, headline);
            record.is_none_or(|record| record.median > 0.0)
        };
        if !(is_positive(&measured.variant) && is_positive(&peer.variant) && times > 0.0) {
            return None;
        }
        let rivals = case.of_metric(headline).filter(|it| it.peer);
        times.is_finite().then(|| Self {
            ours: &measured.variant,
            peer: &peer.variant,
            rivals: words::programs(rivals.map(|it| it.variant.as_str())),
            times,
            spread: if measured.median == 0.0 { 0.0 } else { measured.mad / measured.median },
            n: measured.n,
            is_speed: metric.unit.starts_with("ns") || metric.unit.ends_with("/s"),
        })
    }

    /// Formats the comparison, such as `4.2 × the best of tokio, rayon`, `even with std` or `0.9 ×
    /// std: slower`. A single run has no verdict.
    pub fn in_words(&self) -> String {
        if self.n == 1 {
            return "one run, no verdict".into();
        }
        let (times, rivals) = (three_digits(self.times), self.rivals());
        match self.outcome() {
            outcome::BETTER => format!("{times} × {rivals}"),
            outcome::WORSE if self.is_speed => format!("{times} × {rivals}: slower"),
            outcome::WORSE => format!("{times} × {rivals}: worse"),
            outcome::EVEN => format!("even with {rivals}"),
            _ => format!("undecided against {rivals}"),
        }
    }

    pub fn outcome(&self) -> &'static str {
        outcome::of(self.times, self.spread * self.times, self.n)
    }

    fn rivals(&self) -> String {
        match self.rivals.as_slice() {
            [one] => (*one).to_owned(),
            few if few.len() <= MOST_NAMED => format!("the best of {}", few.join(", ")),
            many => {
                let (named, others) = many.split_at(MOST_NAMED - 1);
                format!("the best of {} and {} others", named.join(", "), others.len())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub hold: usize,
    pub fail: usize,
    /// The number of claims so close to their bound that another run may differ.
    pub close: usize,
    pub one_run: usize,
    pub not_measured: usize,
}

impl Totals {
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a CaseRun>) -> Self {
        let mut totals = Self::default();
        for claim in cases.into_iter().flat_map(|case| &case.claims) {
            totals.close += usize::from(claim.close);
            *match claim.verdict {
                Verdict::Holds => &mut totals.hold,
                Verdict::Fails => &mut totals.fail,
                Verdict::OneRun => &mut totals.one_run,
                Verdict::NotMeasured => &mut totals.not_measured,
            } += 1;
        }
        totals
    }

    pub fn in_words(&self) -> String {
        let judged = self.hold + self.fail;
        let mut parts = match self {
            _ if judged > 0 => {
                let claims = if self.hold == 1 { "claim holds" } else { "claims hold" };
                let do_not = if self.fail == 1 { "does not" } else { "do not" };
                vec![format!("{} {claims}, {} {do_not}", self.hold, self.fail)]
            }
            Self { one_run: 0, not_measured: 0, .. } => {
                vec!["no claim was judged: ours was measured alone".into()]
            }
            _ => vec!["no claim was judged".into()],
        };
        let rest = [
            (self.close, format!("of {judged} within the noise")),
            (self.one_run, "of one run: no verdict".into()),
            (self.not_measured, "not measured".into()),
        ];
        parts.extend(rest.iter().filter(|it| it.0 > 0).map(|(nr, what)| format!("{nr} {what}")));
        parts.join("; ")
    }
}

pub fn outcomes(run: &Run) -> String {
    tally(run.cases.iter().filter_map(Standing::of).map(|it| it.outcome()))
}

/// Formats the number of each outcome.
pub fn tally<'a>(outcomes: impl Iterator<Item = &'a str> + Clone) -> String {
    let count = |outcome| outcomes.clone().filter(|it| *it == outcome).count();
    OUTCOMES.map(|outcome| format!("{outcome} {}", count(outcome))).join(" · ")
}

pub fn benches(run: &Run) -> impl Iterator<Item = (&str, &[CaseRun])> {
    let benches = run.cases.chunk_by(|a, b| a.head.bench == b.head.bench);
    benches.map(|cases| (cases[0].head.bench.as_str(), cases))
}

pub fn reported_by(run: &Run) -> &'static str {
    match run.cases.iter().any(|case| Standing::of(case).is_some()) {
        true => "ours against the best peer, by the metric of the case",
        false => "what became of the claims of each case",
    }
}

/// Describes the comparison of a case or, without a peer, the outcomes of its claims.
pub fn of_case(case: &CaseRun) -> String {
    if let Some(standing) = Standing::of(case) {
        let CaseHead { bench, case, headline, .. } = &case.head;
        let metric = words::of_metric(bench, case, headline);
        return format!(", by {metric}: {}", standing.in_words());
    }
    let totals = Totals::of([case]);
    let judged = totals.hold + totals.fail;
    match (judged, totals.one_run) {
        (0, 0) => ": no claim".into(),
        (0, _) => ": one run: no verdict".into(),
        _ if totals.hold == 1 => format!(": 1 of {judged} claims holds"),
        _ => format!(": {} of {judged} claims hold", totals.hold),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::harness::stats::Spread;
    use crate::output::record::{MetricHead, Record};

    pub(crate) fn case(better: Better, unit: &str, (median, mad, n): (f64, f64, usize)) -> CaseRun {
        let record = |variant, metric, peer, (median, mad)| {
            Record::of(("b", "c"), (variant, peer), (metric, unit), Spread { median, mad, n })
        };
        CaseRun {
            head: CaseHead {
                bench: "b".into(),
                case: "c".into(),
                about: String::new(),
                headline: "m".into(),
                metrics: vec![MetricHead { metric: "m".into(), unit: unit.into(), better }],
                warnings: Vec::new(),
            },
            records: vec![
                record("ours", "m", false, (median * 10.0, mad * 10.0)),
                record("ours", "m.vs_best_peer", false, (median, mad)),
                record("peer", "m", true, (10.0, 0.0)),
                record("peer", "m.vs_best_peer", true, (1.0, 0.0)),
            ],
            machine: Vec::new(),
            claims: Vec::new(),
        }
    }

    #[test]
    fn factor_is_shown_in_both_directions() {
        use Better::{Higher, Lower};
        for (better, ratio, expected) in [
            (Higher, (4.2, 0.1, 5), ", by m: 4.20 × peer"),
            (Lower, (0.25, 0.01, 5), ", by m: 4.00 × peer"),
            (Lower, (2.0, 0.01, 5), ", by m: 0.500 × peer: slower"),
            (Higher, (0.97, 0.0, 5), ", by m: even with peer"),
            (Higher, (1.3, 0.4, 5), ", by m: undecided against peer"),
            (Higher, (4.2, 0.0, 1), ", by m: one run, no verdict"),
            (Lower, (0.0, 0.0, 5), ": no claim"),
        ] {
            assert_eq!(of_case(&case(better, "ns", ratio)), expected);
        }
    }

    #[test]
    fn no_ratio_of_non_positive_values_is_shown() {
        for (ours, peer) in [(-0.1, 0.2), (0.1, -0.2), (-0.1, -0.2), (0.0, 0.2)] {
            let mut case = case(Better::Lower, "", (ours / peer, 0.01, 5));
            case.records[0].median = ours;
            case.records[2].median = peer;
            assert_eq!(of_case(&case), ": no claim", "{ours} and {peer}");
        }
    }

    #[test]
    fn noise_is_counted_among_judged_metrics_and_its_absence_shown() {
        for ([hold, fail, close, one_run], expected) in [
            ([0; 4], "no claim was judged: ours was measured alone"),
            ([0, 0, 0, 3], "no claim was judged; 3 of one run: no verdict"),
            ([1, 1, 0, 0], "1 claim holds, 1 does not"),
            ([21, 10, 12, 0], "21 claims hold, 10 do not; 12 of 31 within the noise"),
        ] {
            let totals = Totals { hold, fail, close, one_run, not_measured: 0 };
            assert_eq!(totals.in_words(), expected);
        }
    }

    #[test]
    fn rivals_are_named_while_they_are_few() {
        let mut case = case(Better::Higher, "1/s", (2.0, 0.0, 5));
        let more = |names: &[&str], case: &mut CaseRun| {
            for name in names {
                let mut record = case.records[2].clone();
                record.variant = (*name).into();
                case.records.push(record);
            }
            of_case(case)
        };
        let verdict = more(&["peer+yield", "tokio"], &mut case);
        assert_eq!(verdict, ", by m: 2.00 × the best of peer, tokio");
        let verdict = more(&["a", "b", "c", "d", "e"], &mut case);
        assert_eq!(verdict, ", by m: 2.00 × the best of peer, tokio, a, b, c and 2 others");
    }
}
