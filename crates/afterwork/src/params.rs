//! Every tunable, by its kernel-style name.

/// Says when `queue()` wakes the worker that it picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum WakeMode {
    /// After the pool lock is dropped: the lock is held for tens of nanoseconds.
    #[default]
    Deferred,
    /// While the pool lock is held, as the kernel did until 7.3: kept to measure the difference.
    UnderLock,
}

/// Holds the tunables of one [`Registry`](crate::workqueue::Registry).
///
/// # Examples
///
/// ```
/// use afterwork::params::{Params, WakeMode};
///
/// let params = Params { wake: WakeMode::UnderLock, ..Params::default() };
/// assert_eq!(params.cache_shard_size, 8);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// When a picked worker is woken.
    pub wake: WakeMode,
    /// How many cores share a pool at most in the scope `cache_shard`. The kernel's default.
    pub cache_shard_size: usize,
    /// How often an idle worker looks for the next item, at most, before it lies down; adapts below this. A look
    /// takes about 0.3 µs where nobody else wants the CPU: see [`SpinBudget`](crate::wake::SpinBudget).
    pub worker_looks: u32,
    /// How many items a worker takes from the list at a time, at most. More makes tiny items cheaper; what a
    /// blocked worker took and did not start is given back after a watch tick.
    pub max_batch: usize,
    /// How many workers a pool may own. The kernel's `WQ_MAX_ACTIVE`.
    pub max_workers: usize,
    /// How long a worker idles before it may be culled, in milliseconds. The kernel's `IDLE_WORKER_TIMEOUT`.
    pub idle_timeout_ms: u64,
    /// How often a pool in which work waits is looked at for progress, in microseconds; four times as long
    /// while all goes well. A pool without progress gets another worker.
    pub watch_tick_us: u64,
    /// Records how long `queue()` holds the pool lock. Costs two clock readings a kick.
    pub lock_stat: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            wake: WakeMode::Deferred,
            cache_shard_size: 8,
            worker_looks: 64,
            max_batch: 32,
            max_workers: 512,
            idle_timeout_ms: 300_000,
            watch_tick_us: 1_000,
            lock_stat: false,
        }
    }
}
