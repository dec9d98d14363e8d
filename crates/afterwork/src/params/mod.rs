//! Every tunable, by its kernel-style name.
//!
//! [`Params`] holds them as fields. The environment variable [`VARIABLE`] sets them by name for the whole process,
//! as the kernel's command line does:
//!
//! ```text
//! AFTERWORK=workqueue.default_affinity_scope=cache,workqueue.max_active=16 my-program
//! ```
//!
//! One table (`keys.rs`) knows the names: [`keys`] walks it, [`Params::set`] reads by it, `Display` writes by it.

mod error;
mod keys;
mod rcu;
mod word;

use std::{env, fmt, str::FromStr};

pub use error::ParamError;
pub use keys::{Key, keys};
pub use rcu::RcuTunables;
pub use topology::AffinityScope;

/// The environment variable that sets tunables for the whole process.
pub const VARIABLE: &str = "AFTERWORK";

/// Says when `queue()` wakes the worker that it picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum WakeMode {
    /// After the pool lock is dropped: the lock is held for tens of nanoseconds.
    #[default]
    Deferred,
    /// While the pool lock is held, as the kernel did until 7.3: kept to measure the difference.
    UnderLock,
}

/// Says what a queue's `max_active` is meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum MaxActiveScope {
    /// The whole process: at most so many threads run items of the queue at once.
    #[default]
    System,
    /// Each NUMA node.
    Node,
    /// Each CPU: a pool of eight CPUs may have eight times as many. What the kernel did for unbound queues before 6.9,
    /// as far as it could, and what it does for per-CPU ones.
    Cpu,
}

/// Says how per-CPU data is reached from elsewhere while a thread owns it; see [`percpu`](crate::percpu).
///
/// The kernel's `qpw=`: `Queue` is its 0, `EveryOp` its 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Qpw {
    /// Work is mailed to the owner, which runs it when it polls. The owner's own operations cost nothing.
    #[default]
    Queue,
    /// The owner hands its slot over when somebody asks, at its next operation. Until then an operation costs a load.
    OnDemand,
    /// The owner holds its slot for the length of an operation only, by one locked instruction.
    EveryOp,
}

impl Qpw {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Queue, Self::OnDemand, Self::EveryOp];

    /// Returns the word that [`VARIABLE`] takes for it.
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

/// Holds the tunables of one [`Registry`](crate::workqueue::Registry).
///
/// The registry of the whole process takes them from the environment. One that a program makes for itself has those
/// that it is given.
///
/// # Examples
///
/// ```
/// use afterwork::params::{Params, WakeMode};
///
/// let params = Params { wake: WakeMode::UnderLock, ..Params::default() };
/// assert_eq!(params.cache_shard_size, 8);
///
/// let params: Params = "workqueue.cache_shard_size=4,workqueue.lock_stat=on".parse()?;
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
    /// How far the pods of a queue reach whose builder names no scope.
    pub default_affinity_scope: AffinityScope,
    /// How many items of a queue whose builder does not say may run at once. The kernel's `WQ_DFL_ACTIVE`.
    pub max_active: u32,
    /// What `max_active` is meant for where the builder of a queue does not say.
    pub max_active_scope: MaxActiveScope,
    /// When a picked worker is woken.
    pub wake: WakeMode,
    /// How many cores share a pool at most in the scope `cache_shard`. The kernel's default.
    pub cache_shard_size: usize,
    /// How often an idle worker looks for the next item, at most, before it lies down; adapts below this. A look
    /// takes about 0.3 µs where nobody else wants the CPU: see [`SpinBudget`](crate::wake::SpinBudget).
    pub worker_spin_limit: u32,
    /// How many items a worker takes from the list at a time, at most. More makes tiny items cheaper; what a
    /// blocked worker took and did not start is given back after a watch tick.
    pub max_batch: usize,
    /// How many workers a pool may own. The kernel's `WQ_MAX_ACTIVE`.
    pub max_workers: usize,
    /// How long a worker idles before it may be culled, in milliseconds. The kernel's `IDLE_WORKER_TIMEOUT`.
    pub idle_timeout_ms: u64,
    /// How often a pool in which work waits is looked at for workers that sleep, in microseconds: a quarter of it
    /// while some are found, twice it while all run. A worker that sleeps is replaced.
    pub watch_tick_us: u64,
    /// How much CPU time an item may have, in microseconds, before it no longer counts against the workers that its
    /// pool runs at once. The kernel's `workqueue.cpu_intensive_thresh_us`.
    pub cpu_intensive_thresh_us: u64,
    /// How long items of a pool wait, and none is taken, before that is reported as a stall, in milliseconds; 0 for
    /// never. The kernel's `workqueue.watchdog_thresh`, there in seconds.
    pub watchdog_thresh_ms: u64,
    /// How often, at most, the registry looks whether CPUs have come or gone, in milliseconds; 0 for never. It looks
    /// while work waits, and costs the reading of a few small files.
    pub machine_look_ms: u64,
    /// Of how many items one, at most, has its wait measured; 0 for none. A sample costs two readings of the cycle
    /// counter.
    pub wait_sample: u64,
    /// Records how long `queue()` holds the pool lock. Costs two clock readings a kick.
    pub lock_stat: bool,
    /// Whether the process is shown to others; see [`observe::publish`](crate::observe::publish). Of the environment
    /// alone: a registry that is given its tunables does not look at it.
    pub publish: bool,
    /// How per-CPU data is reached from elsewhere, where its builder does not say. The kernel's `qpw=`.
    pub qpw: Qpw,
    /// How grace periods of RCU are run. One for the process, which reads it from the environment: a registry does not.
    pub rcu: RcuTunables,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            default_affinity_scope: AffinityScope::default(),
            max_active: 256,
            max_active_scope: MaxActiveScope::System,
            wake: WakeMode::Deferred,
            cache_shard_size: 8,
            worker_spin_limit: 64,
            max_batch: 32,
            max_workers: 512,
            idle_timeout_ms: 300_000,
            watch_tick_us: 1_000,
            cpu_intensive_thresh_us: 10_000,
            watchdog_thresh_ms: 30_000,
            machine_look_ms: 1_000,
            wait_sample: 64,
            lock_stat: false,
            publish: false,
            qpw: Qpw::Queue,
            rcu: RcuTunables::default(),
        }
    }
}

impl Params {
    /// Returns the defaults as the environment changes them.
    ///
    /// # Errors
    ///
    /// What is wrong with the variable, naming the key.
    pub fn from_env() -> Result<Self, ParamError> {
        match env::var(VARIABLE) {
            Ok(text) => text.parse(),
            Err(env::VarError::NotPresent) => Ok(Self::default()),
            Err(env::VarError::NotUnicode(_)) => Err(ParamError::NotUnicode),
        }
    }

    /// Sets one tunable by its name.
    ///
    /// # Errors
    ///
    /// [`ParamError::UnknownKey`] with the nearest known one; [`ParamError::BadValue`] with what is expected. Nothing
    /// is changed then.
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

    /// Reads `key=value` pairs, separated by commas; what is not named keeps its default.
    fn from_str(text: &str) -> Result<Self, ParamError> {
        let mut params = Self::default();
        let mut seen = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (name, word) = pair.split_once('=').ok_or_else(|| ParamError::NoValue {
                pair: pair.to_owned(),
            })?;
            let key = keys::find(name.trim())?;
            if seen.contains(&key.name) {
                return Err(ParamError::Twice { key: key.name });
            }
            seen.push(key.name);
            key.set(&mut params, word.trim())?;
        }
        Ok(params)
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
