//! What we say of mailboxes, to be judged on the reader's own machine.

use super::cases::{CAP_AND_WAKE, FIFO, LIFO, WAIT_1, WAIT_8_CAP, WAIT_32, WAIT_32_CAP};
use super::metrics::{LATENCY_P99, OWNER_CPU, REQUESTS, SHARE, WAKEUPS};
use super::peers::{CROSSBEAM, STD, TOKIO};
use crate::measure::claim::{Against, Bound, Claim, Source};

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
        source: None,
    }
}

/// What the kernel's patches for this measured, with 8 or with 1024 clients.
const fn kernel(figure: &'static str) -> Source {
    Source {
        figure,
        from: "the kernel's wait-free queue in io_uring: multishot receives",
    }
}

/// One item at a time.
#[must_use]
pub fn wake() -> Vec<Claim> {
    let mut claims = Vec::new();
    for (peer, known) in [(STD, "0.06"), (TOKIO, "0.07"), (CROSSBEAM, "0.08")] {
        let fewer = claim(WAIT_32, WAKEUPS, "wake-ups", peer, Some(FEWER_WAKEUPS));
        claims.push(fewer.beside(Source::prototype(known)));
    }
    for (peer, known) in [(STD, "0.21"), (TOKIO, "0.20"), (CROSSBEAM, "0.09")] {
        let less = claim(WAIT_32, OWNER_CPU, "owner's CPU", peer, Some(LESS_CPU));
        claims.push(less.beside(Source::prototype(known)));
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
    let (share, requests) = match many_clients {
        true => (kernel("0.38"), kernel("1.08")),
        false => (kernel("0.80"), kernel("1.15")),
    };
    vec![
        claim(FIFO, SHARE, "task work's share", LIFO, when(HALF)).beside(share),
        claim(FIFO, REQUESTS, "requests/s", LIFO, when(NOT_FEWER)).beside(requests),
    ]
}
