//! Compares the tables of README and docs/figures.md with the runs that they show.
//!
//! README shows the answers of `afterwork-lab try`, as ranges over several runs
//! (`docs/figures/try.jsonl`); docs/figures.md shows each comparison of one run of all benches
//! (`docs/figures/bench.jsonl`). `cargo xtask figures` checks the tables, `--write` writes them.
//! `docs/figures/measure` measures both.

/// The lab's rule and wording, included as files so that xtask does not depend on the lab's crates.
#[path = "../../crates/lab/src/output/outcome.rs"]
#[allow(dead_code, reason = "only the lab uses the rest")]
mod outcome;
#[path = "../../crates/lab/src/output/words.rs"]
#[allow(dead_code, reason = "only the lab uses the rest")]
mod words;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use serde_json::Value;

use crate::report::{self, Failure, Finding};
use crate::workspace::Workspace;

type Render = fn(&[Value]) -> String;

/// Pages, with their run, the function that makes the table, and the marks around it.
const PAGES: [(&str, &str, Render); 2] = [
    ("README.md", "docs/figures/try.jsonl", answers),
    ("docs/figures.md", "docs/figures/bench.jsonl", comparisons),
];
const BEGIN: &str = "<!-- written by `cargo xtask figures --write` -->\n";
const END: &str = "<!-- end -->\n";

const STALE: &str = "differs from its record: run cargo xtask figures --write";

/// Metrics that docs/figures.md omits: other percentiles of what it shows, and details.
const OMITTED: [&str; 18] = [
    "enqueue_p50",
    "enqueue_p95",
    "completion_p95",
    "switches_per_item",
    "wakeups_per_item",
    "read_cycles",
    "replace_mean",
    "replace_min",
    "replace_max",
    "post_mean",
    "to_run_p90",
    "lock_hold_p50",
    "lock_hold_p999",
    "ns_paused_1",
    "ns_paused_8",
    "ns_tight_1",
    "ns_tight_8",
    "hand_over",
];

/// The variant that docs/figures.md compares: the default one where a case has several. In other
/// cases it is our first variant.
const DEFAULTS: [(&str, &str); 4] = [
    ("one-at-a-time", "cache_shard+spawn"),
    ("batch-1000", "cache_shard+spawn"),
    ("fan-out", "cache_shard+spawn"),
    ("wake", "wait-32"),
];

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    match args {
        [] => {}
        [flag] if flag == "--write" => {
            for (page, run, table) in PAGES {
                let (shown, table) = (workspace.page(page)?, table(&lines(workspace, run)?));
                let (before, _, after) = between(&shown).ok_or_else(|| unmarked(page))?;
                let path = workspace.root().join(page);
                fs::write(path, format!("{before}{BEGIN}{table}{END}{after}"))
                    .map_err(|error| Failure::new(format!("cannot write {page}: {error}")))?;
            }
        }
        _ => return Err(Failure::new("`figures` takes no argument except --write")),
    }
    check(workspace)
}

fn check(workspace: &Workspace) -> Result<ExitCode, Failure> {
    let mut found = Vec::new();
    for (page, run, table) in PAGES {
        let (shown, table) = (workspace.page(page)?, table(&lines(workspace, run)?));
        let (before, inside, after) = between(&shown).ok_or_else(|| unmarked(page))?;
        if inside != table {
            found.push(Finding::new(page, 0, STALE));
        }
        found.extend(unknown_ratios(page, before, &table));
        found.extend(unknown_ratios(page, after, &table));
    }
    for finding in &found {
        report::data(&format!("{finding}\n"));
    }
    match found.len() {
        0 => report::data("figures: good\n"),
        nr => report::talk(&format!("figures: {nr} broken\n")),
    }
    Ok(report::exit_code(found.is_empty()))
}

/// Finds ratios in the text of a page (`4.2 ×`) that its table does not have.
fn unknown_ratios(page: &str, text: &str, table: &str) -> Vec<Finding> {
    let ratios = text.match_indices(" ×").filter_map(|(at, _)| {
        let word = text[..at].rsplit([' ', '\n']).next().unwrap_or_default();
        let number = word.trim_start_matches(|c: char| !c.is_ascii_digit());
        (!number.is_empty() && !table.contains(&format!("{number} ×"))).then_some(number)
    });
    ratios.map(|number| Finding::new(page, 0, format!("{number} × is not in its table"))).collect()
}

