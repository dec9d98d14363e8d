//! `cargo xtask torture NAME`: runs one torture program for the requested time.
//!
//! Programs are discovered by their names: a program is a test target called `torture_NAME` that
//! parses its own arguments. It is built for speed or for a sanitizer. If it is built with `--cfg
//! torture`, in a separate folder, it can also reintroduce bugs and inject system errors.

#[path = "../../crates/afterwork/tests/torture/options.rs"]
mod options;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::report::{Failure, data, exit_code, skipped, talk};
use crate::sanitize::{self, REPORTED, SANITIZERS, Sanitizer};
use crate::test::with_cfg;
use crate::workspace::{Metadata, Workspace, output, status};

const PREFIX: &str = "torture_";

/// The exit status after a fault. It must match `tests/torture/support.rs`.
const FAULT: i32 = 70;

const REFUSED: i32 = 2;

/// The signals that a fault can raise: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
const FATAL: &[i32] = &[4, 5, 6, 7, 8, 11];

#[derive(Debug, PartialEq)]
pub struct Program {
    pub name: String,
    pub package: String,
    pub target: String,
}

#[derive(Debug, Default, PartialEq)]
pub struct Asked {
    sanitizer: Option<&'static Sanitizer>,
    twin: Option<String>,
    is_hostile: bool,
    words: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub enum End {
    Good,
    Faulty,
    Refused,
    /// The program could not start, or was stopped.
    Other(String),
}

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let metadata = workspace.metadata()?;
    let programs = programs(&metadata);
    let asks = args.iter().any(|arg| matches!(arg.as_str(), "help" | "--help" | "-h"));
    let Some((name, rest)) = args.split_first().filter(|_| !asks) else {
        data(&help(&programs));
        return Ok(ExitCode::SUCCESS);
    };
    let program = find(&programs, name)?;
    let asked = Asked::of(rest, None);
    if let Some(twin) = &asked.twin {
        options::find_twin(twin, &workspace.root().join("crates")).map_err(Failure::new)?;
    }
    if let Some(sanitizer) = asked.sanitizer
        && let Err(reason) = sanitize::make_ready(workspace, sanitizer)
    {
        return Ok(skipped("torture", reason));
    }
    let start = Instant::now();
    let end = run(workspace, &metadata, program, &asked)?;
    match &end {
        End::Refused => return Ok(ExitCode::from(REFUSED as u8)),
        End::Other(why) => return Err(Failure::new(why)),
        End::Good | End::Faulty => {}
    }
    if asked.twin.is_none() {
        return Ok(exit_code(end.is_good()));
    }
    // The chore succeeds only if the program finds the bug.
    let seconds = start.elapsed().as_secs_f64();
    data(&match end {
        End::Faulty => format!("found after {seconds:.1} s\n"),
        _ => format!("not found in {seconds:.1} s\n"),
    });
    Ok(exit_code(end == End::Faulty))
}

impl Asked {
    pub fn of(words: &[String], sanitizer: Option<&'static Sanitizer>) -> Self {
        let mut asked = Self { sanitizer, ..Self::default() };
        for (i, word) in words.iter().enumerate() {
            let named = |sanitizer: &&Sanitizer| word.strip_prefix("--") == Some(sanitizer.name);
            if let Some(sanitizer) = SANITIZERS.iter().find(named) {
                asked.sanitizer = Some(sanitizer);
                continue;
            }
            asked.is_hostile |= word == "--hostile";
            if word == "--twin" {
                asked.twin = words.get(i + 1).cloned();
            }
            asked.words.push(word.clone());
        }
        asked
    }
}

impl End {
    pub fn is_good(&self) -> bool {
        *self == Self::Good
    }

    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(0), _) => Self::Good,
            (Some(FAULT | REPORTED), _) => Self::Faulty,
            (_, Some(signal)) if FATAL.contains(&signal) => Self::Faulty,
            (Some(REFUSED), _) => Self::Refused,
            _ => Self::Other(format!("the torture could not run: {status}")),
        }
    }
}

