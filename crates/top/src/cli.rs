//! The command line: its grammar, and the answers to an incorrect line.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::demo::DemoArgs;
use crate::top::TopArgs;
use crate::topology::TopologyArgs;

/// The text for newcomers, which the command prints if it has no arguments.
pub const TEACHING: &str = "\
afterwork: shows what programs that use afterwork do, and the machine that they run on.

Deferred work runs later, on another thread, on another CPU, or after the last reader. The library
defers it as the Linux kernel does; a process that allows it can be watched from outside.

Try:
  afterwork topology                   the CPUs of this machine, and which of them share a pool
  afterwork demo &
  AFTERWORK=observe.publish=on my-program &
  afterwork top                        select one of these, and of all others that can be watched

Results go to standard output, warnings to standard error.

Exit status: 0 good, 2 could not run, 130 interrupted.
`afterwork help` and `afterwork help top` print the rest. `afterwork-lab`, a separate command,
measures deferred work on this machine.
";

/// Shows what a process defers, and the CPUs that it defers to
#[derive(Parser, Clone, Debug)]
#[command(name = "afterwork", bin_name = "afterwork", version, styles = Styles::plain())]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the machine: its CPUs, caches and nodes, and which CPUs share a worker pool
    Topology(TopologyArgs),

    /// Show what a running process does: its queues, pools, RCU, mailboxes, per-CPU data
    Top(TopArgs),

    /// Run a load worth watching with top
    Demo(DemoArgs),

    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },

    /// Print the manual page, or write the pages of all subcommands to a folder
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

impl Cli {
    /// Parses a command line.
    ///
    /// # Errors
    ///
    /// Returns the answer if the line asks for help or is incorrect.
    pub fn read<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, Answer> {
        parse(line).map_err(|error| Answer::of::<Self>(&error, "commands"))
    }
}

/// Parses a command line.
///
/// # Errors
///
/// Returns the errors that clap reports. [`Answer::of`] converts an error to an answer.
pub fn parse<C: CommandFactory + FromArgMatches, T: Into<OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<C, clap::Error> {
    C::from_arg_matches(&with_numbers(C::command()).try_get_matches_from(line)?)
}

/// Makes the parser accept a negative number as a value, so that the error for it names the option.
fn with_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(with_numbers)
}

/// Parses a whole number from `MIN` to `MAX`. The error is a message for the user.
///
/// # Errors
///
/// Returns the message if the text is not such a number.
pub fn number<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|it| (MIN..=MAX).contains(it));
    number.ok_or_else(|| format!("not a whole number from {MIN} to {MAX}"))
}

/// Returns the command's completion script for `shell`.
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
/// Returns no error, because the text is written into memory.
pub fn man() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let man = clap_mangen::Man::new(Cli::command());
    man.render(&mut text)?;
    text.extend(MAN_END.as_bytes());
    Ok(text)
}

/// The sections of the manual page that do not come from the parser.
const MAN_END: &str = r#".SH "EXIT STATUS"
.TP
0
The command did its task.
.TP
2
The command line is wrong, or the task failed; one line on standard error has the reason.
.TP
130
Ctrl\-C ended the command.
.SH EXAMPLES
.TP
\fBafterwork demo\fR
Runs a load worth watching. At the same time, in another terminal:
.TP
\fBafterwork top\fR
Lists the processes that can be watched, and shows the selected one full screen.
.TP
\fBafterwork top 4711 \-\-plain\fR
Shows one of them as text, every second.
.TP
\fBafterwork topology\fR
Shows the CPUs of this machine.
"#;

/// The answer to a line that runs no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Help or the version, for standard output.
    Help(String),
    /// The mistake and the correct form, in one line.
    Wrong(String),
}

impl Answer {
    /// Converts an error of the command `C` to an answer. `name` is the word for its subcommands.
    #[must_use]
    pub fn of<C: CommandFactory>(error: &clap::Error, name: &str) -> Self {
        let text = error.render().to_string();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Self::Help(text),
            ErrorKind::InvalidSubcommand => {
                let asked = asked(&text);
                let mut command = C::command();
                for word in asked.split(' ').skip(1) {
                    let Some(below) = command.find_subcommand(word) else { break };
                    command = below.clone();
                }
                let names: Vec<_> =
                    command.get_subcommands().map(clap::Command::get_name).collect();
                Self::Wrong(format!("{}; {name}: {}", one_line(&text), names.join(", ")))
            }
            ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument => {
                Self::Wrong(format!("{}; see `{} --help`", one_line(&text), asked(&text)))
            }
            _ => Self::Wrong(one_line(&text)),
        }
    }
}

/// Returns the requested command, as it is spelled in its usage.
fn asked(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let words = usage.unwrap_or_default().split_whitespace();
    let names = words.take_while(|word| !word.starts_with(['[', '<', '-']));
    names.collect::<Vec<_>>().join(" ")
}

/// Joins clap's paragraphs into one line. Omits the paragraphs that are always the same.
fn one_line(text: &str) -> String {
    let paragraphs = text.split("\n\n").filter(|paragraph| {
        let start = paragraph.trim_start();
        !start.starts_with("Usage:") && !start.starts_with("For more information")
    });
    let lines = paragraphs.map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_and_the_manual_name_every_subcommand() {
        use clap_complete::Shell::{Bash, Fish, Zsh};
        for shell in [Bash, Zsh, Fish] {
            let text = String::from_utf8(completions(shell)).unwrap();
            assert!(text.contains("topology") && text.contains("demo"), "{shell}");
        }
        let man = String::from_utf8(man().unwrap()).unwrap();
        assert!(man.contains(".TH afterwork") && man.contains("demo"), "{man}");
        // Each example of the manual is one command line.
        let (_, examples) = man.split_once(".SH EXAMPLES").unwrap();
        let heads = examples.split("\\fB").skip(1);
        assert!(heads.clone().count() > 3);
        for line in heads.map(|it| it.split("\\fR").next().unwrap().replace("\\-", "-")) {
            let parsed = Cli::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_is_one_line_that_names_the_right_words() {
        for (line, reported) in [
            ("afterwork nosuch", "; commands: topology, top, demo, "),
            ("renamed nosuch", "; commands: topology, top, demo, "),
            ("afterwork topologi", "'topologi'; tip: some similar subcommands exist"),
            ("afterwork --nosuch", "'--nosuch' found; see `afterwork --help`"),
            ("afterwork demo extra", "'extra' found; see `afterwork demo --help`"),
            ("afterwork demo --seconds -1", "'-1' for '--seconds <S>': not a whole number"),
            (
                "afterwork top --every -3",
                "'-3' for '--every <MS>': not a whole number from 10 to 3600000",
            ),
            ("afterwork topology --cache-shard-size -1", "'-1' for '--cache-shard-size <CORES>'"),
        ] {
            let Err(Answer::Wrong(said)) = Cli::read(line.split(' ')) else { panic!("{line}") };
            assert!(said.starts_with("error: ") && said.contains(reported), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(!said.contains("Usage") && !said.contains("more information"), "{said}");
        }
        // The command rejects a process only when it opens the process's page.
        assert!(Cli::read(["afterwork", "top", "-5"]).is_ok());
    }
}
