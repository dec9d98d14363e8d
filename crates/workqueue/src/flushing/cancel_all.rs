//! Cancels all items of a queue, and destroys a queue without waiting for it.
//!
//! Timers are removed from the wheel first, and the canceller waits for a timer that is firing
//! (`queues/timers.rs`). Then the pending items are cut out of each pool under the pool lock
//! (`pools/cut.rs` describes the protocol). A delayed item is therefore either cancelled on the
//! wheel or found in a pool.

use item::internal::cleanups;
use sync::atomic::Ordering;
use sync::twin;
use sync::unmodelled::Arc;

use crate::execute::cancel_cut::Cancelled;
use crate::queues::queue::{Inner, Workqueue};

impl Workqueue {
    /// Cancels all pending and delayed items. Returns the number of cancelled items.
    ///
    /// Joiners get [`JoinError::Cancelled`](crate::JoinError::Cancelled), and flushes end. A
    /// spawned closure is dropped during the call. A [`Work`](crate::Work) continues to exist, and
    /// can be queued again, even by its own run. A running item continues to its end; if it was
    /// queued again in the meantime, that enqueue is cancelled. Periodic work started by
    /// [`every`](Self::every) ends permanently: if it is running, this run is its last.
    ///
    /// The result counts the items that were queued or delayed and did not run. Three kinds are
    /// cancelled but not counted: a running item that was queued again, an item that waits for a
    /// grace period, and an item that a worker or a joiner had just taken and then could not start.
    /// The items of a [`scope`](Self::scope) are neither cancelled nor counted, because their owner
    /// runs them.
    ///
    /// # Guarantees
    ///
    /// - Every item queued before the call is cancelled, or has started by the time this returns.
    ///   Items queued during the call may be cancelled, and later ones are not.
    /// - The queue may be paused, ordered, full, or being drained. A drain then waits for the
    ///   remaining items only.
    /// - A future that has been polled has started and continues; cancel it with its handle. Other
    ///   futures are dropped during the call.
    /// - First, all items end and release their [capacity](crate::Builder::capacity). Then the
    ///   wakers of tasks are called, and last, the closures are dropped. A waker or a destructor
    ///   may therefore wait for any of the items, for capacity, and for a flush or a drain.
    ///
    /// On a process-wide queue, such as [`system`](crate::system), this returns 0 and cancels
    /// nothing.
    ///
    /// The queue accepts new items afterwards; to make it reject them, [shut it
    /// down](Self::shutdown_background).
    ///
    /// # Cost
    ///
    /// The call walks over all pending items of the queue's pools, including those of other queues,
    /// under the lock of each pool. It also drops the cancelled items.
    ///
    /// # Blocking
    ///
    /// Never waits for an item, only for the locks of the queue's pools, and for a timer that is
    /// firing. An item of the queue may call it.
    ///
    /// # Panics
    ///
    /// Panics if called in a child of `fork`. A panic in a destructor is caught and discarded.
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
    #[doc(alias("cancel_work", "CancelThreadpoolIo", "CloseThreadpoolCleanupGroupMembers"))]
    pub fn cancel_all(&self) -> usize {
        self.inner.must_be_at_home();
        if self.inner.for_all {
            return 0;
        }
        let cancelled = self.inner.take_all();
        let nr_items = cancelled.nr_items;
        cancelled.end().run();
        nr_items
    }

    /// Drops this handle without blocking. If it is the last one, a thread of the registry waits
    /// until all items have run, and destroys the queue. Use it in an async task, whose thread must
    /// not block.
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
        let Self { inner, lease, .. } = self;
        drop(inner);
        if let Some(mut lease) = Arc::into_inner(lease) {
            lease.in_background = true;
        }
    }

    /// Shuts the queue down without waiting: rejects new items, cancels the items that have not
    /// started, and drops this handle.
    ///
    /// This combines [`shutdown`](Self::shutdown), [`cancel_all`](Self::cancel_all) and
    /// [`close_in_background`](Self::close_in_background), without waiting. When it returns, all
    /// items that had not started have ended, and their joiners get
    /// [`JoinError::Cancelled`](crate::JoinError::Cancelled). Threads of the registry then call the
    /// wakers of tasks and drop the closures, in the order described at
    /// [`cancel_all`](Self::cancel_all). A running item continues to its end, and can call
    /// [`is_cancelled`](crate::is_cancelled). Other handles reject new items.
    ///
    /// A destructor that blocks does not delay the others. While thread creation fails, however, a
    /// single thread calls all destructors, one after the other. A destructor that waits for a
    /// later one then waits until a thread can be started again.
    ///
    /// A process-wide queue, such as [`system`](crate::system), is not shut down: this only drops
    /// the handle.
    ///
    /// # Blocking
    ///
    /// Never waits for an item. Blocks as [`cancel_all`](Self::cancel_all) does, except that it
    /// does not drop the items itself.
    ///
    /// # Panics
    ///
    /// Panics if called in a child of `fork`. The queue is then unchanged.
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
        self.inner.cancel_in_background();
        self.close_in_background();
    }
}

impl Inner {
    /// Cancels all items of a closed queue, and notifies running ones. Reapers run the user code.
    pub(super) fn cancel_in_background(&self) {
        let mut rest = self.take_all().end();
        self.set_paused(false);
        let ((), wakers) = cleanups::with_wakers_aside(|| self.core.token().cancel());
        rest.wakers.extend(wakers);
        // Each destructor is a deferred cleanup, so that one that blocks does not delay the others.
        self.timers.all.leave_wakers(rest.wakers);
        self.manager.leave_boxed_to_reapers(rest.dropped);
    }

    /// Takes all pending items and timers. None of them starts afterwards.
    fn take_all(&self) -> Cancelled {
        let mut cancelled = Cancelled::default();
        self.take_timers(&mut cancelled);
        self.take_items(&mut cancelled);
        cancelled
    }

    /// Takes all timers, and waits for those that are firing. Call it before any item is taken,
    /// because a timer that fires may wait for the list link of a taken item.
    pub(super) fn take_timers(&self, cancelled: &mut Cancelled) {
        // This cancels the closures of running strands. Relaxed suffices, because a closure that
        // still reads the old count starts during this call.
        self.core.nr_cancels.fetch_add(1, Ordering::Relaxed);
        for due in self.timers.cancel() {
            cancelled.add_due(due.leave());
        }
        if !twin::armed("cancel all: forgets firing timers") {
            self.outlast_visitors();
        }
    }

    pub(super) fn take_items(&self, cancelled: &mut Cancelled) {
        let mut cuts = Vec::new();
        let wakers = self.for_each_pwq(|pwq| cuts.push(pwq.pool.cut(pwq)));
        // Done without the lock, because an item's span may be dropped.
        cuts.into_iter().for_each(|cut| cancelled.add(cut));
        cancelled.rest.wakers.extend(wakers);
    }
}