pub fn run(
    workspace: &Workspace,
    metadata: &Metadata,
    program: &Program,
    asked: &Asked,
) -> Result<End, Failure> {
    let cfgs: &[&str] = match asked.is_hostile || asked.twin.is_some() {
        true => &["torture"],
        false => &[],
    };
    let mut build = match asked.sanitizer {
        Some(sanitizer) => {
            let host = sanitize::make_ready(workspace, sanitizer)?;
            sanitize::sanitized(workspace, metadata, &host, sanitizer, cfgs)
        }
        None => {
            let mut build = workspace.command("cargo");
            build.args(["test", "--quiet", "--release"]);
            for cfg in cfgs {
                // This uses a separate folder, because the flag affects every crate.
                let (name, flags) = with_cfg(cfg, &|name| std::env::var(name).ok());
                let apart = metadata.target_directory.join(cfg);
                build.env(name, flags).arg("--target-dir").arg(apart);
            }
            build
        }
    };
    build
        .args(["-p", &program.package, "--test", &program.target])
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let executable = executable(&output(&mut build)?, &program.target)?;
    let mut command = workspace.command(&executable);
    if let Some(sanitizer) = asked.sanitizer {
        sanitizer.watch(&mut command, false);
    }
    let status = status(command.args(&asked.words))?;
    if let Some(signal) = status.signal() {
        talk(&format!("torture: killed by signal {signal}\n"));
    }
    Ok(End::of(status))
}

fn executable(messages: &[u8], target: &str) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(messages);
    let found = text.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let program = message["executable"].as_str()?;
        (message["target"]["name"] == target).then(|| program.to_owned())
    });
    found.ok_or_else(|| Failure::new(format!("cargo built no {target}")))
}

pub fn programs(metadata: &Metadata) -> Vec<Program> {
    let mut programs = Vec::new();
    for package in &metadata.packages {
        let tests = package.targets.iter().filter(|target| target.is_test());
        programs.extend(tests.filter_map(|test| {
            let name = test.name.strip_prefix(PREFIX)?.replace('_', "-");
            Some(Program { name, package: package.name.clone(), target: test.name.clone() })
        }));
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs
}

fn find<'a>(programs: &'a [Program], name: &str) -> Result<&'a Program, Failure> {
    let found = programs.iter().find(|program| program.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        Failure::new(format!("unknown torture `{name}`; valid: {}", names.join(", ")))
    })
}

