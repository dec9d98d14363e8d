//! Claims about queues, which are checked on the reader's machine.

use super::cases::{LIFO, MAIL, SINGLE};
use super::metrics::{FLOWS, FlowMetric};
use super::peers::CORDYCEPS;
use super::polling::Polling;
use crate::harness::claim::{Against, Bound, Claim};

/// The bound for the comparison with the most similar peer. 2 % is the tolerance of two medians.
const NO_SLOWER: Bound = Bound::AtMost(1.02);

/// The bound for mailboxes. Recycled blocks save allocations, and posters with their own blocks
/// share no cache lines.
const MAIL_BOUND: Bound = Bound::AtMost(0.8);

/// Returns claims about intrusive items that are pushed and popped one at a time.
#[must_use]
pub fn push_pop() -> Vec<Claim> {
    let against = |flow: &FlowMetric, other: &'static str, bound: Option<Bound>| {
        Claim::of(SINGLE, in_words(flow), flow.metric, other).keeps(bound)
    };
    let no_slower = |flow| against(flow, CORDYCEPS, Some(NO_SLOWER));
    // The LIFO list that the queue replaces walks all items twice. The comparison is shown without
    // a claim.
    let paused = FLOWS.iter().filter(|it| it.polling == Polling::Paused);
    let shown = paused.map(|flow| against(flow, LIFO, None));
    FLOWS.iter().map(no_slower).chain(shown).collect()
}

/// Returns claims about messages of 8 bytes, compared with the best channel.
#[must_use]
pub fn owned() -> Vec<Claim> {
    let claim = |flow: &FlowMetric| {
        let claim = Claim::of(MAIL, in_words(flow), flow.metric, Against::BestPeer);
        claim.keeps(MAIL_BOUND)
    };
    FLOWS.iter().map(claim).collect()
}

fn in_words(flow: &FlowMetric) -> String {
    let polling = match flow.polling {
        Polling::Paused => "paused",
        Polling::Tight => "tight",
    };
    format!("producers: {}, {polling}", flow.producers)
}
