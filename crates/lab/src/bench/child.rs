//! Runs a bench of an afterwork-lab program in a child process, and parses its output.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use top::exit::{INTERRUPTED_CODE, Stop};
use top::talk::say;

use super::settings::Settings;
use crate::harness::case::{Case, Sample};
use crate::harness::metric::Metric;
use crate::output::record::{Line, Place, Record};

/// The options with a value that are not forwarded to child processes.
const OWN_VALUES: [&str; 8] =
    ["--against", "--repeat", "--seed", "--seconds", "--report", "--cases", "--peers", "--only"];
const OWN_FLAGS: [&str; 5] = ["--json", "--runs", "--check", "--no-report", "--list"];

/// The maximum size of a case list in bytes. The list of this version takes 20 kB.
const LONGEST_LIST: u64 = 1 << 20;

/// Runs `program` with `args`, which must select JSON output, and returns the records that it
/// prints. Returns `None` if SIGINT ended the program: the terminal sends it to all processes of
/// the group.
pub fn measure(program: &Path, args: &[OsString]) -> Result<Option<Vec<Record>>, Stop> {
    let name = program.display();
    let failed = |reason: &str| Err(Stop::CouldNotRun(format!("{name}: {reason}")));
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(Stop::because(format!("cannot start {name}")))?;
    if output.status.code() == Some(i32::from(INTERRUPTED_CODE)) {
        return Ok(None);
    }
    if !output.status.success() {
        let talk = String::from_utf8_lossy(&output.stderr);
        return failed(&format!("{} ({})", output.status, reason(&talk)));
    }
    if output.stdout.is_empty() {
        return failed("it printed nothing");
    }
    let mut records = Vec::new();
    for text in String::from_utf8_lossy(&output.stdout).lines() {
        match serde_json::from_str(text) {
            Ok(Line::Record(record)) => records.push(record),
            Ok(_) => {}
            Err(_) => return failed("the output is not that of a bench"),
        }
    }
    Ok(Some(records))
}

/// Removes the cases that `program` does not list. If `bench` is given, only this bench is listed.
/// Returns an error if no case remains, or if the program prints no case list.
pub fn retain_known(
    program: &Path,
    bench: Option<&str>,
    cases: &mut Vec<Case>,
) -> Result<(), Stop> {
    let name = program.display();
    let cannot = |reason| Stop::CouldNotRun(format!("{name}: cannot compare: {reason}"));
    let mut args = vec!["bench"];
    args.extend(bench);
    args.extend(["--list", "--json"]);
    let mut child = Command::new(program)
        .args(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Stop::because(format!("cannot start {name}")))?;
    let output = child.stdout.take().expect("it is piped").take(LONGEST_LIST);
    let lines = BufReader::new(output).lines();
    let known: Option<Vec<Place>> =
        lines.map(|line| serde_json::from_str(&line.ok()?).ok()).collect();
    // This kills a program that never stops printing, such as `yes`.
    let _ = child.kill();
    let _ = child.wait();
    let known = known
        .filter(|known| !known.is_empty())
        .ok_or_else(|| cannot(format!("`{name} {}` lists no cases", args.join(" "))))?;
    let is_known =
        |case: &Case| known.iter().any(|it| it.bench == case.bench && it.case == case.name);
    let unknown: Vec<&str> = cases.iter().filter(|it| !is_known(it)).map(|it| it.name).collect();
    if unknown.len() == cases.len() {
        return Err(cannot(format!("it has none of the cases {}", unknown.join(", "))));
    }
    if !unknown.is_empty() {
        say(format_args!("{name} does not have these cases: {}", unknown.join(", ")));
    }
    cases.retain(is_known);
    Ok(())
}

/// Returns the line of a failed program's output that gives the reason, without a backtrace.
fn reason(talk: &str) -> String {
    let lines: Vec<&str> = talk.lines().collect();
    let panicked = lines.iter().rposition(|line| line.contains("panicked at "));
    // Lines before a panic may be warnings, so they are skipped.
    let end = &lines[panicked.unwrap_or(0)..];
    let output = |line: &&&str| line.starts_with("afterwork: ") || line.starts_with("error: ");
    if let Some(output) = end.iter().rfind(output) {
        return (*output).to_owned();
    }
    if let (Some(_), [place, message, ..]) = (panicked, end) {
        return format!("{place} {message}");
    }
    let is_hint = |line: &str| line.starts_with("note: ") || line.starts_with("skipping backtrace");
    let before_stack = lines.split(|line| *line == "stack backtrace:").next();
    let last = before_stack.and_then(|lines| lines.iter().rfind(|line| !is_hint(line)));
    last.map_or("it said nothing", |line| line).to_owned()
}

