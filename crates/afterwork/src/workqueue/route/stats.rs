//! What pools and queues have counted.

use topology::CpuSet;

use super::attrs::Attrs;
use crate::workqueue::observe::histogram::Histogram;

/// What a worker pool has counted since it was made. Each figure is read by itself, so they may not add up.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// Where its workers run.
    pub cpus: CpuSet,
    /// Whether they never run elsewhere.
    pub strict: bool,
    /// Their nice value.
    pub nice: i8,
    /// Workers there are.
    pub nr_workers: usize,
    /// Workers that are parked.
    pub nr_idle: usize,
    /// Workers that have said, or were seen, to sleep inside an item.
    pub nr_blocked: usize,
    /// Items that no worker has taken; without those that producers have just left.
    pub nr_pending: usize,
    /// Workers got up, or asked for, because work waited.
    pub kicks: u64,
    /// Workers made.
    pub created: u64,
    /// Workers sent away after idling for too long.
    pub culled: u64,
    /// Items that workers started, of all queues that use it or did.
    pub started: u64,
    /// Items that workers ran to their end.
    pub completed: u64,
    /// CPU time that workers used for them, in microseconds; see [`QueueStats::cpu_time_us`].
    pub cpu_time_us: u64,
    /// Workers got up, or asked for, because another went to sleep inside an item while work waited.
    pub cm_wakeups: u64,
    /// Workers brought home that had been let run outside their pod, when they next took an item.
    pub repatriated: u64,
    /// Workers that a look found asleep inside an item while work waited, without a word to the pool.
    pub seen_asleep: u64,
    /// Items that a look found to have had the CPU for [`Params::cpu_intensive_thresh_us`](crate::params::Params)
    /// while work waited.
    pub cpu_intensive: u64,
    /// Times that its work was told not to move.
    pub stalls: u64,
    /// For how long its work had not moved at the last look, in milliseconds; 0 once it has.
    pub stalled_ms: u64,
    /// Calls of rescuers, because work had wanted for a worker for long.
    pub maydays: u64,
    /// Items that rescuers took.
    pub rescued: u64,
    /// Workers that the system refused to give.
    pub spawn_failed: u64,
}

/// What a queue has counted since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueStats {
    /// Items that workers started; a future counts with each poll.
    pub started: u64,
    /// Items that workers ran to their end. A worker tells of a batch when it next has the pool lock.
    pub completed: u64,
    /// CPU time that workers used for them, in microseconds, sampled: see `tally.rs`. What a worker has run for less
    /// than a millisecond is not told yet.
    pub cpu_time_us: u64,
    /// Items that their joiner ran.
    pub helped: u64,
    /// Items that panicked.
    pub panicked: u64,
    /// Items that had the CPU for [`Params::cpu_intensive_thresh_us`](crate::params::Params) while work waited.
    pub cpu_intensive: u64,
    /// Workers got up, or asked for, because one of its items slept while work waited.
    pub cm_wakeups: u64,
    /// Items whose worker had been brought home from outside its pod just before.
    pub repatriated: u64,
    /// Calls of its rescuer.
    pub maydays: u64,
    /// Items that its rescuer took.
    pub rescued: u64,
    /// Attempts to queue an item that were refused because the queue was being drained, or was destroyed.
    pub refused: u64,
    /// Threads that run its items now.
    pub nr_active: u32,
    /// How many may.
    pub max_active: u32,
    /// Items that wait until one of these ends.
    pub nr_inactive: usize,
}

/// A queue by its name, with all that is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attrs: Attrs,
    /// What it has counted.
    pub stats: QueueStats,
    /// How long items waited for a worker: see [`Workqueue::wait_times`](crate::workqueue::Workqueue::wait_times).
    pub wait: Histogram,
}
