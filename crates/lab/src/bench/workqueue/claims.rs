//! Claims about workqueues, which are checked on the user's machine.

use topology::AffinityScope;

use super::metrics::ITEMS_PER_S;
use super::ours::Way;
use crate::harness::claim::{Against, Claim};

/// Returns claims about one item at a time, against the best pool with its best way to wait. If the
/// waiter sleeps, each item costs two context switches. A waiter that runs its own item needs none.
pub fn one_at_a_time(scopes: &[AffinityScope]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &scope in scopes {
        let plain = Way::plain(scope);
        let as_the_best = match scope {
            AffinityScope::Cpu => vec![plain, plain.spawned()],
            // This is the default scope.
            AffinityScope::CacheShard => vec![plain],
            AffinityScope::System => vec![plain.spawned()],
            _ => Vec::new(),
        };
        // Waiter and worker cooperate, so ours is at least as fast as the best.
        claims.extend(as_the_best.into_iter().map(|way| against_peer(way, 1.0)));
        // Peers that park at once were 85 to 148 times slower than this scope, and 16 times slower
        // than others. Peers that busy-poll are four times as fast as those that park.
        let least = match scope {
            AffinityScope::Cpu => 10.0,
            _ => 3.0,
        };
        claims.push(against_peer(plain.helped(), least));
    }
    claims.extend(deferral(scopes));
    claims
}

/// Returns claims about batches and fan-out. Reusable items must reach `reusable`, and closures
/// must reach the best peer.
pub fn many(scopes: &[AffinityScope], reusable: f64) -> Vec<Claim> {
    let of = |&scope: &AffinityScope| {
        let plain = Way::plain(scope);
        [against_peer(plain, reusable), against_peer(plain.spawned(), 1.0)]
    };
    scopes.iter().flat_map(of).chain(deferral(scopes)).collect()
}

fn deferral(scopes: &[AffinityScope]) -> impl Iterator<Item = Claim> {
    scopes.iter().map(|&scope| {
        let plain = Way::plain(scope);
        let under_lock = plain.under_lock().to_string();
        // 2 % is the tolerance of two medians.
        Claim::at_least(plain.to_string(), ITEMS_PER_S, under_lock, 0.98)
    })
}

fn against_peer(way: Way, least: f64) -> Claim {
    Claim::at_least(way.to_string(), ITEMS_PER_S, Against::BestPeer, least)
}
