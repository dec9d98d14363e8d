//! Cancelling all that a queue has waiting, and letting go of a queue without waiting for it.
//!
//! What is in pools is cut out of each under its lock (`pools/cut.rs` has the protocol); what waits for its time is taken out
//! of the wheel before that, and who is just firing one is waited for (`queues/timers.rs`): so what was a timer is cancelled
//! there, or is found in a pool.

use sync::{twin, unmodelled::Arc};

use crate::workqueue::{
    errands::Errand,
    execute::cancel_cut::Cancelled,
    pools::pwq::Pwq,
    queues::queue::{Inner, Workqueue},
    queues::timers::Due,
};

/// What is to be cancelled, and is queued no more.
struct Taken {
    due: Vec<Due>,
    cancelled: Vec<Cancelled>,
}

impl Workqueue {
    /// Cancels all that is queued and has not started, and all that waits for its time; returns how many items that were.
    ///
    /// Joiners are told [`JoinError::Cancelled`](crate::workqueue::JoinError::Cancelled); flushes end. A closure that was spawned is
    /// dropped here, a [`Work`](crate::workqueue::Work) stays and may be queued again, by its own run as well. What runs goes on; of
    /// it, what was queued once more behind its run is cancelled. So is, though not counted, what a joiner is about to run and then
    /// finds no seat for, and what waits for a grace period.
    ///
    /// # Guarantees
    ///
    /// - All that was queued before the call is cancelled, or has started by the time of its return. What is queued after the
    ///   return is not touched; what is queued meanwhile is either.
    /// - It works on a queue that is paused, ordered, full, or being drained; drains see what is left.
    /// - A future that has been polled has started, and goes on; cancel it by its handle. One that has not is dropped here.
    ///
    /// In a queue of the whole process, as [`system`](crate::workqueue::system), it cancels nothing
    /// and returns 0: the items are those of all its users.
    ///
    /// A queue takes items after it as before. To have it take no more, [`destroy`](Self::destroy) it or
    /// [shut it down](Self::shutdown_background).
    ///
    /// # Cost
    ///
    /// A walk through all that waits in the queue's pools, also of others' queues, under each pool's lock; then the drops.
    ///
    /// # Blocking
    ///
    /// Never for an item: for the locks of the queue's pools, and for a timer that is just being fired. It may be called
    /// from an item of the queue.
    ///
    /// # Panics
    ///
    /// In a child of `fork`. What destructors panic with is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{JoinError, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// queue.pause();
    /// let handles: Vec<_> = (0..3).map(|i| queue.spawn(move || i)).collect();
    /// assert_eq!(queue.cancel_all(), 3);
    /// for handle in handles {
    ///     assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    /// }
    /// queue.resume();
    /// assert_eq!(queue.spawn(|| 7).join()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias(
        "cancel_work",
        "CancelThreadpoolIo",
        "CloseThreadpoolCleanupGroupMembers"
    ))]
    pub fn cancel_all(&self) -> usize {
        self.inner.must_be_at_home();
        if self.inner.for_all {
            return 0;
        }
        let Taken { due, cancelled } = self.inner.take_all();
        let nr_items: usize = cancelled.iter().map(|it| it.nr_cancelled).sum();
        let nr_cancelled = due.len() + nr_items;
        cancelled.into_iter().for_each(Cancelled::tell);
        Due::drop_all(due);
        nr_cancelled
    }

    /// Lets go of this handle without ever blocking: if it is the last, the queue ends in the background.
    ///
    /// Dropping the last handle waits until all items have run, on the thread that drops it; for a task that stops the others of
    /// its thread. Here a thread of the registry's does what that drop would have done, and all that is queued still runs.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let handle = queue.spawn(|| std::thread::sleep(std::time::Duration::from_millis(50)));
    /// queue.close_in_background();
    /// assert!(handle.join().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_in_background(self) {
        self.end_in_background();
    }

    /// Shuts the queue down without waiting: takes nothing more, cancels what has not started, and lets go of this handle.
    ///
    /// It is [`destroy`](Self::destroy) and [`cancel_all`](Self::cancel_all) and [`close_in_background`](Self::close_in_background)
    /// in one, of which nothing waits. On return none of what was queued starts any more. What is cancelled is dropped, and its
    /// joiners are told, by a thread of the registry's. What runs goes on to its end. Other handles refuse whatever is queued by
    /// them.
    ///
    /// A queue of the whole process, as [`system`](crate::workqueue::system), is not shut down:
    /// this only drops the handle.
    ///
    /// # Blocking
    ///
    /// Never for an item: as [`cancel_all`](Self::cancel_all), without the drops.
    ///
    /// # Panics
    ///
    /// In a child of `fork`; nothing has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{JoinError, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// queue.pause();
    /// let handle = queue.spawn(|| 7);
    /// queue.shutdown_background();
    /// assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_background(self) {
        self.inner.must_be_at_home();
        if self.inner.for_all {
            return;
        }
        self.inner.closed.destroy();
        let Taken { due, cancelled } = self.inner.take_all();
        let manager = &self.inner.manager;
        manager.leave_to_reapers(due.into_iter().filter_map(Due::leave));
        manager.leave_to_reapers(cancelled.into_iter().filter(|it| !it.is_empty()));
        self.resume();
        self.end_in_background();
    }
}

impl Inner {
    /// Takes all that waits, of which nothing starts from then on.
    fn take_all(&self) -> Taken {
        let due = self.timers.cancel();
        if !twin::armed("cancel all: forgets what is being fired") {
            self.outlast_visitors();
        }
        let links = self.plan.lock().links().to_vec();
        let cut = |link: &Arc<Pwq>| link.pool.cut(link).cancel();
        let cancelled = links.iter().map(cut).collect();
        Taken { due, cancelled }
    }
}

impl Errand for Cancelled {
    fn run(self: Box<Self>) {
        self.tell();
    }
}
