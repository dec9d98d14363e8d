//! What we say of our flavors, to be judged on the reader's own machine.

use lab_peers::reclaim::has_liburcu;

use super::metrics::{
    BARRIER, BRIDGE, CALL_TO_RUN, CALLS, READ, REPLACE_P50, REPLACE_P95, REPLACES,
};
use super::ours::NAMES;
use crate::measure::claim::{Against, Bound, Claim, Source};

/// The flavor of liburcu that its manual recommends.
const MEMB: &str = "urcu-memb";
const EPOCH: &str = "crossbeam-epoch";

/// No dearer than the other, whose read side is inlined too.
const NOT_DEARER: Bound = Bound::AtMost(1.0);
/// A pin is a store, a full fence and two branches.
const FIFTH: Bound = Bound::AtMost(0.2);
/// What others do at all costs, two barriers and a wake-up, is for when a reader is in the way.
const TENTH: Bound = Bound::AtMost(0.1);
/// Readers that have lost their CPU are what is waited for, unless they are boosted.
const PREEMPTED: Bound = Bound::AtMost(0.8);
/// One grace period serves all who came before it.
const SHARED: Bound = Bound::AtLeast(10.0);
/// No polling every 10 ms.
const NO_POLL: Bound = Bound::AtMost(0.01);
const NOT_SLOWER: Bound = Bound::AtLeast(1.0);

fn claims(metric: &'static str, what: &str, against: &str, bound: Option<Bound>) -> Vec<Claim> {
    if against == MEMB && !has_liburcu() {
        return Vec::new();
    }
    // The first is the one for everyday use, and what is claimed is claimed of it; the others are shown.
    let bounds = std::iter::once(bound).chain(std::iter::repeat(None));
    let of = |(name, bound): (&&str, Option<Bound>)| Claim {
        what: format!("{name}, {what}"),
        variant: (*name).into(),
        metric,
        against: Against::Variant(against.into()),
        bound,
        source: None,
    };
    NAMES.iter().zip(bounds).map(of).collect()
}

/// Puts what the prototype did beside the first claim, which is of the flavor that it was.
fn known(mut claims: Vec<Claim>, figure: &'static str) -> Vec<Claim> {
    if let Some(first) = claims.first_mut() {
        first.source = Some(Source::prototype(figure));
    }
    claims
}

/// The read side.
#[must_use]
pub fn read() -> Vec<Claim> {
    let mut all = known(claims(READ, "a read", MEMB, Some(NOT_DEARER)), "0.98");
    all.extend(known(claims(READ, "a read", EPOCH, Some(FIFTH)), "0.10"));
    all
}

/// Single replacements, by the case's name.
#[must_use]
pub fn replace(case: &str) -> Vec<Claim> {
    let (metric, bound, figure) = match case {
        "replace-32-idle" => (REPLACE_P50, Some(TENTH), Some("0.02")),
        "replace-1-busy" => (REPLACE_P50, Some(TENTH), Some("0.01")),
        "replace-8-busy" => (
            REPLACE_P95,
            Some(PREEMPTED),
            Some("0.001 boosted, 1.04 not"),
        ),
        _ => (REPLACE_P50, None, None),
    };
    let mut all = claims(metric, "until freed", MEMB, bound);
    if let Some(figure) = figure {
        all = known(all, figure);
    }
    all.extend(claims(metric, "until freed", EPOCH, None));
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
    let mut all = known(claims(CALLS, "calls/s", MEMB, Some(NOT_SLOWER)), "2.8");
    let to_run = claims(CALL_TO_RUN, "call to run", MEMB, Some(NO_POLL));
    all.extend(known(to_run, "0.0005"));
    all.extend(claims(BARRIER, "idle barrier", MEMB, Some(NO_POLL)));
    all.extend(claims(CALLS, "calls/s", EPOCH, None));
    all
}

/// The set-up loop.
#[must_use]
pub fn bridge() -> Vec<Claim> {
    let mut all = claims(BRIDGE, "a bridge", MEMB, None);
    all.extend(claims(BRIDGE, "a bridge", EPOCH, None));
    all
}
