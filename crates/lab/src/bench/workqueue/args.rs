//! The options of `afterwork bench workqueue`.

use clap::Args;
use topology::AffinityScope;

use super::{CASES, peers};
use crate::bench::args::count;
use crate::bench::pick::{Menu, Pick};

/// What there is to measure.
#[derive(Clone, Debug)]
pub struct WorkqueueMenu;

impl Menu for WorkqueueMenu {
    const CASES: &'static [&'static str] = &CASES;
    const PEERS: &'static [&'static str] = &peers::NAMES;
}

/// What to queue, on what, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct WorkqueueArgs {
    /// Producer threads of one-at-a-time and batch-1000 [default: 8]
    #[arg(long, value_name = "P", value_parser = count::<1024>())]
    pub producers: Option<usize>,

    /// Items that each producer queues; in fan-out, all items [default: depends on the case]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>())]
    pub items: Option<usize>,

    /// Workers of every pool [default: one for each allowed CPU]
    #[arg(long, value_name = "N", value_parser = count::<1024>())]
    pub workers: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick<WorkqueueMenu>,

    /// Affinity scopes of our workqueues, separated by commas [default: all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',', value_parser = scope)]
    pub scope: Vec<AffinityScope>,
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
