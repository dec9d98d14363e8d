//! The options of `afterwork bench task-work`.

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::{CASES, peers};
use crate::bench::args::count;

/// Word for "no peer at all".
const NONE: &str = "none";

/// What to post, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct TaskWorkArgs {
    /// Items of each run of the wake cases [default: depends on --quick]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>())]
    pub items: Option<u64>,

    /// Cases to run, separated by commas [default: all]
    #[arg(long, value_name = "CASE,…", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(CASES))]
    pub cases: Vec<String>,

    /// Peers to measure against, separated by commas [default: all]
    #[arg(long, value_name = "PEER,…", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(peers::NAMES.into_iter().chain([NONE])))]
    pub peers: Vec<String>,
}

impl TaskWorkArgs {
    /// Whether `case` is to run.
    #[must_use]
    pub fn wants_case(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|wanted| wanted == case)
    }

    /// Whether `peer` is to be measured.
    #[must_use]
    pub fn wants_peer(&self, peer: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|wanted| wanted == peer)
    }
}