/// Returns README's table: a row for each answer, with the range of its values over the runs.
fn answers(lines: &[Value]) -> String {
    let heads: Vec<&Value> = lines.iter().filter(|it| it["fingerprint"].is_object()).collect();
    let answers: Vec<&Value> = lines.iter().filter(|it| it["question"].is_string()).collect();
    let mut text = format!(
        "{}; {} runs of `cargo run --release -- try`, each with several turns. A value is the range of \
         the runs' medians. × is the factor by which ours is better. A run is undecided if its turns differ \
         too much.\n\n| | | afterwork | the best of the others | ours is |\n|---|---|---|---|---|\n",
        machine(heads.first().copied()),
        heads.len()
    );
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for answer in &answers {
        let key = (word(answer, "question"), word(answer, "row"));
        if seen.contains(&key) {
            continue;
        }
        let of_row: Vec<&&Value> =
            answers.iter().filter(|it| (word(it, "question"), word(it, "row")) == key).collect();
        let all = |name| range(of_row.iter().map(|it| word(it, name)));
        let peers = words::programs(of_row.iter().map(|it| word(it, "peer")));
        let outcomes: Vec<&str> = of_row.iter().map(|it| word(it, "outcome")).collect();
        let times = of_row.iter().map(|it| it["times_better"]["median"].as_f64());
        let times: Vec<String> = times.flatten().map(outcome::three_digits).collect();
        let question = match seen.last() {
            Some((last, _)) if *last == key.0 => "",
            _ => key.0,
        };
        let _ = writeln!(
            text,
            "| {question} | {} | {} | {} ({}) | {} |",
            key.1,
            all("ours_value"),
            all("peer_value"),
            peers.join(", "),
            verdict(&outcomes, &range(times.iter().map(String::as_str))),
        );
        seen.push(key);
    }
    text
}

/// Returns the outcome of a row, with the range of its factors and the number of undecided runs.
fn verdict(outcomes: &[&str], times: &str) -> String {
    let decided = outcomes.iter().filter(|&&it| it != outcome::UNDECIDED);
    let words = words::programs(decided.copied());
    let nr_undecided = outcomes.iter().filter(|&&it| it == outcome::UNDECIDED).count();
    match nr_undecided {
        0 => format!("{} ({times} ×)", words.join(" or ")),
        _ if words.is_empty() => format!("undecided ({times} ×)"),
        _ => format!(
            "{} ({times} ×); {nr_undecided} of {} runs undecided",
            words.join(" or "),
            outcomes.len()
        ),
    }
}

/// Returns the tables of docs/figures.md: first the comparisons that ours loses, then all.
fn comparisons(lines: &[Value]) -> String {
    let head = lines.iter().find(|it| it["fingerprint"].is_object());
    let mut text =
        format!("`{}` on {}.\n", head.map_or("", |it| word(it, "command")), machine(head));
    let (mut worse, mut all) = (String::new(), String::new());
    let mut bench = "";
    for case in lines.iter().filter(|it| it["about"].is_string()) {
        let rows = rows(case, lines);
        if rows.is_empty() {
            continue;
        }
        if bench != word(case, "bench") {
            bench = word(case, "bench");
            let _ = write!(all, "\n### {bench}\n\n{TABLE}");
        }
        let name = words::of_case(bench, word(case, "case"));
        for (index, row) in rows.iter().enumerate() {
            let cell = if index == 0 { name } else { "" };
            let _ = writeln!(all, "| {cell} | {} |", row.text);
            if row.outcome == outcome::WORSE {
                let _ = writeln!(worse, "| {name} | {} |", row.text);
            }
        }
    }
    let _ =
        write!(text, "\n### Where others are faster\n\n{TABLE}{worse}\n## Every comparison\n{all}");
    text
}

const TABLE: &str = "| case | by | ours | the best of the others | times better | ours is |\n|---|---|---|---|---|---|\n";

