//! The lab: the command `afterwork`, which shows and measures deferred work on this machine.
//!
//! - [`cli`] says what the command accepts, [`exit`] how it ends.
//! - [`harness`] is how anything is measured: interleaved, with spread, against peers; [`output`] how that is told.
//! - [`bench`](mod@bench) is what is measured, [`tools`] shows what it is measured on.
//!
//! The binary is a call of [`main`]; the rest is public for its tests.

// Not `forbid`, for one file: `bench/task_work/service/ring.rs`, because submitting to an io_uring ring is unsafe
// whichever crate does it.
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod bench;
pub mod cli;
pub mod exit;
pub mod harness;
pub mod output;
pub mod talk;
pub mod tools;

/// Snippets of the book: here, because some of them show the peers' code beside ours.
#[cfg(doctest)]
mod book;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::{Answer, Cli, Command, TEACHING};
use crate::exit::{Exit, Stop};
use crate::output::page;
use crate::tools::{demo, top, topology};

/// Runs the command with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::read(std::env::args_os()) {
        Ok(cli) => run(cli),
        Err(Answer::Help(text)) => print(&text),
        Err(Answer::Wrong(line)) => {
            talk::say(line);
            Ok(Exit::CouldNotRun)
        }
    };
    let exit = done.unwrap_or_else(|stop| match stop {
        // Whoever closed the pipe has read what it wanted.
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
        None => print(TEACHING),
        Some(Command::Topology(args)) => topology::run(&args).map(|()| Exit::Good),
        Some(Command::Bench(args)) => bench::session::run(&args),
        Some(Command::Report(args)) => page::run(&args).map(|()| Exit::Good),
        Some(Command::Top(args)) => top::run(&args).map(|()| Exit::Good),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Completions { shell }) => put(&cli::completions(shell)),
        Some(Command::Man { directory: None }) => {
            put(&cli::man().map_err(|error| Stop::because("manual", error))?)
        }
        Some(Command::Man {
            directory: Some(directory),
        }) => clap_mangen::generate_to(Cli::command(), &directory)
            .map(|()| Exit::Good)
            .map_err(|error| {
                Stop::because(&format!("cannot write to {}", directory.display()), error)
            }),
    }
}

fn print(text: &str) -> Result<Exit, Stop> {
    put(text.as_bytes())
}

fn put(bytes: &[u8]) -> Result<Exit, Stop> {
    let mut out = std::io::stdout();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(Exit::Good)
}
