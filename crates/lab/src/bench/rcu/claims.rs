//! Claims about flavors, which are checked on the reader's machine.

use lab_peers::reclaim::has_liburcu;

use super::cases::{EIGHT_BUSY, ONE_BUSY, TWO_BUSY};
use super::metrics::{
    BARRIER, BRIDGE, CALL_TO_RUN, CALLS, READ, REPLACE_MEAN, REPLACE_P50, REPLACE_P95, REPLACES,
};
use super::ours::{
    BOTH, BY_CALLBACK, EARLY_QS, NAMES, NOT_BOOSTED, QSBR, RCU, WAITS, WAKE_FROM_GP,
};
use crate::bench::settings::may_set_fifo;
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::Metric;

/// The flavor that the manual of liburcu recommends.
const MEMB: &str = "urcu-memb";
const EPOCH: &str = "crossbeam-epoch";
const URCU_QSBR: &str = "urcu-qsbr";

/// The bound for the comparison with a flavor whose read side is also inlined: at most its cost.
const NOT_DEARER: Bound = Bound::AtMost(1.0);
/// The bound for a read. A pin of crossbeam-epoch costs a store, a full fence and two branches.
const FIFTH: Bound = Bound::AtMost(0.2);
/// The bound for a replacement. Others always pay for two barriers and a wake-up. afterwork pays
/// only if a reader is in a section.
const TENTH: Bound = Bound::AtMost(0.1);
/// The bound if readers are boosted. Boosted readers that were preempted run at once, until the end
/// of their section.
const BOOSTED: Bound = Bound::AtMost(0.05);
/// The bound if readers are not boosted. Preempted readers block the updater until they get their
/// CPU again in the usual order.
const PREEMPTED: Bound = Bound::AtMost(0.8);
/// The bound for many updaters. One grace period serves all updaters that started to wait before
/// it.
const SHARED: Bound = Bound::AtLeast(10.0);
/// The bound for callbacks. afterwork does not poll every 10 ms.
const NO_POLL: Bound = Bound::AtMost(0.01);
/// The ratio that the kernel measured for reporting the driver's quiescent state at once: 6.04 to
/// 9.75 ms.
const ONE_WAIT_LESS: Bound = Bound::AtMost(0.62);
/// The bound for doing without fixed waits, which last milliseconds and are far longer than the
/// time in which readers respond.
const NO_WAIT: Bound = Bound::AtMost(0.01);
/// The ratio that the kernel measured for adding `wake_from_gp`, in the set-up loop: 15.9 to 20.8
/// s.
const WAKE_UPS_LESS: Bound = Bound::AtMost(0.77);
const NOT_SLOWER: Bound = Bound::AtLeast(1.0);

fn claims(metric: Metric, what: &str, against: &str, bound: Option<Bound>) -> Vec<Claim> {
    if against == MEMB && !has_liburcu() {
        return Vec::new();
    }
    // Only the first flavor, which is for everyday use, has claims. The others are only shown.
    let bounds = std::iter::once(bound).chain(std::iter::repeat(None));
    let of = |(name, bound): (&&str, Option<Bound>)| {
        Claim::of(*name, what, metric, against).keeps(bound)
    };
    NAMES.iter().zip(bounds).map(of).collect()
}

/// Returns claims about the read side.
#[must_use]
pub fn read() -> Vec<Claim> {
    let mut all = claims(READ, "a read", MEMB, Some(NOT_DEARER));
    all.extend(claims(READ, "a read", EPOCH, Some(FIFTH)));
    if has_liburcu() {
        // Both are a load and an addition, and differ only by noise, so there is no claim.
        all.push(Claim::of(QSBR, "a read", READ, URCU_QSBR));
    }
    all
}

/// Returns claims about the kernel's changes to its fixed waits, and about doing without such
/// waits.
fn kernel_ways(metric: Metric, has_free_cpu: bool) -> Vec<Claim> {
    let claim = |variant: &str, against: &str, bound: Option<Bound>| {
        Claim::of(variant, "mean", metric, against).keeps(bound)
    };
    // With more readers than CPUs, scheduling affects the result more than any wait.
    let where_free = |bound| has_free_cpu.then_some(bound);
    vec![
        claim(EARLY_QS, WAITS, where_free(ONE_WAIT_LESS)),
        claim(WAKE_FROM_GP, WAITS, None),
        claim(BOTH, EARLY_QS, None),
        claim(RCU, BOTH, where_free(NO_WAIT)),
        claim(RCU, BY_CALLBACK, where_free(WAKE_UPS_LESS)),
    ]
}

/// Returns claims about single replacements in `case`.
#[must_use]
pub fn replace(case: &str) -> Vec<Claim> {
    let (metric, bound) = match case {
        "replace-32-idle" | ONE_BUSY => (REPLACE_P50, Some(TENTH)),
        // Readers are boosted to a real-time priority.
        EIGHT_BUSY if may_set_fifo() => (REPLACE_P95, Some(BOOSTED)),
        EIGHT_BUSY => (REPLACE_P95, Some(PREEMPTED)),
        _ => (REPLACE_P50, None),
    };
    let mut all = claims(metric, "until freed", MEMB, bound);
    if case == EIGHT_BUSY && has_liburcu() {
        all.push(Claim::of(NOT_BOOSTED, "until freed", metric, MEMB).keeps(PREEMPTED));
    }
    all.extend(claims(metric, "until freed", EPOCH, None));
    if matches!(case, ONE_BUSY | TWO_BUSY) {
        // These peers free the old value as soon as no thread uses it, regardless of later readers.
        all.extend(
            ["haphazard", "arc-swap"]
                .map(|peer| Claim::of(RCU, "until freed", metric, peer).keeps(Bound::AtMost(1.0))),
        );
    }
    if case != ONE_BUSY {
        all.extend(kernel_ways(REPLACE_MEAN, case != EIGHT_BUSY));
    }
    all
}

/// Returns claims about concurrent updaters.
#[must_use]
pub fn updaters() -> Vec<Claim> {
    let mut all = claims(REPLACES, "replaces/s", MEMB, Some(SHARED));
    all.extend(claims(REPLACES, "replaces/s", EPOCH, None));
    all
}

/// Returns claims about callbacks.
#[must_use]
pub fn call() -> Vec<Claim> {
    let mut all = claims(CALLS, "calls/s", MEMB, Some(NOT_SLOWER));
    all.extend(claims(CALL_TO_RUN, "call to run", MEMB, Some(NO_POLL)));
    all.extend(claims(BARRIER, "idle barrier", MEMB, Some(NO_POLL)));
    all.extend(claims(CALLS, "calls/s", EPOCH, Some(NOT_SLOWER)));
    all
}

/// Returns claims about the set-up loop.
#[must_use]
pub fn bridge() -> Vec<Claim> {
    let mut all = claims(BRIDGE, "a bridge", MEMB, None);
    all.extend(claims(BRIDGE, "a bridge", EPOCH, None));
    all.extend(kernel_ways(BRIDGE, true));
    all
}
