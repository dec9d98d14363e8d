//! Claims about the flavor for everyday use, which are checked on the user's machine.

use lab_peers::reclaim::has_liburcu;

use super::cases::{EIGHT_BUSY, ONE_BUSY, TWO_BUSY};
use super::metrics::{
    BARRIER, BRIDGE, CALL_TO_RUN, CALLS, READ, REPLACE_MEAN, REPLACE_P50, REPLACE_P95, REPLACES,
};
use super::ours::{BOTH, BY_CALLBACK, EARLY_QS, NOT_BOOSTED, RCU, WAITS};
use crate::bench::settings::may_set_fifo;
use crate::harness::claim::Claim;
use crate::harness::metric::Metric;

const MEMB: &str = "urcu-memb";
const EPOCH: &str = "crossbeam-epoch";

/// The bound if preempted readers wait for their CPU in the usual order.
const PREEMPTED: f64 = 0.8;

/// Returns the claims that can be judged: those against liburcu need its headers.
fn judged<const N: usize>(claims: [Claim; N]) -> Vec<Claim> {
    let is_there = |claim: &Claim| has_liburcu() || claim.against != MEMB.into();
    claims.into_iter().filter(is_there).collect()
}

pub fn read() -> Vec<Claim> {
    judged([
        // The read side of this flavor is also inlined.
        Claim::at_most(RCU, READ, MEMB, 1.0),
        // A pin of crossbeam-epoch costs a store, a full fence and two branches.
        Claim::at_most(RCU, READ, EPOCH, 0.2),
    ])
}

fn kernel_ways(metric: Metric) -> Vec<Claim> {
    judged([
        // The kernel's ratio for reporting the driver's quiescent state at once: 6.04 to 9.75 ms.
        Claim::at_most(EARLY_QS, metric, WAITS, 0.62),
        // The fixed waits last milliseconds.
        Claim::at_most(RCU, metric, BOTH, 0.01),
        // The kernel's ratio for adding `wake_from_gp`, in the set-up loop: 15.9 to 20.8 s.
        Claim::at_most(RCU, metric, BY_CALLBACK, 0.77),
    ])
}

pub fn replace(case: &str) -> Vec<Claim> {
    let mut all = match case {
        // Others always pay for two barriers and a wake-up.
        "replace-32-idle" | ONE_BUSY => judged([Claim::at_most(RCU, REPLACE_P50, MEMB, 0.1)]),
        EIGHT_BUSY => {
            // Preempted readers are boosted to a real-time priority until the end of their section,
            // if this process may do that.
            let bound = if may_set_fifo() { 0.05 } else { PREEMPTED };
            judged([
                Claim::at_most(RCU, REPLACE_P95, MEMB, bound),
                Claim::at_most(NOT_BOOSTED, REPLACE_P95, MEMB, PREEMPTED),
            ])
        }
        _ => Vec::new(),
    };
    if matches!(case, ONE_BUSY | TWO_BUSY) {
        // These peers free the old value as soon as no thread uses it, regardless of later readers.
        let peers = ["haphazard", "arc-swap"];
        all.extend(peers.map(|peer| Claim::at_most(RCU, REPLACE_P50, peer, 1.0)));
    }
    // With more readers than CPUs, scheduling affects the result more than any wait.
    if case != ONE_BUSY && case != EIGHT_BUSY {
        all.extend(kernel_ways(REPLACE_MEAN));
    }
    all
}

pub fn updaters() -> Vec<Claim> {
    // Many updaters share one grace period.
    judged([Claim::at_least(RCU, REPLACES, MEMB, 10.0)])
}

pub fn call() -> Vec<Claim> {
    judged([
        Claim::at_least(RCU, CALLS, MEMB, 1.0),
        // afterwork does not poll every 10 ms.
        Claim::at_most(RCU, CALL_TO_RUN, MEMB, 0.01),
        Claim::at_most(RCU, BARRIER, MEMB, 0.01),
        Claim::at_least(RCU, CALLS, EPOCH, 1.0),
    ])
}

pub fn bridge() -> Vec<Claim> {
    kernel_ways(BRIDGE)
}
