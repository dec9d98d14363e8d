//! Claims about per-CPU data, which are checked on the reader's machine.

use super::cases::{EVERY_OP, ON_DEMAND, PARKED, QUEUE, QUEUED, QUIET, STD_MUTEX, UNPROTECTED};
use super::metrics::{CALLS, CYCLES, DRAIN_P50, INTERRUPTS, SWITCHES};
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::Metric;

fn claim(variant: &str, metric: Metric, against: &str, at_most: Option<f64>) -> Claim {
    let claim = Claim::of(variant, "", metric, against).in_words(variant);
    claim.keeps(at_most.map(Bound::AtMost))
}

/// Returns claims about a warm cache, where the guard is the only difference.
#[must_use]
pub fn warm() -> Vec<Claim> {
    // This allows one cycle more than the usual four.
    let one_more = Some(1.25);
    vec![
        claim(QUEUE, CYCLES, UNPROTECTED, one_more),
        claim(ON_DEMAND, CYCLES, UNPROTECTED, one_more),
        claim(EVERY_OP, CYCLES, UNPROTECTED, None),
        claim(EVERY_OP, CYCLES, STD_MUTEX, Some(0.55)),
    ]
}

/// Returns claims about drains by the requesting thread, compared with drains by a worker that is
/// woken.
#[must_use]
pub fn isolation() -> Vec<Claim> {
    let mut claims: Vec<Claim> = [EVERY_OP, ON_DEMAND, PARKED]
        .map(|way| claim(way, DRAIN_P50, QUEUED, Some(1.0 / 30.0)))
        .into();
    claims
        .extend([EVERY_OP, ON_DEMAND, PARKED].map(|way| claim(way, SWITCHES, QUEUED, Some(0.01))));
    // Of about a hundred interrupts, one or two may be additional timer ticks.
    claims
        .extend([EVERY_OP, ON_DEMAND, PARKED].map(|way| claim(way, INTERRUPTS, QUIET, Some(1.05))));
    claims
}

/// Returns claims about calls on the slot of a busy owner.
#[must_use]
pub fn busy() -> Vec<Claim> {
    let claim = |way| claim(way, CALLS, STD_MUTEX, None);
    let claims = [QUEUE, ON_DEMAND, EVERY_OP].map(claim);
    claims.map(|it| it.keeps(Bound::AtLeast(0.5))).into()
}
