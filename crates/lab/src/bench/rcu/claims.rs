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

/// The bound for the comparison with a flavor whose read side is also inlined: at most its cost.
const NOT_DEARER: f64 = 1.0;
/// The bound for a read. A pin of crossbeam-epoch costs a store, a full fence and two branches.
const FIFTH: f64 = 0.2;
/// The bound for a replacement. Others always pay for two barriers and a wake-up.
const TENTH: f64 = 0.1;
/// The bound if preempted readers are boosted until the end of their section.
const BOOSTED: f64 = 0.05;
/// The bound if preempted readers wait for their CPU in the usual order.
const PREEMPTED: f64 = 0.8;
/// The bound for many updaters, which share one grace period.
const SHARED: f64 = 10.0;
/// The bound for callbacks. afterwork does not poll every 10 ms.
const NO_POLL: f64 = 0.01;
/// The kernel's ratio for reporting the driver's quiescent state at once: 6.04 to 9.75 ms.
const ONE_WAIT_LESS: f64 = 0.62;
/// The bound for doing without fixed waits, which last milliseconds.
const NO_WAIT: f64 = 0.01;
/// The kernel's ratio for adding `wake_from_gp`, in the set-up loop: 15.9 to 20.8 s.
const WAKE_UPS_LESS: f64 = 0.77;
const NOT_SLOWER: f64 = 1.0;

/// Returns the claims that can be judged: those against liburcu need its headers.
fn judged<const N: usize>(claims: [Claim; N]) -> Vec<Claim> {
    let is_there = |claim: &Claim| has_liburcu() || claim.against != MEMB.into();
    claims.into_iter().filter(is_there).collect()
}

pub fn read() -> Vec<Claim> {
    judged([Claim::at_most(RCU, READ, MEMB, NOT_DEARER), Claim::at_most(RCU, READ, EPOCH, FIFTH)])
}

fn kernel_ways(metric: Metric) -> Vec<Claim> {
    judged([
        Claim::at_most(EARLY_QS, metric, WAITS, ONE_WAIT_LESS),
        Claim::at_most(RCU, metric, BOTH, NO_WAIT),
        Claim::at_most(RCU, metric, BY_CALLBACK, WAKE_UPS_LESS),
    ])
}

pub fn replace(case: &str) -> Vec<Claim> {
    let mut all = match case {
        "replace-32-idle" | ONE_BUSY => judged([Claim::at_most(RCU, REPLACE_P50, MEMB, TENTH)]),
        EIGHT_BUSY => {
            // Readers are boosted to a real-time priority, if this process may do that.
            let bound = if may_set_fifo() { BOOSTED } else { PREEMPTED };
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
    judged([Claim::at_least(RCU, REPLACES, MEMB, SHARED)])
}

pub fn call() -> Vec<Claim> {
    judged([
        Claim::at_least(RCU, CALLS, MEMB, NOT_SLOWER),
        Claim::at_most(RCU, CALL_TO_RUN, MEMB, NO_POLL),
        Claim::at_most(RCU, BARRIER, MEMB, NO_POLL),
        Claim::at_least(RCU, CALLS, EPOCH, NOT_SLOWER),
    ])
}

pub fn bridge() -> Vec<Claim> {
    kernel_ways(BRIDGE)
}
