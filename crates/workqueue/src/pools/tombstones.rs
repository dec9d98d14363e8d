//! Removes cancelled items from the lists that hold them.
//!
//! A cancel takes two transitions of the item's state word. The list entry of the item remains as a
//! tombstone until a worker pops it (`head.rs`). If no worker pops it, because the queue is full or
//! paused or the pool is busy, tombstones would pile up. Cancels are therefore counted. Every
//! `CHECK_EVERY` cancels, the canceller walks a list if at least half of its items may be
//! tombstones. Each cancel therefore pays for a few items of such walks, and a list never holds
//! many more tombstones than waiting items.
//!
//! A query for the number of waiting items first removes all tombstones, if any item was cancelled
//! or helped since the last query. Items that are being cancelled, are being run by a helper or
//! have not been pushed yet are left in place. If a walk finds such an item, or removes fewer
//! tombstones than were counted, the next query walks again.
//!
//! Each list has its own count: a pwq counts for its inactive items, and the pool counts for the
//! list that all its pwqs share. If each pwq judged the shared list by its own cancels, several
//! pwqs could fill it with tombstones, and none of them would find a walk worthwhile.
//!
//! ```text
//! canceller: claim;  count;  perhaps reap;              unclaim: not pending, still linked
//! reaper:    pool lock: linked, not pending, claimed or running?  unlink;  release its count
//! enqueuer:  linked?  set pending, its list entry is in place;  otherwise push it
//! ```
//!
//! The claim keeps the entry linked while the canceller walks. A tombstone that is queued again
//! during a walk stays in its list.

use std::mem;
use std::ptr::NonNull;
use std::task::Waker;

use base::internal::panics::Foreign;
use base::internal::wake::lane::Lane;
use item::internal::head::{Dead, Head, Home, State};
use item::internal::{cleanups, list};
use sync::atomic::Ordering;
use sync::unmodelled::Arc;

use super::dispatch::home;
use super::pool::{DeferredEffects, PoolGuard, WorkerPool};
use super::pwq::Pwq;

/// The number of cancels after which the canceller checks whether a walk is worthwhile. The value
/// is a guess: the check acquires the pool lock.
const CHECK_EVERY: u32 = if cfg!(any(loom, shuttle, miri)) { 2 } else { 64 };

impl Pwq {
    /// Records that an item of this pwq was cancelled, and removes tombstones if that is
    /// worthwhile. The caller, which keeps the pwq alive, fires the returned wakers after its claim
    /// has ended.
    #[must_use = "tasks wait for it"]
    pub(crate) fn note_cancelled(&self) -> Vec<Foreign<Waker>> {
        // ORDER(cancel-count): message passing, other end in `reap`. If the walk finds this count,
        // it then empties the injector, into which the item was pushed before. If the walk comes
        // first, the next walk finds this count.
        let nr_cancelled = self.nr_cancelled.fetch_add(1, Ordering::Release) + 1;
        if nr_cancelled.is_multiple_of(CHECK_EVERY) {
            let pays = |nr_waiting, nr_cancelled| nr_waiting / 2 <= nr_cancelled;
            let reap = || self.pool.reap(self, pays).finish();
            return cleanups::with_wakers_aside(reap).1;
        }
        Vec::new()
    }

    /// Removes tombstones. The caller keeps the pwq alive.
    pub(crate) fn reap(&self) -> Reaped<'_> {
        self.pool.reap(self, |_, _| true)
    }

    pub(crate) fn has_cancelled(&self) -> bool {
        let mut lanes = self.lanes();
        lanes.any(|it| it.nr_cancelled.load(Ordering::Relaxed) > 0)
    }

    /// Makes the next query for the number of waiting items walk again.
    fn walk_again(&self) {
        self.nr_cancelled.fetch_max(1, Ordering::Relaxed);
    }
}

/// The deferred effects of a walk that removed tombstones.
#[must_use = "a thread may wait for the removed items"]
pub(crate) struct Reaped<'a> {
    pool: &'a WorkerPool,
    effects: DeferredEffects<'a>,
    dead: Vec<Dead>,
}

