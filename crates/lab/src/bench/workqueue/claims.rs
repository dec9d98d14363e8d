//! What we say of our workqueues, to be judged on the reader's own machine.

use topology::AffinityScope;

use super::metrics::{COMPLETION_P95, ITEMS_PER_S};
use super::ours::Way;
use crate::harness::claim::{Against, Bound, Claim, Source};

/// What the kernel's patches for this measured; "one at a time" is their own test.
const fn kernel(figure: &'static str) -> Source {
    Source {
        figure,
        from: "the kernel's deferred wake-ups: 8 virtual x86 CPUs; 72 arm64 cores (x86 hardware: noise)",
    }
}

/// Waiter and worker know of each other, which no peer's can: no less than the best of those.
const AS_THE_BEST: Bound = Bound::AtLeast(1.0);

/// Deferring the wake-up must cost nobody anything; the rest is what two medians may differ by.
const HARMLESS: Bound = Bound::AtLeast(0.98);

/// One at a time, each of ours waited for in its own way: the best peer is the best of all pools under all waits. The floor
/// is two context switches an item for whoever sleeps. A waiter that runs its own item makes none, which is our feature.
#[must_use]
pub fn one_at_a_time(scopes: &[AffinityScope]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &scope in scopes {
        let plain = Way::plain(scope);
        match scope {
            AffinityScope::Cpu => {
                claims.push(against_peer("items/s", plain, ITEMS_PER_S, AS_THE_BEST));
                let joined = plain.spawned();
                claims.push(against_peer("items/s", joined, ITEMS_PER_S, AS_THE_BEST));
                let p95 = Claim::of(plain.to_string(), "", COMPLETION_P95, Against::BestPeer);
                claims.push(p95.in_words(format!("completion p95 of {plain}")));
            }
            // The default.
            AffinityScope::CacheShard => {
                claims.push(against_peer("items/s", plain, ITEMS_PER_S, AS_THE_BEST));
            }
            AffinityScope::System => {
                let joined = plain.spawned();
                claims.push(against_peer("items/s", joined, ITEMS_PER_S, AS_THE_BEST));
            }
            _ => {}
        }
        // Against peers that park at once 85 to 148 times was seen, and 16; one that looks on is four times those.
        let least = match scope {
            AffinityScope::Cpu => 10.0,
            _ => 3.0,
        };
        let helped = plain.helped();
        claims.push(against_peer(
            "items/s",
            helped,
            ITEMS_PER_S,
            Bound::AtLeast(least),
        ));
    }
    let known = |scope| match scope {
        AffinityScope::Cpu | AffinityScope::Smt => "0.99; 1.18",
        AffinityScope::CacheShard => "1.17; 1.39",
        AffinityScope::Cache => "1.25; 1.35",
        AffinityScope::Numa => "1.20; 1.25",
        AffinityScope::System => "1.25; 1.17",
    };
    claims.extend(deferral(scopes, |scope| Some(kernel(known(scope)))));
    claims
}

/// Batches, and the fan-out by another bound: reusable items beat every channel, closures at least match it.
#[must_use]
pub fn many(scopes: &[AffinityScope], reusable: f64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &scope in scopes {
        let plain = Way::plain(scope);
        for (way, least) in [(plain, reusable), (plain.spawned(), 1.0)] {
            claims.push(against_peer(
                "items/s",
                way,
                ITEMS_PER_S,
                Bound::AtLeast(least),
            ));
        }
    }
    claims.extend(deferral(scopes, |_| None));
    claims
}

fn deferral(
    scopes: &[AffinityScope],
    source: impl Fn(AffinityScope) -> Option<Source>,
) -> impl Iterator<Item = Claim> {
    scopes.iter().flat_map(move |&scope| {
        let plain = Way::plain(scope);
        let ratio = |what: &str, metric| {
            let claim = Claim::of(
                plain.to_string(),
                "",
                metric,
                plain.under_lock().to_string(),
            );
            claim.in_words(format!("{what} of {plain}"))
        };
        [
            ratio("items/s", ITEMS_PER_S)
                .keeps(HARMLESS)
                .beside(source(scope)),
            ratio("completion p95", COMPLETION_P95),
        ]
    })
}

fn against_peer(what: &str, way: Way, metric: &'static str, bound: Bound) -> Claim {
    let claim = Claim::of(way.to_string(), "", metric, Against::BestPeer);
    claim.in_words(format!("{what} of {way}")).keeps(bound)
}
