//! Ticks at equal intervals, with a rule for missed ticks.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sync::time::nanos;

use super::sleep::{Sleep, global};
use crate::queues::registry::Registry;

/// The rule for a missed tick, which is one so late that the next tick is already due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissedTickBehavior {
    /// The missed ticks fire at once, one after another, until the interval has caught up; the task
    /// yields after every few ticks. No tick is lost.
    #[default]
    Burst,
    /// The next tick is due one period after the late one: the grid moves.
    Delay,
    /// The next tick is the next one on the original grid; the ticks in between are skipped.
    Skip,
}

impl MissedTickBehavior {
    /// Returns the time of the next tick, after one that was due at `due_ns` and fired at `now_ns`.
    pub(super) fn next_ns(self, due_ns: u64, now_ns: u64, period_ns: u64) -> u64 {
        let next_ns = due_ns.saturating_add(period_ns);
        let late_ns = now_ns.saturating_sub(due_ns);
        if late_ns < period_ns {
            // The grid determines the next tick, so that ticks do not drift.
            return next_ns;
        }
        match self {
            Self::Burst => next_ns,
            Self::Delay => now_ns.saturating_add(period_ns),
            Self::Skip => next_ns.saturating_add(late_ns / period_ns * period_ns),
        }
    }
}

/// The error returned for a period of zero length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroPeriod;

pub(super) fn period_ns(period: Duration) -> Result<u64, ZeroPeriod> {
    match nanos(period) {
        0 => Err(ZeroPeriod),
        period_ns => Ok(period_ns),
    }
}

/// Returns an [`Interval`] that ticks every `period`; the first tick is due at once.
///
/// Missed ticks fire in a [`Burst`](MissedTickBehavior::Burst), unless another behavior is
/// [set](Interval::set_missed_tick_behavior). For periodic work without a task, see
/// [`Workqueue::every`](crate::Workqueue::every). Returns [`ZeroPeriod`] if `period` is zero.
/// Panics as [`sleep`](crate::sleep) does.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{block_on, interval};
///
/// let mut ticks = interval(Duration::from_millis(1))?;
/// block_on(async {
///     for _ in 0..3 {
///         ticks.tick().await;
///     }
/// });
/// assert!(interval(Duration::ZERO).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn interval(period: Duration) -> Result<Interval, ZeroPeriod> {
    period_ns(period)?;
    global().interval(period)
}

impl Registry {
    /// Does the same as [`interval`], except that this registry's thread wakes the task.
    pub fn interval(&self, period: Duration) -> Result<Interval, ZeroPeriod> {
        let (period_ns, now_ns) = (period_ns(period)?, self.now_ns());
        Ok(Interval {
            sleep: self.sleep_until_ns(now_ns),
            due_ns: now_ns,
            period_ns,
            missed: MissedTickBehavior::default(),
            nr_at_once: 0,
        })
    }
}

/// Ticks at equal intervals; created by [`interval`] and [`Registry::interval`].
///
/// Ticks are on a grid that begins when the interval is created, so a late tick does not delay
/// later ones. The precision and the cost of a tick are those of a [`Sleep`].
#[must_use = "an interval does nothing unless its ticks are awaited"]
pub struct Interval {
    sleep: Sleep,
    due_ns: u64,
    period_ns: u64,
    missed: MissedTickBehavior,
    /// The number of overdue ticks that have fired since the task last waited or yielded.
    nr_at_once: u32,
}

/// The maximum number of overdue ticks that fire before the task yields. The value is a guess: with
/// a larger number, other tasks wait longer; with a smaller one, missed ticks cost more.
const MAX_AT_ONCE: u32 = 8;

impl Interval {
    /// Waits for the next tick. Dropping this future loses no tick.
    ///
    /// After a few ticks that were already due, the task yields, so that other tasks run, and a
    /// cancelled task can end.
    pub async fn tick(&mut self) {
        poll_fn(|context| self.poll_tick(context)).await;
    }

    /// Polls [`tick`](Self::tick). Use it in a hand-written future.
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.nr_at_once == MAX_AT_ONCE {
            self.nr_at_once = 0;
            // FOREIGN(tick-wake): `wake_by_ref` of a user's waker, on the polling thread, with no
            // lock held; it may unwind to the caller.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if Pin::new(&mut self.sleep).poll(context).is_pending() {
            self.nr_at_once = 0;
            return Poll::Pending;
        }
        self.nr_at_once += 1;
        let now_ns = self.sleep.registry.now_ns();
        self.due_ns = self.missed.next_ns(self.due_ns, now_ns, self.period_ns);
        self.sleep.reset_ns(self.due_ns);
        Poll::Ready(())
    }

    /// Sets the behavior for ticks that are missed from now on.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Makes the next tick due one period from now, and starts a new grid there.
    pub fn reset(&mut self) {
        let now_ns = self.sleep.registry.now_ns();
        self.due_ns = now_ns.saturating_add(self.period_ns);
        self.sleep.reset_ns(self.due_ns);
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }
}

base::internal::impl_debug!(Interval, it => period: it.period(), missed: it.missed);

base::internal::into_io_error!(ZeroPeriod, |_| ErrorKind::InvalidInput, "the period is zero");

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::MissedTickBehavior::{Burst, Delay, Skip};

    #[test]
    fn tick_late_by_less_than_a_period_keeps_the_grid() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!(behavior.next_ns(1000, 1000, 100), 1100);
            assert_eq!(behavior.next_ns(1000, 1099, 100), 1100);
        }
    }

    #[test]
    fn missed_ticks_follow_the_chosen_behavior() {
        assert_eq!(Burst.next_ns(1000, 1350, 100), 1100);
        assert_eq!(Delay.next_ns(1000, 1350, 100), 1450);
        assert_eq!(Skip.next_ns(1000, 1350, 100), 1400);
        assert_eq!(Skip.next_ns(1000, 1300, 100), 1400);
    }

    proptest! {
        #[test]
        fn a_tick_comes_after_the_last_one_and_skipping_keeps_the_grid(
            due_ns in 0..u64::MAX / 2, late_ns in 0..u64::MAX / 2, period_ns in 1..u64::MAX,
        ) {
            let now_ns = due_ns + late_ns;
            for behavior in [Burst, Delay, Skip] {
                prop_assert!(behavior.next_ns(due_ns, now_ns, period_ns) > due_ns);
            }
            let next_ns = Skip.next_ns(due_ns, now_ns, period_ns);
            prop_assert!(next_ns > now_ns || next_ns == u64::MAX);
            if next_ns < u64::MAX {
                prop_assert_eq!((next_ns - due_ns) % period_ns, 0);
                prop_assert!(next_ns - now_ns <= period_ns);
            }
        }
    }
}
