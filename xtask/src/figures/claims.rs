//! All claims of a run, as the tables of docs/figures.md.

use std::fmt::Write as _;

use serde_json::Value;

use super::words;

pub(super) const PAGE: &str = "docs/figures.md";
pub(super) const BEGIN: &str = "<!-- run: written by `cargo xtask figures --write` -->\n";
pub(super) const END: &str = "<!-- run: end -->\n";

/// The number of claims for each verdict.
#[derive(Debug, Default)]
struct Counts {
    held: u32,
    failed: u32,
    close: u32,
    one_run: u32,
}

/// Returns the text between the marks: a sentence with the sums, and a table for each bench.
pub(super) fn tables(run: &str, machine: &str, date: &str, command: &str) -> String {
    let lines = run
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let judged = lines.filter(|line| line["claim"].is_string() && line["bound"].is_string());
    let (mut tables, mut counts) = (String::new(), Counts::default());
    let (mut bench, mut case) = (String::new(), String::new());
    for claim in judged {
        let of = |name: &str| claim[name].as_str().unwrap_or_default();
        if bench != of("bench") {
            bench = of("bench").to_owned();
            let _ = write!(
                tables,
                "\n### {bench}\n\n| case | ours | by | against | measured | claimed | holds? | elsewhere |\n|---|---|---|---|---|---|---|---|\n"
            );
            case.clear();
        }
        let case_words = if case == of("case") {
            String::new()
        } else {
            operation(bench.as_str(), of("case"))
        };
        let answer = counts.note(of("verdict"), claim["close"] == Value::Bool(true));
        let _ = writeln!(
            tables,
            "| {case_words} | {} | {} | {} | {} | {} | {answer} | {} |",
            of("variant"),
            words::of_metric(&bench, of("case"), of("metric")),
            of("against"),
            measured(&claim["ratio"]),
            of("bound").replace(">=", "≥").replace("<=", "≤"),
            claim["source"]["figure"].as_str().unwrap_or_default()
        );
        case = of("case").to_owned();
    }
    let Counts {
        held,
        failed,
        close,
        one_run,
    } = counts;
    format!(
        "`{command}` on {machine}, {date}. Of {} claims {held} held and {failed} did not; {close} are within the noise. {one_run} had time for \
         one repetition, which says nothing.\n{tables}",
        held + failed + one_run
    )
}

/// Returns the operation of a case, with the name of the case if it differs.
fn operation(bench: &str, case: &str) -> String {
    match words::of_case(bench, case) {
        words if words == case => case.to_owned(),
        words => format!("{words} (`{case}`)"),
    }
}

impl Counts {
    /// Counts a verdict, and returns it in words.
    fn note(&mut self, verdict: &str, is_close: bool) -> String {
        let answer = match verdict {
            "holds" => {
                self.held += 1;
                "yes"
            }
            "fails" => {
                self.failed += 1;
                "**no**"
            }
            "one-run" => {
                self.one_run += 1;
                return "one run: no verdict".into();
            }
            _ => return "not measured".into(),
        };
        self.close += u32::from(is_close);
        format!(
            "{answer}{}",
            if is_close { ", within the noise" } else { "" }
        )
    }
}

fn measured(ratio: &Value) -> String {
    let Some(median) = ratio["median"].as_f64() else {
        return "-".into();
    };
    match ratio["n"].as_u64() {
        None | Some(0 | 1) => digits(median),
        Some(n) => {
            let mad = ratio["mad"].as_f64().unwrap_or_default();
            format!("{} ±{}, n {n}", digits(median), digits(mad))
        }
    }
}

/// Formats a value with two significant digits.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let decimals = (1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"schema":4}
{"bench":"rcu","case":"read","claim":"a read","variant":"rcu","metric":"read_ns","against":"urcu-memb","bound":"<= 1","ratio":{"median":0.00123,"mad":0.0,"n":9},"verdict":"holds","close":false,"source":{"figure":"0.5","from":"elsewhere"}}
{"bench":"rcu","case":"read","claim":"shown","variant":"rcu","metric":"read_ns","against":"x","bound":null,"ratio":{"median":1.0,"mad":0.0,"n":9},"verdict":"shown","close":false,"source":null}
{"bench":"rcu","case":"read","claim":"calls/s","variant":"rcu","metric":"calls_per_s","against":"x","bound":">= 1","ratio":{"median":0.931,"mad":0.1,"n":5},"verdict":"fails","close":true,"source":null}
{"bench":"blocking","case":"mixed","claim":"bytes/s","variant":"plain","metric":"rate","against":"rayon","bound":">= 1","ratio":{"median":4.56,"mad":0.0,"n":1},"verdict":"one-run","close":false,"source":null}"#;

    #[test]
    fn every_claim_has_its_spread_and_verdict() {
        let tables = tables(RUN, "a machine", "2026-11-23", "afterwork-lab bench");
        for part in [
            "`afterwork-lab bench` on a machine, 2026-11-23. Of 3 claims 1 held and 1 did not; 1 are within the noise. 1 had time",
            "| read a protected value (`read`) | rcu | time of a read | urcu-memb | 0.0012 ±0, n 9 | ≤ 1 | yes | 0.5 |",
            "|  | rcu | callbacks/s | x | 0.93 ±0.10, n 5 | ≥ 1 | **no**, within the noise |  |",
            "### blocking\n",
            "| run items that compute and sleep (`mixed`) | plain | rate | rayon | 4.6 | ≥ 1 | one run: no verdict |  |",
        ] {
            assert!(tables.contains(part), "{part}\n{tables}");
        }
        assert!(!tables.contains("shown"));
    }
}
