//! The options of `afterwork bench rcu`.

use clap::Args;

use super::CASES;
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct RcuMenu;

impl Menu for RcuMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &lab_peers::reclaim::NAMES;
}

/// What to replace, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct RcuArgs {
    /// Replacements of each run of the replace cases, for at most 20 s; without, 100 for at most a second
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>())]
    pub calls: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<RcuMenu>,
}
