//! The decisions of a pool, as plain functions of numbers.

use topology::CpuQuota;

/// The number of workers of a pool that are awake, and the number of those that are searching.
/// Every decision reads these numbers.
///
/// bits 0..16 `nr_awake` | bits 16..32 `nr_searching`
///
/// A worker is *awake* from the moment that a kick claims it until it parks. It is *searching*
/// while it is awake and has no items: after the kick and before it arrives, between two batches,
/// or while it busy-polls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census(pub(crate) u32);

impl Census {
    pub(crate) const AWAKE: u32 = 1;
    pub(crate) const SEARCHING: u32 = 1 << 16;

    pub(crate) fn nr_awake(self) -> u32 {
        self.0 & 0xffff
    }

    pub(crate) fn nr_searching(self) -> u32 {
        self.0 >> 16
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Nothing: a searching worker will find the work.
    Nothing,
    Worker,
    /// The monitor, which notices if workers that count as awake are asleep.
    Watch,
}

/// Returns the number of workers that a pool of `nr_cpus` CPUs keeps awake: one per CPU, but not
/// more than the CPU quota supports, and at least one.
///
/// Each pool uses the whole quota, so that a single busy pool can use it up. The minimum is one,
/// and not two as in Go, because a worker that sleeps is replaced. One running worker is therefore
/// enough for progress.
pub(crate) fn target(nr_cpus: usize, quota: Option<CpuQuota>) -> u32 {
    let nr_cpus = u32::try_from(nr_cpus).unwrap_or(u32::MAX);
    quota.map_or(nr_cpus, |quota| nr_cpus.min(quota.nr_cpus())).max(1)
}

pub(crate) fn need(census: Census, target: u32) -> Need {
    if census.nr_searching() > 0 {
        Need::Nothing
    } else if census.nr_awake() < target {
        Need::Worker
    } else {
        Need::Watch
    }
}

/// The factor by which the awake workers may exceed the target before one of them parks while work
/// waits.
///
/// A worker that returns from a sleep raises the count above the target. The count does not show
/// whether two awake workers wait for the same CPU. If a worker parked at once, its CPU would idle
/// until the kernel migrates one of these two, which takes half a millisecond for each sleep on two
/// CPUs. Some workers may therefore stay awake, and the next worker that sleeps need not be
/// replaced. With `afterwork-lab bench max-active --cases subsystems` on two CPUs, a sixth of the
/// CPU time is idle with a factor of 1, an eighth with 2, and a twenty-fifth with 3. With a larger
/// factor, more threads share a CPU after a burst of sleeps.
const AWAKE_PER_TARGET: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 3 };

/// Returns `true` if more workers are awake than may stay awake. On one CPU no worker needs to be
/// migrated, so the limit is the target.
pub(crate) fn has_surplus(census: Census, target: u32) -> bool {
    let most = match target {
        ..=1 => target,
        _ => target.saturating_mul(AWAKE_PER_TARGET),
    };
    census.nr_awake() > most
}

/// The amount of work that one batch should contain, in nanoseconds. Taking a batch acquires the
/// lock and moves its cache line from another CPU, which takes about 100 ns. This constant keeps
/// that cost below a tenth.
const BATCH_NS: u64 = 2_000;

/// Returns the size of a batch if an item takes `item_ns` on average, `nr_waiting` items wait, and
/// `nr_takers` workers share them.
pub(crate) fn batch_size(item_ns: u64, nr_waiting: usize, nr_takers: u32, max: usize) -> usize {
    let by_time = BATCH_NS / item_ns.max(1);
    let share = nr_waiting.div_ceil(nr_takers.max(1) as usize);
    share.min(by_time as usize).clamp(1, max.max(1))
}

/// The work that a bottom half may run before its thread yields the CPU once. Corresponds to the
/// kernel's `BH_WORKER_JIFFIES` and `BH_WORKER_RESTARTS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunBudget {
    end_ns: u64,
    nr_rounds: u32,
}

