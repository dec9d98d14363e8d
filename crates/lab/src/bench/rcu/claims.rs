//! What we say of our flavors, to be judged on the reader's own machine.

use lab_peers::reclaim::has_liburcu;

use super::cases::{EIGHT_BUSY, ONE_BUSY, TWO_BUSY};
use super::metrics::{
    BARRIER, BRIDGE, CALL_TO_RUN, CALLS, READ, REPLACE_MEAN, REPLACE_P50, REPLACE_P95, REPLACES,
};
use super::ours::{
    BOTH, BY_CALLBACK, EARLY_QS, NAMES, NOT_BOOSTED, QSBR, RCU, WAITS, WAKE_FROM_GP,
};
use crate::harness::claim::{Bound, Claim, Source};
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
/// What reporting the driver's own quiescent state saved the kernel in the mean: 9.75 to 6.04 ms.
const ONE_WAIT_LESS: Bound = Bound::AtMost(0.62);
/// Milliseconds of fixed waits against what readers take to answer.
const NO_WAIT: Bound = Bound::AtMost(0.01);
/// What `wake_from_gp` saved the kernel in the set-up loop, on top: 20.8 to 15.9 s.
const WAKE_UPS_LESS: Bound = Bound::AtMost(0.77);
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

/// What the kernel's changes do to its own fixed waits, and what doing without them does. `figures` are the kernel's own,
/// of `early_qs`, `wake_from_gp`, and the one on top of the other.
fn kernel_ways(
    metric: Metric,
    has_free_cpu: bool,
    figures: [Option<&'static str>; 3],
) -> Vec<Claim> {
    let claim =
        |variant: &str, against: &str, bound: Option<Bound>, figure: Option<&'static str>| {
            let from = "the kernel's change, on 32 or 64 CPUs";
            let source = figure.map(|figure| Source { figure, from });
            let claim = Claim::of(variant, "mean", metric, against);
            claim.keeps(bound).beside(source)
        };
    // With more readers than CPUs, whose turn it is decides more than any wait.
    let where_free = |bound| has_free_cpu.then_some(bound);
    let [early_qs, wake_from_gp, both] = figures;
    vec![
        claim(EARLY_QS, WAITS, where_free(ONE_WAIT_LESS), early_qs),
        claim(WAKE_FROM_GP, WAITS, None, wake_from_gp),
        claim(BOTH, EARLY_QS, None, both),
        claim(RCU, BOTH, where_free(NO_WAIT), None),
        claim(RCU, BY_CALLBACK, where_free(WAKE_UPS_LESS), None),
    ]
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
    if case == EIGHT_BUSY && has_liburcu() {
        all.push(Claim::of(NOT_BOOSTED, "until freed", metric, MEMB).keeps(PREEMPTED));
    }
    all.extend(claims(metric, "until freed", EPOCH, None));
    if matches!(case, ONE_BUSY | TWO_BUSY) {
        // They free when nobody looks at the old value, whatever readers do since.
        all.extend(
            ["haphazard", "arc-swap"]
                .map(|peer| Claim::of(RCU, "until freed", metric, peer).keeps(Bound::AtMost(1.0))),
        );
    }
    if case != ONE_BUSY {
        let has_free_cpu = case != EIGHT_BUSY;
        let figures = [(case == "replace-idle").then_some("0.62"), None, None];
        all.extend(kernel_ways(REPLACE_MEAN, has_free_cpu, figures));
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

/// The set-up loop.
#[must_use]
pub fn bridge() -> Vec<Claim> {
    let mut all = claims(BRIDGE, "a bridge", MEMB, None);
    all.extend(claims(BRIDGE, "a bridge", EPOCH, None));
    let figures = ["0.86", "0.78", "0.77"].map(Some);
    all.extend(kernel_ways(BRIDGE, true, figures));
    all
}
