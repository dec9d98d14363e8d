//! The chores of the workspace: its tests, and the rules that no compiler checks.
//!
//! `cargo xtask` lists them. A chore exits with 0 (good), 1 (something is wrong, reported line by
//! line as `file:line: rule`) or 2 (the chore could not run).

mod asm;
mod book;
mod capi;
mod conformance;
mod figures;
mod foreign;
mod fuzz;
mod layers;
mod order;
mod report;
mod sanitize;
mod sim;
mod source;
mod test;
mod torture;
mod tutorial;
mod workspace;

use std::process::ExitCode;

use report::{Failure, Findings};
use workspace::Workspace;

struct Chore {
    name: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> Result<ExitCode, Failure>,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "test",
        about: "run every layer of tests and count them",
        run: test::main,
    },
    Chore {
        name: "torture",
        about: "run one torture for the requested time",
        run: torture::main,
    },
    Chore {
        name: "fuzz",
        about: "fuzz the parsers of untrusted bytes",
        run: fuzz::main,
    },
    Chore {
        name: "sanitize",
        about: "run tests and tortures under ThreadSanitizer and AddressSanitizer",
        run: sanitize::main,
    },
    Chore {
        name: "sim",
        about: "run the library on a simulated machine of many CPUs, and report the cache line that saturates",
        run: sim::main,
    },
    Chore {
        name: "capi",
        about: "test the C interface in C, or install it: `--install DIR`",
        run: capi::main,
    },
    Chore {
        name: "asm",
        about: "show or check the machine code of crates/probes",
        run: asm::main,
    },
    Chore {
        name: "layers",
        about: "check that code above `sync` uses atomics, threads, clocks and system calls only through it",
        run: |workspace, args| check("layers", layers::check, workspace, args),
    },
    Chore {
        name: "order",
        about: "check that every ORDER(tag) has two ends and an existing test",
        run: |workspace, args| check("order", order::check, workspace, args),
    },
    Chore {
        name: "foreign",
        about: "check that each call of user code has a row in FOREIGN.md",
        run: |workspace, args| check("foreign", foreign::check, workspace, args),
    },
    Chore {
        name: "conformance",
        about: "check that each rule of docs/conformance.md has its own test",
        run: |workspace, args| check("conformance", conformance::check, workspace, args),
    },
    Chore {
        name: "book",
        about: "check the book's links; build it if mdbook is installed",
        run: book::main,
    },
    Chore {
        name: "tutorial",
        about: "run docs/tutorial.md in an empty folder",
        run: tutorial::main,
    },
    Chore {
        name: "figures",
        about: "check the tables of README and docs/figures.md against their records; `--write` updates them",
        run: figures::main,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    dispatch(&args).unwrap_or_else(|failure| {
        report::talk(&format!("xtask: {failure}\n"));
        ExitCode::from(2)
    })
}

fn dispatch(args: &[String]) -> Result<ExitCode, Failure> {
    let Some((name, rest)) = args.split_first() else {
        report::data(&help());
        return Ok(ExitCode::SUCCESS);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        report::data(&help());
        return Ok(ExitCode::SUCCESS);
    }
    let chore = CHORES
        .iter()
        .find(|chore| chore.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = CHORES.iter().map(|chore| chore.name).collect();
            Failure::new(format!(
                "unknown chore `{name}`; valid: {}",
                names.join(", ")
            ))
        })?;
    (chore.run)(&Workspace::find()?, rest)
}

/// Runs a check, which takes no options, and prints its findings.
fn check(
    name: &str,
    find: fn(&Workspace) -> Result<Findings, Failure>,
    workspace: &Workspace,
    args: &[String],
) -> Result<ExitCode, Failure> {
    if let Some(arg) = args.first() {
        return Err(Failure::new(format!(
            "`{name}` takes no argument, but was given `{arg}`"
        )));
    }
    let findings = find(workspace)?;
    for finding in &findings.broken {
        report::data(&format!("{finding}\n"));
    }
    if findings.broken.is_empty() {
        report::data(&format!("{name}: good ({})\n", findings.looked_at));
        Ok(ExitCode::SUCCESS)
    } else {
        report::talk(&format!(
            "{name}: {} faults ({})\n",
            findings.broken.len(),
            findings.looked_at
        ));
        Ok(ExitCode::FAILURE)
    }
}

fn help() -> String {
    let mut text = String::from(
        "Runs a chore of the afterwork workspace.\n\nUsage: cargo xtask CHORE [OPTIONS]\n\nChores:\n",
    );
    for chore in CHORES {
        text += &format!("  {:<11} {}\n", chore.name, chore.about);
    }
    text += "
Start here:
  cargo xtask test                    all tests, as in CI (about 20 minutes)
  cargo xtask test --only unit,doc    a first answer (seconds)
  cargo xtask test --only loom        the models, after a change of an atomic or a lock
  cargo xtask test --list             the layers, and the question that each answers
  cargo xtask torture task-work --minutes 2   after a change of a protocol
  cargo xtask torture task-work --hostile --asan   after a change of a call of user code
  cargo xtask layers                  after a new `use` of `std`
  cargo xtask order                   after a change of a memory ordering

STYLE.md gives the reason for each rule; .ci/run checks them all.
Exit code: 0 success, 1 a check failed, 2 could not run.
";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_chore() {
        for chore in CHORES {
            assert!(help().contains(chore.name));
        }
    }

    #[test]
    fn wrong_input_is_one_line() {
        let failure = dispatch(&["nosuch".to_string()]).unwrap_err().to_string();
        assert_eq!(failure.lines().count(), 1);
        assert!(
            failure.contains("nosuch") && failure.contains("layers"),
            "{failure}"
        );
    }
}