impl RunBudget {
    const SPAN_NS: u64 = 2_000_000;
    const ROUNDS: u32 = 10;

    pub(crate) fn new(now_ns: u64) -> Self {
        Self { end_ns: now_ns.saturating_add(Self::SPAN_NS), nr_rounds: Self::ROUNDS }
    }

    /// Uses up one round. Returns `true` if that was the last one, or if the time is up.
    pub(crate) fn is_spent(&mut self, now_ns: u64) -> bool {
        self.nr_rounds = self.nr_rounds.saturating_sub(1);
        self.nr_rounds == 0 || now_ns >= self.end_ns
    }
}

/// Returns `true` if the worker that idled longest may be culled. The kernel keeps two, and a
/// quarter of the busy workers.
pub(crate) fn may_cull(nr_idle: usize, nr_workers: usize) -> bool {
    // The value is 0 in a model, so that culling and kicking overlap more often.
    const KEPT: usize = if cfg!(any(loom, shuttle)) { 0 } else { 2 };
    const BUSY_PER_IDLE: usize = 4;
    let nr_busy = nr_workers.saturating_sub(nr_idle);
    nr_idle > KEPT && (nr_idle - KEPT) * BUSY_PER_IDLE >= nr_busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_size_follows_cpus_and_quota_and_is_never_zero() {
        let of = |nr_cpus, quota_us| target(nr_cpus, CpuQuota::new(quota_us, 100_000));
        assert_eq!(target(8, None), 8);
        assert_eq!(of(8, 150_000), 2);
        assert_eq!(of(8, 1), 1);
        assert_eq!(of(1, 400_000), 1);
        assert_eq!(of(8, u64::MAX), 8);
        assert_eq!(target(0, None), 1);
    }

    fn census(nr_awake: u32, nr_searching: u32) -> Census {
        Census(nr_awake * Census::AWAKE + nr_searching * Census::SEARCHING)
    }

    #[test]
    fn pool_grows_to_its_target_unless_a_worker_searches() {
        assert_eq!(need(census(1, 1), 8), Need::Nothing);
        assert_eq!(need(census(8, 1), 8), Need::Nothing);
        assert_eq!(need(census(0, 0), 1), Need::Worker);
        assert_eq!(need(census(7, 0), 8), Need::Worker);
        assert_eq!(need(census(8, 0), 8), Need::Watch);
    }

    #[test]
    fn on_one_cpu_each_beyond_the_first_is_too_many() {
        assert!(!has_surplus(census(1, 0), 1));
        assert!(has_surplus(census(2, 1), 1));
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn on_several_cpus_some_returning_workers_may_stay() {
        assert!(!has_surplus(census(6, 0), 2));
        assert!(has_surplus(census(7, 1), 2));
    }

    #[test]
    fn long_items_are_taken_singly_and_tiny_ones_by_the_batch() {
        assert_eq!(batch_size(1_000_000, 500, 1, 32), 1);
        assert_eq!(batch_size(2_000, 500, 1, 32), 1);
        assert_eq!(batch_size(10, 500, 1, 32), 32);
        assert_eq!(batch_size(10, 20, 2, 32), 10);
        assert_eq!(batch_size(0, 0, 0, 32), 1);
    }

    #[test]
    fn bottom_half_yields_after_ten_rounds_or_two_milliseconds() {
        let mut budget = RunBudget::new(5);
        let rounds = (1..).find(|_| budget.is_spent(5));
        assert_eq!(rounds, Some(10));
        let mut budget = RunBudget::new(5);
        assert!(!budget.is_spent(2_000_004));
        assert!(budget.is_spent(2_000_005));
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn two_idle_workers_are_kept() {
        assert!(!may_cull(2, 2));
        assert!(may_cull(3, 3));
        assert!(!may_cull(3, 20));
    }
}
