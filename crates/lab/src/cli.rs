//! The command line: what it accepts, and how it answers to what it does not.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::bench::args::Which;
use crate::output::page::ReportArgs;
use crate::tools::demo::DemoArgs;
use crate::tools::top::TopArgs;
use crate::tools::topology::TopologyArgs;

/// What a newcomer reads first.
pub const TEACHING: &str = "\
afterwork: deferred work for user-space programs, and a lab that measures it on your machine.

Deferred work runs later, on another thread, on another CPU, or after every reader has gone. The
library defers it as the Linux kernel does; this command shows what that is worth on this machine,
beside the thread pools that programs use today.

Try:
  afterwork topology                   the CPUs of this machine, and who shares what
  afterwork bench --quick              every bench in under two minutes, and a page about it:
                                       afterwork-report.html
  afterwork bench workqueue --json > here.jsonl
                                       one bench, as one JSON object a line, to keep
  afterwork report here.jsonl there.jsonl
                                       two such runs side by side
  afterwork bench --save before rcu    keeps this program, and then, when it has been changed,
  afterwork bench --against before rcu compares both by turns
  afterwork demo &
  afterwork top --tui                  a load worth watching, and whatever else shows itself

Results go to standard output, progress and warnings to standard error; pages, and
what --save keeps, are all that is written to disk. Ctrl-C ends a bench early and prints what
it has measured so far.

Exit status: 0 good, 1 a claim does not hold (with --check), 2 could not run,
130 interrupted.
`afterwork help`, `afterwork help bench` and `afterwork help bench workqueue` tell the rest.
";

/// Deferred work for user-space programs, and a lab that measures it on your machine
#[derive(Parser, Clone, Debug)]
#[command(name = "afterwork", bin_name = "afterwork", version, styles = Styles::plain())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the command can do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the machine: its CPUs, caches and nodes, and which CPUs share a worker pool
    Topology(TopologyArgs),

    /// Measure how fast this machine defers work, beside the ways that programs use today
    Bench(Box<BenchArgs>),

    /// Make a page of what a bench printed with --json, or of two such runs side by side
    Report(ReportArgs),

    /// Show what a running process does: its queues, pools, RCU, mailboxes, per-CPU data
    Top(TopArgs),

    /// Run a load worth watching, to be looked at by top
    Demo(DemoArgs),

    /// Print what completes this command in a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },

    /// Print the manual page, or write it and those of all subcommands to a folder
    Man {
        /// Where to put them
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

impl Cli {
    /// Parses a command line.
    ///
    /// # Errors
    ///
    /// If it asks for help, or is wrong: what to answer.
    pub fn read<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, Answer> {
        let matches = with_numbers(Self::command()).try_get_matches_from(line)?;
        Ok(Self::from_arg_matches(&matches)?)
    }
}

/// Lets a number below zero be a value, so that the option refuses it by name.
fn with_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(with_numbers)
}

/// Returns what completes the command in `shell`.
#[must_use]
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "afterwork", &mut text);
    text
}

/// Returns the manual page, in roff.
///
/// # Errors
///
/// None that writing into memory has.
pub fn man() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let man = clap_mangen::Man::new(Cli::command());
    man.render(&mut text)?;
    text.extend(MAN_END.as_bytes());
    Ok(text)
}

/// What the parser of the command line does not know of.
const MAN_END: &str = r#".SH "EXIT STATUS"
.TP
0
What was asked for was done. Of \fBbench\fR: every claim that was measured holds, or \fB\-\-check\fR was not given.
.TP
1
Of \fBbench \-\-check\fR: a claim does not hold, or the program to compare with failed.
.TP
2
The command line is wrong, or what it asks for cannot be done; one line on standard error says why.
.TP
130
Ended by Ctrl\-C; what was measured until then was written.
.SH EXAMPLES
.TP
\fBafterwork bench \-\-quick \-\-report run.html\fR
Measures everything for about two minutes and writes a page.
.TP
\fBafterwork bench workqueue \-\-repeat 9\fR
One bench, nine repetitions by turns.
.TP
\fBafterwork demo\fR
Runs a load worth watching; beside it, in another terminal:
.TP
\fBafterwork top\fR
Shows what the processes of this machine defer.
"#;

/// What to answer instead of running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Help or the version, for standard output.
    Help(String),
    /// What is wrong and what would be right, in one line.
    Wrong(String),
}

impl From<clap::Error> for Answer {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Self::Help(text),
            ErrorKind::InvalidSubcommand if text.contains(OF_BENCH) => Self::Wrong(format!(
                "{}; {}benches: {}",
                one_line(&text),
                case_hint(&error),
                benches().join(", ")
            )),
            ErrorKind::InvalidSubcommand if text.contains(OF_ALL) => Self::Wrong(format!(
                "{}; commands: {}",
                one_line(&text),
                subcommands(&Cli::command()).join(", ")
            )),
            ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument => {
                Self::Wrong(format!(
                    "{}; `{} --help` tells what there is",
                    one_line(&text),
                    asked(&text)
                ))
            }
            _ => Self::Wrong(one_line(&text)),
        }
    }
}

/// Returns the command that was asked for, as its usage spells it.
fn asked(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let words = usage.unwrap_or("afterwork").split_whitespace();
    let names = words.take_while(|word| !word.starts_with(['[', '<', '-']));
    names.collect::<Vec<_>>().join(" ")
}

/// In the usage of what is said about `afterwork bench`.
const OF_BENCH: &str = "Usage: afterwork bench";

/// In the usage of what is said about `afterwork` itself.
const OF_ALL: &str = "Usage: afterwork [";

