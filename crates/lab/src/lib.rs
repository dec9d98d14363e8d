//! The lab: the command `afterwork-lab`, which measures deferred work on this machine.
//!
//! - `cli` is the grammar of the command line, and [`top::exit`] is the exit status.
//! - `harness` runs the variants in turn, measures them, and computes spreads and ratios to peers.
//!   [`output`] prints the results.
//! - `bench` contains the benchmarks.
//!
//! The binary only calls [`main`]. The records are public so that tests can read them.

// This is not `forbid`, because `bench/task_work/service/ring.rs` submits to io_uring, which is
// unsafe.
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod bench;
mod cli;
mod harness;
pub mod output;

/// The snippets of the book. They are part of this crate because some of them use the peers.
#[cfg(doctest)]
mod book;

use std::process::ExitCode;

use top::exit::{Exit, Stop};

use crate::cli::{Cli, Command, TEACHING};
use crate::output::page;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    top::end(Cli::read(std::env::args_os()), run)
}

fn run(cli: Cli) -> Result<Exit, Stop> {
    match cli.command {
        None => top::print(TEACHING.as_bytes()),
        Some(Command::Try(args)) => bench::session::run(&args.bench(), true),
        Some(Command::Bench(args)) => bench::session::run(&args, false),
        Some(Command::Report(args)) => page::run(&args).map(|()| Exit::Good),
    }
}
