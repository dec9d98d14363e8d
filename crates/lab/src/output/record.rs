//! The JSON that `--json` prints: one object per line, in the same shapes for every bench.
//!
//! `docs/bench-method.md` documents it for readers. A change to these shapes increments [`SCHEMA`].

#![allow(missing_docs, reason = "a field without a comment has the meaning of its name")]

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::words;
use crate::harness::case::{Case, Series, Variant, best_peer};
use crate::harness::claim::{Against, Claim, Judged, Verdict};
use crate::harness::fingerprint::Fingerprint;
use crate::harness::metric::{Better, Metric};
use crate::harness::noise::Noise;
use crate::harness::stats::Spread;

/// The version of the shape of the records. The first line contains it.
pub const SCHEMA: u32 = 4;

/// The `variant` of records that describe the machine.
pub const MACHINE: &str = "(machine)";

/// A line of the output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Head(Box<Head>),
    Case(CaseHead),
    Claimed(Claimed),
    /// A row of the answer to a question of `try`.
    Answer(Answer),
    Run(Run),
    Record(Record),
    End(End),
    /// A line about a case that only older versions print.
    Older(Place),
}

/// The first line: the machine, the build and the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub schema: u32,
    pub fingerprint: Fingerprint,
    /// The start time, such as `2026-11-21 21:15:03 UTC`. It is empty in files of older versions.
    #[serde(default)]
    pub started: String,
    #[serde(default)]
    pub command: String,
    pub seed: u64,
    /// The machine, drawn as `afterwork topology` draws it.
    pub drawing: String,
    /// The warnings that were issued before the first case.
    pub warnings: Vec<String>,
    /// The share of the CPUs that other programs used just before the start.
    #[serde(default)]
    pub others_cpu: f64,
}

impl Head {
    /// Returns the machine, the build and the order of the runs, as lines of text.
    pub fn text(&self) -> Vec<String> {
        let mut lines = self.fingerprint.lines();
        lines.push(format!(
            "others   used {:.0} % of the CPUs just before the start",
            self.others_cpu * 100.0
        ));
        lines.push(format!("order    shuffled with --seed {}", self.seed));
        lines
    }
}

/// The end of a run. If this line is missing, the file is truncated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub ended: Why,
    pub seconds: f64,
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    Complete,
    /// SIGINT arrived. The last case has fewer repetitions, and later cases have none.
    Interrupted,
}

/// The question and the metrics of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseHead {
    pub bench: String,
    pub case: String,
    pub about: String,
    pub headline: String,
    pub metrics: Vec<MetricHead>,
    pub warnings: Vec<String>,
}

/// A case that can be measured, as `--list --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    pub bench: String,
    pub case: String,
    pub about: String,
    pub headline: String,
    /// Our variants and the limits, in the order of the table.
    pub ours: Vec<String>,
    pub peers: Vec<String>,
}

impl Listed {
    /// Describes a case before it is measured.
    pub fn of(case: &Case) -> Self {
        let (peers, ours): (Vec<_>, Vec<_>) = case.variants.iter().partition(|it| it.peer);
        let names = |variants: Vec<&Variant>| variants.iter().map(|it| it.name.clone()).collect();
        Self {
            bench: case.bench.into(),
            case: case.name.into(),
            about: case.about.clone(),
            headline: case.headline.into(),
            ours: names(ours),
            peers: names(peers),
        }
    }
}

/// The description of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricHead {
    pub metric: String,
    pub unit: String,
    pub better: Better,
}

/// A claim and its outcome. Runs of older versions also have a field `source`, which is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    pub bench: String,
    pub case: String,
    pub claim: String,
    pub variant: String,
    pub metric: String,
    pub against: Option<String>,
    pub bound: Option<String>,
    pub ratio: Option<Spread>,
    pub verdict: Verdict,
    pub close: bool,
}

/// The case of a line whose other fields are ignored, such as a distribution of an older version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub bench: String,
    pub case: String,
}

/// The values that one run of one variant measured. They are printed only on request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub bench: String,
    pub case: String,
    pub variant: String,
    /// The number of the repetition, starting at 1.
    pub run: usize,
    /// The pairs of metric and value, with each value in the unit of its metric.
    pub values: Vec<(String, f64)>,
}

/// One metric of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub bench: String,
    pub case: String,
    pub variant: String,
    pub metric: String,
    /// The unit of the value, or `ratio` for a quotient.
    pub unit: String,
    pub median: f64,
    pub mad: f64,
    pub n: usize,
    pub peer: bool,
}