/// Says how a case is asked for that was taken for a bench.
fn case_hint(error: &clap::Error) -> String {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return String::new();
    };
    let has_it = |it: &Which| it.menu().cases.contains(&typed.as_str());
    let bench = match () {
        () if Which::all().iter().any(has_it) => "bench",
        () if has_it(&Which::Scale) => "bench scale",
        () => return String::new(),
    };
    format!("it is a case: afterwork {bench} --cases {typed}; ")
}

fn benches() -> Vec<String> {
    let command = Cli::command();
    let bench = command.find_subcommand("bench");
    bench.map(subcommands).unwrap_or_default()
}

fn subcommands(command: &clap::Command) -> Vec<String> {
    let names = command.get_subcommands();
    names.map(|it| it.get_name().to_owned()).collect()
}

/// Joins what clap says in paragraphs, without the ones that say the same every time.
fn one_line(text: &str) -> String {
    let paragraphs = text.split("\n\n").filter(|paragraph| {
        let start = paragraph.trim_start();
        !start.starts_with("Usage:") && !start.starts_with("For more information")
    });
    let told = paragraphs.map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
    told.filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(args: &[&str]) -> Answer {
        Cli::read(args.iter().copied()).unwrap_err()
    }

    #[test]
    fn completions_and_the_manual_name_every_subcommand() {
        for shell in [
            clap_complete::Shell::Bash,
            clap_complete::Shell::Zsh,
            clap_complete::Shell::Fish,
        ] {
            let text = String::from_utf8(completions(shell)).unwrap();
            assert!(
                text.contains("task-work") && text.contains("demo"),
                "{shell}"
            );
        }
        let man = String::from_utf8(man().unwrap()).unwrap();
        assert!(
            man.contains(".TH afterwork") && man.contains("demo"),
            "{man}"
        );
        // Its examples are command lines, one each.
        let (_, examples) = man.split_once(".SH EXAMPLES").unwrap();
        let heads = examples.split("\\fB").skip(1);
        let lines = heads.map(|it| it.split("\\fR").next().unwrap().replace("\\-", "-"));
        let lines: Vec<String> = lines.collect();
        assert!(lines.len() > 3);
        for line in lines {
            let parsed = Cli::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_valid_is_told_under_another_file_name_too() {
        for (args, valid) in [
            (
                ["renamed", "nosuch"].as_slice(),
                "; commands: topology, bench",
            ),
            (&["renamed", "bench", "nosuch"], "; benches: workqueue"),
        ] {
            assert!(
                matches!(answer(args), Answer::Wrong(line) if line.contains(valid)),
                "{args:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for args in [
            ["afterwork", "bench", "nosuch"].as_slice(),
            &["afterwork", "nosuch"],
            &["afterwork", "bench", "--repeat", "0"],
            &["afterwork", "bench", "workqueue", "--scope", "nosuch"],
        ] {
            let Answer::Wrong(line) = answer(args) else {
                panic!("{args:?} is wrong")
            };
            assert!(
                line.starts_with("error: ") && line.lines().count() == 1,
                "{line}"
            );
            assert!(
                !line.contains("Usage") && !line.contains("more information"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_number_below_zero_is_refused_by_the_name_of_its_option() {
        for (line, told) in [
            (
                "bench --repeat -1",
                "'-1' for '--repeat <N>': not a whole number from 1 to 10000",
            ),
            (
                "bench rcu --seconds -5",
                "'-5' for '--seconds <S>': not a whole number",
            ),
            (
                "demo --seconds -1",
                "'-1' for '--seconds <S>': not a whole number",
            ),
            (
                "top --every -3",
                "'-3' for '--every <MS>': not a whole number from 10 to 3600000",
            ),
            (
                "topology --cache-shard-size -1",
                "'-1' for '--cache-shard-size <CORES>'",
            ),
        ] {
            let line = std::iter::once("afterwork").chain(line.split(' '));
            let Err(Answer::Wrong(said)) = Cli::read(line) else {
                panic!("{told} is wrong")
            };
            assert!(said.contains(told), "{said}");
        }
        // A process is refused where it is looked for.
        assert!(Cli::read(["afterwork", "top", "-5"]).is_ok());
    }

    #[test]
    fn what_is_unknown_or_missing_is_told_with_the_help_that_names_it() {
        for (line, told) in [
            ("--nosuch", "'--nosuch' found; `afterwork --help` tells"),
            ("bench -q", "'-q' found; `afterwork bench --help` tells"),
            (
                "bench rcu --nosuch",
                "found; `afterwork bench rcu --help` tells",
            ),
            ("report", "provided: <RUN>; `afterwork report --help` tells"),
            ("demo extra", "'extra' found; `afterwork demo --help` tells"),
            (
                "topologi",
                "'topologi'; tip: some similar subcommands exist",
            ),
        ] {
            let line = std::iter::once("afterwork").chain(line.split(' '));
            let Err(Answer::Wrong(said)) = Cli::read(line) else {
                panic!("{told} is wrong")
            };
            assert!(said.contains(told) && said.lines().count() == 1, "{said}");
        }
    }

    #[test]
    fn help_is_no_mistake() {
        assert!(matches!(
            answer(&["afterwork", "bench", "--help"]),
            Answer::Help(_)
        ));
        assert!(matches!(
            answer(&["afterwork", "--version"]),
            Answer::Help(_)
        ));
    }

    #[test]
    fn common_options_stand_before_or_after_the_name_of_the_bench() {
        for args in [
            ["afterwork", "bench", "--json", "--repeat", "3", "workqueue"],
            ["afterwork", "bench", "workqueue", "--json", "--repeat", "3"],
        ] {
            let Some(Command::Bench(bench)) = Cli::try_parse_from(args).unwrap().command else {
                panic!("{args:?} is a bench");
            };
            assert!(
                bench.common.json && bench.common.repeat == Some(3),
                "{args:?}"
            );
        }
    }
}
