//! Every tunable, by its kernel-style name.
//!
//! ```
//! use afterwork::params::Params;
//!
//! let params: Params = "workqueue.max_active=16".parse()?;
//! assert_eq!(params.max_active, 16);
//! # Ok::<(), afterwork::params::ParamError>(())
//! ```
//!
//! The fields of [`Params`] are the tunables. The environment variable `AFTERWORK` sets them by
//! name for the whole process, like the kernel's command line:
//!
//! ```text
//! AFTERWORK=workqueue.default_affinity_scope=cache,workqueue.max_active=16 my-program
//! ```
//!
//! Their documentation has defaults and units. An invalid pair is ignored and reported by one line
//! on stderr. If the word `strict` is among the pairs, an invalid pair is an error. A program that
//! has more rights than the user who started it (set-user-ID, file capabilities) ignores the
//! variable.

// The table of names is in `keys.rs`. `keys` returns it, and `Params::set` and `Display` use it.

mod edits;
pub(crate) mod environment;
mod error;
mod keys;
pub(crate) mod threads;
mod word;

use std::fmt;
use std::str::FromStr;

pub use error::ParamError;
pub use keys::{Key, keys};
pub use threads::ThreadHook;
pub use topology::{AffinityScope, CpuSet};

use crate::rcu_tunables::Tunables;

/// The environment variable that sets tunables for the whole process.
#[doc(hidden)]
pub const VARIABLE: &str = "AFTERWORK";

/// The time at which `queue()` wakes the worker that it selected.
#[cfg(feature = "baselines")]
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum WakeMode {
    /// After the pool lock is released, so that the lock is held for only tens of nanoseconds.
    #[default]
    Deferred,
    /// While the pool lock is held, as the kernel did until 7.3. This mode exists to measure the
    /// difference.
    UnderLock,
}

/// The scope to which a queue's `max_active` applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum MaxActiveScope {
    /// The whole process: at most `max_active` threads run items of the queue at once.
    #[default]
    System,
    /// Each NUMA node: at most `max_active` threads of each node run items of the queue at once.
    Node,
    /// Each CPU: a pool of eight CPUs may run eight times `max_active` items, as with the kernel's
    /// per-CPU queues, and approximately with its unbound queues before 6.9.
    Cpu,
}

/// How a remote caller accesses per-CPU data that a thread owns; see `afterwork::percpu`.
///
/// Corresponds to the kernel's `qpw=`: `Queue` is its value 0, and `EveryOp` its value 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Qpw {
    /// The call is queued to the owner, which runs it when it polls. The owner's own operations
    /// have no extra cost.
    #[default]
    Queue,
    /// If a thread has asked for the slot, the owner hands it over at its next operation. An
    /// operation costs an extra load.
    OnDemand,
    /// The owner holds its slot only during an operation. An operation costs an extra locked
    /// instruction.
    EveryOp,
}

impl Qpw {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Queue, Self::OnDemand, Self::EveryOp];

    /// Returns the word for this mode in the environment variable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::OnDemand => "on_demand",
            Self::EveryOp => "every_op",
        }
    }
}

impl fmt::Display for Qpw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

