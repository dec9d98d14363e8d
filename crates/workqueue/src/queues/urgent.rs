//! The urgent lane of a queue.

use sync::atomic::Ordering;

use super::queue::{Inner, Workqueue};
use crate::{item::lane::Lane, route::attrs::BuildError};

impl Workqueue {
    /// Returns a handle to this queue. Items that are queued through it are *urgent*: they start
    /// before ordinary ones.
    ///
    /// Use it for a few items among many: a read that a user waits for on a queue of prefetches, or
    /// a flush on a queue of compactions. The handle belongs to the same queue, with one
    /// `max_active`, one capacity, one drain, and one set of statistics.
    ///
    /// # Guarantees
    ///
    /// - An urgent item starts before all ordinary items of the queue that wait in the same pool,
    ///   and after older urgent ones. Running items are not interrupted.
    /// - Ordinary items are not starved: while items of both kinds wait in a pool, every tenth item
    ///   that starts is ordinary.
    /// - Urgent items do not overtake items of other queues.
    ///
    /// Other operations treat the lanes as follows:
    ///
    /// - An ordered queue has no urgent lane.
    /// - A pending item keeps its lane; to hasten it, cancel it and queue it again.
    /// - `max_active` and [`pause`](Self::pause) apply to both lanes; the next seat goes to the
    ///   urgent item.
    /// - A seat is held, as in the kernel, while an item waits for a worker of its pool. With a
    ///   small `max_active`, items in other pools wait for that worker, too.
    /// - A capacity counts and rejects items of both lanes; waiters get free capacity in order of
    ///   arrival.
    /// - [`flush`](Self::flush), [`drain`](Self::drain) and [`cancel_all`](Self::cancel_all) cover
    ///   both lanes, through any handle.
    /// - Delayed, periodic and RCU work, futures and scopes keep the lane of the handle that queued
    ///   them each time they are queued.
    /// - Joiners help with items of either lane.
    ///
    /// # Cost
    ///
    /// After the first call, workers take the queue's items of both lanes one at a time. This costs
    /// about 100 ns for each item, which is not measurable for items of a microsecond or more. A
    /// queue on which this is never called pays nothing.
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each of the queue's pools.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::OrderedUrgent`] for an ordered queue.
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
    ///     queue.spawn_detached(move || send.send(name).unwrap())?;
    /// }
    /// urgent.spawn_detached(move || send.send("read").unwrap())?;
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
        Ok(Self { lane: Lane::Urgent, ..self.clone() })
    }
}

impl Inner {
    /// Makes urgent items overtake ordinary ones in all pools of the queue from now on.
    pub(super) fn open_lanes(&self) {
        if self.core.has_lanes.load(Ordering::Relaxed) {
            return;
        }
        self.must_be_at_home();
        // The lock ensures that a pwq created at the same time has lanes, too.
        let plan = self.plan.lock();
        self.core.has_lanes.store(true, Ordering::Relaxed);
        let pwqs = plan.pwqs.clone();
        drop(plan);
        // The pwqs stay valid without the lock, because a queue in use keeps its pwqs.
        for pwq in pwqs {
            pwq.pool.open_lanes(pwq.slot);
        }
    }
}
