//! The options of `afterwork bench workqueue`.

use clap::Args;
use clap::builder::PossibleValuesParser;
use topology::AffinityScope;

use super::{CASES, peers};
use crate::bench::args::count;

/// Word for "no peer at all".
const NONE: &str = "none";

/// What to queue, on what, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct WorkqueueArgs {
    /// Producer threads of one-at-a-time and batch-1000 [default: 8]
    #[arg(long, value_name = "P", value_parser = count::<1024>())]
    pub producers: Option<u64>,

    /// Items that each producer queues; in fan-out, all items [default: depends on the case]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>())]
    pub items: Option<u64>,

    /// Workers of every pool [default: one for each allowed CPU]
    #[arg(long, value_name = "N", value_parser = count::<1024>())]
    pub workers: Option<u64>,

    /// Cases to run, separated by commas [default: all]
    #[arg(long, value_name = "CASE,…", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(CASES))]
    pub cases: Vec<String>,

    /// Peers to measure against, separated by commas [default: all]
    #[arg(long, value_name = "PEER,…", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(peers::NAMES.into_iter().chain([NONE])))]
    pub peers: Vec<String>,

    /// Affinity scopes of our workqueues, separated by commas [default: all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',', value_parser = scope)]
    pub scope: Vec<AffinityScope>,
}

impl WorkqueueArgs {
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

fn scope(word: &str) -> Result<AffinityScope, String> {
    word.parse().map_err(|_| {
        let valid: Vec<&str> = AffinityScope::ALL
            .iter()
            .map(|scope| scope.as_str())
            .collect();
        format!("valid scopes: {}", valid.join(", "))
    })
}
