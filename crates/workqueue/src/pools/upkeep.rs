//! What the manager does for a pool beside looking at its workers: cull idle ones, have those that stay give their stacks' memory
//! back, do without new ones, end.
//!
//! A worker that idles gives it back itself, for its stack is in use whenever it runs, were it for a signal. So it is claimed as by a
//! kick, finds no work, and parks again: once, until it has run something.

use base::internal::wake::Wakeup;
use sync::{atomic::Ordering, unmodelled::Arc};

use super::{
    dispatch::IdleWorker,
    policy::{self, Census},
    pool::{PoolGuard, WorkerPool},
    worker::Worker,
};

/// How soon the manager looks again whether workers that are up have lain down for too long, at the earliest: a
/// timeout of zero must not keep it busy while they work.
const SHORTEST_LOOK_NS: u64 = 1_000_000;

/// How long a worker idles before it gives its stack's memory back, if it is not culled before. A guess: to fetch some pages anew
/// takes microseconds.
const SLIM_NS: u64 = 10_000_000_000;

/// How soon the manager looks again whether a pool to which no queue's routes lead any more has idle workers. A guess:
/// nobody waits for it.
const DESERTED_LOOK_NS: u64 = 100_000_000;

impl WorkerPool {
    /// Takes a request for a worker back, because no thread could be had. Returns `true` if none is left that runs: each
    /// worker there is, if any, sleeps in an item, hogs the CPU, or has been asked for itself.
    pub(crate) fn could_not_create(&self) -> bool {
        let mut dispatch = self.lock();
        dispatch.nr_creating -= 1;
        self.census
            .fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        self.counters
            .nr_spawn_failed
            .fetch_add(1, Ordering::Relaxed);
        self.census().nr_awake() as usize == dispatch.nr_creating
    }

    /// Asks for a worker again after a failure, if work still waits.
    pub(crate) fn ask_again(self: &Arc<Self>) {
        if self.has_waiting_work() {
            self.add_work(|_| ());
        }
    }

    fn has_waiting_work(&self) -> bool {
        !self.injector.is_empty() || self.lock().has_work()
    }

    /// Sends workers away that have idled for too long, and has others give their stacks' memory back; returns when the next one is
    /// to, if any is.
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
                // Those that are up park later.
                return (guard.nr_workers() > 0).then(|| now_ns.saturating_add(DESERTED_LOOK_NS));
            }
            if !deserted && !policy::may_cull(guard.idle.len(), guard.nr_workers()) {
                // More may park later, also such as have been asked for and are not there yet.
                let nr_workers = guard.nr_workers() + guard.nr_creating;
                return policy::may_cull(nr_workers, nr_workers)
                    .then(|| now_ns.saturating_add(limit_ns.max(SHORTEST_LOOK_NS)));
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

    /// Sends all workers away; those that are up leave when they find nothing more to do.
    pub(crate) fn kill(self: &Arc<Self>) {
        let mut guard = self.lock_to_act();
        guard.dying = true;
        for idle in std::mem::take(&mut guard.idle) {
            guard.send_away(&idle.worker);
        }
    }
}

impl PoolGuard<'_> {
    /// Gets idle workers up that have been so for long, to give their stacks' memory back; returns when to look again.
    fn slim_idle(&mut self, now_ns: u64) -> Option<u64> {
        let pool = self.pool();
        let limit_ns = pool.params.idle_timeout_ms.saturating_mul(1_000_000);
        let limit_ns = limit_ns.clamp(SHORTEST_LOOK_NS, SLIM_NS);
        let due_ns = |idle: &IdleWorker| {
            let due_ns = idle.since_ns.saturating_add(limit_ns);
            (!idle.is_lean).then_some(due_ns)
        };
        let is_due = |idle: &IdleWorker| due_ns(idle).is_some_and(|due_ns| due_ns <= now_ns);
        while let Some(at) = self.idle.iter().position(is_due) {
            let idle = self.idle.remove(at);
            idle.worker.slim();
            pool.census
                .fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
            let wakeup = Wakeup::unpark(idle.unparker);
            self.effects.wakeq.push(wakeup);
        }
        let next_ns = self.idle.iter().filter_map(due_ns).min();
        // Those that are up, or asked for, park later.
        let nr_up = self.nr_workers() + self.nr_creating - self.idle.len();
        next_ns.or_else(|| (nr_up > 0).then(|| now_ns.saturating_add(limit_ns)))
    }

    /// Has a worker leave that is off the idle list.
    fn send_away(&mut self, worker: &Worker) {
        worker.cull();
        let wakeup = Wakeup::unpark(worker.unparker());
        self.effects.wakeq.push(wakeup);
    }
}