with_defaults! {
    /// The tunables of one `workqueue::Registry`.
    ///
    /// The process-wide registry reads them from the environment. A program passes them to a
    /// registry that it creates.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::params::Params;
    ///
    /// let params = Params { max_active: 16, ..Params::default() };
    /// assert_eq!(params.cache_shard_size, 8);
    ///
    /// let params: Params = "workqueue.cache_shard_size=4,workqueue.max_active=16".parse()?;
    /// assert_eq!(params.cache_shard_size, 4);
    ///
    /// let error = "workqueue.cache_shart_size=4".parse::<Params>().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "unknown key \"workqueue.cache_shart_size\"; did you mean workqueue.cache_shard_size?"
    /// );
    /// # Ok::<(), afterwork::params::ParamError>(())
    /// ```
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Params {
        /// The affinity scope of queues whose builder does not set one.
        pub default_affinity_scope: AffinityScope = AffinityScope::default(),
        /// The `max_active` of queues whose builder does not set one: the number of items that may
        /// run at the same time. Corresponds to the kernel's `WQ_DFL_ACTIVE`.
        pub max_active: u32 = 256,
        /// The scope of `max_active` of queues whose builder does not set one.
        pub max_active_scope: MaxActiveScope = MaxActiveScope::System,
        /// The time at which a selected worker is woken.
        if "baselines" pub wake: WakeMode = WakeMode::Deferred,
        /// The maximum number of cores that share a pool in the scope `cache_shard`. The default is
        /// that of the kernel.
        pub cache_shard_size: usize = 8,
        /// The maximum number of rounds for which an idle worker spins before it sleeps. A round
        /// takes about 0.3 µs if no other thread needs the CPU.
        pub worker_spin_limit: u32 = 64,
        /// The maximum number of items that a worker takes from the list at a time. A larger value
        /// makes tiny items cheaper. If a worker blocks, a monitor tick returns the items that it
        /// has taken but not started to the list.
        pub max_batch: usize = 32,
        /// The maximum number of workers of a pool. Corresponds to the kernel's `WQ_MAX_ACTIVE`.
        pub max_workers: usize = 512,
        /// The time in milliseconds after which an idle worker may be culled. Corresponds to the
        /// kernel's `IDLE_WORKER_TIMEOUT`. A worker that is not culled returns the unused memory of
        /// its stack to the system after the same time, or after ten seconds if that is shorter.
        pub idle_timeout_ms: u64 = 300_000,
        /// The maximum time in microseconds by which a sleep may end late while many sleeps end at
        /// the same time: after eight or more have ended at once, no other ends during this time.
        /// With 0, each sleep ends at its own 65 µs step of the clock. A larger value uses less CPU
        /// time. Delayed items are not affected.
        pub sleep_slack_us: u64 = 500,
        /// The interval in microseconds at which a pool with waiting work is checked for workers
        /// that sleep, to replace them. The pool is checked four times as often while some workers
        /// sleep, and half as often while all of them run.
        pub watch_tick_us: u64 = 1_000,
        /// The CPU time in microseconds after which the worker of an item no longer counts as one
        /// of its pool's running workers. Corresponds to the kernel's
        /// `workqueue.cpu_intensive_thresh_us`.
        pub cpu_intensive_thresh_us: u64 = 10_000,
        /// The time in milliseconds for which the items of a pool may wait without any being taken
        /// before a stall is reported. 0 disables the report. Corresponds to the kernel's
        /// `workqueue.watchdog_thresh`, which is in seconds.
        pub watchdog_thresh_ms: u64 = 30_000,
        /// The number of the signal that captures the stacks of a stalled pool's workers, or 0 for
        /// none. Few programs use signal 23, `SIGURG`. The feature `stacks` is required, and the
        /// program must neither handle nor ignore the signal. The signal may end a worker's system
        /// call early, with `EINTR`, if the call has a timeout, as `nanosleep` and `poll` have.
        pub stall_signal: u32 = 0,
        /// The minimum interval in milliseconds between checks for CPUs that went online or
        /// offline. 0 disables the check. The registry checks only while work waits. A check reads
        /// a few small files.
        pub topology_refresh_ms: u64 = 1_000,
        /// If `true`, limits the number of workers that each pool runs at the same time to the CPU
        /// quota of the process's cgroup, rounded up to a whole number of at least one. Changes to
        /// the quota are detected together with those to the CPUs. See
        /// [`Topology::quota`](topology::Topology::quota).
        pub cpu_quota: bool = true,
        /// The CPUs that unbound queues may use when the registry is created. `None` means all.
        /// Corresponds to the kernel's `workqueue.unbound_cpus=`. As text, the value is `all`, or a
        /// CPU list with `+` instead of commas, such as `0-3+8`. See `Registry::set_unbound_cpus`.
        pub unbound_cpus: Option<CpuSet> = None,
        /// The minimum interval in microseconds at which a worker records how long items of a queue
        /// wait and run. 0 disables the measurement, which reads the cycle counter once for each
        /// batch that a worker takes, and once for each item that is queued to an empty pool.
        pub wait_sample: u64 = 64,
        /// If `true`, records how long `queue()` holds the pool lock, and the CPU time of its
        /// waits. This costs two clock readings for each wake-up of a worker and for each wait.
        if "baselines" pub lock_stat: bool = false,
        /// If `true`, publishes the process's counters; see `observe::publish`. Read only from the
        /// environment; a registry ignores it.
        pub publish: bool = false,
        /// The stack size of a registry's threads in bytes, from 64 KiB to 1 GiB. Only the pages of
        /// a stack that have been touched use memory. Nested joins continue on another stack after
        /// 16 KiB each.
        pub stack_size: usize = 2 << 20,
        /// The prefix of the names of a registry's threads, such as `aw` in `aw/u0`, from 1 to 10
        /// bytes. Only the program can set it.
        pub thread_name: Box<str> = "aw".into(),
        /// A hook that each thread of a registry that may run user code calls first: workers,
        /// rescuers, and threads that destroy queues. The hook delays the work of the thread, and
        /// its panics are caught. Threads on which very deeply nested joins continue do not call
        /// it. Only the program can set it.
        pub on_thread_start: Option<ThreadHook> = None,
        /// A hook that each of these threads calls last, after all its work. `Registry::shutdown`
        /// waits for it. Only the program can set it.
        pub on_thread_stop: Option<ThreadHook> = None,
        /// If `true`, threads request a short extension of their time slice while they hold the
        /// lock of a pool or a slot of per-CPU data, and while they push to a mailbox. The first
        /// registry with this tunable turns the extensions on for the whole process, and they stay
        /// on. They apply to the thread that creates this registry and to threads that the library
        /// starts later. Without Linux 7.0 and glibc 2.41, this tunable has no effect. Corresponds
        /// to the kernel's `rseq_slice_ext=`.
        pub rseq_slice_ext: bool = false,
        /// The way in which remote callers access per-CPU data whose builder does not set one.
        /// Corresponds to the kernel's `qpw=`.
        pub qpw: Qpw = Qpw::Queue,
        /// The parameters of RCU's grace periods. They apply to the whole process and come only
        /// from the environment; a registry ignores them.
        pub rcu: Tunables = Tunables::default(),
    }
}

