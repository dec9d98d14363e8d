//! What we say of our queues, to be judged on the reader's own machine.

use super::cases::{ALLOCATED, LIFO, MAIL, SINGLE};
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
    let against = |other: &'static str, metric, what: &str, bound: Option<Bound>| {
        Claim::of(SINGLE, what, metric, other).keeps(bound)
    };
    let no_slower =
        |flow: &FlowMetric| against(CORDYCEPS, flow.metric, &in_words(flow), Some(NO_SLOWER));
    let mut claims: Vec<Claim> = FLOWS.iter().map(no_slower).collect();
    // The old way: shown, not claimed. Its pushes cost as much, and its drain walks every item once more.
    claims.extend(paused().map(|flow| against(LIFO, flow.metric, &in_words(flow), None)));
    claims
}

/// Messages of 8 bytes against the best channel.
#[must_use]
pub fn owned() -> Vec<Claim> {
    let mail = |metric, what: &str, against: Against, bound: Option<Bound>| {
        Claim::of(MAIL, what, metric, against).keeps(bound)
    };
    let best = || Against::BestPeer;
    let mut claims: Vec<Claim> = FLOWS
        .iter()
        .map(|flow| mail(flow.metric, &in_words(flow), best(), Some(MAIL_BOUND)))
        .collect();
    for flow in paused() {
        let allocated = Against::Variant(ALLOCATED.into());
        claims.push(mail(flow.metric, &in_words(flow), allocated, None));
    }
    claims
}

/// Where others are only shown: a consumer that leaves the queue alone for a moment is the common one.
fn paused() -> impl Iterator<Item = &'static FlowMetric> {
    let all = FLOWS.iter();
    all.filter(|flow| flow.polling == Polling::Paused)
}

fn in_words(flow: &FlowMetric) -> String {
    let polling = match flow.polling {
        Polling::Paused => "paused",
        Polling::Tight => "tight",
    };
    format!("producers: {}, {polling}", flow.producers)
}