fn help(programs: &[Program]) -> String {
    let mut text = String::from(
        "Runs random operations of one subsystem on many threads, and checks their results.\n\n\
         Usage: cargo xtask torture NAME [--tsan|--asan] [--minutes M] [--seed S] [--config C]\n\
         \x20                               [--hostile [--without ACT,ACT...]] [--twin BUG]\n\nNames:\n",
    );
    for program in programs {
        text += &format!("  {}\n", program.name);
    }
    text += "
  --tsan       use ThreadSanitizer; needs a nightly toolchain with rust-src, and minutes to build
  --asan       use AddressSanitizer; needs a nightly toolchain
  --minutes M  minutes to run, also a fraction [default: 2 seconds]
  --seed S     seed of the first round [default: from the clock, printed]
  --config C   a configuration of the torture; an unknown name lists them
  --hostile    add hostile user code: it panics, also in destructors, sleeps, waits, drops the last handles
               of other objects, leaks guards, forks; and system calls for threads, membarrier, eventfds and mappings fail
  --without A  omit these hostile acts; an unknown name lists them. To find the acts that a fault needs, omit half of them
  --twin BUG   put this bug back (its name in the source, in `twin::armed`); success then means that it is found

A fault is reported with the seed of its round: --seed with this number starts with this round.

Examples:
  cargo xtask torture rcu --minutes 5                                       after a change of grace periods
  cargo xtask torture rcu --config TREE03 --twin 'rcu: the driver wakes early'   does it find this bug?
  cargo xtask torture workqueue --hostile --asan --minutes 30               memory errors under hostile user code
  cargo xtask torture workqueue --hostile --seed 7 --without fork,thread    the same seed without these two acts

Exit code: 0 no fault, 1 a fault; with --twin 0 found, 1 not found; 2 could not build or run.
";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn metadata() -> Metadata {
        let tests = ["torture_task_work", "torture_rcu", "torture_tool", "loom"];
        let mut package = Package::with_tests("one", &tests);
        package.targets[2].kind = vec!["bin".into()];
        Metadata { packages: vec![package], target_directory: "t".into() }
    }

    #[test]
    fn programs_are_the_test_targets_of_that_prefix() {
        let programs = programs(&metadata());
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["rcu", "task-work"]);
        assert_eq!(find(&programs, "task-work").unwrap().target, "torture_task_work");
    }

    #[test]
    fn wrong_name_is_reported_with_the_right_ones() {
        let text = find(&programs(&metadata()), "nosuch").unwrap_err().to_string();
        assert!(text.contains("nosuch") && text.contains("rcu, task-work"));
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn help_lists_every_program() {
        let text = help(&programs(&metadata()));
        assert!(text.contains("  rcu\n") && text.contains("  task-work\n"));
    }

    #[test]
    fn only_a_fault_is_a_fault() {
        let end = |raw| End::of(ExitStatus::from_raw(raw));
        assert_eq!(end(0), End::Good);
        // These are SIGSEGV, SIGABRT, and the exit statuses of the program and of the sanitizers.
        for raw in [11, 6, FAULT << 8, REPORTED << 8] {
            assert_eq!(end(raw), End::Faulty);
        }
        assert_eq!(end(REFUSED << 8), End::Refused);
        // These are another panic, SIGINT, and SIGKILL.
        for raw in [101 << 8, 2, 9] {
            assert!(matches!(end(raw), End::Other(_)), "{raw}");
        }
    }

    #[test]
    fn misspelled_word_is_rejected_with_the_nearest_ones() {
        let configs = ["TREE01", "TREE02", "SRCU-P", "QSBR"];
        assert_eq!(options::find("QSBR", &configs), Ok("QSBR"));
        for (typed, answer) in [
            ("TREE1", "did you mean TREE01, or TREE02?"),
            ("SRCU", "did you mean SRCU-P?"),
            ("xyz", "there are TREE01, TREE02, SRCU-P, QSBR"),
        ] {
            let refused = options::find(typed, &configs).unwrap_err();
            assert_eq!(refused, format!("`{typed}` is not known; {answer}"));
        }
        assert!(options::find("", &configs).is_err());
    }

    #[test]
    fn torture_bugs_are_found_in_the_sources() {
        let crates = Workspace::find().unwrap().root().join("crates");
        let find = |asked| options::find_twin(asked, &crates);
        // The list has one bug for each kind of call that names a bug, and one whose name is on the
        // next line.
        for name in [
            "srcu: single flip",
            "rcu: relaxed answer",
            "event count: no fence in notify",
            "rcu: a driver that stops wakes one",
        ] {
            assert_eq!(find(name), Ok(()));
        }
        let refused = find("srcu: single flp").unwrap_err();
        assert!(refused.contains("did you mean srcu: single flip"), "{refused}");
        let refused = find("nosuch").unwrap_err();
        let expected = "--twin: `nosuch` is not known; the nearest are ";
        assert!(refused.starts_with(expected), "{refused}");
        let refused = find("srcu:single").unwrap_err();
        let expected = "--twin: `srcu:single` is not known; did you mean srcu: single flip?";
        assert_eq!(refused, expected);
        // This name is only in a comment.
        assert!(find("park: asleep forever").is_err());
    }

    #[test]
    fn sanitizer_options_may_be_anywhere_and_are_not_forwarded() {
        let words = ["--minutes", "1", "--asan", "--hostile", "--twin", "a: b"];
        let asked = Asked::of(&words.map(String::from), None);
        assert_eq!(asked.sanitizer, Some(&SANITIZERS[1]));
        assert!(asked.is_hostile && asked.twin.as_deref() == Some("a: b"));
        assert_eq!(asked.words, ["--minutes", "1", "--hostile", "--twin", "a: b"]);
    }

    #[test]
    fn program_is_found_in_cargos_output() {
        let said =
            br#"{"reason":"compiler-artifact","target":{"name":"afterwork"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"torture_rcu"},"executable":"/t/torture_rcu-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(said, "torture_rcu").unwrap(), "/t/torture_rcu-1");
        assert!(executable(said, "torture_percpu").is_err());
    }
}
