//! Holds README's comparison, the tables of all claims in docs/figures.md and the picture of the lab's page to the run that all are
//! taken from: `docs/figures/compared.jsonl`, which one command makes.
//!
//! `cargo xtask figures` checks; `--write` writes the tables from the run, and `--picture` makes its picture by a browser;
//! `--run FILE` first keeps the run that `afterwork-lab bench --json` printed into FILE; `--measure`
//! first makes such a run (minutes, on a quiet machine). The check compares sums: the picture is of that
//! run, and of the page as the lab makes it now.

mod claims;
/// The words of the lab, so that a case and a metric are called alike everywhere. The chore depends on no crate of the lab.
#[path = "../../crates/lab/src/output/words.rs"]
#[allow(dead_code, reason = "the lab needs more of them")]
mod words;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use serde_json::Value;

use crate::report::{self, Failure, Finding};
use crate::workspace::{Workspace, output};

/// The run that README and docs/figures.md show.
const RUN: &str = "docs/figures/compared.jsonl";
const README: &str = "README.md";
const MANIFEST: &str = "Cargo.toml";
const BEGIN: &str = "<!-- compared: written by `cargo xtask figures --write` -->\n";
const END: &str = "<!-- compared: end -->\n";

/// README's picture, and the sums of all that it is made of.
const PICTURE: &str = "docs/figures/page.png";
const SUMS: &str = "docs/figures/page.sums";

/// What makes the page of a run.
const RENDERER: &str = "crates/lab/src/output/";

/// The picture's width and height; GitHub shows 900 or so.
const SIZE: (u32, u32) = (1000, 700);

/// Who looks at README over a slow line waits for no more.
const LARGEST: usize = 150_000;

/// The first screen: so many lines, of which so many hold code.
const SCREEN: usize = 25;
const CODE: usize = 12;

/// What follows the first row's number on the first screen.
const SENTENCE: &str = " × as often as";

/// What `--measure` runs, after `afterwork`: short runs, but enough of them for a spread.
const BENCH: &[&str] = &[
    "bench",
    "--quick",
    "--repeat",
    "9",
    "--seconds",
    "600",
    "--json",
];

const STALE: &str = "not as the run has it: cargo xtask figures --write";

/// A row of README's table, and the claim of the lab that it is taken from.
struct Row {
    /// What is done; the metric's words follow.
    what: &'static str,
    against: &'static str,
    bench: &'static str,
    case: &'static str,
    variant: &'static str,
    metric: &'static str,
    /// A claim against this variant; against the best peer without.
    other: Option<&'static str>,
    /// Whether less is better, so that the ratio is turned.
    lower: bool,
}

const ROWS: [Row; 8] = [
    Row {
        what: "queue an item and wait for it, 8 threads",
        against: "best of tokio, rayon, threadpool, channel pool",
        bench: "workqueue",
        case: "one-at-a-time",
        variant: "cache_shard+help",
        metric: "items_per_s",
        other: None,
        lower: false,
    },
    Row {
        what: "the same, where a worker must run it",
        against: "the same",
        bench: "workqueue",
        case: "one-at-a-time",
        variant: "cache_shard",
        metric: "items_per_s",
        other: None,
        lower: false,
    },
    Row {
        what: "batches of 1000 items",
        against: "the same",
        bench: "workqueue",
        case: "batch-1000",
        variant: "cache_shard",
        metric: "items_per_s",
        other: None,
        lower: false,
    },
    Row {
        what: "eight subsystems with limits, one machine",
        against: "best of three kinds of pool, one each",
        bench: "max-active",
        case: "subsystems",
        variant: "afterwork",
        metric: "latency_p99",
        other: None,
        lower: true,
    },
    Row {
        what: "small messages to an owner",
        against: "best of five channels",
        bench: "mpscq",
        case: "owned",
        variant: "mailbox",
        metric: "ns_paused_2",
        other: None,
        lower: true,
    },
    Row {
        what: "an owner that sleeps until 32 are there",
        against: "std's channel",
        bench: "task-work",
        case: "wake",
        variant: "wait-32",
        metric: "owner_cpu_per_item",
        other: Some("std"),
        lower: true,
    },
    Row {
        what: "read under RCU",
        against: "crossbeam-epoch",
        bench: "rcu",
        case: "read",
        variant: "rcu",
        metric: "read_ns",
        other: Some("crossbeam-epoch"),
        lower: true,
    },
    Row {
        what: "the intrusive queue, items side by side",
        against: "cordyceps",
        bench: "mpscq",
        case: "push-pop-contiguous",
        variant: "mpscq",
        metric: "ns_tight_4",
        other: Some("cordyceps"),
        lower: true,
    },
];

