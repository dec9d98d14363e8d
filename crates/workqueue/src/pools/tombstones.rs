//! Cancelled items leave the lists that hold them.
//!
//! To cancel an item takes two steps of its word, and its link stays where it is, a tombstone, until a worker comes to it
//! (`state.rs`). Where no worker comes, for the queue is full or paused or the pool is busy, tombstones would pile up. So
//! cancels are counted, and every so often whoever cancels walks through a list, once so much was cancelled that half of
//! what the walk passes may be dead: a cancel pays for a few items of walks, and a list never has many more tombstones
//! than items that wait.
//!
//! Who asks how many items wait has all tombstones cut out first, if there can be any: if something was cancelled, or helped, since
//! that was asked last. What is just being cancelled, or run by a helper, stays, and so does what its enqueuer has not pushed yet:
//! a walk that meets the one, or misses what was counted, has the next who asks walk again.
//!
//! Each list has a count of its own, for a tombstone may lie in either: a link counts for its inactive items, and the pool
//! for the list that all its links share. Where each link judged that list by its own cancels, several would fill it by
//! turns, and none would find that a walk pays.
//!
//! ```text
//! canceller: claim;  count;  perhaps reap;                  unclaim: not pending, still linked
//! reaper:    pool lock: linked, and neither pending, claimed nor running?  step: not linked;  give its count back
//! enqueuer:  linked?  step: pending, it is where it must be;  else push it
//! ```
//!
//! The claim keeps the link for the look at it; and a tombstone that is queued again while it is looked at stays.

use std::{mem, ptr::NonNull, task::Waker};

use base::internal::panics::Foreign;
use sync::{atomic::Ordering, unmodelled::Arc};

use super::{
    dispatch::home,
    pool::{DeferredEffects, PoolGuard, WorkerPool},
    pwq::Pwq,
};
use crate::{
    errands,
    item::{
        handles::Dead,
        head::{Head, Home},
        lane::Lane,
        list,
        state::State,
    },
};

/// How many cancels there are for one look whether a walk pays. A guess: a look takes the pool lock.
const LOOK_EVERY: u32 = if cfg!(any(loom, shuttle, miri)) {
    2
} else {
    64
};

impl Pwq {
    /// Records that an item of this pwq was cancelled, and removes tombstones if that is
    /// worthwhile. The caller, which keeps the pwq alive, fires the returned wakers after its claim
    /// has ended.
    #[must_use = "tasks wait for it"]
    pub(crate) fn note_cancelled(&self) -> Vec<Foreign<Waker>> {
        // ORDER(cancel-count): message passing, other end in `reap`. Who finds this count empties the injector after it was
        // pushed into, as the canceller knows. If the walk comes first, the next one is told of this count.
        let nr_cancelled = self.nr_cancelled.fetch_add(1, Ordering::Release) + 1;
        if nr_cancelled.is_multiple_of(LOOK_EVERY) {
            let pays = |nr_waiting, nr_cancelled| nr_waiting / 2 <= nr_cancelled;
            let reap = || self.pool.reap(self, pays).finish();
            return errands::with_wakers_aside(reap).1;
        }
        Vec::new()
    }

    /// Reaps. The caller keeps the link.
    pub(crate) fn reap(&self) -> Reaped<'_> {
        self.pool.reap(self, |_, _| true)
    }

    /// Returns `true` if anything was cancelled since it was reaped.
    pub(crate) fn has_cancelled(&self) -> bool {
        let mut lanes = self.lanes();
        lanes.any(|it| it.nr_cancelled.load(Ordering::Relaxed) > 0)
    }

    /// Has the next who asks how many items wait walk again.
    fn walk_again(&self) {
        self.nr_cancelled.fetch_max(1, Ordering::Relaxed);
    }
}

/// What is left to be done when tombstones were cut out.
#[derive(Debug)]
#[must_use = "somebody may wait for what was cut out"]
pub(crate) struct Reaped<'a> {
    pool: &'a WorkerPool,
    effects: DeferredEffects<'a>,
    dead: Vec<Dead>,
}

