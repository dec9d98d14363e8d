//! What we say of our workqueues, to be judged on the reader's own machine.

use topology::AffinityScope;

use super::metrics::{COMPLETION_P95, ITEMS_PER_S, LOCK_MEAN};
use super::ours::Way;
use crate::measure::claim::{Against, Bound, Claim};

/// Deferring the wake-up must cost nobody anything; the rest is what two medians may differ by.
const HARMLESS: Bound = Bound::AtLeast(0.98);

/// One at a time: the floor is two context switches an item, for everybody. A pool on the caller's own CPU makes
/// them cheap, and a waiter that runs its own item makes none.
#[must_use]
pub fn one_at_a_time(scopes: &[AffinityScope]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &scope in scopes {
        let plain = Way::plain(scope);
        match scope {
            AffinityScope::Cpu => {
                claims.push(against_peer(
                    "items/s",
                    plain,
                    ITEMS_PER_S,
                    Bound::AtLeast(1.4),
                ));
                claims.push(against_peer(
                    "completion p95",
                    plain,
                    COMPLETION_P95,
                    Bound::AtMost(0.6),
                ));
            }
            AffinityScope::System => {
                claims.push(against_peer(
                    "items/s",
                    plain,
                    ITEMS_PER_S,
                    Bound::AtLeast(1.0),
                ));
            }
            _ => {}
        }
        claims.push(against_peer(
            "items/s",
            plain.helped(),
            ITEMS_PER_S,
            Bound::AtLeast(10.0),
        ));
    }
    claims.extend(deferral(scopes));
    claims
}

/// Batches, and the fan-out by another bound: reusable items beat every channel, closures at least match it.
#[must_use]
pub fn many(scopes: &[AffinityScope], reusable: f64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &scope in scopes {
        let plain = Way::plain(scope);
        claims.push(against_peer(
            "items/s",
            plain,
            ITEMS_PER_S,
            Bound::AtLeast(reusable),
        ));
        claims.push(against_peer(
            "items/s",
            plain.spawned(),
            ITEMS_PER_S,
            Bound::AtLeast(1.0),
        ));
    }
    claims.extend(deferral(scopes));
    claims
}

/// How long the pool lock is held, deferred against under the lock, by the name of either variant.
#[must_use]
pub fn lock_hold(what: String, deferred: String, under_lock: String, most: f64) -> Claim {
    Claim {
        what,
        variant: deferred,
        metric: LOCK_MEAN,
        against: Against::Variant(under_lock),
        bound: Some(Bound::AtMost(most)),
    }
}

fn deferral(scopes: &[AffinityScope]) -> impl Iterator<Item = Claim> {
    scopes.iter().flat_map(|&scope| {
        let plain = Way::plain(scope);
        let ratio = |what: &str, metric, bound| Claim {
            what: format!("{what} of {plain}"),
            variant: plain.to_string(),
            metric,
            against: Against::Variant(plain.under_lock().to_string()),
            bound,
        };
        [
            ratio("items/s", ITEMS_PER_S, Some(HARMLESS)),
            ratio("completion p95", COMPLETION_P95, None),
        ]
    })
}

fn against_peer(what: &str, way: Way, metric: &'static str, bound: Bound) -> Claim {
    Claim {
        what: format!("{what} of {way}"),
        variant: way.to_string(),
        metric,
        against: Against::BestPeer,
        bound: Some(bound),
    }
}
