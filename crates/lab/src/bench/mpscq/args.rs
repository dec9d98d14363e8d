//! The options of `afterwork bench mpscq`.

use clap::Args;

use super::{CASES, peers};
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct MpscqMenu;

impl Menu for MpscqMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &peers::NAMES;
}

/// What to push, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct MpscqArgs {
    /// Items of each figure, all producers together [default: depends on --quick]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>())]
    pub items: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<MpscqMenu>,
}
