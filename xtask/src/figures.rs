//! Compares README's table and the tables of docs/figures.md with the run that both show,
//! `docs/figures/compared.jsonl`.
//!
//! `cargo xtask figures` checks the tables, and `--write` writes them. `--run FILE` first stores
//! FILE, the output of `afterwork-lab bench --json`, as the run. `docs/figures/measure` measures
//! such a run and creates README's picture.

mod claims;
/// The lab's words for cases and metrics. The chore does not depend on the lab's crates.
#[path = "../../crates/lab/src/output/words.rs"]
#[allow(dead_code, reason = "the lab needs more of them")]
mod words;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use serde_json::Value;

use crate::report::{self, Failure, Finding};
use crate::workspace::Workspace;

/// The run that README and docs/figures.md show.
const RUN: &str = "docs/figures/compared.jsonl";
const README: &str = "README.md";
const BEGIN: &str = "<!-- compared: written by `cargo xtask figures --write` -->\n";
const END: &str = "<!-- compared: end -->\n";

/// The text after the first row's ratio at the top of README.
const SENTENCE: &str = " × there";

const STALE: &str = "not as the run has it: cargo xtask figures --write";

/// The rows of README's table: operation, peers, and the claim of the lab (bench, case, variant,
/// metric, direction, and a peer if it is not the best one).
const ROWS: &str = "\
queue an item and wait for it, 8 threads|best of tokio, rayon, threadpool, channel pool|workqueue one-at-a-time cache_shard+help items_per_s more
the same, where a worker must run it|the same|workqueue one-at-a-time cache_shard items_per_s more
batches of 1000 items|the same|workqueue batch-1000 cache_shard items_per_s more
eight subsystems with limits, one machine|best of three kinds of pool, one each|max-active subsystems afterwork latency_p99 less
small messages to an owner|best of five channels|mpscq owned mailbox ns_paused_2 less
an owner that sleeps until 32 are there|std's channel|task-work wake wait-32 owner_cpu_per_item less std
read under RCU|crossbeam-epoch|rcu read rcu read_ns less crossbeam-epoch
the intrusive queue, items side by side|cordyceps|mpscq push-pop-contiguous mpscq ns_tight_4 less cordyceps
";

/// A row of README's table.
struct Row {
    what: &'static str,
    against: &'static str,
    bench: &'static str,
    case: &'static str,
    variant: &'static str,
    metric: &'static str,
    other: Option<&'static str>,
    /// Set if less is better, so that the ratio is inverted.
    lower: bool,
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let mut cells = line.split('|');
        let mut cell = || cells.next().unwrap_or_default();
        let (what, against, claim) = (cell(), cell(), cell());
        let mut words = claim.split(' ');
        let mut word = || words.next().unwrap_or_default();
        Row {
            what,
            against,
            bench: word(),
            case: word(),
            variant: word(),
            metric: word(),
            lower: word() == "less",
            other: words.next(),
        }
    };
    ROWS.lines().map(row).collect()
}

/// The ratios of a run, with its machine, date and command.
#[derive(Debug)]
struct Record {
    machine: String,
    date: String,
    command: String,
    ratios: Vec<Ratio>,
}

/// A ratio from the record.
#[derive(Debug)]
struct Ratio {
    bench: String,
    case: String,
    variant: String,
    metric: String,
    against: String,
    median: f64,
    mad: f64,
    /// Number of repetitions.
    n: u64,
}

impl Row {
    fn is_of(&self, bench: &str, case: &str, variant: &str, metric: &str, against: &str) -> bool {
        (bench, case, variant, metric) == (self.bench, self.case, self.variant, self.metric)
            && self.other.is_none_or(|other| other == against)
    }

    fn find<'a>(&self, ratios: &'a [Ratio]) -> Option<&'a Ratio> {
        ratios
            .iter()
            .find(|it| self.is_of(&it.bench, &it.case, &it.variant, &it.metric, &it.against))
    }

    /// Formats the factor by which ours is better, as in README.
    fn cell(&self, ratio: &Ratio) -> String {
        let times = if self.lower {
            ratio.median.recip()
        } else {
            ratio.median
        };
        let decimals = usize::from(times < 9.95) + usize::from(times < 0.995);
        let mut cell = format!("{times:.decimals$} ×");
        let percent = ratio.mad / ratio.median * 100.0;
        if percent >= 0.5 {
            let _ = write!(cell, " ±{percent:.0} %");
        }
        if times < 0.95 {
            cell += ": slower";
        }
        if ratio.n == 1 {
            cell += " (one run)";
        }
        cell
    }
}

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => return check(workspace),
        ["--write"] => tabled(workspace)?,
        ["--run", file] => {
            let cell = fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
            taken(&cell)?;
            write(workspace, RUN, &cell)?;
            tabled(workspace)?;
        }
        _ => {
            return Err(Failure::new(
                "`figures` takes nothing, --write, or --run FILE",
            ));
        }
    }
    check(workspace)
}

