//! What we say of our queues, to be judged on the reader's own machine.

use super::cases::{LIFO, MAIL, SINGLE};
use super::metrics::{FLOWS, FlowMetric};
use super::peers::CORDYCEPS;
use super::polling::Polling;
use crate::harness::claim::{Against, Bound, Claim};

/// No slower than the nearest relative; the rest is what two medians may differ by.
const NO_SLOWER: Bound = Bound::AtMost(1.02);

/// Recycled blocks spare the allocator, and a poster that has one to itself shares no line with other posters.
const MAIL_BOUND: Bound = Bound::AtMost(0.8);

/// Push and pop of intrusive items, single pushes on both sides.
#[must_use]
pub fn push_pop() -> Vec<Claim> {
    let against = |flow: &FlowMetric, other: &'static str, bound: Option<Bound>| {
        Claim::of(SINGLE, in_words(flow), flow.metric, other).keeps(bound)
    };
    let no_slower = |flow| against(flow, CORDYCEPS, Some(NO_SLOWER));
    // The replaced list: shown, not claimed. Its drain walks every item once more.
    let paused = FLOWS.iter().filter(|it| it.polling == Polling::Paused);
    let shown = paused.map(|flow| against(flow, LIFO, None));
    FLOWS.iter().map(no_slower).chain(shown).collect()
}

/// Messages of 8 bytes against the best channel.
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
