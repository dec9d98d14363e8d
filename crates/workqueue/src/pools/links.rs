//! A pool's side of links that come and go while their queues are used; see `routes.rs`.

use sync::{atomic::Ordering, unmodelled::Arc};
use topology::CpuSet;

use super::{pool::WorkerPool, pwq::Pwq};

impl WorkerPool {
    /// Links a queue to this pool. `pwq` makes the link for a place in the pool's table.
    pub(crate) fn add_link(&self, pwq: impl FnOnce(usize) -> Arc<Pwq>) -> Arc<Pwq> {
        self.lock().add_link(pwq)
    }

    /// Has the items of a link wait by themselves from now on, also those that a worker has in hand and has not started.
    pub(crate) fn open_lanes(self: &Arc<Self>, slot: usize) {
        self.add_work(|guard| {
            if !guard.link(slot).has_lanes {
                guard.take_hands_back(slot);
                guard.open_lanes(slot);
            }
        });
    }

    /// Unlinks a queue that has been drained.
    pub(crate) fn remove_link(&self, slot: usize) {
        self.lock().remove_link(slot);
    }

    /// Uses a link again that may have been retired.
    pub(crate) fn take_up_link(&self, slot: usize) {
        self.lock().lead(slot, true);
    }

    /// Takes note that no routes lead to a link any more. Late items may still come.
    pub(crate) fn retire_link(&self, slot: usize) {
        let mut dispatch = self.lock();
        dispatch.lead(slot, false);
        let deserted = dispatch.is_deserted();
        drop(dispatch);
        if deserted {
            // Its workers may go.
            self.manager.wake();
        }
    }

    /// Takes note of what the process may use now.
    pub(crate) fn confine(&self, allowed: &CpuSet) {
        let confined = self.attrs.cpus != *allowed;
        if !self.confined.swap(confined, Ordering::Relaxed) && confined {
            for enlisted in self.lock().workers() {
                // They come home when they next get up.
                enlisted.worker.strays.store(true, Ordering::Relaxed);
            }
        }
    }
}
