//! Upkeep of a pool by the manager: culls idle workers, makes the remaining ones return their
//! stacks' memory, handles failed thread creation, and kills the pool.
//!
//! A worker returns its stack's memory itself, because its stack is in use whenever it runs, even
//! for a signal. The manager claims it as a kick does. The worker finds no work, and parks again.
//! It does so once, and again only after it has run an item.

use sync::atomic::Ordering;
use sync::unmodelled::Arc;

use super::dispatch::{Dispatch, IdleWorker};
use super::policy::{self, Census};
use super::pool::{PoolGuard, WorkerPool};
use super::worker::Worker;

/// The minimum time between two checks for idle workers, so that a timeout of zero does not keep
/// the manager busy.
const MIN_UPKEEP_NS: u64 = 1_000_000;

/// The time for which a worker idles before it returns its stack's memory, unless it is culled
/// earlier. The value is a guess: faulting in some pages again takes microseconds.
const SLIM_NS: u64 = 10_000_000_000;

/// The time between two checks for idle workers in a pool to which no route leads. The value is a
/// guess: no thread waits for it.
const DESERTED_UPKEEP_NS: u64 = 100_000_000;

impl WorkerPool {
    /// Withdraws a request for a worker whose thread could not be started. Returns `true` if no
    /// worker runs: each existing one sleeps in an item, hogs the CPU, or has only been requested.
    pub(crate) fn could_not_create(&self) -> bool {
        let mut dispatch = self.lock();
        self.withdraw_request(&mut dispatch);
        self.counters.nr_spawn_failed.fetch_add(1, Ordering::Relaxed);
        self.census().nr_awake() as usize == dispatch.nr_creating
    }

    /// Withdraws a request for a worker if the pool has been killed and no work waits, because the
    /// worker would exit at once. Returns `true` if the request was withdrawn.
    pub(crate) fn needs_no_worker(&self) -> bool {
        let mut dispatch = self.lock();
        let is_over = dispatch.dying && !dispatch.has_work() && self.injector.is_empty();
        if is_over {
            self.withdraw_request(&mut dispatch);
        }
        is_over
    }

    fn withdraw_request(&self, dispatch: &mut Dispatch) {
        dispatch.nr_creating -= 1;
        self.census.fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
    }

    /// Requests a worker again after a failure, if work still waits.
    pub(crate) fn ask_again(self: &Arc<Self>) {
        if !self.injector.is_empty() || self.lock().has_work() {
            self.add_work(|_| ());
        }
    }

    /// Culls workers that have idled for too long, and makes others return their stacks' memory.
    /// Returns the time at which this must be called next, if ever.
    pub(crate) fn cull(self: &Arc<Self>, now_ns: u64) -> Option<u64> {
        let mut guard = self.lock_to_act();
        let cull_ns = self.send_idle_away(&mut guard, now_ns);
        let slim_ns = guard.slim_idle(now_ns);
        cull_ns.into_iter().chain(slim_ns).min()
    }

    fn send_idle_away(&self, guard: &mut PoolGuard<'_>, now_ns: u64) -> Option<u64> {
        let limit_ns = self.params.idle_timeout_ms.saturating_mul(1_000_000);
        let deserted = guard.is_deserted();
        let limit_ns = if deserted { 0 } else { limit_ns };
        loop {
            if deserted && guard.idle.is_empty() {
                // The other workers may park later.
                return (guard.nr_workers > 0).then(|| now_ns.saturating_add(DESERTED_UPKEEP_NS));
            }
            if !deserted && !policy::may_cull(guard.idle.len(), guard.nr_workers) {
                // More workers may park later, including requested ones.
                let nr_workers = guard.nr_workers + guard.nr_creating;
                return policy::may_cull(nr_workers, nr_workers)
                    .then(|| now_ns.saturating_add(limit_ns.max(MIN_UPKEEP_NS)));
            }
            let due_ns = guard.idle[0].since_ns.saturating_add(limit_ns);
            if due_ns > now_ns {
                return Some(due_ns);
            }
            let idle = guard.idle.remove(0);
            if cfg!(any(loom, shuttle, debug_assertions)) {
                assert!(!idle.worker.is_kicked(), "a kicked worker is culled");
            }
            guard.send_away(&idle.worker);
            self.counters.nr_culled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Culls all workers. Awake ones exit when they find no more work.
    pub(crate) fn kill(self: &Arc<Self>) {
        let mut guard = self.lock_to_act();
        guard.dying = true;
        for idle in std::mem::take(&mut guard.idle) {
            guard.send_away(&idle.worker);
        }
    }
}

impl PoolGuard<'_> {
    /// Makes workers that have idled for long return their stacks' memory. Returns as `cull` does.
    fn slim_idle(&mut self, now_ns: u64) -> Option<u64> {
        let pool = self.pool();
        let limit_ns = pool.params.idle_timeout_ms.saturating_mul(1_000_000);
        let limit_ns = limit_ns.clamp(MIN_UPKEEP_NS, SLIM_NS);
        let due_ns = |idle: &IdleWorker| {
            let due_ns = idle.since_ns.saturating_add(limit_ns);
            (!idle.is_lean).then_some(due_ns)
        };
        let is_due = |idle: &IdleWorker| due_ns(idle).is_some_and(|due_ns| due_ns <= now_ns);
        while let Some(at) = self.idle.iter().position(is_due) {
            let idle = self.idle.remove(at);
            idle.worker.slims.store(true, Ordering::Relaxed);
            pool.census.fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
            self.effects.wakeq.push(idle.unparker);
        }
        let next_ns = self.idle.iter().filter_map(due_ns).min();
        // Awake and requested workers may park later.
        let nr_up = self.nr_workers + self.nr_creating - self.idle.len();
        next_ns.or_else(|| (nr_up > 0).then(|| now_ns.saturating_add(limit_ns)))
    }

    /// Makes a worker exit. It must be off the idle list.
    fn send_away(&mut self, worker: &Worker) {
        worker.culled.store(true, Ordering::Relaxed);
        self.effects.wakeq.push(worker.unparker());
    }
}