/// A row of docs/figures.md.
struct Row {
    text: String,
    outcome: &'static str,
}

/// Returns a row for each metric that our variant of the case and a peer have.
fn rows(case: &Value, lines: &[Value]) -> Vec<Row> {
    let is_of = |it: &&Value| it["bench"] == case["bench"] && it["case"] == case["case"];
    let records: Vec<&Value> = lines
        .iter()
        .filter(is_of)
        .filter(|it| it["mad"].is_number() && it["peer"].is_boolean())
        .collect();
    let default = DEFAULTS.iter().find(|it| it.0 == word(case, "case"));
    let first = || records.iter().find(|it| it["peer"] == false).map(|it| word(it, "variant"));
    let Some(ours) = default.map(|it| it.1).or_else(first) else {
        return Vec::new();
    };
    let metrics = case["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let shown = metrics.iter().filter(|it| !OMITTED.contains(&word(it, "metric")));
    let row = |metric: &Value| {
        let name = word(metric, "metric");
        let value = |peer: bool, variant: &str| {
            records
                .iter()
                .find(|it| it["peer"] == peer && it["metric"] == name && it["variant"] == variant)
        };
        let ratio = format!("{name}.vs_best_peer");
        let of_ratio = |peer: bool| {
            let ratio = &ratio;
            records.iter().filter(move |it| it["peer"] == peer && it["metric"] == **ratio)
        };
        // The best peer divided by itself is exactly one.
        let best = of_ratio(true).find(|it| it["median"] == 1.0 && it["mad"] == 0.0)?;
        let measured = of_ratio(false).find(|it| it["variant"] == ours)?;
        let (median, mad) = (measured["median"].as_f64()?, measured["mad"].as_f64()?);
        let n = usize::try_from(measured["n"].as_u64()?).ok()?;
        let (times, spread) = match word(metric, "better") {
            "higher" => (median, mad),
            _ if median > 0.0 => (median.recip(), mad / (median * median)),
            _ => return None,
        };
        let outcome = outcome::of(times, spread, n);
        let peer = word(best, "variant");
        let unit = word(metric, "unit");
        let shown = |it: &Value| Some(figure(it["median"].as_f64()?, unit));
        Some(Row {
            text: format!(
                "{} | {} ({ours}) | {} ({peer}) | {} × ±{:.0} % | {outcome}",
                words::of_metric(word(case, "bench"), word(case, "case"), name),
                shown(value(false, ours)?)?,
                shown(value(true, peer)?)?,
                outcome::three_digits(times),
                spread / times * 100.0,
            ),
            outcome,
        })
    };
    shown.filter_map(row).collect()
}

/// Formats a value with its unit.
fn figure(value: f64, unit: &str) -> String {
    match unit {
        _ if unit.starts_with("ns") => outcome::time(value),
        "share" => format!("{} %", outcome::three_digits(value * 100.0)),
        _ if unit.starts_with('B') || unit == "bytes" => match value {
            _ if value < 1e4 => format!("{} B", outcome::three_digits(value)),
            _ => format!("{} MiB", outcome::three_digits(value / f64::from(1 << 20))),
        },
        _ => outcome::three_digits(value),
    }
}

/// Formats values as `1.2 to 1.4 ms`, or as one value if all are equal.
fn range<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let number = |text: &str| text.split(' ').next().and_then(|it| it.parse::<f64>().ok());
    let unit = |text: &str| text.split_once(' ').map_or("", |it| it.1).to_owned();
    let mut all: Vec<&str> = values.collect();
    all.sort_by(|a, b| {
        unit(a)
            .cmp(&unit(b))
            .then(number(a).partial_cmp(&number(b)).unwrap_or(std::cmp::Ordering::Equal))
    });
    match (all.first(), all.last()) {
        (Some(first), Some(last)) if first == last => (*first).to_owned(),
        (Some(first), Some(last)) if unit(first) == unit(last) && number(first).is_some() => {
            format!("{} to {last}", first.split(' ').next().unwrap_or_default())
        }
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => String::new(),
    }
}

