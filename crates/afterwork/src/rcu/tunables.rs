//! What a user may change about grace periods, for the whole process.

use std::time::Duration;

use sync::Tunable;

/// How grace periods are run. See [`set_tunables`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunables {
    /// `rcu.early_qs`: the driver's own quiescent state counts at once. Without it, and with fixed waits, it counts at
    /// the second look, as in kernels before 7.1. Default: true.
    pub early_qs: bool,
    /// `rcu.normal_wake_from_gp`: whoever waits is woken by the grace period itself, not by a callback. Default: true.
    pub wake_from_gp: bool,
    /// `rcu.jiffies_till_first_fqs`, in milliseconds: how long a grace period waits before it makes sure of what it saw.
    /// The kernel waits 3 jiffies. Zero, the default, never waits for a time; anything else is for measuring.
    pub first_fqs_ms: u32,
    /// `rcu.jiffies_till_next_fqs`, in milliseconds: as above, before the second look where there is one.
    pub next_fqs_ms: u32,
    /// `rcu.boost`: a reader that holds up a grace period while others have its CPU runs first for the rest of its
    /// section (`SCHED_FIFO`), where the system allows that. Default: true.
    pub boost: bool,
    /// `rcu.stall_timeout`, in milliseconds: how long a grace period waits for a reader until the stall is reported, and
    /// between reports. Zero reports none. Default: 21,000, as in the kernel.
    pub stall_timeout_ms: u32,
}

pub(super) static EARLY_QS: Tunable = Tunable::new(1);
pub(super) static WAKE_FROM_GP: Tunable = Tunable::new(1);
pub(super) static FIRST_FQS_MS: Tunable = Tunable::new(0);
pub(super) static NEXT_FQS_MS: Tunable = Tunable::new(0);
pub(super) static BOOST: Tunable = Tunable::new(1);
pub(super) static STALL_TIMEOUT_MS: Tunable = Tunable::new(21_000);

impl Default for Tunables {
    fn default() -> Self {
        Self {
            early_qs: true,
            wake_from_gp: true,
            first_fqs_ms: 0,
            next_fqs_ms: 0,
            boost: true,
            stall_timeout_ms: 21_000,
        }
    }
}

/// Changes how grace periods are run, from the next one on.
///
/// # Blocking
///
/// Never.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{self, Tunables};
///
/// rcu::set_tunables(Tunables { boost: false, ..Tunables::default() });
/// assert!(!rcu::tunables().boost);
/// ```
pub fn set_tunables(tunables: Tunables) {
    EARLY_QS.set(tunables.early_qs.into());
    WAKE_FROM_GP.set(tunables.wake_from_gp.into());
    FIRST_FQS_MS.set(tunables.first_fqs_ms);
    NEXT_FQS_MS.set(tunables.next_fqs_ms);
    BOOST.set(tunables.boost.into());
    STALL_TIMEOUT_MS.set(tunables.stall_timeout_ms);
}

/// Returns how grace periods are run.
pub fn tunables() -> Tunables {
    Tunables {
        early_qs: EARLY_QS.get() != 0,
        wake_from_gp: WAKE_FROM_GP.get() != 0,
        first_fqs_ms: FIRST_FQS_MS.get(),
        next_fqs_ms: NEXT_FQS_MS.get(),
        boost: BOOST.get() != 0,
        stall_timeout_ms: STALL_TIMEOUT_MS.get(),
    }
}

/// Returns how long a reader may hold up a grace period until that is reported; none for ever.
pub(super) fn stall_timeout() -> Option<Duration> {
    let timeout_ms = STALL_TIMEOUT_MS.get();
    (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into()))
}
