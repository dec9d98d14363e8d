//! Items that no thread can reach.

use std::ptr::NonNull;

use base::internal::panics::contain;
use base::internal::trace;

use super::{Head, VTable};
use crate::cleanups::Cleanup;

/// An item that is no longer reachable. Dropping this frees the item, and drops its closure, future
/// or result.
#[must_use = "dropping it runs users' code"]
pub struct Dead(NonNull<Head>);

// SAFETY: the contents of items are `Send`, and no other thread can reach this one.
unsafe impl Send for Dead {}

impl Dead {
    /// # Safety
    ///
    /// 1. `item` has no handle and no list link, and no thread runs it.
    pub unsafe fn new(item: NonNull<Head>) -> Self {
        Self(item)
    }

    fn vtable(&self) -> &'static VTable {
        // SAFETY: (1) of `new` guarantees that only this value frees the item, when it is dropped.
        unsafe { self.0.as_ref() }.vtable()
    }

    /// Returns `true` if freeing the item drops no user data.
    pub fn frees_no_user_data(&self) -> bool {
        // SAFETY: (1) of `new` guarantees that no other thread can reach the item.
        unsafe { (self.vtable().frees_no_user_data)(self.0) }
    }
}

impl Cleanup for Dead {}

impl Drop for Dead {
    fn drop(&mut self) {
        if sync::twin::torn_down() {
            return;
        }
        trace::forget(self.0.as_ptr().addr());
        // FOREIGN(item-free): the drop of a closure, future or result, on the thread that held the
        // item last: a worker, the thread that dropped the last handle, or a reaper; a panic is
        // contained, and leaks the item's memory.
        // SAFETY: (1) of `new` guarantees that no other thread can reach the item.
        contain(|| unsafe { (self.vtable().free)(self.0) });
    }
}
