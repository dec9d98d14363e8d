//! The answers of `try`: ours and the best of the others side by side, with a verdict in each row.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::outcome::{self, three_digits, time};
use super::words;
use crate::bench::everyday::{ENDED, PATIENCE};
use crate::bench::questions::QUESTIONS;
use crate::harness::case::{Series, best_of};
use crate::harness::metric::{Better, Metric};
use crate::harness::stats::Spread;

/// The usual width of a value, and of a value with a peer. A longer one shifts its row.
const VALUE_WIDTH: usize = 8;
const PEER_WIDTH: usize = 37;

#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub text: &'static str,
    pub case: (&'static str, &'static str),
    pub turns: usize,
    pub rows: &'static [Row],
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub label: &'static str,
    pub metric: &'static str,
    pub ours: &'static str,
    /// The peers to compare. If the list is empty, all peers of the case are compared.
    pub peers: &'static [&'static str],
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds, printed as ns, µs, ms or s.
    Time,
    /// The time of runs that may deadlock.
    Ends,
    Rate,
    Count,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub question: String,
    pub row: String,
    pub ours: String,
    pub peer: String,
    pub ours_value: String,
    pub peer_value: String,
    /// The factor by which our variant is better, with its spread over the turns.
    pub times_better: Spread,
    pub outcome: String,
}

impl Question {
    pub fn needs(&self, variant: &str, peer: bool) -> bool {
        self.rows.iter().any(|row| match peer {
            true => row.peers.is_empty() || row.peers.contains(&variant),
            false => row.ours == variant,
        })
    }

    pub fn answers(&self, metrics: &[Metric], all: &[Series]) -> Vec<Answer> {
        self.rows.iter().filter_map(|row| row.answer(self.text, metrics, all)).collect()
    }
}

impl Row {
    fn answer(&self, question: &str, metrics: &[Metric], all: &[Series]) -> Option<Answer> {
        let metric = metrics.iter().find(|metric| metric.name == self.metric)?;
        let ours = all.iter().find(|series| series.variant == self.ours)?;
        let is_peer = |series: &Series| {
            series.peer && (self.peers.is_empty() || self.peers.contains(&series.variant.as_str()))
        };
        let peer = best_of(all.iter().filter(|series| is_peer(series)), metric)?;
        let times_better = match metric.better {
            Better::Higher => ours.ratio(self.metric, peer),
            Better::Lower => peer.ratio(self.metric, ours),
        }?;
        Some(Answer {
            question: question.into(),
            row: self.label.into(),
            ours: ours.variant.clone(),
            peer: peer.variant.clone(),
            ours_value: self.unit.value(ours, self.metric)?,
            peer_value: self.unit.value(peer, self.metric)?,
            times_better,
            outcome: outcome::of(times_better.median, times_better.mad, times_better.n).into(),
        })
    }
}

impl Unit {
    fn value(self, series: &Series, metric: &str) -> Option<String> {
        let median = |metric: &str| series.spread(metric).map(|spread| spread.median);
        let value = median(metric)?;
        Some(match self {
            Self::Ends if median(ENDED.name) == Some(0.0) => {
                format!("deadlocks (stopped after {} s)", PATIENCE.as_secs())
            }
            Self::Time | Self::Ends => time(value),
            Self::Rate if value >= 1e6 => format!("{} M", three_digits(value / 1e6)),
            Self::Count if value.fract() == 0.0 => format!("{value}"),
            Self::Rate | Self::Count => three_digits(value),
        })
    }
}

pub fn block(question: &str, answers: &[Answer], paint: impl Fn(&str, &str) -> String) -> String {
    let labels = QUESTIONS.iter().flat_map(|it| it.rows).map(|it| it.label);
    let label_width = labels.map(|it| it.chars().count()).max().unwrap_or(0);
    let mut text = format!("\n  {question}\n");
    for answer in answers {
        let program = words::programs([answer.peer.as_str()]).join("");
        let peer = format!("{} ({program})", answer.peer_value);
        let verdict = match answer.outcome.as_str() {
            outcome @ (outcome::EVEN | outcome::UNDECIDED) => outcome.to_owned(),
            outcome => format!("{outcome}, {} ×", three_digits(answer.times_better.median)),
        };
        let _ = writeln!(
            text,
            "    {:label_width$}  {:VALUE_WIDTH$}  {peer:PEER_WIDTH$}  {}",
            answer.row,
            answer.ours_value,
            paint(&answer.outcome, &verdict)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::Sample;
    use crate::harness::case::tests::series;
    use crate::output::table::tests::MAX_WIDTH;
    use crate::output::verdict::tally;

    fn answer(outcome: &str) -> Answer {
        Answer {
            question: "q".into(),
            row: "r".into(),
            ours: "ours".into(),
            peer: "tokio".into(),
            ours_value: "1 ns".into(),
            peer_value: "2 ns".into(),
            times_better: Spread { median: 2.0, mad: 0.0, n: 9 },
            outcome: outcome.into(),
        }
    }

    #[test]
    fn outcomes_are_counted() {
        let totals = tally(["better", "worse", "better"].into_iter());
        assert_eq!(totals, "better 2 · even 0 · worse 1 · undecided 0");
        let text = block("q?", &[answer("better")], |_, verdict| verdict.to_owned());
        assert!(text.contains("q?") && text.contains("better, 2.00 ×"), "{text}");
    }

    #[test]
    fn cells_of_every_row_are_apart_and_fit_a_line() {
        let sample = Sample::of([(ENDED.name, 0.0), ("until_end", 2e9)]);
        let deadlocks = Unit::Ends.value(&series("tokio", true, [sample]), "until_end").unwrap();
        for row in QUESTIONS.iter().flat_map(|it| it.rows) {
            let answer = Answer {
                row: row.label.into(),
                ours_value: "0.860 ns".into(),
                peer_value: deadlocks.clone(),
                times_better: Spread { median: 1000.0, mad: 0.0, n: 9 },
                ..answer("better")
            };
            let text = block("q?", &[answer], |_, verdict| verdict.to_owned());
            let line = text.lines().last().unwrap();
            let mut cells = line.split("  ").map(str::trim).filter(|it| !it.is_empty());
            assert_eq!(cells.next(), Some(row.label));
            assert_eq!(cells.next(), Some("0.860 ns"), "{line}");
            assert!(line.chars().count() <= MAX_WIDTH, "{line}");
        }
    }
}
