//! Handles that do not keep a queue.

use std::fmt;

use sync::unmodelled::{Arc, Weak};

use super::{
    end::Lease,
    queue::{Inner, Workqueue},
};
use crate::item::lane::Lane;

/// A handle of a queue that does not keep it; made by [`Workqueue::downgrade`].
///
/// For what belongs to a queue and queues there: an item that queues itself again, a cache that fills itself. With a
/// [`Workqueue`] of its own it would keep the queue for ever.
#[derive(Clone)]
pub struct WeakWorkqueue {
    inner: Weak<Inner>,
    lease: Weak<Lease>,
    lane: Lane,
}

impl Workqueue {
    /// Returns a handle that does not keep the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let weak = queue.downgrade();
    /// let again = Work::with_handle(move |this| {
    ///     // Ends with the queue.
    ///     if let Some(queue) = weak.upgrade() {
    ///         queue.enqueue(this);
    ///     }
    /// });
    /// queue.enqueue(&again);
    /// drop(queue);
    /// assert!(!again.is_busy());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it keeps nothing, and does nothing by itself"]
    pub fn downgrade(&self) -> WeakWorkqueue {
        WeakWorkqueue {
            inner: Arc::<Inner>::downgrade(&self.inner),
            lease: Arc::<Lease>::downgrade(&self.lease),
            lane: self.lane,
        }
    }
}

impl WeakWorkqueue {
    /// Returns a handle of the queue; `None` if its last one has gone, also while items still run.
    ///
    /// The handle may be the last one when it is dropped: see [`Workqueue`] for what that waits for.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn upgrade(&self) -> Option<Workqueue> {
        // In this order: a lease's drop ends the queue, and nothing may fail once there is one.
        let inner = self.inner.upgrade()?;
        let lease = self.lease.upgrade()?;
        let lane = self.lane;
        Some(Workqueue { inner, lease, lane })
    }
}

impl fmt::Debug for WeakWorkqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakWorkqueue")
            .field("nr_handles", &self.lease.strong_count())
            .finish()
    }
}
