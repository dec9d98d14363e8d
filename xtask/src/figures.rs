//! Compares the tables in README and docs/figures.md with the runs that they show.
//!
//! README shows the answers of `afterwork-lab try`, as ranges over several runs
//! (`docs/figures/try.jsonl`). docs/figures.md shows each comparison of one run of all benches
//! (`docs/figures/bench.jsonl`), and the tables of the sources (`docs/figures/seeds.jsonl`). `cargo
//! xtask figures` checks the tables, and `--write` writes them. `docs/figures/measure` performs all
//! measurements.

/// The lab's rules, wording and tables. They are included as files, so that xtask does not depend
/// on the lab's crates.
#[path = "../../crates/lab/src/output/outcome.rs"]
#[allow(dead_code, reason = "only the lab uses the rest")]
mod outcome;
#[path = "../../crates/lab/src/output/sources.rs"]
#[allow(dead_code, reason = "only the lab uses the rest")]
mod sources;
#[path = "../../crates/lab/src/bench/seeds/tables.rs"]
mod tables;
#[path = "../../crates/lab/src/output/words.rs"]
#[allow(dead_code, reason = "only the lab uses the rest")]
mod words;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use serde_json::Value;

use crate::report::{Failure, Finding, Findings, exit_code};
use crate::workspace::Workspace;

type Render = fn(&[Value]) -> String;

/// The pages, with the runs that they show. Each run has a function that creates its tables.
const PAGES: [(&str, &[(&str, Render)]); 2] = [
    ("README.md", &[("docs/figures/try.jsonl", answers)]),
    (
        "docs/figures.md",
        &[("docs/figures/bench.jsonl", comparisons), ("docs/figures/seeds.jsonl", seeds)],
    ),
];
const END: &str = "<!-- end -->\n";

fn begin(run: &str) -> String {
    format!("<!-- {run}, written by `cargo xtask figures --write` -->\n")
}

const STALE: &str = "differs from its record: run cargo xtask figures --write";

/// The metrics that docs/figures.md omits: details, and further percentiles of figures that it
/// shows.
const OMITTED: &str = "enqueue_p50 enqueue_p95 completion_p95 switches_per_item wakeups_per_item \
    read_cycles replace_mean replace_min replace_max post_mean to_run_p90 lock_hold_p50 \
    lock_hold_p999 ns_paused_1 ns_paused_8 ns_tight_1 ns_tight_8 hand_over";

/// The answers that README omits, because their throughput shows the same.
const SAME: [(&str, &str); 1] = [("1000 small closures at once", "CPU per closure")];

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let writes = match args {
        [] => false,
        [flag] if flag == "--write" => true,
        _ => return Err(Failure::new("`figures` takes no argument except --write")),
    };
    let mut found = Vec::new();
    for (page, runs) in PAGES {
        let shown = workspace.page(page)?;
        let (mut written, mut text, mut tables) = (shown.clone(), shown.clone(), String::new());
        for (run, render) in runs {
            let table = render(&lines(workspace, run)?);
            let unmarked =
                || Failure::new(format!("{page} lacks the line {}", begin(run).trim_end()));
            let inside = between(&shown, run).ok_or_else(unmarked)?;
            let marked = |inside: &str| begin(run) + inside + END;
            written = written.replace(&marked(inside), &marked(&table));
            text = text.replace(&marked(inside), "");
            tables += &table;
        }
        if writes {
            fs::write(workspace.root().join(page), written)
                .map_err(Failure::because(format!("cannot write {page}")))?;
        } else if written != shown {
            found.push(Finding::new(page, 0, STALE));
        }
        found.extend(unknown_ratios(page, &text, &tables));
    }
    let findings = Findings { broken: found, looked_at: format!("{} pages", PAGES.len()) };
    Ok(exit_code(findings.report("figures")))
}

/// Finds ratios (`4.2 ×`) in the text of a page that its table does not contain.
fn unknown_ratios(page: &str, text: &str, table: &str) -> Vec<Finding> {
    let ratios = text.match_indices(" ×").filter_map(|(at, _)| {
        let word = text[..at].rsplit([' ', '\n']).next().unwrap_or_default();
        let number = word.trim_start_matches(|c: char| !c.is_ascii_digit());
        (!number.is_empty() && !table.contains(&format!("{number} ×"))).then_some(number)
    });
    ratios.map(|number| Finding::new(page, 0, format!("{number} × is not in its table"))).collect()
}

