//! What the manager does for a pool beside looking at its workers: cull idle ones, do without new ones, end.

use sync::{atomic::Ordering, unmodelled::Arc};

use super::{
    policy::{self, Census},
    pool::{PoolGuard, WorkerPool},
    worker::Worker,
};
use crate::wake::Wakeup;

/// How soon the manager looks again whether workers that are up have lain down for too long, at the earliest: a
/// timeout of zero must not keep it busy while they work.
const SHORTEST_LOOK_NS: u64 = 1_000_000;

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

    /// Sends workers away that have idled for too long; returns when the next one will have, if any can.
    pub(crate) fn cull(self: &Arc<Self>, now_ns: u64) -> Option<u64> {
        let limit_ns = self.params.idle_timeout_ms.saturating_mul(1_000_000);
        let mut guard = self.lock_to_act();
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
    /// Has a worker leave that is off the idle list.
    fn send_away(&mut self, worker: &Worker) {
        worker.cull();
        let wakeup = Wakeup::unpark(worker.unparker());
        self.effects.wakeq.push(wakeup);
    }
}
