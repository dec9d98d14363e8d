//! Handles that do not keep a queue alive.

use sync::unmodelled::{Arc, Weak};

use super::{end::Lease, queue::Workqueue};
use crate::item::lane::Lane;

/// A handle that does not keep its queue alive.
///
/// Use it for values that are owned by a queue and also queue there, such as an item that queues
/// itself again, or a cache that refills itself. With a [`Workqueue`] of its own, such a value
/// would keep the queue alive forever.
#[derive(Clone)]
#[must_use = "it keeps no queue alive, and does nothing by itself"]
pub struct WeakWorkqueue {
    lease: Weak<Lease>,
    lane: Lane,
}

impl WeakWorkqueue {
    /// Creates a handle that does not keep `queue` alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{WeakWorkqueue, Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let weak = WeakWorkqueue::new(&queue);
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
    #[doc(alias = "downgrade")]
    pub fn new(queue: &Workqueue) -> Self {
        Self { lease: Arc::<Lease>::downgrade(&queue.lease), lane: queue.lane }
    }

    /// Returns a handle, or `None` if the queue's last handle was dropped, even if items still run.
    ///
    /// The returned handle may be the last one; [`Workqueue`] documents what its drop waits for.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    #[must_use]
    pub fn upgrade(&self) -> Option<Workqueue> {
        let lease = self.lease.upgrade()?;
        Some(Workqueue { inner: lease.inner.clone(), lease, lane: self.lane })
    }
}

base::internal::impl_debug!(WeakWorkqueue, it => nr_handles: it.lease.strong_count());
