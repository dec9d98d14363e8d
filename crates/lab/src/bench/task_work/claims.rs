//! Claims about mailboxes, which are checked on the reader's machine.

use super::cases::{CAP_AND_WAKE, FIFO, LIFO, WAIT_1, WAIT_8_CAP, WAIT_32, WAIT_32_CAP};
use super::metrics::{LATENCY_P99, OWNER_CPU, REQUESTS, SHARE, WAKEUPS};
use super::peers::{CROSSBEAM, STD, TOKIO};
use crate::harness::claim::{Bound, Claim};

/// The bound for wake-ups. There is one wake-up per 32 items, and some for fewer items.
const FEWER_WAKEUPS: Bound = Bound::AtMost(0.1);

/// The bound for CPU time is a third, because an owner of single items uses most of its CPU time to
/// sleep and wake.
const LESS_CPU: Bound = Bound::AtMost(0.333);

/// The bound for latencies: at most the other one.
const NO_LATER: Bound = Bound::AtMost(1.0);

/// The bound for task work. The list is walked twice, the first time with cache misses, and the
/// queue is walked once.
const HALF: Bound = Bound::AtMost(0.5);

/// The bound for requests. CPU time that is saved in task work is available for requests.
const NOT_FEWER: Bound = Bound::AtLeast(1.0);

/// Returns claims about one item at a time.
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

/// Returns claims about bursts. Each burst needs a wake-up in every variant, so the claims have no
/// bound.
#[must_use]
pub fn wake_burst() -> Vec<Claim> {
    let mut claims = Vec::new();
    for waits in [WAIT_1, WAIT_32] {
        claims.push(Claim::of(waits, "wake-ups", WAKEUPS, STD));
        claims.push(Claim::of(waits, "owner's CPU", OWNER_CPU, STD));
    }
    claims
}

/// Returns claims about the queue and the list that it replaces. They have bounds only for many
/// clients, because there is little to reverse with few clients.
#[must_use]
pub fn service(many_clients: bool) -> Vec<Claim> {
    let when = |bound| many_clients.then_some(bound);
    vec![
        Claim::of(FIFO, "task work's share", SHARE, LIFO).keeps(when(HALF)),
        Claim::of(FIFO, "requests/s", REQUESTS, LIFO).keeps(when(NOT_FEWER)),
    ]
}
