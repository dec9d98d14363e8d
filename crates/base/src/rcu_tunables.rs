//! Tunables of grace periods.

with_defaults! {
    /// The tunables of grace periods; see `rcu::set_tunables`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Tunables {
        /// `rcu.early_qs`: if `true`, the driver's own quiescent state counts at once. If `false`
        /// and `first_fqs_ms` is above 0, it counts only at a second scan, as in kernels before
        /// 7.1. Default: `true`.
        pub early_qs: bool = true,
        /// If `true`, the grace period itself wakes waiters. If `false`, a callback wakes them, as
        /// in the kernel without `normal_wake_from_gp`.
        if "baselines" pub wake_from_gp: bool = true,
        /// `rcu.jiffies_till_first_fqs`, in milliseconds: the time before the first scan of a grace
        /// period. The kernel waits 3 jiffies. With the default, 0, the scan starts at once. Other
        /// values are for measurements.
        pub first_fqs_ms: u32 = 0,
        /// `rcu.jiffies_till_next_fqs`, in milliseconds: the time between the first and the second
        /// scan. A second scan takes place only if `early_qs` is `false`.
        pub next_fqs_ms: u32 = 0,
        /// `rcu.boost`: if `true`, a reader that delays a grace period gets a real-time priority
        /// (`SCHED_FIFO`) for the rest of its section, if the system allows it. Default: `true`.
        pub boost: bool = true,
        /// `rcu.stall_timeout`, in milliseconds: the time for which a grace period waits for a
        /// reader before it reports a stall, and the time between reports. 0 disables the reports.
        /// If the process is stopped, at most one second of the pause counts. Default: 21,000, as
        /// in the kernel.
        pub stall_timeout_ms: u32 = 21_000,
        /// `rcu.qhimark`: the number of callbacks that may wait in one list before threads that add
        /// more are briefly delayed; see `rcu::call`. There is a list for each CPU (of up to 64)
        /// and for each sleepable domain. A full bag of closures counts as 63. With a large value,
        /// a flood of callbacks uses much memory; with a small one, a burst of calls is delayed. 0
        /// means that no thread is ever delayed. Default: 10,000, as in the kernel.
        pub qhimark: u32 = 10_000,
    }
}
