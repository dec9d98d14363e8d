//! The options of `afterwork bench percpu`.

use clap::Args;

use super::{CASES, cases};
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct PercpuMenu;

impl Menu for PercpuMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &cases::PEERS;
}

/// What to work on, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct PercpuArgs {
    /// Drains of each run of `isolation` [default: 2000, with --quick 400]
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>())]
    pub drains: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<PercpuMenu>,
}
