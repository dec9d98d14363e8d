//! Claims about queues, which are checked on the user's machine.

use super::cases::{MAIL, SINGLE};
use super::metrics::FLOWS;
use super::peers::CORDYCEPS;
use crate::harness::claim::{Against, Claim};

/// The bound for the comparison with the most similar peer. 2 % is the tolerance of two medians.
const NO_SLOWER: f64 = 1.02;

/// The bound for mailboxes. Recycled blocks save allocations, and posters with their own blocks
/// share no cache lines.
const MAIL_BOUND: f64 = 0.8;

/// Returns claims about intrusive items that are pushed and popped one at a time.
#[must_use]
pub fn push_pop() -> Vec<Claim> {
    FLOWS.map(|flow| Claim::at_most(SINGLE, flow.metric, CORDYCEPS, NO_SLOWER)).into()
}

/// Returns claims about messages of 8 bytes, compared with the best channel.
#[must_use]
pub fn owned() -> Vec<Claim> {
    FLOWS.map(|flow| Claim::at_most(MAIL, flow.metric, Against::BestPeer, MAIL_BOUND)).into()
}
