//! What the manager does for a pool: watch over work that does not move, cull idle workers, end.

use sync::{atomic::Ordering, cpu, thread::ThreadId, unmodelled::Arc};
use topology::CpuSet;

use super::{
    dispatch::Afterwards,
    policy::{self, Census},
    pool::{Picked, WorkerPool},
    worker::Worker,
};
use crate::wake::{WakeQ, Wakeup};

/// How soon the manager looks again whether workers that are up have lain down for too long, at the earliest: a
/// timeout of zero must not keep it busy while they work.
const SHORTEST_LOOK_NS: u64 = 1_000_000;

/// What a watch tick found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    /// Nothing waits.
    Quiet,
    /// Work waits, and moves.
    Moving,
    /// Work waits and did not move for a whole tick.
    Stuck,
}

impl WorkerPool {
    /// Takes a request for a worker back, because no thread could be had. Says whether the pool has none.
    pub(crate) fn could_not_create(&self) -> bool {
        let mut dispatch = self.lock();
        dispatch.nr_creating -= 1;
        self.census
            .fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        self.counters
            .nr_spawn_failed
            .fetch_add(1, Ordering::Relaxed);
        dispatch.nr_workers() == 0
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

    /// Looks whether waiting work moves, and adds workers if it did not for a whole tick.
    pub(crate) fn watch_tick(self: &Arc<Self>, allowed: &CpuSet) -> Sight {
        let mut after = Afterwards::default();
        let mut picked = Picked::default();
        let mut dispatch = self.lock();
        let waits = !self.injector.is_empty()
            || dispatch.has_work()
            || dispatch.workers().any(|it| it.worker.has_items());
        let progress = dispatch.progress();
        let (before, nr_ticks) = dispatch.watched;
        // The others may move while one is stuck, so its hand is looked at by itself.
        let nr_reclaimed = dispatch.reclaim_from_stuck();
        let stands = waits && progress == before;
        if !stands || nr_ticks == 0 {
            // The first look only notes where things stand.
            dispatch.watched = (progress, u32::from(stands));
            if nr_reclaimed > 0 {
                self.pick_if_needed(&mut dispatch, &mut picked);
            }
            drop(dispatch);
            self.see_to(picked);
            return if waits { Sight::Moving } else { Sight::Quiet };
        }
        dispatch.watched = (progress, nr_ticks + 1);
        self.counters.nr_stuck_ticks.fetch_add(1, Ordering::Relaxed);
        let workers: Vec<_> = dispatch.workers().map(|it| it.worker.clone()).collect();
        for worker in &workers {
            dispatch.retire(worker, &mut after);
            dispatch.reclaim(worker);
        }
        if self.census().nr_searching() == 0 {
            dispatch.adopt(&self.injector);
            for _ in 0..policy::growth(nr_ticks).min(dispatch.nr_pending().max(1)) {
                self.pick(&mut dispatch, &mut picked);
                if picked.create {
                    break;
                }
            }
        }
        drop(dispatch);
        if self.confined && !self.attrs.strict {
            self.let_stray(&workers, allowed);
        }
        self.see_to(picked);
        self.finish(after);
        Sight::Stuck
    }

    /// Lets workers whose CPUs give them no time run anywhere until they next lie down.
    fn let_stray(&self, workers: &[Arc<Worker>], allowed: &CpuSet) {
        for worker in workers {
            let thread = ThreadId(worker.thread.load(Ordering::Relaxed));
            if thread.0 != 0 && !worker.strays.swap(true, Ordering::Relaxed) {
                // The thread may have ended meanwhile; then there is nobody to move.
                let _ = cpu::set_affinity(Some(thread), allowed);
            }
        }
    }

    /// Sends workers away that have idled for too long; returns when the next one will have, if any can.
    pub(crate) fn cull(&self, now_ns: u64) -> Option<u64> {
        let limit_ns = self.params.idle_timeout_ms.saturating_mul(1_000_000);
        let mut wakeq = WakeQ::new();
        let mut dispatch = self.lock();
        let next_ns = loop {
            if !policy::may_cull(dispatch.idle.len(), dispatch.nr_workers()) {
                // More may lie down later, also such as have been asked for and are not there yet.
                let nr_workers = dispatch.nr_workers() + dispatch.nr_creating;
                break policy::may_cull(nr_workers, nr_workers)
                    .then(|| now_ns.saturating_add(limit_ns.max(SHORTEST_LOOK_NS)));
            }
            let due_ns = dispatch.idle[0].since_ns.saturating_add(limit_ns);
            if due_ns > now_ns {
                break Some(due_ns);
            }
            let idle = dispatch.idle.remove(0);
            if cfg!(any(loom, shuttle, debug_assertions)) {
                assert!(!idle.worker.is_kicked(), "a kicked worker is culled");
            }
            idle.worker.cull();
            wakeq.push(Wakeup::unpark(idle.worker.unparker()));
            self.counters.nr_culled.fetch_add(1, Ordering::Relaxed);
        };
        drop(dispatch);
        wakeq.fire();
        next_ns
    }

    /// Sends all workers away; those that are up leave when they find nothing more to do.
    pub(crate) fn kill(&self) {
        let mut wakeq = WakeQ::new();
        let mut dispatch = self.lock();
        dispatch.dying = true;
        for idle in dispatch.idle.drain(..) {
            idle.worker.cull();
            wakeq.push(Wakeup::unpark(idle.worker.unparker()));
        }
        drop(dispatch);
        wakeq.fire();
    }
}