/// Returns README's table. It shows the gains of each question, with the ranges of the runs'
/// medians. Next to the first gain it shows the price: the comparisons that afterwork loses.
fn answers(lines: &[Value]) -> String {
    let heads: Vec<&Value> = lines.iter().filter(|it| it["fingerprint"].is_object()).collect();
    let answers: Vec<&Value> = lines.iter().filter(|it| it["question"].is_string()).collect();
    let mut text = format!(
        "{}; {} runs of `cargo run --release -- try`. A cell has the lowest and the highest result of the runs, and the peer that was best at it.\n\n\
         | | | afterwork | others | price |\n|---|---|---|---|---|\n",
        machine(heads.first().copied()),
        heads.len()
    );
    for question in words::distinct(answers.iter().map(|it| word(it, "question"))) {
        let of_question = answers.iter().copied().filter(|it| word(it, "question") == question);
        let rows = compared(&of_question.collect::<Vec<_>>());
        let (lost, won): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row.outcomes.contains(&outcome::WORSE));
        let prices =
            lost.iter().map(|it| format!("{}: {}, against {}", it.row, it.ours, it.others));
        let mut prices = prices.collect::<Vec<_>>().join("<br>");
        let mut question = question;
        for row in won {
            let undecided = row.undecided();
            let price = [std::mem::take(&mut prices), undecided];
            let price: Vec<String> = price.into_iter().filter(|it| !it.is_empty()).collect();
            let cells = [question, row.row, &row.ours, &row.others, &price.join("<br>")];
            text += &table_row(&cells);
            question = "";
        }
        if !prices.is_empty() {
            text += &table_row(&[question, "", "", "", &prices]);
        }
    }
    text
}

struct Compared<'a> {
    row: &'a str,
    ours: String,
    others: String,
    outcomes: Vec<&'a str>,
}

impl Compared<'_> {
    /// Returns the number of runs without a gain, in words. The text is empty if there are none.
    fn undecided(&self) -> String {
        let nr_all = self.outcomes.len();
        match self.outcomes.iter().filter(|&&it| it != outcome::BETTER).count() {
            0 => String::new(),
            nr if nr == nr_all => words::programs(self.outcomes.iter().copied()).join(" or "),
            nr => format!("no gain in {nr} of {nr_all} runs"),
        }
    }
}

fn compared<'a>(answers: &[&'a Value]) -> Vec<Compared<'a>> {
    let is_shown = |it: &&&Value| !SAME.contains(&(word(it, "question"), word(it, "row")));
    let shown = answers.iter().filter(is_shown);
    let rows = words::distinct(shown.map(|it| word(it, "row"))).into_iter().map(|row| {
        let of_row = || answers.iter().filter(move |it| word(it, "row") == row);
        let all = |name| range(of_row().map(|it| word(it, name)));
        let peers = words::programs(of_row().map(|it| word(it, "peer"))).join(", ");
        Compared {
            row,
            ours: all("ours_value"),
            others: match all("peer_value").strip_suffix(')') {
                Some(value) => format!("{value}; {peers})"),
                None => format!("{} ({peers})", all("peer_value")),
            },
            outcomes: of_row().map(|it| word(it, "outcome")).collect(),
        }
    });
    rows.collect()
}

