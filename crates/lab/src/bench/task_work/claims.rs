//! Claims about mailboxes, which are checked on the user's machine.

use super::cases::{CAP_AND_WAKE, FIFO, LIFO, WAIT_1, WAIT_8_CAP, WAIT_32, WAIT_32_CAP};
use super::metrics::{LATENCY_P99, OWNER_CPU, REQUESTS, SHARE, WAKEUPS};
use super::peers::{CROSSBEAM, STD, TOKIO};
use crate::harness::claim::Claim;

/// The bound for wake-ups. There is one wake-up per 32 items, and some for fewer items.
const FEWER_WAKEUPS: f64 = 0.1;

/// The bound for CPU time is a third, because an owner of single items uses most of its CPU time to
/// sleep and wake.
const LESS_CPU: f64 = 0.333;

/// Returns claims about one item at a time.
#[must_use]
pub fn wake() -> Vec<Claim> {
    let peers = [STD, TOKIO, CROSSBEAM];
    let mut claims = Vec::new();
    claims.extend(peers.map(|it| Claim::at_most(WAIT_32, WAKEUPS, it, FEWER_WAKEUPS)));
    claims.extend(peers.map(|it| Claim::at_most(WAIT_32, OWNER_CPU, it, LESS_CPU)));
    let capped = [WAIT_8_CAP, WAIT_32_CAP];
    claims.extend(capped.map(|it| Claim::at_most(it, LATENCY_P99, CAP_AND_WAKE, 1.0)));
    claims.push(Claim::at_most(WAIT_1, LATENCY_P99, STD, 1.0));
    claims
}

/// Returns claims about the queue and the list that it replaces, with many clients. With few
/// clients there is little to reverse.
#[must_use]
pub fn service(many_clients: bool) -> Vec<Claim> {
    if !many_clients {
        return Vec::new();
    }
    vec![
        // The list is walked twice, the first time with cache misses, and the queue once.
        Claim::at_most(FIFO, SHARE, LIFO, 0.5),
        // CPU time that is saved in task work is available for requests.
        Claim::at_least(FIFO, REQUESTS, LIFO, 1.0),
    ]
}
