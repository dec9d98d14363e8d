//! The options of `afterwork bench blocking`.

use clap::Args;

use super::{CASES, PEERS};
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct BlockingMenu;

impl Menu for BlockingMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &PEERS;
}

/// What to run, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct BlockingArgs {
    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<BlockingMenu>,
}