/// Makes the kernel kill this process when its parent `parent` exits, so that it cannot outlive its
/// parent. Returns an error if the parent has already exited, or the system call fails.
pub fn end_with(parent: u32) -> Result<(), Stop> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Stop::because("cannot request to exit with the parent process"))?;
    // The parent is checked after the call, because no signal is sent if it exited before the call.
    let is_there =
        getppid().is_some_and(|it| u32::try_from(it.as_raw_nonzero().get()) == Ok(parent));
    let other = || Stop::CouldNotRun(format!("--inside {parent}: this is not the parent process"));
    is_there.then_some(()).ok_or_else(other)
}

fn forwarded(args: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let word = arg.to_str().unwrap_or_default();
        let option = word.split_once('=').map_or(word, |(option, _)| option);
        if OWN_VALUES.contains(&option) {
            if option == word {
                args.next();
            }
        } else if !OWN_FLAGS.contains(&word) {
            kept.push(arg.clone());
        }
    }
    kept
}

pub fn args_for(case: &str) -> Vec<OsString> {
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut args = forwarded(&own);
    args.extend(["--json".into(), "--repeat=1".into(), format!("--cases={case}").into()]);
    args
}

pub fn this_program() -> Result<PathBuf, Stop> {
    std::env::current_exe().map_err(Stop::because("cannot find this program's own file"))
}

pub fn sample(records: &[Record], bench: &str, variant: &str, metrics: &[Metric]) -> Sample {
    let mut sample = Sample::default();
    for record in records.iter().filter(|it| it.bench == bench && it.variant == variant) {
        if let Some(metric) = metrics.iter().find(|it| it.name == record.metric) {
            sample.set(*metric, record.median);
        }
    }
    sample
}

/// Makes each variant run in a child process with `--inside`, so that it cannot reuse memory that
/// another variant has freed. Limits, whose names are in brackets, are computed in this process.
pub fn apart(mut case: Case, settings: &Settings) -> Case {
    if settings.inside {
        return case;
    }
    let (bench, name, metrics) = (case.bench, case.name, case.metrics);
    for variant in case.variants.iter_mut().filter(|it| !it.name.starts_with('(')) {
        let (of, interrupt) = (variant.name.clone(), settings.interrupt.clone());
        variant.run = Box::new(move || {
            let mut args = args_for(name);
            args.push(format!("--inside={}", std::process::id()).into());
            args.push(format!("--only={of}").into());
            let measured = measure(&this_program()?, &args);
            if interrupt.requested() {
                return Ok(None);
            }
            Ok(measured?.map(|records| sample(&records, bench, &of, metrics)))
        });
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn children_get_measuring_options_and_no_output_options() {
        let args = "bench --quick --against old workqueue --producers 2 --repeat=9 --json --pin --cases a,b --seed 7";
        let left = words("bench --quick workqueue --producers 2 --pin");
        assert_eq!(forwarded(&words(args)), left);
    }

    fn shell(script: &str) -> Result<Option<Vec<Record>>, Stop> {
        measure(Path::new("/bin/sh"), &["-c".into(), script.into()])
    }

    fn failure(script: &str) -> String {
        match shell(script) {
            Err(Stop::CouldNotRun(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_are_read_and_the_rest_is_left() {
        let record = r#"{"bench":"b","case":"c","variant":"v","metric":"m","unit":"ns","median":1.5,"mad":0,"n":1,"peer":false}"#;
        let run = r#"{"bench":"b","case":"c","variant":"v","run":1,"values":[["m",1.5]]}"#;
        let records = shell(&format!("echo '{record}'; echo '{run}'")).unwrap().unwrap();
        assert_eq!((records.len(), records[0].median), (1, 1.5));
    }

    #[test]
    fn failure_is_reported_in_one_line() {
        let said = failure("echo talk >&2; echo error: no such case >&2; exit 2");
        assert!(said.contains("no such case"));
        assert!(failure("echo hello").contains("is not that of a bench"));
        assert!(failure("true").contains("printed nothing"));
        let missing = measure(Path::new("/nowhere/at/all"), &[]);
        assert!(
            matches!(missing, Err(Stop::CouldNotRun(reason)) if reason.starts_with("cannot start /nowhere/at/all: "))
        );
        assert!(shell("exit 130").unwrap().is_none());
    }

    #[test]
    fn crash_report_contains_the_reason_without_the_backtrace() {
        let trace = "stack backtrace:\nnote: Some details";
        let panic =
            &format!("warning: w\nthread 'main' (7) panicked at a.rs:1:2:\nno memory\n{trace}");
        let panicked = "thread 'main' (7) panicked at a.rs:1:2: no memory";
        let hint = "note: run with `RUST_BACKTRACE=1`\nskipping backtrace printing";
        for (said, expected) in [
            (panic.as_str(), panicked),
            (
                &format!("{panic}\nafterwork: a worker unwound\nnote: more"),
                "afterwork: a worker unwound",
            ),
            (&format!("afterwork: a warning\n{panic}"), panicked),
            (&format!("out of memory\n{trace}"), "out of memory"),
            (&format!("out of memory\n{hint}"), "out of memory"),
            ("one\ntwo\n", "two"),
            ("", "it said nothing"),
        ] {
            assert_eq!(reason(said), expected, "{said}");
        }
    }
}
