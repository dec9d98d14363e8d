//! The chores of the workspace: its tests, and the rules that no compiler checks.
//!
//! `cargo xtask` lists them. A chore exits with 0 (good), 1 (something is wrong and was reported
//! line by line as `file:line: rule`) or 2 (the chore could not run).

mod asm;
mod book;
mod capi;
mod conformance;
mod figures;
mod foreign;
#[cfg(test)]
mod fork_tests;
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

type Chore = (&'static str, &'static str, Run);

enum Run {
    With(fn(&Workspace, &[String]) -> Result<ExitCode, Failure>),
    /// A check, which takes no options.
    Check(fn(&Workspace) -> Result<Findings, Failure>),
}
use Run::{Check, With};

/// Builds the list of chores from a function and a description of each. A chore has the name of its
/// module.
macro_rules! chores {
    ($($run:ident($chore:ident::$function:ident), $about:literal;)*) => {
        &[$((stringify!($chore), $about, $run($chore::$function))),*]
    };
}

const CHORES: &[Chore] = chores! {
    With(test::main), "run every layer of tests and count them";
    With(torture::main), "torture one part of the library, for as long as asked";
    With(fuzz::main), "what reads bytes of strangers, against bytes at random";
    With(sanitize::main), "run tests and tortures under ThreadSanitizer and AddressSanitizer";
    With(sim::main), "the library on a simulated machine of many CPUs: what saturates, and on which line";
    With(capi::main), "test the C interface in C, or install it: `--install DIR`";
    With(asm::main), "show or check the code that the compiler made of a function of crates/probes";
    Check(layers::check), "nothing above `sync` reaches atomics, threads, clocks or system calls past it";
    Check(order::check), "every ORDER(tag) has two ends and a test that exists";
    Check(foreign::check), "every place that runs users' code is in the table of FOREIGN.md";
    Check(conformance::check), "every rule of docs/conformance.md has a test of its own";
    Check(book::check), "the book's links lead somewhere; builds it where mdbook is installed";
    Check(tutorial::check), "docs/tutorial.md followed word for word in an empty folder";
    With(figures::main), "README's comparison is that of its record; `--write` renews it";
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    dispatch(&args).unwrap_or_else(|failure| {
        report::talk(&format!("xtask: {failure}\n"));
        ExitCode::from(2)
    })
}

fn dispatch(args: &[String]) -> Result<ExitCode, Failure> {
    let asks = |name: &String| matches!(name.as_str(), "help" | "--help" | "-h");
    let Some((name, rest)) = args.split_first().filter(|(name, _)| !asks(name)) else {
        report::data(&help());
        return Ok(ExitCode::SUCCESS);
    };
    let found = CHORES.iter().find(|(known, ..)| known == name);
    let (name, _, run) = found.ok_or_else(|| {
        let names: Vec<_> = CHORES.iter().map(|(name, ..)| *name).collect();
        Failure::new(format!("no chore is called `{name}`; there are {}", names.join(", ")))
    })?;
    let workspace = Workspace::find()?;
    match run {
        With(run) => run(&workspace, rest),
        Check(find) => match rest.first() {
            None => Ok(report::exit_code(find(&workspace)?.report(name))),
            Some(arg) => {
                Err(Failure::new(format!("`{name}` takes no argument, but was given `{arg}`")))
            }
        },
    }
}

fn help() -> String {
    let mut text = String::from(
        "Runs a chore of the afterwork workspace.\n\nUsage: cargo xtask CHORE [OPTIONS]\n\nChores:\n",
    );
    for (name, about, _) in CHORES {
        text += &format!("  {name:<11} {about}\n");
    }
    text += "
Start here:
  cargo xtask test                    all tests, as in CI (about 17 minutes)
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
        for (name, ..) in CHORES {
            assert!(help().contains(name));
        }
    }

    #[test]
    fn wrong_input_is_one_line() {
        let failure = dispatch(&["nosuch".to_string()]).unwrap_err().to_string();
        assert_eq!(failure.lines().count(), 1);
        assert!(failure.contains("nosuch") && failure.contains("layers"), "{failure}");
    }
}
