//! Claims about per-CPU data, which are checked on the user's machine.

use super::cases::{EVERY_OP, ON_DEMAND, PARKED, QUEUE, QUEUED, QUIET, STD_MUTEX, UNPROTECTED};
use super::metrics::{CALLS, CYCLES, DRAIN_P50, INTERRUPTS, SWITCHES};
use crate::harness::claim::Claim;

/// Returns claims about a warm cache, where the guard is the only difference.
#[must_use]
pub fn warm() -> Vec<Claim> {
    vec![
        // These allow one cycle more than the usual four.
        Claim::at_most(QUEUE, CYCLES, UNPROTECTED, 1.25),
        Claim::at_most(ON_DEMAND, CYCLES, UNPROTECTED, 1.25),
        Claim::at_most(EVERY_OP, CYCLES, STD_MUTEX, 0.55),
    ]
}

/// Returns claims about drains by the requesting thread, compared with drains by a worker that is
/// woken.
#[must_use]
pub fn isolation() -> Vec<Claim> {
    // Of about a hundred interrupts, one or two may be additional timer ticks.
    let bounds =
        [(DRAIN_P50, QUEUED, 1.0 / 30.0), (SWITCHES, QUEUED, 0.01), (INTERRUPTS, QUIET, 1.05)];
    let claims = bounds.into_iter().flat_map(|(metric, against, most)| {
        [EVERY_OP, ON_DEMAND, PARKED].map(|way| Claim::at_most(way, metric, against, most))
    });
    claims.collect()
}

/// Returns claims about calls on the slot of a busy owner.
#[must_use]
pub fn busy() -> Vec<Claim> {
    [QUEUE, ON_DEMAND, EVERY_OP].map(|way| Claim::at_least(way, CALLS, STD_MUTEX, 0.5)).into()
}
