//! The pool's part in adding, retiring and removing pwqs while their queues are in use. See
//! `routes.rs`.

use sync::{atomic::Ordering, unmodelled::Arc};
use topology::CpuSet;

use super::{pool::WorkerPool, pwq::Pwq};

impl WorkerPool {
    /// Adds a pwq to this pool. `pwq` creates it for an index of the pool's table.
    pub(crate) fn add_pwq(&self, pwq: impl FnOnce(usize) -> Arc<Pwq>) -> Arc<Pwq> {
        self.lock().add_pwq(pwq)
    }

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

    /// Removes the pwq of a queue that has been drained.
    pub(crate) fn remove_pwq(&self, slot: usize) {
        self.lock().remove_pwq(slot);
    }

    /// Puts a pwq that may have been retired into use again.
    pub(crate) fn take_up_pwq(&self, slot: usize) {
        self.lock().lead(slot, true);
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
