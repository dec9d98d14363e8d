//! The remaining work of a bulk cancel.

use std::ptr::NonNull;

use base::internal::panics::{discard, guarded_in_item};

use super::head::Head;
use crate::cleanups::Cleanup;

/// The items of a bulk cancel in progress, and the user values that they held.
///
/// All items are first moved to the running state, by transitions alone. Then their runs end, and
/// user values are dropped last. A waker or destructor that waits for another of the items
/// therefore finds that this item has ended.
#[derive(Default)]
pub struct DeferredDrops {
    pub taken: Vec<NonNull<Head>>,
    /// The number of capacity permits to release.
    pub nr_places: usize,
    /// The number of user items that are not list entries, such as closures of strands, minus the
    /// number of list entries that are not user items, such as strands and scope tickets.
    pub nr_more: isize,
    pub dropped: Vec<Box<dyn Cleanup>>,
}

// SAFETY: items in the running state stay alive, and the contents of items are `Send`.
unsafe impl Send for DeferredDrops {}

struct DeferredDrop<T>(T);

impl<T: Send> Cleanup for DeferredDrop<T> {
    fn run(self: Box<Self>) {
        // FOREIGN(cancel-drop): a closure or future, on the thread of the bulk cancel or a reaper,
        // with no lock held; a panic is contained.
        guarded_in_item(|| drop(self)).unwrap_or_else(discard);
    }
}

pub fn deferred_drop(what: impl Send + 'static) -> Box<dyn Cleanup> {
    Box::new(DeferredDrop(what))
}

impl DeferredDrops {
    pub fn defer_drop(&mut self, what: impl Send + 'static) {
        self.dropped.push(deferred_drop(what));
    }
}
