//! Taking all that waits of one queue out of a pool, to cancel it.
//!
//! # The protocol
//!
//! Whatever was queued before is in one of these places, and from each the canceller gets it, or leaves it to a run:
//!
//! 1. *In the injector, in a list, or in a worker's hand.* The canceller takes all of it out under one hold of the pool lock.
//!    So what was queued is cancelled together: nothing of it starts once the first has gone, and nothing that is queued later
//!    is touched. It stays counted in flight until it has been cancelled, so neither the queue nor a drain goes on without it.
//! 2. *Running, and queued again*, its link handed over to that run. No list has it. Or *claimed by a helper* who may find
//!    no seat. Both put the item back themselves, by its colour: the canceller closes the present colour under the same hold of
//!    the lock, and what is put back of a closed one is cancelled by whoever does (`WorkerPool::put_back`).
//! 3. *Between a worker's hand and its first step*, or between a helper's claim and its run: that starts.
//!
//! An item that is queued into the place of a cancelled one has an old colour, and says so (`REVIVED` of `state.rs`): then it
//! goes by the number of the cancel (`item/revival.rs`), as does one that was left to a run and queued once more.
//!
//! ```text
//! canceller: pool lock: adopt; hands back into lists; out of the lists; close the colour   begin all;  end all;  counts back;  drop
//! queueing:  push;  the pool's next adoption comes before that, or after it
//! ```
//!
//! Each item is cancelled by the transitions of a run, without calling its code
//! (`State::pop_to_cancel`). A joiner, a flush, a waker or a second canceller therefore meets only
//! states that it knows from runs. `execute/cancel_cut.rs` makes these transitions. It begins the
//! runs of all items first, with no user code in between, because other threads may wait for a list
//! link (an enqueue on another queue does). It also describes the order of the later steps. Twins
//! `cancel all: forgets the injector`, `cancel all: forgets the hands` and `cancel all:
//! forgets what is put back`.

use std::ptr::NonNull;

use sync::{twin, unmodelled::Arc};

use super::{
    dispatch::{Dispatch, Enlisted, home, home_slot},
    pool::{PoolGuard, WorkerPool},
    pwq::Pwq,
};
use crate::item::{
    head::Head,
    lane::Lane,
    list::{self, List},
    revival::{Revivable, next_cancel},
};

/// Items that are in no list any more, and counted in flight. To be cancelled at once: a thread may wait for a link of
/// theirs.
#[derive(Debug)]
#[must_use = "they are waited for until they have been cancelled"]
pub(crate) struct Cut {
    pub(crate) link: Arc<Pwq>,
    pub(crate) items: List,
}

impl WorkerPool {
    /// Takes all out that waits of `link`, one of this pool's. The caller keeps the link.
    pub(crate) fn cut(self: &Arc<Self>, link: &Arc<Pwq>) -> Cut {
        let mut guard = self.lock_to_act();
        if !twin::armed("cancel all: forgets the injector") {
            guard.adopt(&self.injector);
        }
        if !twin::armed("cancel all: forgets the hands") {
            guard.take_hands_back(link.slot);
        }
        let items = guard.cut(link.slot);
        if guard.has_work() {
            // What has begun may have been taken from a hand.
            guard.pick_if_needed();
        }
        drop(guard);
        Cut {
            link: link.clone(),
            items,
        }
    }

    /// Puts an item that is counted in flight back at the front; returns it where all was cancelled that is as old. One that was
    /// `revived` is younger than it looks.
    #[must_use = "an item that was not put back is to be cancelled"]
    pub(crate) fn put_back(
        self: &Arc<Self>,
        item: NonNull<Head>,
        revived: Option<&Revivable>,
    ) -> Option<Cut> {
        let mut guard = self.lock_to_act();
        let link = guard.link(home_slot(item));
        let by_colour = || link.in_flight.is_cancelled(list::colour(item));
        let is_cancelled = revived.map_or_else(by_colour, |item| item.is_older(link.last_cancel));
        if is_cancelled && !twin::armed("cancel all: forgets what is put back") {
            let link = link.handle().clone();
            let mut items = List::new();
            items.push_back(item);
            return Some(Cut { link, items });
        }
        guard.put_back(item);
        guard.pick_if_needed();
        None
    }
}

impl PoolGuard<'_> {
    /// Puts what workers have in hand of a link, and have not started, back into the lists.
    pub(crate) fn take_hands_back(&mut self, slot: usize) {
        let holds = |it: &&Enlisted| it.seat == Some(slot) && it.worker.has_items();
        let holders = self.workers().filter(holds).map(|it| it.worker.clone());
        for holder in holders.collect::<Vec<_>>() {
            self.retire(&holder);
            self.reclaim(&holder);
        }
    }
}

impl Dispatch {
    /// Takes all out of the lists that waits of a link, oldest first, but for futures that have begun.
    fn cut(&mut self, slot: usize) -> List {
        // SAFETY: the item is linked, so it is alive, and the table was made for it.
        let has_begun = |item: NonNull<Head>| unsafe { (item.as_ref().vtable().has_begun)(item) };
        let mut cut = List::new();
        let mut sift = |item| {
            let keeps = home_slot(item) != slot || has_begun(item);
            if !keeps {
                cut.push_back(item);
            }
            keeps
        };
        let link = self.link_mut(slot);
        link.inactive.retain(&mut sift);
        link.urgent.retain(&mut sift);
        self.pending.retain(&mut sift);
        let link = self.link_mut(slot);
        let nr_urgent = cut
            .iter()
            .filter(|item| home(*item).lane == Lane::Urgent)
            .count();
        link.leave_line(Lane::Ordinary, cut.len() - nr_urgent);
        link.leave_line(Lane::Urgent, nr_urgent);
        link.in_flight.cancel();
        link.last_cancel = next_cancel();
        cut
    }
}
