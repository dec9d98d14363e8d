//! `cargo xtask sanitize`: tests and tortures under ThreadSanitizer, with a standard library that is built for it.
//!
//! It needs a nightly toolchain and the standard library's sources, which are installed once where rustup can. Where
//! they cannot be had it says so and is good, for the rest of the workspace is built by the stable toolchain alone.
//!
//! The sanitizer does not know fences: what a fence alone hands over it reports as a race. Nothing is suppressed for
//! that. Data goes from thread to thread by a release and an acquire of one word, everywhere; where a fence would do as
//! well, as before the last handle of an item frees it, the code reads that word again. Fences order the words of
//! wake-ups, drains and grace periods among themselves. That they do so the sanitizer cannot say; the models can.

use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::report::{Failure, data, talk};
use crate::torture::{self, Program};
use crate::workspace::{Metadata, NIGHTLY, OF_OUR_TOOLCHAIN, Workspace, output};

/// Packages whose unit tests are run, and which of their test programs.
const SUITES: &[(&str, &[&str])] = &[
    ("afterwork-mpscq", &[]),
    ("afterwork", &["workqueue", "percpu", "rcu"]),
];

/// The first report ends the program. Threads of a registry that was dropped end by themselves and nobody joins them:
/// that is no report.
const TSAN_OPTIONS: &str = "halt_on_error=1 history_size=4 report_thread_leaks=0";

/// What a command line asks for.
#[derive(Debug, PartialEq)]
struct Options {
    /// For each torture.
    minutes: String,
    seed: Option<String>,
}

/// Runs all of it.
pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        data(&help());
        return Ok(ExitCode::SUCCESS);
    }
    let options = options(args)?;
    let host = match make_ready(workspace) {
        Ok(host) => host,
        Err(reason) => {
            talk(&format!("sanitize: left out: {reason}\n"));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let metadata = workspace.metadata(false)?;
    let mut is_good = true;
    let mut run = |name: &str, command: &mut Command| -> Result<(), Failure> {
        let start = Instant::now();
        let status = command
            .status()
            .map_err(|error| Failure::new(format!("cannot run rustup: {error}")))?;
        let seconds = start.elapsed().as_secs();
        let word = if status.success() { "good" } else { "FAULTY" };
        data(&format!("{name}: {word}, {seconds} s\n"));
        is_good &= status.success();
        Ok(())
    };
    for (package, tests) in SUITES {
        let mut command = sanitized(workspace, &metadata, &host);
        command.args(["-p", package, "--lib"]);
        command.args(tests.iter().flat_map(|test| ["--test", test]));
        run(package, &mut command)?;
    }
    for program in torture::programs(&metadata) {
        let mut words = vec!["--minutes".to_string(), options.minutes.clone()];
        words.extend(
            options
                .seed
                .iter()
                .flat_map(|seed| ["--seed".into(), seed.clone()]),
        );
        run(
            &format!("torture {}", program.name),
            &mut tortured(workspace, &metadata, &host, &program, &words),
        )?;
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn options(args: &[String]) -> Result<Options, Failure> {
    let mut options = Options {
        minutes: "1".into(),
        seed: None,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().cloned();
        match (arg.as_str(), value) {
            ("--minutes", Some(minutes)) => options.minutes = minutes,
            ("--seed", Some(seed)) => options.seed = Some(seed),
            _ => {
                return Err(Failure::new(format!(
                    "`{arg}` is not understood here; see --help"
                )));
            }
        }
    }
    Ok(options)
}

/// Returns the name of this machine's target, when all is there that the sanitizer needs.
///
/// # Errors
///
/// Why it is not, in one line.
pub fn make_ready(workspace: &Workspace) -> Result<String, Failure> {
    if let Some(host) = host_with_sources(workspace) {
        return Ok(host);
    }
    let mut command = rustup(workspace);
    command.args(["component", "add", "--toolchain", NIGHTLY, "rust-src"]);
    output(&mut command)?;
    host_with_sources(workspace)
        .ok_or_else(|| Failure::new("rustup's nightly toolchain has no sources of the library"))
}

fn rustup(workspace: &Workspace) -> Command {
    let mut command = workspace.command("rustup");
    for name in OF_OUR_TOOLCHAIN {
        command.env_remove(name);
    }
    command
}

fn host_with_sources(workspace: &Workspace) -> Option<String> {
    let nightly = |args: &[&str]| {
        let mut command = rustup(workspace);
        command.args(["run", NIGHTLY, "rustc"]).args(args);
        String::from_utf8(output(&mut command).ok()?).ok()
    };
    let sources = nightly(&["--print", "sysroot"])?;
    let library = std::path::Path::new(sources.trim()).join("lib/rustlib/src/rust/library/std");
    let version = nightly(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.filter(|_| library.is_dir()).map(String::from)
}

/// Begins a command that tests under the sanitizer.
fn sanitized(workspace: &Workspace, metadata: &Metadata, host: &str) -> Command {
    let mut command = rustup(workspace);
    command
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        .env("TSAN_OPTIONS", TSAN_OPTIONS)
        .args(["run", NIGHTLY, "cargo", "test", "--quiet", "-Zbuild-std"])
        .args(["--target", host, "--target-dir"])
        .arg(metadata.target_directory.join("tsan"));
    command
}

/// Makes the command that runs a torture under the sanitizer.
pub fn tortured(
    workspace: &Workspace,
    metadata: &Metadata,
    host: &str,
    program: &Program,
    args: &[String],
) -> Command {
    let mut command = sanitized(workspace, metadata, host);
    command
        .args(["-p", &program.package, "--test", &program.target, "--"])
        .args(args);
    command
}

fn help() -> String {
    "Runs tests and tortures under ThreadSanitizer. Wants a nightly toolchain with rust-src, and builds for minutes.\n\n\
     Usage: cargo xtask sanitize [--minutes M] [--seed S]\n\n\
     \x20 --minutes M  how long each torture runs, one without\n\
     \x20 --seed S     where their dice start; from the clock without, and printed\n"
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, Failure> {
        let words: Vec<_> = line.split_whitespace().map(str::to_string).collect();
        options(&words)
    }

    #[test]
    fn a_seed_and_a_time_are_handed_on() {
        let options = parsed("--seed 7 --minutes 0.5").unwrap();
        assert_eq!(options.minutes, "0.5");
        assert_eq!(options.seed.as_deref(), Some("7"));
        assert_eq!(parsed("").unwrap().minutes, "1");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for line in ["--config x", "--seed"] {
            let word = line.split(' ').next().unwrap();
            assert!(parsed(line).unwrap_err().to_string().contains(word));
        }
    }
}