impl Reaped<'_> {
    /// Does it. Call it with no lock held.
    pub(crate) fn finish(self) {
        drop(self.effects);
        // A closure that was cancelled has been dropped by that; what else there is, is not the caller's to drop.
        let (_husks, theirs): (Vec<_>, Vec<_>) = self.dead.into_iter().partition(Dead::is_husk);
        self.pool.manager.leave_to_reapers(theirs);
    }
}

impl WorkerPool {
    /// Cuts tombstones out of the pool's list and of that of `link`, of each that it `pays` to walk: told how many wait
    /// there, and how many were cancelled since it was walked last.
    fn reap(self: &Arc<Self>, link: &Pwq, pays: impl Fn(usize, usize) -> bool) -> Reaped<'_> {
        let mut dead = Vec::new();
        // ORDER(cancel-count): other end in `note_cancelled`. Before the injector is emptied: what is counted here is in a list
        // then, or has been. That the one comes before the other is tested; a weaker order no model shows, for it is a count.
        // Test: what_is_cancelled_beside_somebody_who_asks_does_not_stay_in_the_count
        let taken = |lane: &Pwq| lane.nr_cancelled.swap(0, Ordering::Acquire);
        let nr_cancelled = link.lanes().map(taken).sum::<u32>();
        let mut guard = self.lock_to_act();
        guard.adopt(&self.injector);
        let slot = link.slot;
        let nr_listed = guard.link(slot).nr_listed();
        let walks_link = pays(guard.link(slot).nr_waiting(), nr_cancelled as usize);
        if !walks_link {
            link.nr_cancelled.fetch_add(nr_cancelled, Ordering::Relaxed);
        }
        guard.nr_cancelled += LOOK_EVERY as usize;
        if pays(guard.pending.len(), guard.nr_cancelled) {
            guard.nr_cancelled = 0;
            let mut pending = mem::take(&mut guard.pending);
            pending.retain(|item| !guard.reap_one(item, &mut dead));
            guard.pending = pending;
        }
        if walks_link {
            for lane in [Lane::Ordinary, Lane::Urgent] {
                let mut items = mem::take(guard.link_mut(slot).lane_mut(lane));
                items.retain(|item| !guard.reap_one(item, &mut dead));
                *guard.link_mut(slot).lane_mut(lane) = items;
            }
            let state = guard.link_mut(slot);
            let misses = nr_listed - state.nr_listed() < nr_cancelled as usize;
            // Or workers have come to them: once is enough.
            state.missed = misses && !state.missed;
            if state.missed {
                link.walk_again();
            }
        }
        Reaped {
            pool: self,
            effects: guard.unlock(),
            dead,
        }
    }
}

impl PoolGuard<'_> {
    /// Unlinks an item that nobody wants run, and says whether it was one; whoever has a handle may queue it at once.
    fn reap_one(&mut self, item: NonNull<Head>, dead: &mut Vec<Dead>) -> bool {
        let (&Home { slot, lane, .. }, colour) = (home(item), list::colour(item));
        // SAFETY: linked, so it is alive; it is not looked at after the step that unlinks it.
        let head = unsafe { item.as_ref() };
        let vtable = head.vtable();
        let Some((_, state)) = head.update(State::reap) else {
            let state = head.load();
            if state.has_link() && (!state.is_pending() || state.is_claimed()) {
                // SAFETY: the item is linked, so its home is a link that waits for it.
                let link: &Pwq = unsafe { &*Pwq::of(head.home.load(Ordering::Relaxed)) };
                link.walk_again();
            }
            return false;
        };
        let link = self.dispatch.link_mut(slot);
        link.leave_line(lane, 1);
        if state.frees() {
            // SAFETY: no handle, no link, no runner is left.
            dead.push(unsafe { Dead::new(item, vtable) });
        }
        self.retire_from(slot, colour, 1);
        true
    }
}
