//! A limit on the rate of operations.

use std::time::Duration;

use sync::atomic::{AtomicU64, Ordering};
use sync::time::nanos;

use super::sleep::global;
use crate::queues::registry::Registry;

/// A limit on the rate of operations: tasks wait for their turns, in the order of their calls.
///
/// After a time without turns, several operations may start at once, up to the burst. The state is
/// one number, the time of the next turn (the "generic cell rate algorithm"), so an unused limit
/// costs nothing.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{RateLimit, block_on};
///
/// let limit = RateLimit::new(Duration::from_millis(1), 2);
/// assert!(limit.try_acquire() && limit.try_acquire() && !limit.try_acquire());
/// block_on(limit.acquire());
/// ```
#[derive(Debug)]
#[doc(alias("throttle", "token_bucket", "leaky_bucket", "governor"))]
pub struct RateLimit {
    registry: Registry,
    period_ns: u64,
    burst_ns: u64,
    /// A: the time of the next turn if there were no bursts.
    next_ns: AtomicU64,
}

impl RateLimit {
    /// Creates a limit of one turn per `period`, with bursts of up to `burst` turns; a burst of 1
    /// is a single turn. A `period` of zero sets no limit. It uses the clock of
    /// [`Registry::global`].
    ///
    /// # Panics
    ///
    /// Panics if `burst` is 0, which is checked first. Otherwise panics as
    /// [`sleep`](crate::sleep()) does.
    pub fn new(period: Duration, burst: u32) -> Self {
        must_allow_a_turn(burst);
        global().rate_limit(period, burst)
    }

    /// Takes the next turn if its time has come. Returns `true` if it took the turn. Never blocks.
    pub fn try_acquire(&self) -> bool {
        let now_ns = self.registry.now_ns();
        self.book(now_ns, |at_ns| at_ns <= now_ns).is_some()
    }

    /// Takes the next turn, and returns a future that waits until its time has come.
    ///
    /// The call, not the first poll, takes the turn, so turns are taken in the order of the calls.
    /// If the future is dropped, the turn is lost.
    pub fn acquire(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let at_ns = self.book(self.registry.now_ns(), |_| true);
        self.registry.sleep_until_ns(at_ns.unwrap_or(u64::MAX))
    }

    /// Takes the next turn if `wanted` accepts its time, and returns the time.
    fn book(&self, now_ns: u64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let turn_ns = |next_ns: u64| match next_ns {
            // The sum has saturated, after 584 years of turns, so there are no further turns.
            u64::MAX => u64::MAX,
            _ => next_ns.saturating_sub(self.burst_ns),
        };
        let book = |next_ns: u64| {
            let after_ns = next_ns.max(now_ns).saturating_add(self.period_ns);
            wanted(turn_ns(next_ns)).then_some(after_ns)
        };
        // Relaxed suffices, because the number guards no other memory.
        let booked = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, book);
        booked.ok().map(turn_ns)
    }
}

impl Registry {
    /// Creates a [`RateLimit`] as [`RateLimit::new`] does, but with this registry's clock.
    pub fn rate_limit(&self, period: Duration, burst: u32) -> RateLimit {
        must_allow_a_turn(burst);
        let period_ns = nanos(period);
        RateLimit {
            registry: self.clone(),
            period_ns,
            burst_ns: period_ns.saturating_mul(u64::from(burst - 1)),
            next_ns: AtomicU64::new(0),
        }
    }
}

fn must_allow_a_turn(burst: u32) {
    assert!(burst > 0, "a rate limit with bursts of 0 turns: pass 1 for no bursts");
}
