//! `cargo xtask torture NAME`: one torture program, built for speed, for as long as asked.
//!
//! The programs are discovered: a crate joins by a test target called `torture_NAME` that reads its own arguments.

use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use crate::report::{Failure, data, talk};
use crate::sanitize;
use crate::test::with_cfg;
use crate::workspace::{Metadata, Workspace};

/// How a test target says that it is one of these programs.
const PREFIX: &str = "torture_";

/// Asks for the program under ThreadSanitizer; see `sanitize.rs`.
const TSAN: &str = "--tsan";

/// A torture program.
#[derive(Debug, PartialEq)]
pub struct Program {
    /// What one types.
    pub name: String,
    pub package: String,
    pub target: String,
}

/// Runs the program that `args` name, with what follows the name.
pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let metadata = workspace.metadata(false)?;
    let programs = programs(&metadata);
    let Some((name, rest)) = args.split_first() else {
        data(&help(&programs));
        return Ok(ExitCode::SUCCESS);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        data(&help(&programs));
        return Ok(ExitCode::SUCCESS);
    }
    let program = find(&programs, name)?;
    if rest.iter().any(|word| word == "--twin") {
        return twin(workspace, &metadata, program, rest);
    }
    let status = if rest.first().is_some_and(|arg| arg == TSAN) {
        let host = match sanitize::make_ready(workspace) {
            Ok(host) => host,
            Err(reason) => {
                talk(&format!("torture: left out: {reason}\n"));
                return Ok(ExitCode::SUCCESS);
            }
        };
        run(&mut sanitize::tortured(
            workspace,
            &metadata,
            &host,
            program,
            &rest[1..],
        ))?
    } else {
        run(workspace
            .command("cargo")
            .args(["test", "--quiet", "--release"])
            .args(["-p", &program.package, "--test", &program.target, "--"])
            .args(rest))?
    };
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        // Cargo hands on how the one program ended.
        Some(2) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    })
}

/// Runs a program with a bug put back, which it must find: then, and only then, all is good.
fn twin(
    workspace: &Workspace,
    metadata: &Metadata,
    program: &Program,
    rest: &[String],
) -> Result<ExitCode, Failure> {
    // Apart, for the flag reaches every crate.
    let apart = metadata.target_directory.join("torture");
    let (name, flags) = with_cfg("torture", &|name| std::env::var(name).ok());
    let cargo = || {
        let mut command = workspace.command("cargo");
        command
            .env(&name, &flags)
            .args(["test", "--quiet", "--release", "--target-dir"])
            .arg(&apart)
            .args(["-p", &program.package, "--test", &program.target]);
        command
    };
    if !run(cargo().arg("--no-run"))?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let start = Instant::now();
    let is_found = !run(cargo().arg("--").args(rest))?.success();
    let seconds = start.elapsed().as_secs_f64();
    data(&if is_found {
        format!("found after {seconds:.1} s\n")
    } else {
        format!("not found in {seconds:.1} s\n")
    });
    Ok(if is_found {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run(command: &mut Command) -> Result<ExitStatus, Failure> {
    command
        .status()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}")))
}

/// Lists the torture programs of the workspace, in the order of their names.
pub fn programs(metadata: &Metadata) -> Vec<Program> {
    let mut programs = Vec::new();
    for package in &metadata.packages {
        let tests = package.targets.iter().filter(|target| target.is_test());
        programs.extend(tests.filter_map(|test| {
            let name = test.name.strip_prefix(PREFIX)?.replace('_', "-");
            Some(Program {
                name,
                package: package.name.clone(),
                target: test.name.clone(),
            })
        }));
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs
}

fn find<'a>(programs: &'a [Program], name: &str) -> Result<&'a Program, Failure> {
    let found = programs.iter().find(|program| program.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = programs
            .iter()
            .map(|program| program.name.as_str())
            .collect();
        Failure::new(format!(
            "no torture is called `{name}`; there are {}",
            names.join(", ")
        ))
    })
}

fn help(programs: &[Program]) -> String {
    let mut text = String::from(
        "Tortures one part of the library: everything at once, by the dice.\n\n\
         Usage: cargo xtask torture NAME [--tsan] [--minutes M] [--seed S] [--config C] [--twin BUG]\n\nNames:\n",
    );
    for program in programs {
        text += &format!("  {}\n", program.name);
    }
    text += "
  --tsan       under ThreadSanitizer; must come first, wants a nightly toolchain with rust-src, builds for minutes
  --minutes M  how long, a fraction if need be; five seconds without
  --seed S     where the dice of the first round start; from the clock without, and printed
  --config C   one of the program's configurations; a wrong one lists them
  --twin BUG   put this bug back (its name in the source, under `twin::armed`); good is then that it is found

A fault is said with the seed of its round: start with that seed to begin with that round.
Exit code: 0 no fault, 1 a fault or no build, 2 could not run.
";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Package, Target};

    fn metadata() -> Metadata {
        let target = |name: &str, kind: &str| Target {
            name: name.into(),
            kind: vec![kind.into()],
            required_features: Vec::new(),
        };
        Metadata {
            packages: vec![Package {
                name: "one".into(),
                version: String::new(),
                source: None,
                license: None,
                manifest_path: Default::default(),
                dependencies: Vec::new(),
                targets: vec![
                    target("torture_task_work", "test"),
                    target("torture_rcu", "test"),
                    target("torture_tool", "bin"),
                    target("loom", "test"),
                ],
            }],
            target_directory: "t".into(),
        }
    }

    #[test]
    fn programs_are_the_test_targets_of_that_prefix() {
        let programs = programs(&metadata());
        let names: Vec<_> = programs
            .iter()
            .map(|program| program.name.as_str())
            .collect();
        assert_eq!(names, ["rcu", "task-work"]);
        assert_eq!(
            find(&programs, "task-work").unwrap().target,
            "torture_task_work"
        );
    }

    #[test]
    fn a_wrong_name_is_told_the_right_ones_in_one_line() {
        let text = find(&programs(&metadata()), "nosuch")
            .unwrap_err()
            .to_string();
        assert!(text.contains("nosuch") && text.contains("rcu, task-work"));
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn help_lists_every_program() {
        let text = help(&programs(&metadata()));
        assert!(text.contains("  rcu\n") && text.contains("  task-work\n"));
    }
}
