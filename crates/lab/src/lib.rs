//! The lab: the command `afterwork-lab`, which measures deferred work on this machine.
//!
//! - [`cli`] is the grammar of the command line, [`top::exit`] the exit status.
//! - [`harness`] measures: interleaved runs, spreads, ratios to peers. [`output`] prints results.
//! - [`bench`](mod@bench) has the benchmarks.
//!
//! The binary only calls [`main`]. The rest is public so that tests can use it.

// Not `forbid`, because `bench/task_work/service/ring.rs` submits to io_uring, which is unsafe.
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod bench;
pub mod cli;
pub mod harness;
pub mod output;

/// Snippets of the book. They are part of this crate because some of them use the peers.
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
        Some(Command::Try(args)) => bench::session::ask(&args),
        Some(Command::Bench(args)) => bench::session::run(&args),
        Some(Command::Report(args)) => page::run(&args).map(|()| Exit::Good),
    }
}
