//! Tunables of grace periods.

/// Says how grace periods are run; see [`set_tunables`](crate::rcu::set_tunables).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcuTunables {
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

impl Default for RcuTunables {
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