/// What a run says of the rows: what was measured where, when and how.
#[derive(Debug)]
struct Record {
    machine: String,
    date: String,
    command: String,
    ratios: Vec<Ratio>,
}

/// A ratio as the lab told it.
#[derive(Debug)]
struct Ratio {
    bench: String,
    case: String,
    variant: String,
    metric: String,
    against: String,
    median: f64,
    mad: f64,
    /// Repetitions.
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

    /// How many times better ours is, as README says it.
    fn told(&self, ratio: &Ratio) -> String {
        let times = if self.lower {
            ratio.median.recip()
        } else {
            ratio.median
        };
        let decimals = usize::from(times < 9.95) + usize::from(times < 0.995);
        let mut told = format!("{times:.decimals$} ×");
        let percent = ratio.mad / ratio.median * 100.0;
        if percent >= 0.5 {
            let _ = write!(told, " ±{percent:.0} %");
        }
        if times < 0.95 {
            told += ": slower";
        }
        if ratio.n == 1 {
            told += " (one run)";
        }
        told
    }
}

/// Runs the chore.
pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => return check(workspace),
        ["--write"] => tabled(workspace)?,
        ["--picture"] => pictured(workspace)?,
        ["--run", file] => {
            let told = fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
            keep(workspace, &told)?;
        }
        ["--measure"] => keep(workspace, &measured(workspace)?)?,
        _ => {
            return Err(Failure::new(
                "`figures` takes nothing, --write, --picture, --run FILE, or --measure",
            ));
        }
    }
    check(workspace)
}

/// Keeps a run, and makes of it what README shows.
fn keep(workspace: &Workspace, told: &str) -> Result<(), Failure> {
    taken(told)?;
    write(workspace, RUN, told)?;
    tabled(workspace)?;
    pictured(workspace)
}

/// Writes README's table, and the number on its first screen.
fn tabled(workspace: &Workspace) -> Result<(), Failure> {
    let (record, readme) = (record(workspace)?, text(workspace, README)?);
    let (before, _, after) = between(&readme, BEGIN, END)
        .ok_or_else(|| Failure::new(format!("{README} has no {}", BEGIN.trim_end())))?;
    let first = ROWS[0]
        .find(&record.ratios)
        .map(|ratio| ROWS[0].told(ratio));
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

/// Runs the benches whose ratios README shows, and returns what they print.
fn measured(workspace: &Workspace) -> Result<String, Failure> {
    let mut command = workspace.command("cargo");
    command
        .args(["run", "--release", "-p", "afterwork-lab", "--"])
        .args(BENCH);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new("the bench failed"));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::new("the bench printed what is no text"))
}

/// Makes the page of the run, and its picture.
fn pictured(workspace: &Workspace) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("afterwork-picture-{}", std::process::id()));
    let page = folder.join("page.html");
    let made = fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))
        .and_then(|()| photograph(workspace, &folder, &page));
    // Nothing in it is wanted again.
    let _ = fs::remove_dir_all(&folder);
    made?;
    write(workspace, SUMS, &sums(&made_of(workspace)?))
}

fn photograph(workspace: &Workspace, folder: &Path, page: &Path) -> Result<(), Failure> {
    let mut report = workspace.command("cargo");
    report
        .args([
            "run",
            "--quiet",
            "-p",
            "afterwork-lab",
            "--",
            "report",
            RUN,
            "-o",
        ])
        .arg(page);
    output(&mut report)?;
    let (width, height) = SIZE;
    let mut browser = workspace.command("chromium");
    browser
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--hide-scrollbars"])
        .arg("--blink-settings=preferredColorScheme=1")
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!(
            "--screenshot={}",
            workspace.root().join(PICTURE).display()
        ))
        .arg(page);
    output(&mut browser).map(drop)
}

/// The run, what makes a page of it, and the picture.
fn made_of(workspace: &Workspace) -> Result<[Vec<u8>; 3], Failure> {
    let mut renderer = Vec::new();
    let mut files = workspace.files()?;
    files.retain(|file| file.starts_with(RENDERER));
    for file in files {
        renderer.extend(bytes(workspace, &file)?);
    }
    Ok([bytes(workspace, RUN)?, renderer, bytes(workspace, PICTURE)?])
}