/// Returns the tables of docs/figures.md: first the comparisons that afterwork loses,
/// then all of them.
fn comparisons(lines: &[Value]) -> String {
    let mut text = head(lines);
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
        let name = words::of_case(bench, word(case, "case"), word(case, "about"));
        for (index, row) in rows.iter().enumerate() {
            let cell = if index == 0 { &name } else { "" };
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

/// Returns the line with the command of a run and its machine.
fn head(lines: &[Value]) -> String {
    let head = lines.iter().find(|it| it["fingerprint"].is_object());
    format!("`{}` on {}.\n", head.map_or("", |it| word(it, "command")), machine(head))
}

const TABLE: &str = "| case | by | ours | the best of the others | times better | ours is |\n|---|---|---|---|---|---|\n";

fn seeds(lines: &[Value]) -> String {
    let mut text = head(lines);
    for source in &tables::SOURCES {
        let _ = write!(text, "\n### {}\n", source.title);
        for filled in source.filled(lines, false) {
            let heads = filled.block.columns.iter().map(sources::Column::name);
            let heads: Vec<String> =
                [filled.block.head.to_owned()].into_iter().chain(heads).collect();
            let rule = format!("|---|{}", "---:|".repeat(heads.len() - 1));
            let rows = filled.rows.into_iter().map(|row| table_row(&row));
            let rows: String = [table_row(&heads), rule + "\n"].into_iter().chain(rows).collect();
            let lines = |lines: &[String]| lines.join("<br>\n");
            let _ = write!(text, "\n{}\n\n{rows}", lines(&filled.above));
            if !filled.below.is_empty() {
                let _ = write!(text, "\n{}\n", lines(&filled.below));
            }
        }
        let _ = write!(text, "\nWhy ours differs: {}\n", source.differs);
    }
    text
}

fn table_row(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |\n", cells.join(" | "))
}

struct Row {
    text: String,
    outcome: &'static str,
}

/// Returns a row for each metric that both our variant of the case and a peer have.
fn rows(case: &Value, lines: &[Value]) -> Vec<Row> {
    let is_of = |it: &&Value| it["bench"] == case["bench"] && it["case"] == case["case"];
    let is_record = |it: &&Value| it["mad"].is_number() && it["peer"].is_boolean();
    let records: Vec<&Value> = lines.iter().filter(is_of).filter(is_record).collect();
    let ours = || records.iter().filter(|it| it["peer"] == false).map(|it| word(it, "variant"));
    let Some(ours) = words::ours(word(case, "case"), ours) else { return Vec::new() };
    let metrics = case["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let is_shown = |it: &&Value| OMITTED.split(' ').all(|omitted| omitted != word(it, "metric"));
    let shown = metrics.iter().filter(is_shown);
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
        let numbers = number(a).partial_cmp(&number(b));
        unit(a).cmp(&unit(b)).then(numbers.unwrap_or(std::cmp::Ordering::Equal))
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
    let Some(head) = head else { return String::new() };
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

fn between<'a>(page: &'a str, run: &str) -> Option<&'a str> {
    Some(page.split_once(&begin(run))?.1.split_once(END)?.0)
}

fn lines(workspace: &Workspace, run: &str) -> Result<Vec<Value>, Failure> {
    let lines: Result<_, _> = workspace.page(run)?.lines().map(serde_json::from_str).collect();
    lines.map_err(Failure::because(run))
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

    fn answer(row: &str, ours: &str, outcome: &str) -> String {
        format!(
            r#"{{"question":"q","row":"{row}","peer":"tokio+join","ours_value":"{ours}","peer_value":"7 ns","outcome":"{outcome}"}}"#
        )
    }

    #[test]
    fn a_gain_has_the_range_of_its_runs_and_its_price() {
        let runs = [
            answer("p99", "2.5 ns", "better"),
            answer("median", "9 ns", "worse"),
            answer("threads", "3", "better"),
            answer("p99", "2.4 ns", "better"),
            answer("median", "8 ns", "even"),
            answer("threads", "3", "undecided"),
        ];
        let table = answers(&values(&runs.join("\n")));
        let rows = "| q | p99 | 2.4 to 2.5 ns | 7 ns (tokio) | median: 8 to 9 ns, against 7 ns (tokio) |\n\
                    |  | threads | 3 | 7 ns (tokio) | no gain in 1 of 2 runs |\n";
        assert!(table.ends_with(rows), "{table}");
    }

    #[test]
    fn a_question_without_a_gain_is_shown_with_its_price() {
        let table = answers(&values(&answer("median", "9 ns", "worse")));
        let price = "| q |  |  |  | median: 9 ns, against 7 ns (tokio) |\n";
        assert!(table.ends_with(price), "{table}");
        let table = answers(&values(&answer("median", "9 ns", "undecided")));
        assert!(table.ends_with("| q | median | 9 ns | 7 ns (tokio) | undecided |\n"), "{table}");
    }

    #[test]
    fn a_source_has_a_table_with_its_figures_and_the_reason() {
        let record = |variant, cycles| {
            format!(
                r#"{{"bench":"percpu","case":"alloc-warm","variant":"{variant}","metric":"cycles_per_alloc","median":{cycles},"n":5}}"#
            )
        };
        let run = [record("unprotected", "4.0"), record("compiled out", "6.0")].join("\n");
        let page = seeds(&values(&run));
        let heads = "\n| guard | cycles, ours | cycles, source | increase, ours |";
        assert!(page.contains(heads), "{page}");
        assert!(page.contains("\n| compiled out | 6.00 | 166 | +2.0 | 0 | 5 |\n"), "{page}");
        assert_eq!(page.matches("Why ours differs").count(), tables::SOURCES.len());
    }

    #[test]
    fn a_changed_digit_is_found() {
        let table = answers(&values(""));
        assert_eq!(unknown_ratios("p", "It is 4.2 × faster.", &table).len(), 1);
        assert!(unknown_ratios("p", "It is faster: ×", &table).is_empty());
        assert_eq!(unknown_ratios("p", "It is 4.2 × faster.", "4.2 ×").len(), 0);
    }
}
