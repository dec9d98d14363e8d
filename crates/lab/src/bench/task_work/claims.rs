//! Claims about mailboxes, which are checked on the machine of the reader.

use super::cases::{CAP_AND_WAKE, WAIT_1, WAIT_8_CAP, WAIT_32, WAIT_32_CAP};
use super::metrics::{LATENCY_P99, OWNER_CPU, WAKEUPS};
use super::peers::{CROSSBEAM, STD, TOKIO};
use crate::harness::claim::{Bound, Claim};

/// One wake-up per 32 items, and some for fewer.
const FEWER_WAKEUPS: Bound = Bound::AtMost(0.1);

/// A third: an owner of single items uses most of its CPU time to sleep and wake.
const LESS_CPU: Bound = Bound::AtMost(0.333);

/// Bound for latencies: at most the other one.
const NO_LATER: Bound = Bound::AtMost(1.0);

/// Claims about one item at a time.
#[must_use]
pub fn wake() -> Vec<Claim> {
    let mut claims = Vec::new();
    for peer in [STD, TOKIO, CROSSBEAM] {
        claims.push(Claim::of(WAIT_32, "wake-ups", WAKEUPS, peer).keeps(FEWER_WAKEUPS));
    }
    for peer in [STD, TOKIO, CROSSBEAM] {
        claims.push(Claim::of(WAIT_32, "owner's CPU", OWNER_CPU, peer).keeps(LESS_CPU));
    }
    for capped in [WAIT_8_CAP, WAIT_32_CAP] {
        claims.push(Claim::of(capped, "p99", LATENCY_P99, CAP_AND_WAKE).keeps(NO_LATER));
    }
    claims.push(Claim::of(WAIT_1, "p99", LATENCY_P99, STD).keeps(NO_LATER));
    claims.push(Claim::of(WAIT_1, "owner's CPU", OWNER_CPU, STD));
    claims
}

/// Each burst needs a wake-up in every variant, so these are shown without a bound.
#[must_use]
pub fn wake_burst() -> Vec<Claim> {
    let mut claims = Vec::new();
    for waits in [WAIT_1, WAIT_32] {
        claims.push(Claim::of(waits, "wake-ups", WAKEUPS, STD));
        claims.push(Claim::of(waits, "owner's CPU", OWNER_CPU, STD));
    }
    claims
}
