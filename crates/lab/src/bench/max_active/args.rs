//! The options of `afterwork bench max-active`.

use std::path::PathBuf;

use clap::Args;

use super::{CASES, crew};
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct MaxActiveMenu;

impl Menu for MaxActiveMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &crew::NAMES;
}

/// What to run, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct MaxActiveArgs {
    /// Items of each run of a case [default: depends on case and --quick]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>())]
    pub items: Option<usize>,

    /// Where the files of `writes` and `joins` are made; they have no name and are gone afterwards [default: the
    /// system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<MaxActiveMenu>,
}
