//! What we say of our flavors, to be judged on the reader's own machine.

use lab_peers::reclaim::has_liburcu;

use super::cases::{EIGHT_BUSY, ONE_BUSY, TWO_BUSY};
use super::metrics::{BARRIER, CALL_TO_RUN, CALLS, READ, REPLACE_P50, REPLACE_P95, REPLACES};
use super::ours::{NAMES, QSBR, RCU};
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::Metric;

/// The flavor of liburcu that its manual recommends.
const MEMB: &str = "urcu-memb";
const EPOCH: &str = "crossbeam-epoch";
const URCU_QSBR: &str = "urcu-qsbr";

/// No dearer than the other, whose read side is inlined too.
const NOT_DEARER: Bound = Bound::AtMost(1.0);
/// A pin is a store, a full fence and two branches.
const FIFTH: Bound = Bound::AtMost(0.2);
/// What others do at all costs, two barriers and a wake-up, is for when a reader is in the way.
const TENTH: Bound = Bound::AtMost(0.1);
/// Readers that have lost their CPU run at once, for the rest of their section.
const BOOSTED: Bound = Bound::AtMost(0.05);
/// They are what is waited for, and get the CPU in their turn.
const PREEMPTED: Bound = Bound::AtMost(0.8);
/// One grace period serves all who came before it.
const SHARED: Bound = Bound::AtLeast(10.0);
/// No polling every 10 ms.
const NO_POLL: Bound = Bound::AtMost(0.01);
const NOT_SLOWER: Bound = Bound::AtLeast(1.0);

fn claims(metric: Metric, what: &str, against: &str, bound: Option<Bound>) -> Vec<Claim> {
    if against == MEMB && !has_liburcu() {
        return Vec::new();
    }
    // The first is the one for everyday use, and what is claimed is claimed of it; the others are shown.
    let bounds = std::iter::once(bound).chain(std::iter::repeat(None));
    let of = |(name, bound): (&&str, Option<Bound>)| {
        Claim::of(*name, what, metric, against).keeps(bound)
    };
    NAMES.iter().zip(bounds).map(of).collect()
}

/// The read side.
#[must_use]
pub fn read() -> Vec<Claim> {
    let mut all = claims(READ, "a read", MEMB, Some(NOT_DEARER));
    all.extend(claims(READ, "a read", EPOCH, Some(FIFTH)));
    if has_liburcu() {
        // Each is a load and an addition: what differs is noise, so nothing is claimed.
        all.push(Claim::of(QSBR, "a read", READ, URCU_QSBR));
    }
    all
}

/// Returns `true` if this process may give a thread a real-time priority, which is how readers are boosted.
fn may_boost() -> bool {
    // A thread of its own, so that nothing is left behind.
    let tried = std::thread::spawn(|| sync::thread::set_fifo(1).is_ok());
    tried.join().is_ok_and(|may| may)
}

/// Single replacements, by the case's name.
#[must_use]
pub fn replace(case: &str) -> Vec<Claim> {
    let (metric, bound) = match case {
        "replace-32-idle" | ONE_BUSY => (REPLACE_P50, Some(TENTH)),
        EIGHT_BUSY if may_boost() => (REPLACE_P95, Some(BOOSTED)),
        EIGHT_BUSY => (REPLACE_P95, Some(PREEMPTED)),
        _ => (REPLACE_P50, None),
    };
    let mut all = claims(metric, "until freed", MEMB, bound);
    all.extend(claims(metric, "until freed", EPOCH, None));
    if matches!(case, ONE_BUSY | TWO_BUSY) {
        // They free when nobody looks at the old value, whatever readers do since.
        all.extend(
            ["haphazard", "arc-swap"]
                .map(|peer| Claim::of(RCU, "until freed", metric, peer).keeps(Bound::AtMost(1.0))),
        );
    }
    all
}

/// Many who replace at once.
#[must_use]
pub fn updaters() -> Vec<Claim> {
    let mut all = claims(REPLACES, "replaces/s", MEMB, Some(SHARED));
    all.extend(claims(REPLACES, "replaces/s", EPOCH, None));
    all
}

/// Callbacks.
#[must_use]
pub fn call() -> Vec<Claim> {
    let mut all = claims(CALLS, "calls/s", MEMB, Some(NOT_SLOWER));
    all.extend(claims(CALL_TO_RUN, "call to run", MEMB, Some(NO_POLL)));
    all.extend(claims(BARRIER, "idle barrier", MEMB, Some(NO_POLL)));
    all.extend(claims(CALLS, "calls/s", EPOCH, Some(NOT_SLOWER)));
    all
}
