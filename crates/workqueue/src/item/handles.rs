//! Counting the handles of an item that may get new ones while it runs.
//!
//! The count decides who is last; the item's state decides who frees. Whoever drops the last handle says so in the
//! state (`ORPHAN`), and the item is freed by the step after which it is an orphan and nobody has it in hand.
//! A run lends its item a handle that is not counted. A clone of that, when all others have gone, brings the
//! item back: the count rises from zero, and the clone waits until the state says what the count said.

use std::ptr::NonNull;

use base::internal::{panics::contain, trace};
use sync::{
    Patience,
    atomic::{AtomicUsize, Ordering},
};

use super::{
    head::{Head, VTable},
    state::State,
};
use crate::errands::Errand;

/// How many handles an item has.
#[derive(Debug)]
pub(crate) struct Handles(AtomicUsize);

impl Handles {
    pub(crate) fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// Counts one more; the caller has one, or is in the item's run, which lends one.
    pub(crate) fn add(&self, head: &Head) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            // The last handle had gone, and the run that we are in lends its own. Whoever dropped the last one may
            // not have said so yet: then we wait for that, else it would come after us and the item be freed.
            let mut patience = Patience::new();
            while head.update(State::adopt).is_none() {
                if sync::twin::armed("item: a clone does not wait") {
                    break;
                }
                patience.pause();
            }
        }
    }

    /// Counts one less; frees the item if that was the last and nobody has it in hand.
    ///
    /// # Safety
    ///
    /// 1. `item` has these handles, and the caller one of them, which it does not use again.
    pub(crate) unsafe fn remove(&self, item: NonNull<Head>) {
        // SAFETY: (1).
        drop(unsafe { self.leave(item) });
    }

    /// Counts one less, as [`remove`](Self::remove) does, but returns the item that is to be freed by that: for threads
    /// that must not run users' code.
    ///
    /// # Safety
    ///
    /// 1. As of [`remove`](Self::remove).
    pub(crate) unsafe fn leave(&self, item: NonNull<Head>) -> Option<Dead> {
        // If another handle's decrement comes last, its Acquire below sees our uses of the item. If ours comes last, we see
        // those of the others, and the item is ours to free.
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return None;
        }
        // ORDER(handles): publish and consume, other end in the decrement above.
        //   here:        nr_handles -= 1 (to 0);  read nr_handles Acquire;  free
        //   other drops: uses of the item;  nr_handles -= 1 Release
        // ORDER(handles): the decrement above is the other end.
        // Test: a_dropped_item_is_freed_once
        // Not a fence, of which ThreadSanitizer knows nothing.
        self.0.load(Ordering::Acquire);
        // SAFETY: (1): the last handle keeps the item until the step below.
        unsafe { orphaned(item) }
    }
}

/// Notes that an item's last handle goes; frees it if nobody has it in hand.
///
/// # Safety
///
/// 1. The caller has the last handle of `item`, which it does not use again.
pub(crate) unsafe fn orphan(item: NonNull<Head>) {
    // SAFETY: (1).
    drop(unsafe { orphaned(item) });
}

/// Notes that an item's last handle goes; returns it if nobody has it in hand.
///
/// # Safety
///
/// 1. As of [`orphan`].
unsafe fn orphaned(item: NonNull<Head>) -> Option<Dead> {
    // SAFETY: (1).
    let head = unsafe { item.as_ref() };
    let vtable = head.vtable();
    let (_, state) = head.update(|state| Some(state.orphan()))?;
    // SAFETY: no handle, no link, no runner is left.
    state.frees().then(|| unsafe { Dead::new(item, vtable) })
}

/// An item that nobody has any more; dropping this frees it, and drops its closure, future or result by that.
#[derive(Debug)]
#[must_use = "dropping it runs users' code"]
pub(crate) struct Dead {
    item: NonNull<Head>,
    vtable: &'static VTable,
}

// SAFETY: what items hold is `Send`, and nobody else has this one.
unsafe impl Send for Dead {}

impl Dead {
    /// # Safety
    ///
    /// 1. No handle, no link, no runner of `item` is left, and `vtable` is its table.
    pub(crate) unsafe fn new(item: NonNull<Head>, vtable: &'static VTable) -> Self {
        Self { item, vtable }
    }

    /// Returns `true` if to free it drops nothing of users'.
    pub(crate) fn is_husk(&self) -> bool {
        // SAFETY: nobody has the item, by `new`.
        unsafe { (self.vtable.is_husk)(self.item) }
    }
}

impl Errand for Dead {}

impl Drop for Dead {
    fn drop(&mut self) {
        if sync::twin::torn_down() {
            return;
        }
        trace::forget(self.item.as_ptr().addr());
        // FOREIGN(item-free): the drop of a closure, future or result, on the thread that had the item last: a worker, whoever
        // dropped the last handle, or a reaper; contained, what panics leaks the item's memory.
        // SAFETY: nobody has the item, by `new`.
        contain(|| unsafe { (self.vtable.free)(self.item) });
    }
}
