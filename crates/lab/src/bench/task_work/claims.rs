//! What we say of mailboxes, to be judged on the reader's own machine.

use super::cases::{CAP_AND_WAKE, FIFO, LIFO, WAIT_1, WAIT_8_CAP, WAIT_32, WAIT_32_CAP};
use super::metrics::{LATENCY_P99, OWNER_CPU, REQUESTS, SHARE, WAKEUPS};
use super::peers::{CROSSBEAM, STD, TOKIO};
use crate::measure::claim::{Against, Bound, Claim};

/// One wake-up in 32 items, and one now and then for less.
const FEWER_WAKEUPS: Bound = Bound::AtMost(0.1);

/// A third: most of what an owner of single items burns is going to sleep and coming back.
const LESS_CPU: Bound = Bound::AtMost(0.333);

/// No later than the other.
const NO_LATER: Bound = Bound::AtMost(1.0);

/// A list walked twice, of which the first time misses the caches, against a queue walked once.
const HALF: Bound = Bound::AtMost(0.5);

/// What task work saves goes to requests.
const NOT_FEWER: Bound = Bound::AtLeast(1.0);

fn claim(
    variant: &str,
    metric: &'static str,
    what: &str,
    against: &str,
    bound: Option<Bound>,
) -> Claim {
    Claim {
        what: format!("{variant}, {what}"),
        variant: variant.into(),
        metric,
        against: Against::Variant(against.into()),
        bound,
    }
}

/// One item at a time.
#[must_use]
pub fn wake() -> Vec<Claim> {
    let mut claims = Vec::new();
    for peer in [STD, TOKIO, CROSSBEAM] {
        claims.push(claim(
            WAIT_32,
            WAKEUPS,
            "wake-ups",
            peer,
            Some(FEWER_WAKEUPS),
        ));
    }
    for peer in [STD, TOKIO, CROSSBEAM] {
        claims.push(claim(
            WAIT_32,
            OWNER_CPU,
            "owner's CPU",
            peer,
            Some(LESS_CPU),
        ));
    }
    for capped in [WAIT_8_CAP, WAIT_32_CAP] {
        claims.push(claim(
            capped,
            LATENCY_P99,
            "p99",
            CAP_AND_WAKE,
            Some(NO_LATER),
        ));
    }
    claims.push(claim(WAIT_1, LATENCY_P99, "p99", STD, Some(NO_LATER)));
    claims.push(claim(WAIT_1, OWNER_CPU, "owner's CPU", STD, None));
    claims
}

/// Bursts need a wake-up each, whoever wakes: shown, not claimed.
#[must_use]
pub fn wake_burst() -> Vec<Claim> {
    let mut claims = Vec::new();
    for waits in [WAIT_1, WAIT_32] {
        claims.push(claim(waits, WAKEUPS, "wake-ups", STD, None));
        claims.push(claim(waits, OWNER_CPU, "owner's CPU", STD, None));
    }
    claims
}

/// The queue against the list that it replaces. With few clients there is little to turn round: shown, not claimed.
#[must_use]
pub fn service(many_clients: bool) -> Vec<Claim> {
    let when = |bound| many_clients.then_some(bound);
    vec![
        claim(FIFO, SHARE, "task work's share", LIFO, when(HALF)),
        claim(FIFO, REQUESTS, "requests/s", LIFO, when(NOT_FEWER)),
    ]
}
