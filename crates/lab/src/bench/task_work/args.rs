//! The options of `afterwork bench task-work`.

use clap::Args;

use super::{CASES, peers};
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct TaskWorkMenu;

impl Menu for TaskWorkMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &peers::NAMES;
}

/// What to post, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct TaskWorkArgs {
    /// Items of each run of the wake cases [default: depends on --quick]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>())]
    pub items: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<TaskWorkMenu>,
}