/// What a picture is known by.
fn sums(made_of: &[Vec<u8>; 3]) -> String {
    // FNV-1a: nobody is to be deceived but by forgetting.
    let sum = |bytes: &Vec<u8>| {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    let [run, renderer, picture] = made_of.each_ref().map(sum);
    format!("run {run:016x}\nrenderer {renderer:016x}\npicture {picture:016x}\n")
}

/// What is wrong with the picture.
fn unlike(made_of: &[Vec<u8>; 3], told: &str, readme: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if told != sums(made_of) {
        let rule = format!(
            "not the picture of {RUN} as {RENDERER} makes it: cargo xtask figures --picture"
        );
        found.push(Finding::new(PICTURE, 0, rule));
    }
    let [.., picture] = made_of;
    if picture.len() > LARGEST {
        let rule = format!("{} bytes, at most {LARGEST}", picture.len());
        found.push(Finding::new(PICTURE, 0, rule));
    }
    for shown in [format!("]({PICTURE})"), "](docs/scaling.md)".into()] {
        if !readme.contains(&shown) {
            found.push(Finding::new(README, 0, format!("does not show {shown}")));
        }
    }
    found
}

fn bytes(workspace: &Workspace, path: &str) -> Result<Vec<u8>, Failure> {
    fs::read(workspace.root().join(path))
        .map_err(|error| Failure::new(format!("cannot read {path}: {error}")))
}

/// Takes the ratios out of what a bench printed.
fn taken(told: &str) -> Result<Record, Failure> {
    let mut lines = told
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
        if line["claim"].is_string() && ROWS.iter().any(wanted) {
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
    for row in &ROWS {
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

/// What stands between the marks in README.
fn table(record: &Record) -> String {
    let mut text = format!(
        "Measured side by side, in turns, on {} ({}, `{}`). More is better in every row; yours will differ, which is why the\nlab is \
         here.\n\n| what | against | times better | command: `cargo run --release --` |\n|---|---|---|---|\n",
        record.machine, record.date, record.command
    );
    for row in &ROWS {
        let told = row
            .find(&record.ratios)
            .map_or_else(|| "-".into(), |ratio| row.told(ratio));
        let _ = writeln!(
            text,
            "| {}: {} | {} | {told} | `bench {} --cases {}` |",
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
    let manifest = text(workspace, MANIFEST)?;
    let mut found = broken(&record, &readme, &manifest);
    let told = text(workspace, SUMS)?;
    found.extend(unlike(&made_of(workspace)?, &told, &readme));
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
            ROWS.len(),
            record.date
        ));
        return Ok(ExitCode::SUCCESS);
    }
    report::talk(&format!("figures: {} broken\n", found.len()));
    Ok(ExitCode::FAILURE)
}

/// What README says and the record does not; and whether its first screen is one.
fn broken(record: &Record, readme: &str, manifest: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |line: usize, rule: String| found.push(Finding::new(README, line as u32, rule));
    match between(readme, BEGIN, END) {
        Some((_, shown, _)) if shown == table(record) => {}
        _ => say(0, STALE.into()),
    }
    let ratios = ROWS
        .iter()
        .filter_map(|row| Some(row.told(row.find(&record.ratios)?)));
    let known: Vec<String> = ratios.collect();
    for (line, text) in (1..).zip(readme.lines()) {
        for (at, _) in text.match_indices(" ×") {
            let word = text[..at].rsplit(' ').next().unwrap_or_default();
            let number = word.trim_start_matches(|c: char| !c.is_ascii_digit());
            if !number.is_empty()
                && !known
                    .iter()
                    .any(|told| told.starts_with(&format!("{number} ×")))
            {
                say(line, format!("{number} × is not of {RUN}"));
            }
        }
    }
    let screen: Vec<&str> = readme.lines().take(SCREEN).collect();
    let mut fences = screen
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with("```"))
        .map(|(at, _)| at);
    let code = fences.next().zip(fences.next()).map(|(from, to)| {
        screen[from + 1..to]
            .iter()
            .filter(|line| !line.is_empty())
            .count()
    });
    match code {
        Some(lines) if lines <= CODE => {}
        Some(lines) => say(
            1,
            format!("the first screen has {lines} lines of code, at most {CODE}"),
        ),
        None => say(1, format!("the first {SCREEN} lines hold no code")),
    }
    let oldest = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap_or_default()
        .trim_matches('"');
    let wanted = [
        (format!("Rust {oldest}"), "the oldest compiler"),
        ("afterwork = {".into(), "the dependency"),
        ("Linux on x86-64 or aarch64".into(), "the platforms"),
        ("#where-others-are-faster".into(), "a link to the losses"),
    ];
    for (text, what) in wanted {
        if !screen.iter().any(|line| line.contains(&text)) {
            say(
                1,
                format!("the first {SCREEN} lines do not tell {what}: {text}"),
            );
        }
    }
    found
}

/// Puts the first row's number into the sentence of the first screen.
fn in_front(before: &str, told: &str) -> String {
    let Some((head, tail)) = before.split_once(SENTENCE) else {
        return before.to_owned();
    };
    let upto = head.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = told.split(' ').next().unwrap_or(told);
    format!("{upto}{number}{SENTENCE}{tail}")
}

/// What stands before, between and after the marks.
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

    /// A run in which each row has the same ratio.
    fn run() -> String {
        let mut told = String::from(
            r#"{"schema":4,"started":"2026-11-21 21:15:03 UTC","command":"afterwork-lab bench","fingerprint":{"cpu":"Xeon","cpus_allowed":2,"is_virtual":true,"kernel":"6.18"}}"#,
        );
        for row in &ROWS {
            let _ = write!(
                told,
                "\n{{\"bench\":\"{}\",\"case\":\"{}\",\"claim\":\"c\",\"variant\":\"{}\",\"metric\":\"{}\",\"against\":\"{}\",\"ratio\":{{\"median\":2.0,\"mad\":0.1,\"n\":9}}}}",
                row.bench,
                row.case,
                row.variant,
                row.metric,
                row.other.unwrap_or("tokio")
            );
        }
        told
    }

    fn readme(record: &Record) -> String {
        format!(
            "```rust\nfn main() {{}}\n```\nafterwork = {{ Linux on x86-64 or aarch64, Rust 1.88 \
             #where-others-are-faster, 2.0 × as fast\n{BEGIN}{}{END}",
            table(record)
        )
    }

    const MANIFEST_TEXT: &str = "rust-version = \"1.88\"";

    #[test]
    fn a_record_is_taken_from_a_run_and_shown_as_times_better() {
        let record = taken(&run()).unwrap();
        assert_eq!(record.ratios.len(), ROWS.len());
        assert_eq!(
            (record.date.as_str(), record.ratios[0].n),
            ("2026-11-21", 9)
        );
        assert_eq!(record.machine, "2 CPUs of a virtual Xeon, Linux 6.18");
        assert_eq!(ROWS[0].told(&record.ratios[0]), "2.0 × ±5 %");
        assert_eq!(ROWS[7].told(&record.ratios[7]), "0.50 × ±5 %: slower");
        assert!(broken(&record, &readme(&record), MANIFEST_TEXT).is_empty());
        let short = run().replace("one-at-a-time", "other");
        assert!(taken(&short).is_err());
    }

    #[test]
    fn the_sentence_on_the_first_screen_is_written_too() {
        let told = in_front("run 6.7 × as often as others", "25 × ±3 %");
        assert_eq!(told, "run 25 × as often as others");
    }

    #[test]
    fn what_the_run_does_not_say_is_found() {
        let record = taken(&run()).unwrap();
        let good = readme(&record);
        for (from, to, word) in [
            ("2.0 × as fast", "3.7 × as fast", "3.7 × is not of"),
            ("2.0 × ±5 % |", "2.1 × ±5 % |", "not as the run has it"),
            ("Rust 1.88", "Rust 1.70", "oldest compiler"),
            ("afterwork = {", "", "the dependency"),
            ("fn main() {}", &"a\n".repeat(13), "13 lines of code"),
        ] {
            let found = broken(&record, &good.replacen(from, to, 1), MANIFEST_TEXT);
            assert!(
                found.iter().any(|finding| finding.rule.contains(word)),
                "{word}: {found:?}"
            );
        }
    }

    #[test]
    fn a_picture_of_something_else_a_heavy_one_and_one_that_nobody_shows_are_found() {
        let readme = "![a page](docs/figures/page.png) [many](docs/scaling.md)";
        let of = |parts: [&str; 3]| parts.map(|part| part.as_bytes().to_vec());
        let good = sums(&of(["run", "renderer", "picture"]));
        let wrong = |parts, readme| unlike(&of(parts), &good, readme).len();
        assert_eq!(wrong(["run", "renderer", "picture"], readme), 0);
        assert_eq!(wrong(["rum", "renderer", "picture"], readme), 1);
        assert_eq!(wrong(["run", "rendered", "picture"], readme), 1);
        assert_eq!(wrong(["run", "renderer", "pictura"], readme), 1);
        assert_eq!(wrong(["run", "renderer", "picture"], "neither"), 2);
        let mut heavy = of(["run", "renderer", ""]);
        heavy[2] = vec![0; LARGEST + 1];
        assert_eq!(unlike(&heavy, &sums(&heavy), readme).len(), 1);
    }
}
