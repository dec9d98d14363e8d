//! The pool's part in adding, retiring and removing pwqs while their queues are in use. See
//! `routes.rs`.

use sync::atomic::Ordering;
use sync::unmodelled::Arc;
use topology::CpuSet;

use super::pool::WorkerPool;

impl WorkerPool {
    /// Makes the items of a pwq wait in its own lists from now on. Items in local batches are put
    /// back there too.
    pub(crate) fn open_lanes(self: &Arc<Self>, slot: usize) {
        self.add_work(|guard| {
            if !guard.pwq(slot).has_lanes {
                guard.recall_local_batches(slot);
                guard.open_lanes(slot);
            }
        });
    }

    /// Retires a pwq: routes no longer lead to it. Late items may still arrive.
    pub(crate) fn retire_pwq(&self, slot: usize) {
        let mut dispatch = self.lock();
        dispatch.lead(slot, false);
        let deserted = dispatch.is_deserted();
        drop(dispatch);
        if deserted {
            // The manager can cull the pool's workers now.
            self.manager.wake();
        }
    }

    /// Updates the pool for the CPUs that the process may use now.
    pub(crate) fn confine(&self, allowed: &CpuSet) {
        let confined = self.attrs.cpus != *allowed;
        if !self.confined.swap(confined, Ordering::Relaxed) && confined {
            for enlisted in self.lock().workers() {
                // Workers apply their affinity again when they next wake.
                enlisted.worker.strays.store(true, Ordering::Relaxed);
            }
        }
    }
}