/// Writes README's table, and the ratio at its top.
fn tabled(workspace: &Workspace) -> Result<(), Failure> {
    let (record, readme) = (record(workspace)?, text(workspace, README)?);
    let (before, _, after) = between(&readme, BEGIN, END)
        .ok_or_else(|| Failure::new(format!("{README} has no {}", BEGIN.trim_end())))?;
    let first = &rows()[0];
    let first = first.find(&record.ratios).map(|ratio| first.cell(ratio));
    let before = in_front(before, first.as_deref().unwrap_or("-"));
    let written = format!("{before}{BEGIN}{}{END}{after}", table(&record));
    write(workspace, README, &written)?;
    let page = text(workspace, claims::PAGE)?;
    let (before, _, after) = between(&page, claims::BEGIN, claims::END).ok_or_else(|| {
        Failure::new(format!(
            "{} has no {}",
            claims::PAGE,
            claims::BEGIN.trim_end()
        ))
    })?;
    let tables = claims_of(workspace, &record)?;
    let written = format!("{before}{}{tables}{}{after}", claims::BEGIN, claims::END);
    write(workspace, claims::PAGE, &written)
}

fn claims_of(workspace: &Workspace, record: &Record) -> Result<String, Failure> {
    let run = text(workspace, RUN)?;
    Ok(claims::tables(
        &run,
        &record.machine,
        &record.date,
        &record.command,
    ))
}

/// Parses the ratios in the output of a bench.
fn taken(cell: &str) -> Result<Record, Failure> {
    let mut lines = cell
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
    let head = lines.next().unwrap_or_default();
    let word = |at: &str| {
        let found = head.pointer(at).and_then(Value::as_str).map(str::to_owned);
        found.ok_or_else(|| Failure::new(format!("no run of the lab: its head has no {at}")))
    };
    let mut ratios: Vec<Ratio> = Vec::new();
    for line in lines {
        let of = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let [bench, case, variant, metric, against] =
            ["bench", "case", "variant", "metric", "against"].map(of);
        let wanted = |row: &Row| row.is_of(&bench, &case, &variant, &metric, &against);
        let ratio = &line["ratio"];
        let Some((median, mad)) = ratio["median"].as_f64().zip(ratio["mad"].as_f64()) else {
            continue;
        };
        if line["claim"].is_string() && rows().iter().any(wanted) {
            let n = ratio["n"].as_u64().unwrap_or(1);
            ratios.push(Ratio {
                bench,
                case,
                variant,
                metric,
                against,
                median,
                mad,
                n,
            });
        }
    }
    for row in rows() {
        if row.find(&ratios).is_none() {
            return Err(Failure::new(format!("not measured: {}", row.what)));
        }
    }
    let cpus = head
        .pointer("/fingerprint/cpus_allowed")
        .and_then(Value::as_u64);
    Ok(Record {
        machine: format!(
            "{} CPUs of a{} {}, Linux {}",
            cpus.unwrap_or(0),
            if head.pointer("/fingerprint/is_virtual") == Some(&Value::Bool(true)) {
                " virtual"
            } else {
                "n"
            },
            word("/fingerprint/cpu")?,
            word("/fingerprint/kernel")?
        ),
        date: word("/started")?.chars().take(10).collect(),
        command: word("/command")?,
        ratios,
    })
}

/// Returns the text between the marks in README.
fn table(record: &Record) -> String {
    let mut text = format!(
        "Measured side by side, in turns, on {} ({}, `{}`). More is better in every row; yours will differ, which is why the\nlab is \
         here.\n\n| what | against | times better | command: `cargo run --release --` |\n|---|---|---|---|\n",
        record.machine, record.date, record.command
    );
    for row in rows() {
        let cell = row
            .find(&record.ratios)
            .map_or_else(|| "-".into(), |ratio| row.cell(ratio));
        let _ = writeln!(
            text,
            "| {}: {} | {} | {cell} | `bench {} --cases {}` |",
            row.what,
            words::of_metric(row.bench, row.case, row.metric),
            row.against,
            row.bench,
            row.case
        );
    }
    text
}

fn check(workspace: &Workspace) -> Result<ExitCode, Failure> {
    let (record, readme) = (record(workspace)?, text(workspace, README)?);
    let mut found = broken(&record, &readme);
    let page = text(workspace, claims::PAGE)?;
    let tables = claims_of(workspace, &record)?;
    if between(&page, claims::BEGIN, claims::END).is_none_or(|(_, shown, _)| shown != tables) {
        found.push(Finding::new(claims::PAGE, 0, STALE));
    }
    for finding in &found {
        report::data(&format!("{finding}\n"));
    }
    if found.is_empty() {
        report::data(&format!(
            "figures: good ({} ratios of {})\n",
            rows().len(),
            record.date
        ));
        return Ok(ExitCode::SUCCESS);
    }
    report::talk(&format!("figures: {} broken\n", found.len()));
    Ok(ExitCode::FAILURE)
}

