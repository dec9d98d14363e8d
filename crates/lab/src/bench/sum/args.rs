//! The options of `afterwork bench sum`.

use clap::Args;

use super::{CASES, peers};
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct SumMenu;

impl Menu for SumMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &peers::NAMES;
}

/// What to sum, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct SumBenchArgs {
    /// Files of the tree [default: 20000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>())]
    pub files: Option<usize>,

    /// Mean size of a file, in kilobytes of 1024 bytes [default: 100]
    #[arg(long, value_name = "KB", value_parser = count::<1_000_000>())]
    pub mean_kb: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<SumMenu>,
}
