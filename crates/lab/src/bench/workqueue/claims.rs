//! Claims about workqueues, which are checked on the reader's machine.

use topology::AffinityScope;

use super::metrics::{COMPLETION_P95, ITEMS_PER_S};
use super::ours::Way;
use crate::harness::claim::{Against, Bound, Claim};

/// The bound for throughput. The waiter and the worker of our items cooperate, which no peer
/// supports, so afterwork is at least as fast as the best peer.
const AS_THE_BEST: Bound = Bound::AtLeast(1.0);

/// The bound for deferred wake-ups, which must not cost throughput. 2 % is the tolerance of two
/// medians.
const HARMLESS: Bound = Bound::AtLeast(0.98);

/// Returns claims about one item at a time. Variants of afterwork wait in their own way, and the
/// best peer is the best of all pools with all ways to wait. If the waiter sleeps, each item costs
/// at least two context switches. A waiter that runs its own item needs none.
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
            // This is the default scope.
            AffinityScope::CacheShard => {
                claims.push(against_peer("items/s", plain, ITEMS_PER_S, AS_THE_BEST));
            }
            AffinityScope::System => {
                let joined = plain.spawned();
                claims.push(against_peer("items/s", joined, ITEMS_PER_S, AS_THE_BEST));
            }
            _ => {}
        }
        // Peers that park at once were 85 to 148 times slower than this scope, and 16 times slower
        // than others. Peers that busy-poll are four times as fast as those that park.
        let least = match scope {
            AffinityScope::Cpu => 10.0,
            _ => 3.0,
        };
        let helped = plain.helped();
        claims.push(against_peer("items/s", helped, ITEMS_PER_S, Bound::AtLeast(least)));
    }
    claims.extend(deferral(scopes));
    claims
}

/// Returns claims about batches and fan-out. Reusable items must reach `reusable`, and closures
/// must reach the best peer.
#[must_use]
pub fn many(scopes: &[AffinityScope], reusable: f64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &scope in scopes {
        let plain = Way::plain(scope);
        for (way, least) in [(plain, reusable), (plain.spawned(), 1.0)] {
            claims.push(against_peer("items/s", way, ITEMS_PER_S, Bound::AtLeast(least)));
        }
    }
    claims.extend(deferral(scopes));
    claims
}

fn deferral(scopes: &[AffinityScope]) -> impl Iterator<Item = Claim> {
    scopes.iter().flat_map(|&scope| {
        let plain = Way::plain(scope);
        let ratio = |what: &str, metric| {
            let claim = Claim::of(plain.to_string(), "", metric, plain.under_lock().to_string());
            claim.in_words(format!("{what} of {plain}"))
        };
        [ratio("items/s", ITEMS_PER_S).keeps(HARMLESS), ratio("completion p95", COMPLETION_P95)]
    })
}

fn against_peer(what: &str, way: Way, metric: &'static str, bound: Bound) -> Claim {
    let claim = Claim::of(way.to_string(), "", metric, Against::BestPeer);
    claim.in_words(format!("{what} of {way}")).keeps(bound)
}
