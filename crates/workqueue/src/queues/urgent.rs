//! The urgent lane of a queue.

use sync::atomic::Ordering;

use super::queue::{Inner, Workqueue};
use crate::{item::lane::Lane, route::attrs::BuildError};

impl Workqueue {
    /// Returns a handle of this queue by which items go before those that wait: what is queued by it, in whatever way, is *urgent*.
    ///
    /// For the few among many: a read that a user waits for on a queue of prefetches, a flush on a queue of compactions. It is the
    /// same queue, with one `max_active`, one capacity, one drain, and one set of statistics.
    ///
    /// # Guarantees
    ///
    /// - An urgent item starts before all ordinary ones of the queue that wait in the same pool, and after older urgent ones. What
    ///   has started is not interrupted.
    /// - Ordinary items are not starved: while both wait in a pool, every tenth start is an ordinary one.
    /// - No other queue's item is overtaken by that.
    ///
    /// | | |
    /// |---|---|
    /// | an ordered queue | has no urgent lane |
    /// | an item that is pending | keeps its lane: to hasten it, cancel it and queue it anew |
    /// | `max_active`, [`pause`](Self::pause) | hold for both; the next seat is the urgent item's |
    /// | a seat | is taken, as in the kernel, while an item waits for a worker of its pool: at a small `max_active` items in other pools wait for that worker, too |
    /// | a capacity | counts both, and refuses both; those who wait for room get it in their order |
    /// | [`flush`](Self::flush), [`drain`](Self::drain), [`cancel_all`](Self::cancel_all) | are about both, by whatever handle |
    /// | delayed, periodic and RCU work, futures, scopes | stay in the lane of the handle that they were queued by: urgent at each turn |
    /// | joiners | help as ever, with items of either lane |
    ///
    /// # Cost
    ///
    /// From the first call on workers take the queue's items one at a time, of both lanes: about 100 ns an item where they are
    /// tiny, nothing that shows from a microsecond on. A queue without a call pays nothing.
    ///
    /// # Blocking
    ///
    /// Takes the lock of each of the queue's pools for a moment.
    ///
    /// # Errors
    ///
    /// [`BuildError::OrderedUrgent`] for an ordered queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("disk").max_active(1).build()?;
    /// let urgent = queue.urgent()?;
    /// let (send, order) = std::sync::mpsc::channel();
    /// queue.pause();
    /// for name in ["prefetch", "scrub"] {
    ///     let send = send.clone();
    ///     queue.spawn_detached(move || send.send(name).unwrap());
    /// }
    /// urgent.spawn_detached(move || send.send("read").unwrap());
    /// queue.resume();
    /// assert_eq!(order.iter().collect::<Vec<_>>(), ["read", "prefetch", "scrub"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("priority", "spawn_urgent", "enqueue_urgent", "queue_front"))]
    pub fn urgent(&self) -> Result<Workqueue, BuildError> {
        self.inner.must_be_at_home();
        if self.inner.ordered {
            return Err(BuildError::OrderedUrgent);
        }
        self.inner.open_lanes();
        Ok(Self {
            lane: Lane::Urgent,
            ..self.clone()
        })
    }

    /// Returns `true` if what is queued by this handle is [urgent](Self::urgent).
    pub fn is_urgent(&self) -> bool {
        self.lane == Lane::Urgent
    }
}

impl Inner {
    /// Has urgent items overtake ordinary ones wherever they meet, from now on.
    fn open_lanes(&self) {
        // So that a link which is made meanwhile has them, too.
        let plan = self.plan.lock();
        self.core.has_lanes.store(true, Ordering::Relaxed);
        let links = plan.links().to_vec();
        drop(plan);
        // A queue that is used has its links.
        for link in links {
            link.pool.open_lanes(link.slot);
        }
    }
}
