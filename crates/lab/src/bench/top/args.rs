//! The options of `afterwork bench top`.

use clap::Args;

use super::{CASES, PEERS};
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct TopMenu;

impl Menu for TopMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &PEERS;
}

/// What to run.
#[derive(Args, Clone, Debug, Default)]
pub struct TopBenchArgs {
    /// Cases; there are no peers.
    #[command(flatten)]
    pub pick: Pick<TopMenu>,
}
