//! Counts the handles of an item that can get new ones while it runs.
//!
//! The count determines which handle is the last; the item's state determines which thread frees
//! the item. The thread that drops the last handle sets `ORPHAN` in the state. The item is freed
//! after the transition that leaves it an item without handles that no list and no thread holds. A
//! run lends its item a handle that is not counted. If it is cloned after all others were dropped,
//! the count rises from zero, and the clone waits until the state agrees with the count.

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

/// The number of handles of an item.
#[derive(Debug)]
pub(crate) struct Handles(AtomicUsize);

impl Handles {
    pub(crate) fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// Adds a handle; the caller has a handle, or is inside the item's run, which lends one.
    pub(crate) fn add(&self, head: &Head) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            // The last handle was dropped, and the run that we are in lends its own. The thread
            // that dropped the last handle may not have updated the state yet. We wait for that
            // update: after ours, it would cause the item to be freed.
            let mut patience = Patience::new();
            while head.update(State::adopt).is_none() {
                if sync::twin::armed("item: a clone does not wait") {
                    break;
                }
                patience.pause();
            }
        }
    }

    /// Removes a handle; frees the item if it was the last one and no list or thread holds the
    /// item.
    ///
    /// # Safety
    ///
    /// 1. `item` has these handles, and the caller owns one of them, which it does not use again.
    pub(crate) unsafe fn remove(&self, item: NonNull<Head>) {
        // SAFETY: (1).
        drop(unsafe { self.leave(item) });
    }

    /// Removes a handle like [`remove`](Self::remove), but returns the item if it is to be freed:
    /// for threads that must not run user code.
    ///
    /// # Safety
    ///
    /// 1. As [`remove`](Self::remove).
    pub(crate) unsafe fn leave(&self, item: NonNull<Head>) -> Option<Dead> {
        // If the decrement of another handle comes last, its Acquire below sees our uses of the
        // item. If ours comes last, we see the uses of all others, and the item is ours to free.
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return None;
        }
        // ORDER(handles): publish and consume, other end in the decrement above.
        //   here:        nr_handles -= 1 (to 0);  read nr_handles Acquire;  free
        //   other drops: uses of the item;  nr_handles -= 1 Release
        // ORDER(handles): the decrement above is the other end.
        // Test: a_dropped_item_is_freed_once
        // Not a fence, because ThreadSanitizer does not model fences.
        self.0.load(Ordering::Acquire);
        // SAFETY: (1): the last handle keeps the item alive until the transition below.
        unsafe { orphaned(item) }
    }
}

/// Records that an item's last handle is dropped; frees the item if no list or thread holds it.
///
/// # Safety
///
/// 1. The caller owns the last handle of `item`, which it does not use again.
pub(crate) unsafe fn orphan(item: NonNull<Head>) {
    // SAFETY: (1).
    drop(unsafe { orphaned(item) });
}

/// Records that an item's last handle is dropped; returns the item if no list or thread holds it.
///
/// # Safety
///
/// 1. As [`orphan`].
unsafe fn orphaned(item: NonNull<Head>) -> Option<Dead> {
    // SAFETY: (1).
    let head = unsafe { item.as_ref() };
    let vtable = head.vtable();
    let (_, state) = head.update(|state| Some(state.orphan()))?;
    // SAFETY: no handle and no list link is left, and no thread runs the item.
    state.frees().then(|| unsafe { Dead::new(item, vtable) })
}

/// An item that is not reachable any more. Dropping this frees the item, and drops its closure,
/// future or result.
#[derive(Debug)]
#[must_use = "dropping it runs users' code"]
pub(crate) struct Dead {
    item: NonNull<Head>,
    vtable: &'static VTable,
}

// SAFETY: the contents of items are `Send`, and no other thread can reach this one.
unsafe impl Send for Dead {}

impl Dead {
    /// # Safety
    ///
    /// 1. `item` has no handle and no list link, no thread runs it, and `vtable` is its vtable.
    pub(crate) unsafe fn new(item: NonNull<Head>, vtable: &'static VTable) -> Self {
        Self { item, vtable }
    }

    /// Returns `true` if freeing the item drops no user data.
    pub(crate) fn is_husk(&self) -> bool {
        // SAFETY: no other thread can reach the item, by `new`.
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
        // FOREIGN(item-free): the drop of a closure, future or result, on the thread that held the
        // item last: a worker, the thread that dropped the last handle, or a reaper; a panic is
        // contained, and leaks the item's memory.
        // SAFETY: no other thread can reach the item, by `new`.
        contain(|| unsafe { (self.vtable.free)(self.item) });
    }
}
