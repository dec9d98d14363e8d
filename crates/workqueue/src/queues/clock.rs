//! The clock of a registry: the system's monotonic one, or one that only a test advances.
//!
//! Timers, sleeps, ticks and start deadlines read the time here and nowhere else, so that a paused
//! clock governs all of them. Blocking waits with a timeout read the system clock.

use sync::atomic::{AtomicU64, Ordering};
use sync::time::{self, Instant};

use super::wheel::TICK_SHIFT;

/// The longest sleep of a thread that waits on a paused clock, before it reads the clock again. The
/// value is a guess: a shorter sleep costs CPU time, and a longer one delays a test.
const NAP_NS: u64 = 1_000_000;

/// The distance from which a time is far away: several times the kernel's longest tick, 10 ms.
const FAR_NS: u64 = 40_000_000;

pub(crate) enum Clock {
    System,
    #[cfg_attr(any(loom, shuttle), expect(dead_code, reason = "models need none"))]
    Paused(Paused),
}

pub(crate) struct Paused {
    /// I: the moment at which the clock shows 0.
    start: Instant,
    /// A
    now_ns: AtomicU64,
}

impl Clock {
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn paused() -> Self {
        Self::Paused(Paused { start: Instant::now(), now_ns: AtomicU64::new(0) })
    }

    pub(crate) fn is_paused(&self) -> bool {
        matches!(self, Self::Paused(_))
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::System => time::now_ns(),
            // Relaxed suffices, because the wake-ups that an advance causes order the advance
            // before the runs that they start.
            Self::Paused(paused) => paused.now_ns.load(Ordering::Relaxed),
        }
    }

    /// Returns `true` if `at_ns` has passed. If the kernel's timer tick is late by more than a few
    /// ticks, it may return `false` instead. If `at_ns` is far away, this is cheaper than
    /// [`now_ns`](Self::now_ns).
    #[inline]
    pub(crate) fn has_passed(&self, at_ns: u64) -> bool {
        let may_have = self.is_paused() || at_ns <= time::coarse_ns().saturating_add(FAR_NS);
        may_have && at_ns <= self.now_ns()
    }

    /// Returns the time from now until `at_ns`, or at most [`NAP_NS`] if the clock is paused.
    pub(crate) fn left_ns(&self, at_ns: u64) -> u64 {
        let left_ns = at_ns.saturating_sub(self.now_ns());
        if self.is_paused() { left_ns.min(NAP_NS) } else { left_ns }
    }

    /// Returns the moment `at` on the scale of [`now_ns`](Self::now_ns).
    pub(crate) fn ns_of(&self, at: Instant) -> u64 {
        match self {
            Self::System => time::ns_of(at),
            Self::Paused(paused) => {
                let since = at.saturating_duration_since(paused.start);
                time::nanos(since)
            }
        }
    }

    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            Self::Paused(paused) => paused.start + std::time::Duration::from_nanos(self.now_ns()),
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn set_ns(&self, now_ns: u64) {
        if let Self::Paused(paused) = self {
            paused.now_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Returns the logarithm to base 2 of a wheel's tick in ns. Timers of a paused clock are exact.
    pub(crate) fn tick_shift(&self) -> u32 {
        if self.is_paused() { 0 } else { TICK_SHIFT }
    }
}