impl Params {
    /// Sets one tunable by its name.
    ///
    /// # Errors
    ///
    /// Returns [`ParamError::UnknownKey`], with the most similar name, if there is no such tunable,
    /// and [`ParamError::BadValue`], with the expected values, if the value is invalid. In both
    /// cases nothing has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::params::Params;
    /// let mut params = Params::default();
    /// params.set("workqueue.max_active", "16")?;
    /// assert_eq!(params.max_active, 16);
    /// let error = params.set("workqueue.max_active", "many").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "workqueue.max_active=many: expected a number from 1 to 512"
    /// );
    /// # Ok::<(), afterwork::params::ParamError>(())
    /// ```
    pub fn set(&mut self, name: &str, word: &str) -> Result<(), ParamError> {
        keys::find(name)?.set(self, word)
    }
}

impl FromStr for Params {
    type Err = ParamError;

    /// Parses `key=value` pairs, separated by commas. Other tunables keep their defaults. The word
    /// `strict` has no effect here.
    fn from_str(text: &str) -> Result<Self, ParamError> {
        let mut params = Self::default();
        params.set_all(text, Err)?;
        Ok(params)
    }
}

/// The word that turns each invalid pair of the environment variable into an error.
const STRICT: &str = "strict";

fn pairs(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|it| !it.is_empty())
}

impl Params {
    /// Sets the tunables that `text` names. An invalid pair changes nothing: its error is passed to
    /// `on_error`, and an error that this returns ends the parsing.
    fn set_all(
        &mut self,
        text: &str,
        mut on_error: impl FnMut(ParamError) -> Result<(), ParamError>,
    ) -> Result<(), ParamError> {
        let mut seen = Vec::new();
        for pair in pairs(text).filter(|pair| *pair != STRICT) {
            self.set_pair(pair, &mut seen).or_else(&mut on_error)?;
        }
        Ok(())
    }

    fn set_pair(&mut self, pair: &str, seen: &mut Vec<&'static str>) -> Result<(), ParamError> {
        let (name, word) =
            pair.split_once('=').ok_or_else(|| ParamError::NoValue { pair: pair.to_owned() })?;
        let key = keys::find(name.trim())?;
        if seen.contains(&key.name) {
            return Err(ParamError::Twice { key: key.name });
        }
        seen.push(key.name);
        key.set(self, word.trim())
    }
}

/// Writes all tunables in the form that `parse` reads.
impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, key) in keys().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", key.name, key.value(self))?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
