//! The grammar of the command line, and the messages for an invalid one.

use std::ffi::OsString;

use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use top::cli::{Answer, parse};

use crate::bench::BenchArgs;
use crate::bench::args::Which;
use crate::bench::questions::TryArgs;
use crate::output::page::ReportArgs;

/// The introduction that the command prints when it has no arguments.
pub const TEACHING: &str = "\
afterwork-lab: measures deferred work on this machine.

Deferred work runs later, on another thread, on another CPU, or after the last reader. afterwork
defers it as the Linux kernel does; this command shows what that is worth here, in the same run as
the thread pools, channels and reclaimers that programs use today.

Try:
  afterwork-lab try                    seven questions in a minute, answered on this machine
  afterwork-lab bench --quick          all benches but scale in two minutes, and a page of results:
                                       afterwork-report.html
  afterwork-lab bench workqueue --json > here.jsonl
                                       one bench, as one JSON object per line, to save
  afterwork-lab bench --against ./before rcu
                                       compares this program with ./before, a copy of an earlier
                                       one, in turns

Results go to standard output, progress and warnings to standard error; pages are all that is
written to disk. Ctrl-C ends a bench early and prints what it has measured so far.

Exit status: 0 good, 1 a claim does not hold (with --check), 2 could not run,
130 interrupted.
`afterwork-lab help`, `afterwork-lab help bench` and `afterwork-lab help bench workqueue` print the
rest. `cargo run --release -p afterwork-top` is the user's command: top, topology, demo.
";

/// Measures deferred work on this machine, compared with other libraries in the same run
#[derive(Parser, Clone, Debug)]
#[command(name = "afterwork-lab", bin_name = "afterwork-lab", version, styles = Styles::plain())]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Answer seven questions in a minute, compared with other libraries
    Try(TryArgs),

    /// Measure how fast this machine defers work, compared with other libraries
    Bench(Box<BenchArgs>),

    /// Create a page from the output of `bench --json`
    Report(ReportArgs),
}

impl Cli {
    /// Parses a command line. Returns the text to print if the line requests help or is invalid.
    pub fn read<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, Answer> {
        parse(line).map_err(|error| answer(&error))
    }
}

/// The usage line in the errors of `afterwork-lab bench`.
const OF_BENCH: &str = "Usage: afterwork-lab bench";

fn answer(error: &clap::Error) -> Answer {
    let is_name = error.kind() == ErrorKind::InvalidSubcommand;
    if !(is_name && error.render().to_string().contains(OF_BENCH)) {
        return Answer::of::<Cli>(error, "commands");
    }
    Answer::of::<Cli>(error, &format!("{}benches", case_hint(error)))
}

/// Returns the hint for a case name that was typed in place of a subcommand.
fn case_hint(error: &clap::Error) -> String {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return String::new();
    };
    let has_it = |it: &Which| it.menu().cases.contains(&typed.as_str());
    let bench = match () {
        () if Which::all().iter().any(has_it) => "bench",
        () if has_it(&Which::Scale) => "bench scale",
        () if has_it(&Which::Groups) => "bench groups",
        () => return String::new(),
    };
    format!("it is a case: afterwork-lab {bench} --cases {typed}; ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn valid_commands_are_listed_under_any_program_name() {
        for (line, valid) in [
            ("renamed nosuch", "; commands: try, bench, report"),
            ("renamed bench nosuch", "; benches: workqueue"),
        ] {
            let Err(Answer::Wrong(said)) = Cli::read(line.split(' ')) else { panic!("{line}") };
            let is_plain = !said.contains("Usage") && !said.contains("more information");
            assert!(said.contains(valid) && is_plain, "{said}");
        }
    }

    #[test]
    fn common_options_may_precede_or_follow_the_bench() {
        for args in [
            ["afterwork-lab", "bench", "--json", "--repeat", "3", "workqueue"],
            ["afterwork-lab", "bench", "workqueue", "--json", "--repeat", "3"],
        ] {
            let Some(Command::Bench(bench)) = Cli::try_parse_from(args).unwrap().command else {
                panic!("{args:?} is a bench");
            };
            let common = (bench.common.json, bench.common.repeat);
            assert_eq!(common, (true, Some(3)), "{args:?}");
        }
    }
}