/// Finds ratios of README that differ from the record.
fn broken(record: &Record, readme: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |line: usize, rule: String| found.push(Finding::new(README, line as u32, rule));
    match between(readme, BEGIN, END) {
        Some((_, shown, _)) if shown == table(record) => {}
        _ => say(0, STALE.into()),
    }
    let rows = rows();
    let ratios = rows
        .iter()
        .filter_map(|row| Some(row.cell(row.find(&record.ratios)?)));
    let known: Vec<String> = ratios.collect();
    for (line, text) in (1..).zip(readme.lines()) {
        for (at, _) in text.match_indices(" ×") {
            let word = text[..at].rsplit(' ').next().unwrap_or_default();
            let number = word.trim_start_matches(|c: char| !c.is_ascii_digit());
            if !number.is_empty()
                && !known
                    .iter()
                    .any(|cell| cell.starts_with(&format!("{number} ×")))
            {
                say(line, format!("{number} × is not of {RUN}"));
            }
        }
    }
    found
}

/// Inserts the first row's ratio into the sentence at the top of README.
fn in_front(before: &str, cell: &str) -> String {
    let Some((head, tail)) = before.split_once(SENTENCE) else {
        return before.to_owned();
    };
    let upto = head.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = cell.split(' ').next().unwrap_or(cell);
    format!("{upto}{number}{SENTENCE}{tail}")
}

/// Returns the text before, between and after the marks.
fn between<'a>(page: &'a str, begin: &str, end: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = page.split_once(begin)?;
    let (shown, after) = rest.split_once(end)?;
    Some((before, shown, after))
}

fn record(workspace: &Workspace) -> Result<Record, Failure> {
    taken(&text(workspace, RUN)?)
}

fn text(workspace: &Workspace, path: &str) -> Result<String, Failure> {
    workspace
        .text(path)?
        .ok_or_else(|| Failure::new(format!("{path} is no text")))
}

fn write(workspace: &Workspace, path: &str, text: &str) -> Result<(), Failure> {
    fs::write(workspace.root().join(path), text)
        .map_err(|error| Failure::new(format!("cannot write {path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a run in which each row has the same ratio.
    fn run() -> String {
        let mut cell = String::from(
            r#"{"schema":4,"started":"2026-11-21 21:15:03 UTC","command":"afterwork-lab bench","fingerprint":{"cpu":"Xeon","cpus_allowed":2,"is_virtual":true,"kernel":"6.18"}}"#,
        );
        for row in rows() {
            let _ = write!(
                cell,
                "\n{{\"bench\":\"{}\",\"case\":\"{}\",\"claim\":\"c\",\"variant\":\"{}\",\"metric\":\"{}\",\"against\":\"{}\",\"ratio\":{{\"median\":2.0,\"mad\":0.1,\"n\":9}}}}",
                row.bench,
                row.case,
                row.variant,
                row.metric,
                row.other.unwrap_or("tokio")
            );
        }
        cell
    }

    fn readme(record: &Record) -> String {
        format!("2.0 × as fast\n{BEGIN}{}{END}", table(record))
    }

    #[test]
    fn a_record_is_taken_from_a_run_and_shown_as_times_better() {
        let record = taken(&run()).unwrap();
        assert_eq!(record.ratios.len(), rows().len());
        assert_eq!(
            (record.date.as_str(), record.ratios[0].n),
            ("2026-11-21", 9)
        );
        assert_eq!(record.machine, "2 CPUs of a virtual Xeon, Linux 6.18");
        assert_eq!(rows()[0].cell(&record.ratios[0]), "2.0 × ±5 %");
        assert_eq!(rows()[7].cell(&record.ratios[7]), "0.50 × ±5 %: slower");
        assert!(broken(&record, &readme(&record)).is_empty());
        let short = run().replace("one-at-a-time", "other");
        assert!(taken(&short).is_err());
    }

    #[test]
    fn the_sentence_on_the_first_screen_is_written_too() {
        let cell = in_front("run 6.7 × there others", "25 × ±3 %");
        assert_eq!(cell, "run 25 × there others");
    }

    #[test]
    fn figures_missing_from_the_run_are_found() {
        let record = taken(&run()).unwrap();
        let good = readme(&record);
        for (from, to, word) in [
            ("2.0 × as fast", "3.7 × as fast", "3.7 × is not of"),
            ("2.0 × ±5 % |", "2.1 × ±5 % |", "not as the run has it"),
        ] {
            let found = broken(&record, &good.replacen(from, to, 1));
            assert!(
                found.iter().any(|finding| finding.rule.contains(word)),
                "{word}: {found:?}"
            );
        }
    }
}