impl Reaped<'_> {
    /// Applies the effects. The caller holds no lock.
    pub(crate) fn finish(self) {
        drop(self.effects);
        // The closures of these items were dropped by the cancel. Items that still hold user data
        // are freed by reapers instead of the caller.
        let (_unused, theirs): (Vec<_>, Vec<_>) =
            self.dead.into_iter().partition(Dead::frees_no_user_data);
        self.pool.manager.leave_to_reapers(theirs);
    }
}

impl WorkerPool {
    /// Removes tombstones from the pool's list and from that of `pwq`, if `pays` returns `true` for
    /// the list. `pays` receives the number of items in the list, and the number of cancels since
    /// the last walk.
    fn reap(self: &Arc<Self>, pwq: &Pwq, pays: impl Fn(usize, usize) -> bool) -> Reaped<'_> {
        let mut dead = Vec::new();
        // ORDER(cancel-count): other end in `note_cancelled`. We read the count before we empty the
        // injector, so each counted item is or was in a list by then. The test covers that order of
        // the two steps. No model can show a weaker ordering, because this is only a count.
        // Test: items_cancelled_during_a_query_do_not_stay_in_len
        let taken = |lane: &Pwq| lane.nr_cancelled.swap(0, Ordering::Acquire);
        let nr_cancelled = pwq.lanes().map(taken).sum::<u32>();
        let mut guard = self.lock_to_act();
        guard.adopt(&self.injector);
        let slot = pwq.slot;
        let nr_listed = guard.pwq(slot).nr_listed();
        let walks_pwq = pays(guard.pwq(slot).nr_waiting(), nr_cancelled as usize);
        if !walks_pwq {
            pwq.nr_cancelled.fetch_add(nr_cancelled, Ordering::Relaxed);
        }
        guard.nr_cancelled += CHECK_EVERY as usize;
        if pays(guard.pending.len(), guard.nr_cancelled) {
            guard.nr_cancelled = 0;
            let mut pending = mem::take(&mut guard.pending);
            pending.retain(|item| !guard.reap_one(item, &mut dead));
            guard.pending = pending;
        }
        if walks_pwq {
            for lane in [Lane::Ordinary, Lane::Urgent] {
                let mut items = mem::take(guard.pwq_mut(slot).lane_mut(lane));
                items.retain(|item| !guard.reap_one(item, &mut dead));
                *guard.pwq_mut(slot).lane_mut(lane) = items;
            }
            let state = guard.pwq_mut(slot);
            let misses = nr_listed - state.nr_listed() < nr_cancelled as usize;
            // Workers may have popped the missing tombstones, so a second walk is enough.
            state.missed = misses && !state.missed;
            if state.missed {
                pwq.walk_again();
            }
            guard.release_emptied(slot);
        }
        Reaped { pool: self, effects: guard.unlock(), dead }
    }
}

impl PoolGuard<'_> {
    /// Unlinks an item if it is a tombstone, and returns `true` if it was. An owner of a handle may
    /// queue the item again at once.
    fn reap_one(&mut self, item: NonNull<Head>, dead: &mut Vec<Dead>) -> bool {
        let (&Home { slot, lane, .. }, color) = (home(item), list::color(item));
        // SAFETY: the item is linked, so it is alive. It is not used after the transition that
        // unlinks it.
        let head = unsafe { item.as_ref() };
        let Some((_, state)) = head.update(State::reap) else {
            let state = head.load();
            if state.has_link() && (!state.is_pending() || state.is_claimed()) {
                // SAFETY: the item is linked, so its home is a pwq that is not removed before it.
                let pwq: &Pwq = unsafe { &*Pwq::of(head.home.load(Ordering::Relaxed)) };
                pwq.walk_again();
            }
            return false;
        };
        let pwq = self.dispatch.pwq_mut(slot);
        pwq.remove_listed(lane, 1);
        if state.frees() {
            // SAFETY: `state.frees()` means that no handle, list or running thread refers to the
            // item.
            dead.push(unsafe { Dead::new(item) });
        }
        self.retire_from(slot, color, 1);
        true
    }
}