fn machine(head: Option<&Value>) -> String {
    let Some(head) = head else {
        return String::new();
    };
    let machine = &head["fingerprint"];
    let kind = if machine["is_virtual"] == true { " virtual" } else { "" };
    format!(
        "{}{kind} CPUs, {}, Linux {}, {}",
        machine["cpus_allowed"],
        word(machine, "cpu"),
        word(machine, "kernel"),
        word(head, "started").split(' ').next().unwrap_or_default()
    )
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the text before, between and after the marks.
fn between(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (shown, after) = rest.split_once(END)?;
    Some((before, shown, after))
}

fn unmarked(page: &str) -> Failure {
    Failure::new(format!("{page} lacks the line {}", BEGIN.trim_end()))
}

fn lines(workspace: &Workspace, run: &str) -> Result<Vec<Value>, Failure> {
    let wrong = |error| Failure::new(format!("{run}: {error}"));
    workspace.page(run)?.lines().map(|line| serde_json::from_str(line).map_err(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"fingerprint":{"cpu":"Xeon","cpus_allowed":2,"is_virtual":true,"kernel":"6.18"},"started":"2026-11-21 21:15:03 UTC","command":"afterwork-lab bench"}
{"bench":"rcu","case":"read","about":"a","headline":"read_ns","metrics":[{"metric":"read_ns","unit":"ns","better":"lower"}]}
{"bench":"rcu","case":"read","variant":"rcu","metric":"read_ns","unit":"ns","median":2.0,"mad":0.0,"n":9,"peer":false}
{"bench":"rcu","case":"read","variant":"seize","metric":"read_ns","unit":"ns","median":1.0,"mad":0.0,"n":9,"peer":true}
{"bench":"rcu","case":"read","variant":"rcu","metric":"read_ns.vs_best_peer","unit":"ratio","median":2.0,"mad":0.2,"n":9,"peer":false}
{"bench":"rcu","case":"read","variant":"seize","metric":"read_ns.vs_best_peer","unit":"ratio","median":1.0,"mad":0.0,"n":9,"peer":true}"#;

    fn values(run: &str) -> Vec<Value> {
        run.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_loss_is_shown_first_and_again_among_all() {
        let page = comparisons(&values(RUN));
        let row = "| time of a read | 2.00 ns (rcu) | 1.00 ns (seize) | 0.500 × ±10 % | worse |";
        assert_eq!(page.matches(row).count(), 2, "{page}");
        assert!(page.contains("2 virtual CPUs, Xeon, Linux 6.18, 2026-11-21"), "{page}");
    }

    #[test]
    fn an_answer_has_the_range_of_its_runs() {
        let answer = |ours: &str, times: f64, outcome: &str| {
            format!(
                r#"{{"question":"q","row":"r","ours":"o","peer":"tokio+join","ours_value":"{ours}","peer_value":"7 ns","times_better":{{"median":{times},"mad":0,"n":9}},"outcome":"{outcome}"}}"#
            )
        };
        let runs = [answer("2.5 ns", 2.8, "better"), answer("2.4 ns", 2.9, "better")].join("\n");
        let table = answers(&values(&runs));
        let row = "| q | r | 2.4 to 2.5 ns | 7 ns (tokio) | better (2.80 to 2.90 ×) |";
        assert!(table.contains(row), "{table}");
    }

    #[test]
    fn a_verdict_counts_the_undecided_runs() {
        for (outcomes, shown) in [
            (["better", "better"], "better (2 ×)"),
            (["undecided", "better"], "better (2 ×); 1 of 2 runs undecided"),
            (["undecided", "undecided"], "undecided (2 ×)"),
            (["even", "better"], "even or better (2 ×)"),
        ] {
            assert_eq!(verdict(&outcomes, "2"), shown);
        }
    }

    #[test]
    fn a_changed_digit_is_found() {
        let table = answers(&values(""));
        assert_eq!(unknown_ratios("p", "It is 4.2 × faster.", &table).len(), 1);
        assert!(unknown_ratios("p", "It is faster: ×", &table).is_empty());
        assert_eq!(unknown_ratios("p", "It is 4.2 × faster.", "4.2 ×").len(), 0);
    }
}
