//! The command `afterwork`, which shows the deferred work of a process and the machine on which it
//! runs.
//!
//! - [`top`] shows a process, [`topology`](mod@topology) shows the machine, and [`demo`] is a
//!   process to watch.
//! - [`cli`] contains the grammar of the command line, [`exit`] the exit status, and [`talk`] the
//!   messages for standard error.
//!
//! The binary only calls [`main`]. `afterwork-lab` uses the same parser and exit status.

#![deny(unsafe_code)]

pub mod cli;
pub mod demo;
pub mod exit;
pub mod interrupt;
pub mod talk;
pub mod top;
pub mod topology;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::{Answer, Cli, Command, TEACHING};
use crate::exit::{Exit, Stop};

/// Runs the command with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    end(Cli::read(std::env::args_os()), run)
}

/// Runs a command if its command line could be parsed. If it stops early, reports the reason on
/// standard error.
pub fn end<C>(read: Result<C, Answer>, run: fn(C) -> Result<Exit, Stop>) -> ExitCode {
    let done = match read {
        Ok(cli) => run(cli),
        Err(Answer::Help(text)) => print(text.as_bytes()),
        Err(Answer::Wrong(line)) => {
            talk::say(line);
            Ok(Exit::CouldNotRun)
        }
    };
    let exit = done.unwrap_or_else(|stop| match stop {
        // The reader closed the pipe because it has read enough.
        Stop::ClosedPipe => Exit::Good,
        Stop::CouldNotRun(reason) => {
            talk::say(format_args!("error: {reason}"));
            Exit::CouldNotRun
        }
    });
    exit.into()
}

fn run(cli: Cli) -> Result<Exit, Stop> {
    match cli.command {
        None => print(TEACHING.as_bytes()),
        Some(Command::Topology(args)) => topology::run(&args).map(|()| Exit::Good),
        Some(Command::Top(args)) => top::run(&args).map(|()| Exit::Good),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Completions { shell }) => print(&cli::completions(shell)),
        Some(Command::Man { directory: None }) => {
            print(&cli::man().map_err(Stop::because("manual"))?)
        }
        Some(Command::Man { directory: Some(directory) }) => {
            clap_mangen::generate_to(Cli::command(), &directory)
                .map(|()| Exit::Good)
                .map_err(Stop::because(format!("cannot write to {}", directory.display())))
        }
    }
}

/// Writes to standard output.
///
/// # Errors
///
/// Returns an error if the stream is closed or the write fails.
pub fn print(bytes: &[u8]) -> Result<Exit, Stop> {
    let mut out = std::io::stdout();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(Exit::Good)
}
