//! What we say of per-CPU data, to be judged on the reader's own machine.

use super::cases::{
    BARE_SWAP, BROKEN, COMPILED_OUT, EVERY_OP, MAILED, ON_DEMAND, PARKED, QUEUE, QUEUED, QUIET,
    STD_MUTEX, UNPROTECTED,
};
use super::metrics::{CYCLES, DRAIN_P50, INTERRUPTS, SWITCHES};
use crate::harness::claim::{Bound, Claim, Source};
use crate::harness::metric::Metric;

fn claim(variant: &str, metric: Metric, against: &str, at_most: Option<f64>) -> Claim {
    let claim = Claim::of(variant, "", metric, against).in_words(variant);
    claim.keeps(at_most.map(Bound::AtMost))
}

/// What the kernel's patches for this measured.
const fn kernel(figure: &'static str) -> Source {
    Source {
        figure,
        from: "the kernel's per-CPU work proposal: kmalloc and kfree, 166 cycles unprotected",
    }
}

/// With cold caches a miss is what an object costs, and the guard is to vanish beside it.
#[must_use]
pub fn cold() -> Vec<Claim> {
    vec![
        claim(COMPILED_OUT, CYCLES, UNPROTECTED, Some(1.01)).beside(kernel("1.00")),
        claim(QUEUE, CYCLES, UNPROTECTED, Some(1.01)).beside(kernel("1.01")),
        claim(ON_DEMAND, CYCLES, UNPROTECTED, Some(1.02)),
        claim(EVERY_OP, CYCLES, UNPROTECTED, Some(1.16)).beside(kernel("1.16")),
        claim(EVERY_OP, CYCLES, STD_MUTEX, None),
    ]
}

/// With warm ones the guard is all there is.
#[must_use]
pub fn warm() -> Vec<Claim> {
    // One cycle on about four.
    let one_more = Some(1.25);
    vec![
        claim(COMPILED_OUT, CYCLES, UNPROTECTED, one_more),
        claim(QUEUE, CYCLES, UNPROTECTED, one_more),
        claim(ON_DEMAND, CYCLES, UNPROTECTED, one_more),
        claim(EVERY_OP, CYCLES, UNPROTECTED, None),
        claim(EVERY_OP, CYCLES, BARE_SWAP, Some(1.1)),
        claim(EVERY_OP, CYCLES, STD_MUTEX, Some(0.55)),
    ]
}

/// A drain by whoever wants it, against one that a worker of that CPU is woken for.
#[must_use]
pub fn isolation() -> Vec<Claim> {
    let mut claims: Vec<Claim> = [EVERY_OP, ON_DEMAND, PARKED]
        .map(|way| claim(way, DRAIN_P50, QUEUED, Some(1.0 / 30.0)))
        .into();
    claims.extend([MAILED, BROKEN].map(|way| claim(way, DRAIN_P50, QUEUED, None)));
    claims
        .extend([EVERY_OP, ON_DEMAND, PARKED].map(|way| claim(way, SWITCHES, QUEUED, Some(0.01))));
    // One or two of about a hundred are a tick that fell in.
    claims
        .extend([EVERY_OP, ON_DEMAND, PARKED].map(|way| claim(way, INTERRUPTS, QUIET, Some(1.05))));
    claims
}
