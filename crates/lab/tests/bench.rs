//! Tests of benches as a user runs them, with sizes that are too small to measure anything.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::{fs, thread};

use afterwork_lab::output::record::{Head, Line, Listed, MACHINE, Record, SCHEMA};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A command line with sizes that are so small that the run ends at once.
const TINY: &str = "bench workqueue --producers 2 --items 16 --repeat 2";
const TINY_QUEUES: &str = "bench mpscq --items 64 --repeat 2";
/// A run that takes half an hour.
const LONG: &str = "bench workqueue --cases one-at-a-time --items 50000000 --repeat 1 --json";

fn lab(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afterwork-lab"));
    command.args(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(line: &str) -> Child {
    lab(line).spawn().expect("the command starts")
}

fn finish(line: &str) -> Output {
    lab(line).output().expect("the command ends")
}

/// Returns the output of a command line that succeeds.
fn good(line: &str) -> String {
    out(finish(line), 0)
}

/// Returns the output of a command that exits with `code`.
fn out(output: Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}", text(output.stderr));
    text(output.stdout)
}

/// Returns the errors of a command line that could not run.
fn failed(line: &str) -> String {
    let output = finish(line);
    let err = text(output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {err}");
    err
}

/// Returns the output of a child, and its first line.
fn begun(child: &mut Child) -> (BufReader<ChildStdout>, String) {
    let stdout = child.stdout.take().expect("piped");
    let (mut out, mut head) = (BufReader::new(stdout), String::new());
    out.read_line(&mut head).expect("the head is text");
    (out, head)
}

/// Writes a shell script.
fn script(place: &Path, body: &str) {
    fs::write(place, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the command speaks UTF-8")
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).expect("a process id is an i32");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("the child can be signalled");
}

/// Returns the records of the output, which must begin with a head.
fn records(out: &str) -> Vec<Record> {
    let mut lines = out.lines();
    let head: Head = serde_json::from_str(lines.next().expect("a head")).expect("a head");
    assert_eq!(head.schema, SCHEMA);
    lines
        .map(|line| serde_json::from_str::<Line>(line).expect(line))
        .filter_map(|line| match line {
            Line::Record(record) => Some(record),
            _ => None,
        })
        .collect()
}

/// Checks that each variant has a record of each metric, and that the peers are those that `all`
/// marks with `true`.
fn has_records(records: &[Record], case: &str, metrics: &[&str], unit: &str, all: &[(&str, bool)]) {
    for (variant, peer) in all {
        for metric in metrics {
            let record = records
                .iter()
                .find(|r| r.case == case && r.variant == *variant && r.metric == *metric)
                .unwrap_or_else(|| panic!("no {metric} of {variant} in {case}"));
            assert!(record.median > 0.0 && record.mad >= 0.0);
            assert_eq!((record.n, record.peer), (2, *peer), "{variant}");
            assert_eq!(record.unit, unit);
        }
    }
}

#[test]
fn json_is_a_head_and_one_record_per_line() {
    let records = records(&good(&format!("{TINY} --json --seed 7")));
    let peers = ["tokio", "rayon", "threadpool", "crossbeam"].map(|it| (it, true));
    let all = [&peers[..], &[("cpu", false), ("system+spawn", false)]].concat();
    for case in ["one-at-a-time", "batch-1000", "fan-out"] {
        has_records(&records, case, &["items_per_s"], "items/s", &all);
        let mut of_case = records.iter().filter(|r| r.case == case);
        assert!(of_case.any(|r| r.variant == MACHINE));
    }
    assert!(records.iter().all(|r| r.bench == "workqueue"));
}

#[test]
fn every_queue_has_a_record_for_every_number_of_producers() {
    let records = records(&good(&format!("{TINY_QUEUES} --json --seed 7")));
    let peers = ["std", "flume", "kanal", "tokio"].map(|it| (it, true));
    let owned = [&[("mailbox", false)], &peers[..]].concat();
    for (case, all) in [
        ("push-pop", &[("mpscq", false), ("cordyceps", true)][..]),
        ("push-pop-contiguous", &[("lifo", false), ("segqueue", true)]),
        ("owned", &owned),
    ] {
        let metrics = ["ns_paused_1", "ns_paused_8", "ns_tight_2", "ns_tight_4"];
        has_records(&records, case, &metrics, "ns/item", all);
    }
    assert!(records.iter().all(|r| r.bench == "mpscq"));
}

#[test]
fn text_is_headed_by_the_machine_and_fits_its_width() {
    for bench in [TINY, TINY_QUEUES] {
        let out = good(&format!("{bench} --seed 7"));
        assert!(out.starts_with("machine "), "{out}");
        assert!(out.contains("--seed 7") && out.contains("best peer"), "{out}");
        assert!(!out.contains('\x1b'), "color into a pipe: {out}");
        let tables = out.lines().skip_while(|line| !line.starts_with("variant"));
        // Sentences wrap at the width of the terminal.
        let tables = tables.take_while(|line| !line.contains("in words:"));
        fit(tables.filter(|line| !line.starts_with("warning")));
    }
}

fn fit<'a>(mut lines: impl Iterator<Item = &'a str>) {
    let wide = lines.find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
}

#[test]
fn sources_have_tables_as_text_and_records_as_json() {
    let tiny = "bench seeds --quick --items 16 --cases lock-hold,replace-idle";
    let out = good(tiny);
    assert!(out.starts_with("machine "), "{out}");
    for part in ["\n000: ", "\ncache_shard ", "\n001: ", "\nall "] {
        assert!(out.contains(part), "{part} in {out}");
    }
    // The tables and blocks of other cases are absent.
    assert_eq!(out.matches("Why ours differs: ").count(), 2, "{out}");
    assert!(!out.contains("bridges"), "{out}");
    let tables = out.lines().skip_while(|line| !line.starts_with("000: "));
    fit(tables.filter(|line| !line.contains(": ")));
    let out = good(&format!("{tiny} --json"));
    assert!(out.contains(r#""run":1,"values""#), "{out}");
    let records = records(&out);
    let means = records.iter().filter(|it| it.metric == "replace_mean");
    let variants: Vec<&str> = means.map(|it| it.variant.as_str()).collect();
    assert_eq!(variants, ["waits", "waits early_qs"]);
}

#[test]
fn only_requested_cases_are_measured() {
    let asked = "--cases batch-1000 --peers tokio,crossbeam --json --pin";
    let records = records(&good(&format!("{TINY} {asked}")));
    assert!(records.iter().all(|r| r.case == "batch-1000"));
    let peers = records.iter().filter(|r| r.peer);
    let mut names: Vec<&str> = peers.map(|r| r.variant.as_str()).collect();
    names.dedup();
    assert_eq!(names, ["tokio", "crossbeam"]);
}

#[test]
fn sigint_prints_the_measurements_and_exits_130() {
    // The repetitions outlast the test. The signal ends them.
    let long = "bench workqueue --cases one-at-a-time --items 200 --repeat 10000";
    let root = tempfile::tempdir().expect("a folder");
    let page = root.path().join("page.html");
    for flag in ["", " --json"] {
        let mut child = start(&format!("{long}{flag} --report {}", page.display()));
        let mut talk = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("repetition 1 of 10000 done") {
            line.clear();
            assert!(talk.read_line(&mut line).expect("talk is text") > 0, "ended by itself");
        }
        interrupt(&child);
        // Both pipes are read to the end. Otherwise the child could block in a write.
        let rest = thread::spawn(move || {
            let mut rest = String::new();
            talk.read_to_string(&mut rest).map(|_| rest)
        });
        let output = child.wait_with_output().expect("the command ends");
        let rest = rest.join().expect("no panic").expect("talk is text");
        assert_eq!(output.status.code(), Some(130), "{rest}");
        let out = text(output.stdout);
        if !flag.is_empty() {
            let records = records(&out).into_iter();
            let measured = records.filter(|r| r.metric == "items_per_s" && r.n >= 1);
            assert!(measured.count() >= 4, "{out}");
            continue;
        }
        for part in ["medians of", "the rest was not measured"] {
            assert!(out.contains(&format!("interrupted: {part}")), "{out}");
        }
        let page = fs::read_to_string(&page).expect("a page of what there is");
        assert!(page.contains("Interrupted: the last case"), "{page}");
        assert!(out.lines().any(|line| line.starts_with("crossbeam ")), "{out}");
    }
}

#[test]
fn sigint_reaches_into_a_run() {
    // The test ends when the run reacts to the signal.
    let mut child = start(LONG);
    let (mut out, mut lines) = begun(&mut child);
    interrupt(&child);
    out.read_to_string(&mut lines).expect("records are text");
    assert_eq!(child.wait().expect("the command ends").code(), Some(130));
    let records = records(&lines);
    assert!(records.iter().all(|record| record.variant == MACHINE));
}

#[test]
fn a_child_that_measures_for_another_ends_with_it() {
    let script = format!("{} {LONG} --inside=$$ & read -r _", env!("CARGO_BIN_EXE_afterwork-lab"));
    let mut parent = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("there is a shell");
    let (mut out, head) = begun(&mut parent);
    assert!(!head.is_empty(), "it has begun");
    parent.kill().expect("it waits for a line");
    parent.wait().expect("it was killed");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("records are text");
    assert!(!rest.contains("ended"), "{rest}");
    failed(&format!("{TINY} --inside=1"));
}

#[test]
fn a_closed_pipe_ends_a_bench_without_an_error() {
    let mut child = start(&format!("{TINY} --json"));
    drop(begun(&mut child));
    let output = child.wait_with_output().expect("the command ends");
    let err = text(output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(!err.contains("error") && !err.contains("panicked"), "{err}");
}

#[test]
fn two_programs_are_compared_in_alternating_runs() {
    const ONE: &str = "bench workqueue --producers 2 --items 64 --repeat 1 --cases batch-1000 \
        --scope cpu --json --check --seed 7";
    let root = tempfile::tempdir().unwrap();
    let before = root.path().join("before");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_afterwork-lab"), &before).unwrap();
    let output = finish(&format!("{ONE} --against {}", before.display()));
    // A program may be slower in tiny alternating runs, so both exit codes are correct.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(output.stderr));
    let out = text(output.stdout);
    let records = records(&out);
    let rate = |variant: &str| {
        let mut rates = records.iter().filter(|r| r.metric == "items_per_s");
        rates.any(|r| r.variant == variant && r.median > 0.0 && r.n == 1)
    };
    assert!(rate("cpu") && rate("cpu @before") && rate("cpu+spawn @before"), "{out}");
    assert!(out.contains(r#""against":"cpu @before""#), "{out}");
    assert!(records.iter().all(|r| !r.peer));
}

#[test]
fn failure_of_the_other_program_ends_the_comparison() {
    let root = tempfile::tempdir().unwrap();
    let other = root.path().join("other");
    let listed = r#"{"bench":"workqueue","case":"batch-1000"}"#;
    let lists = format!("case \"$*\" in *--list*) echo '{listed}'; exit;; esac");
    for (body, reason) in [
        (format!("{lists}; exit 3"), "exit status: 3"),
        (format!("{lists}; echo rubbish"), "is not that of a bench"),
    ] {
        script(&other, &body);
        let asked = format!("--cases batch-1000,fan-out --scope cpu --against {}", other.display());
        let err = failed(&format!("{TINY} {asked}"));
        for part in [reason, "does not have these cases: fan-out"] {
            assert!(err.contains(part), "{err}");
        }
    }
}

#[test]
fn missing_comparison_program_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let other = root.path().join("other");
    let listed = r#"{"bench":"mpscq","case":"older"}"#;
    script(&other, &format!("echo '{listed}'"));
    let asked = "`/usr/bin/yes bench workqueue --list --json` lists no cases";
    let stranger = format!("bench mpscq --against {}", other.display());
    for (line, reason) in [
        ("bench --against /nowhere", "cannot start /nowhere"),
        ("bench --against /bin/true", "lists no cases"),
        ("bench --against /bin/echo", "lists no cases"),
        ("bench workqueue --against /usr/bin/yes", asked),
        (&stranger, "it has none of the cases push-pop, push-pop-contiguous, owned"),
    ] {
        let err = failed(line);
        // On some machines a case is skipped. The output then begins with a line that reports that.
        let lines: Vec<_> = err.lines().filter(|it| !it.contains("skipped")).collect();
        assert!(lines.len() == 1 && lines[0].contains(reason), "{line}: {err}");
    }
}

#[test]
fn list_shows_every_case_and_measures_nothing() {
    let out = good("bench scale --list");
    // No page is written, because writing it would fail here.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("afterwork-report.html")).unwrap();
    self::out(lab("bench --list").current_dir(&folder).output().unwrap(), 0);
    for part in ["scale queues\n", "\nscale domains\n", "ours; crossbeam; (log n)"] {
        assert!(out.contains(part), "{out}");
    }
    let listed = good("bench scale --list --json");
    let listed = listed.lines().map(|line| serde_json::from_str(line).expect(line));
    let listed: Vec<Listed> = listed.collect();
    let cases = listed.iter().map(|it| format!("{} {}", it.bench, it.case));
    let output = out.lines().filter(|line| !line.starts_with(' '));
    assert!(cases.eq(output), "{listed:?}");
    let queues = listed.iter().find(|it| it.case == "queues").unwrap();
    assert!(queues.ours.iter().any(|it| it == "ours"), "{queues:?}");
    assert!(queues.peers.iter().any(|it| it == "crossbeam"), "{queues:?}");
}
