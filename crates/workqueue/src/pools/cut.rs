//! Removes all waiting items of one queue from a pool in order to cancel them.
//!
//! # The protocol
//!
//! Each item that was queued before the cancel is in one of these states. The canceller takes the
//! item, or lets it run:
//!
//! 1. *In the injector, in a list, or in a local batch.* The canceller removes all of these in one
//!    critical section of the pool lock. They are therefore cancelled together: no item starts
//!    after the first was removed, and items queued later are not affected. Each stays counted in
//!    flight until it has been cancelled, so the queue and its drains wait for it.
//! 2. *Running and queued again*, and in no list, because the run will put it back; or *claimed by
//!    a helper* that may find no seat. In both cases, the running or claiming thread puts the item
//!    back. The canceller closes the current color in the same critical section. If the color of an
//!    item that is put back is closed, the thread that puts it back cancels it
//!    (`WorkerPool::put_back`).
//! 3. *Popped from a local batch but not yet running*, or claimed by a helper that will run it. The
//!    item runs.
//!
//! An item that is queued again on the tombstone of its cancelled enqueue has an old color and the
//! flag `REVIVED` (`head.rs`). The number of the cancel decides whether such an item is cancelled
//! (`item/revival.rs`). The same holds for an item that was handed to a run and queued once more.
//!
//! ```text
//! canceller: lock: adopt; local batches back to lists; unlist all; close color.  then: begin all;
//!            end all;  release counts;  drop
//! producer:  push;  the pool's next adoption comes before that lock, or after it
//! ```
//!
//! Each item is cancelled by the transitions of a run, without calling its code
//! (`State::pop_to_cancel`). A joiner, a flusher, a waker or a second canceller therefore
//! encounters only states that also occur in runs. `execute/cancel_cut.rs` makes these transitions.
//! It begins the runs of all items first, with no user code in between, because other threads may
//! wait for a list link (an enqueue on another queue does). It also describes the order of the
//! later steps. Twins `cancel all: forgets the injector`, `cancel all: forgets the local batches`
//! and `cancel all: forgets returned items`.

use std::ptr::NonNull;

use base::internal::wake::lane::Lane;
use item::internal::head::Head;
use item::internal::list::{self, List};
use item::internal::revival::{Revivable, next_cancel};
use sync::twin;
use sync::unmodelled::Arc;

use super::dispatch::{Dispatch, home, home_slot};
use super::pool::{PoolGuard, WorkerPool};
use super::pwq::Pwq;

/// Items that are in no list and still counted in flight. The owner must cancel them at once,
/// because another thread may wait for one of their list links.
#[must_use = "they are waited for until they have been cancelled"]
pub(crate) struct Cut {
    pub(crate) pwq: Arc<Pwq>,
    pub(crate) items: List,
}

impl WorkerPool {
    /// Removes all waiting items of `pwq`, a pwq of this pool. The caller keeps the pwq alive.
    pub(crate) fn cut(self: &Arc<Self>, pwq: &Arc<Pwq>) -> Cut {
        let mut guard = self.lock_to_act();
        if !twin::armed("cancel all: forgets the injector") {
            guard.adopt(&self.injector);
        }
        if !twin::armed("cancel all: forgets the local batches") {
            guard.recall_local_batches(pwq.slot);
        }
        let items = guard.cut(pwq.slot);
        if guard.pwq_mut(pwq.slot).deferred.take().is_some() {
            // The run that has the item cancels it. Later items need not wait for that.
            guard.leave_queue(pwq.slot);
        }
        guard.release_emptied(pwq.slot);
        if guard.has_work() {
            // Items may have been put back from the local batch of a worker that is inside an item.
            guard.pick_if_needed();
        }
        drop(guard);
        Cut { pwq: pwq.clone(), items }
    }

    /// Puts an item that is counted in flight back at the front of its list, because the run that
    /// it was handed over to has ended. Returns the item instead if a bulk cancel covers it. A
    /// `revived` item was queued more recently than its color suggests.
    #[must_use = "an item that was not put back is to be cancelled"]
    pub(crate) fn put_back(
        self: &Arc<Self>,
        item: NonNull<Head>,
        revived: Option<&Revivable>,
    ) -> Option<Cut> {
        let mut guard = self.lock_to_act();
        let slot = home_slot(item);
        let pwq = guard.pwq(slot);
        let by_color = || pwq.in_flight.is_cancelled(list::color(item));
        let is_cancelled = revived.map_or_else(by_color, |item| item.is_older(pwq.last_cancel));
        if is_cancelled && !twin::armed("cancel all: forgets returned items") {
            let pwq = pwq.handle().clone();
            let mut items = List::default();
            items.push_back(item);
            guard.note_return(slot, item);
            return Some(Cut { pwq, items });
        }
        guard.put_back(item);
        guard.note_return(slot, item);
        guard.pick_if_needed();
        None
    }
}

impl PoolGuard<'_> {
    /// Puts the items of a pwq that are in local batches back into the lists.
    pub(crate) fn recall_local_batches(&mut self, slot: usize) {
        let holders = self.holders(slot).filter(|(it, _)| it.worker.has_items());
        let holders = holders.map(|(it, _)| it.worker.clone());
        for holder in holders.collect::<Vec<_>>() {
            self.reclaim(&holder);
        }
    }
}

impl Dispatch {
    /// Removes all waiting items of a pwq from the lists, oldest first, except futures that have
    /// begun.
    fn cut(&mut self, slot: usize) -> List {
        // SAFETY: the item is linked, so it is alive, and the vtable was created for it.
        let has_begun = |item: NonNull<Head>| unsafe { (item.as_ref().vtable().has_begun)(item) };
        let mut cut = List::default();
        let mut sift = |item| {
            let keeps = home_slot(item) != slot || has_begun(item);
            if !keeps {
                cut.push_back(item);
            }
            keeps
        };
        let pwq = self.pwq_mut(slot);
        pwq.lists.iter_mut().for_each(|list| list.retain(&mut sift));
        self.pending.retain(&mut sift);
        let pwq = self.pwq_mut(slot);
        let nr_urgent = cut.iter().filter(|item| home(*item).lane == Lane::Urgent).count();
        pwq.remove_listed(Lane::Ordinary, cut.len() - nr_urgent);
        pwq.remove_listed(Lane::Urgent, nr_urgent);
        pwq.in_flight.cancel();
        pwq.last_cancel = next_cancel();
        cut
    }
}
