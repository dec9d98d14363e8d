//! A limit on how often something happens.

use std::time::Duration;

use sync::atomic::{AtomicU64, Ordering};

use super::sleep::global;
use crate::queues::{registry::Registry, timers::nanos};

/// Lets something happen at most so often: tasks wait for their turns, in the order of their calls.
///
/// After a time without calls, a burst may happen at once. The state is one number, the time of the
/// next turn (the "generic cell rate algorithm"), so a limit costs nothing while it is not used.
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
    /// A: the time of the next turn, if no burst were allowed.
    next_ns: AtomicU64,
}

impl RateLimit {
    /// Creates a limit of one turn in each `period`, with bursts of up to `burst` turns, at least
    /// one. Its clock is that of the process's registry.
    ///
    /// # Panics
    ///
    /// As [`sleep`](crate::sleep()).
    pub fn new(period: Duration, burst: u32) -> Self {
        global().rate_limit(period, burst)
    }

    /// Takes a turn if it has come. Returns `true` if it did.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn try_acquire(&self) -> bool {
        let now_ns = self.registry.now_ns();
        self.book(now_ns, |at_ns| at_ns <= now_ns).is_some()
    }

    /// Takes the next turn, and waits until it has come.
    ///
    /// The call takes the turn, so later callers are behind it. If the future is dropped, the turn
    /// is lost.
    pub fn acquire(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let at_ns = self.book(self.registry.now_ns(), |_| true);
        self.registry.sleep_until_ns(at_ns.unwrap_or(u64::MAX))
    }

    /// Books the next turn if its time is `wanted`, and returns the time.
    fn book(&self, now_ns: u64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let turn_ns = |next_ns: u64| next_ns.saturating_sub(self.burst_ns);
        let book = |next_ns: u64| {
            let after_ns = next_ns.max(now_ns).saturating_add(self.period_ns);
            wanted(turn_ns(next_ns)).then_some(after_ns)
        };
        // Relaxed: the number guards no other memory.
        let booked = self
            .next_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, book);
        booked.ok().map(turn_ns)
    }
}

impl Registry {
    /// Creates a [`RateLimit`] as [`RateLimit::new`] does, by this registry's clock.
    pub fn rate_limit(&self, period: Duration, burst: u32) -> RateLimit {
        let period_ns = nanos(period);
        RateLimit {
            registry: self.clone(),
            period_ns,
            burst_ns: period_ns.saturating_mul(u64::from(burst.max(1) - 1)),
            next_ns: AtomicU64::new(0),
        }
    }
}