/// Returns the lines of a case: its head, values, ratios to the best peer, and the ratios and
/// outcomes of its claims.
pub fn of_case(
    case: &Case,
    series: &[Series],
    judged: &[Judged<'_>],
    warnings: &[String],
) -> Vec<Line> {
    let head = |&Metric { name, unit, better, .. }: &Metric| MetricHead {
        metric: name.into(),
        unit: unit.into(),
        better,
    };
    let mut lines = vec![Line::Case(CaseHead {
        bench: case.bench.into(),
        case: case.name.into(),
        about: case.about.clone(),
        headline: case.headline.into(),
        metrics: case.metrics.iter().map(head).collect(),
        warnings: warnings.to_vec(),
    })];
    let place = (case.bench, case.name);
    for one in series {
        let who = (one.variant.as_str(), one.peer);
        for metric in case.metrics {
            let value = |spread| Record::of(place, who, (metric.name, metric.unit), spread);
            lines.extend(one.spread(metric.name).map(value).map(Line::Record));
            let name = format!("{}.vs_best_peer", metric.name);
            let ratio = |spread| Record::of(place, who, (&name, "ratio"), spread);
            let best = best_peer(series, metric).and_then(|best| one.ratio(metric.name, best));
            lines.extend(best.map(ratio).map(Line::Record));
        }
    }
    for Judged { claim, ratio, .. } in judged {
        if let (Against::Variant(against), Some(ratio)) = (&claim.against, ratio) {
            let name = format!("{}.vs.{against}", claim.metric);
            let who = (claim.variant.as_str(), false);
            lines.push(Line::Record(Record::of(place, who, (&name, "ratio"), *ratio)));
        }
    }
    lines.extend(judged.iter().map(|judged| claimed(case, judged)));
    lines
}

impl Record {
    /// Creates the record of a metric with its unit, of a variant that is a peer or not.
    pub(crate) fn of(
        (bench, case): (&str, &str),
        (variant, peer): (&str, bool),
        (metric, unit): (&str, &str),
        Spread { median, mad, n }: Spread,
    ) -> Self {
        Self {
            bench: bench.into(),
            case: case.into(),
            variant: variant.into(),
            metric: metric.into(),
            unit: unit.into(),
            median,
            mad,
            n,
            peer,
        }
    }
}

/// Returns the variant and the metric of a claim, in words.
pub fn description(case: &Case, claim: &Claim) -> String {
    format!("{}, {}", claim.variant, words::of_metric(case.bench, case.name, claim.metric))
}

fn claimed(case: &Case, judged: &Judged<'_>) -> Line {
    let Claim { variant, metric, bound, .. } = judged.claim;
    Line::Claimed(Claimed {
        bench: case.bench.into(),
        case: case.name.into(),
        claim: description(case, judged.claim),
        variant: variant.clone(),
        metric: (*metric).into(),
        against: judged.against.clone(),
        bound: Some(bound.to_string()),
        ratio: judged.ratio,
        verdict: judged.verdict,
        close: judged.close,
    })
}

/// Returns lines with the values of each run, variant by variant.
pub fn of_runs(case: &Case, series: &[Series]) -> Vec<Line> {
    let runs = series.iter().flat_map(|series| {
        series.samples.iter().map(|(repetition, sample)| {
            let value = |metric: &Metric| Some((metric.name.into(), sample.value(metric.name)?));
            Line::Run(Run {
                bench: case.bench.into(),
                case: case.name.into(),
                variant: series.variant.clone(),
                run: repetition + 1,
                values: case.metrics.iter().filter_map(value).collect(),
            })
        })
    });
    runs.collect()
}

/// Returns the records of the noise that was measured while the case ran.
pub fn of_noise(place: (&str, &str), noise: &Noise) -> Vec<Line> {
    let [before, after] = noise.handover_ns;
    [
        ("others_cpu", "share", Some(noise.others)),
        ("steal", "share", Some(noise.steal)),
        ("handover_before", "ns", before),
        ("handover_after", "ns", after),
    ]
    .into_iter()
    .filter_map(|(metric, unit, value)| {
        let spread = Spread { median: value?, mad: 0.0, n: 1 };
        Some(Line::Record(Record::of(place, (MACHINE, false), (metric, unit), spread)))
    })
    .collect()
}

/// Returns a record as one line of JSON, without the newline.
pub fn line(record: &impl Serialize) -> String {
    // Records contain only strings, finite numbers and plain structs, which JSON can represent.
    serde_json::to_string(record).expect("a record of plain data is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Head {
        /// Creates the head of a run on this machine.
        pub(crate) fn of_tests() -> Self {
            Self {
                schema: SCHEMA,
                fingerprint: Fingerprint::take(&topology::Topology::detect().unwrap()),
                started: "2026-11-21 21:15:03 UTC".into(),
                command: "afterwork-lab bench".into(),
                seed: 7,
                drawing: String::new(),
                warnings: Vec::new(),
                others_cpu: 0.0,
            }
        }
    }

    /// Checks one line of each kind against its documentation in `docs/bench-method.md`.
    #[test]
    fn every_kind_of_line_has_the_documented_fields_and_round_trips() {
        let kind = |line: &Line| match line {
            Line::Record(_) => "record",
            Line::Claimed(_) => "claimed",
            Line::Case(_) => "case",
            Line::Run(_) => "run",
            Line::End(_) => "end",
            Line::Head(_) | Line::Answer(_) | Line::Older(_) => "other",
        };
        let lines = r#"
            record {"bench":"b","case":"c","variant":"v","metric":"m","unit":"items/s","median":2.5,"mad":0.5,"n":5,"peer":true}
            claimed {"bench":"b","case":"c","claim":"rate of v","variant":"v","metric":"rate","against":null,"bound":">= 2","ratio":{"median":2.0,"mad":1.0,"n":2},"verdict":"not-measured","close":false}
            case {"bench":"b","case":"c","about":"what?","headline":"rate","metrics":[{"metric":"rate","unit":"1/s","better":"higher"}],"warnings":["noisy"]}
            run {"bench":"b","case":"c","variant":"v","run":1,"values":[["rate",1.5]]}
            end {"ended":"interrupted","seconds":1.5}
        "#;
        for (expected, text) in lines.trim().lines().map(|it| it.trim().split_once(' ').expect(it))
        {
            let parsed = serde_json::from_str::<Line>(text).expect(text);
            assert_eq!(kind(&parsed), expected, "{text}");
            assert_eq!(line(&parsed), text);
        }
    }
}
