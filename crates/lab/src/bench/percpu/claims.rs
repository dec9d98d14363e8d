//! What we say of per-CPU data, to be judged on the reader's own machine.

use super::cases::{EVERY_OP, ON_DEMAND, PARKED, QUEUE, QUEUED, QUIET, STD_MUTEX, UNPROTECTED};
use super::metrics::{CYCLES, DRAIN_P50, INTERRUPTS, SWITCHES};
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::Metric;

fn claim(variant: &str, metric: Metric, against: &str, at_most: Option<f64>) -> Claim {
    let claim = Claim::of(variant, "", metric, against).in_words(variant);
    claim.keeps(at_most.map(Bound::AtMost))
}

/// With a warm cache the guard is all there is.
#[must_use]
pub fn warm() -> Vec<Claim> {
    // One cycle on about four.
    let one_more = Some(1.25);
    vec![
        claim(QUEUE, CYCLES, UNPROTECTED, one_more),
        claim(ON_DEMAND, CYCLES, UNPROTECTED, one_more),
        claim(EVERY_OP, CYCLES, UNPROTECTED, None),
        claim(EVERY_OP, CYCLES, STD_MUTEX, Some(0.55)),
    ]
}

/// A drain by whoever wants it, against one that a worker of that CPU is woken for.
#[must_use]
pub fn isolation() -> Vec<Claim> {
    let mut claims: Vec<Claim> = [EVERY_OP, ON_DEMAND, PARKED]
        .map(|way| claim(way, DRAIN_P50, QUEUED, Some(1.0 / 30.0)))
        .into();
    claims
        .extend([EVERY_OP, ON_DEMAND, PARKED].map(|way| claim(way, SWITCHES, QUEUED, Some(0.01))));
    // One or two of about a hundred are a tick that fell in.
    claims
        .extend([EVERY_OP, ON_DEMAND, PARKED].map(|way| claim(way, INTERRUPTS, QUIET, Some(1.05))));
    claims
}
