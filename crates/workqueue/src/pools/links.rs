//! A pool's side of links that come and go while their queues are used; see `routes.rs`.

use sync::{atomic::Ordering, unmodelled::Arc};
use topology::CpuSet;

use super::{
    pool::WorkerPool,
    pwq::{Pwq, Seeker},
};
use crate::workqueue::limit::queue_core::QueueCore;

impl WorkerPool {
    /// Links a queue to this pool by what `pwq` makes for a place in its table; a plugged link keeps its items until it is
    /// unplugged.
    pub(crate) fn add_link(&self, plugged: bool, pwq: impl FnOnce(usize) -> Arc<Pwq>) -> Arc<Pwq> {
        self.lock().add_link(plugged, pwq)
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

    /// Uses a link again that may have been retired, and plugs it then.
    pub(crate) fn take_up_link(&self, slot: usize, plugged: bool) {
        let mut dispatch = self.lock();
        if dispatch.lead(slot, true) {
            dispatch.link_mut(slot).plugged = plugged;
        }
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

    /// Returns `true` if a link to which nothing comes any more has no item in flight; if it has, `heir` will be unplugged
    /// when the last one has ended.
    pub(crate) fn is_spent(&self, slot: usize, heir: &Arc<Pwq>) -> bool {
        let mut dispatch = self.lock();
        dispatch.adopt(&self.injector);
        let link = dispatch.link_mut(slot);
        if link.is_spent() {
            return true;
        }
        link.heir = Some(Seeker {
            pool: heir.pool.clone(),
            slot: heir.slot,
        });
        false
    }

    /// Lets the items of a link run for which its predecessor's had to end first. Whoever wants to change the attributes
    /// again waits for this, and is to be told by the queue's `settled` with no lock held.
    pub(crate) fn unplug(self: &Arc<Self>, slot: usize) -> Arc<QueueCore> {
        let mut guard = self.lock_to_act();
        guard.unplug(slot);
        guard.pick_if_needed();
        guard.link(slot).core.clone()
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
