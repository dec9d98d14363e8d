//! The lab: the command `afterwork-lab`, which measures deferred work on this machine.
//!
//! - [`cli`] has the grammar of the command line, [`top::exit`] the exit status.
//! - [`harness`] is how anything is measured: interleaved, with spread, against peers; [`output`]
//!   prints the results.
//! - [`bench`](mod@bench) is what is measured.
//!
//! The binary is a call of [`main`]; the rest is public for its tests.

// Not `forbid`, for one file: `bench/task_work/service/ring.rs`, because submitting to an io_uring ring is unsafe
// whichever crate does it.
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod bench;
pub mod cli;
pub mod harness;
pub mod output;

/// Snippets of the book: here, because some of them show the peers' code beside ours.
#[cfg(doctest)]
mod book;

use std::process::ExitCode;

use top::exit::{Exit, Stop};

use crate::cli::{Cli, Command, TEACHING};
use crate::output::page;

/// Runs the command with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    top::end(Cli::read(std::env::args_os()), run)
}

fn run(cli: Cli) -> Result<Exit, Stop> {
    match cli.command {
        None => top::print(TEACHING.as_bytes()),
        Some(Command::Bench(args)) => bench::session::run(&args),
        Some(Command::Report(args)) => page::run(&args).map(|()| Exit::Good),
    }
}
