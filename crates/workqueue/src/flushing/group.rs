//! Drains and cancels all queues of a group.
//!
//! # Draining
//!
//! A drain of a group closes all its queues, and waits for them one after another. Items of one
//! queue may queue items on one that has already been drained. When all have been drained once, the
//! drain therefore checks all of them, as the drain of one queue checks its pools (`drain.rs`): two
//! passes over all queues must find nothing in flight, and count the same number of items in each
//! queue. Twin `group drain: checks each queue once`.
//!
//! A queue that joins during the drain is closed before its builder returns a handle. If an item of
//! the group builds the queue, that item delays the drain until the queue has joined. A queue may
//! be destroyed during the drain, because the drain has no handle to it; the queue then counts as
//! drained.
//!
//! # Cancelling
//!
//! The order of a cancel (`execute/cancel_cut.rs`) covers the items of all queues: first all items
//! are taken, then all end, then wakers are called and closures are dropped. A destructor that
//! waits for an item of another queue of the group therefore finds that this item has ended. Twin
//! `group cancel: notifies before all are taken`.

use std::time::Duration;

use base::internal::wake::report;
use sync::{time, twin};

use super::drain::{DrainError, Pass, passes_agree};
use super::flush::{OwnQueueError, Refusal};
use crate::execute::cancel_cut::Cancelled;
use crate::execute::wait::{self, reported};
use crate::observe::left::StillBusy;
use crate::queues::group::{Group, GroupInner};

impl Group {
    /// Waits, for at most `timeout`, until no queue of the group has a queued, running or suspended
    /// item. Returns the remaining items as an error. During the wait, the queues accept items only
    /// from items of the group. This also holds for queues that join during the wait.
    ///
    /// After an error the queues accept items again, and the remaining items continue.
    ///
    /// Blocks and panics as [`Workqueue::drain_timeout`](crate::Workqueue::drain_timeout) does, for
    /// all queues. A paused queue that has items is not drained until it is resumed.
    ///
    /// # Errors
    ///
    /// Returns [`DrainError::OwnQueue`] from inside an item of the group, or a running item that is
    /// also queued on a queue of the group, because the drain would wait for itself. In that case
    /// nothing has changed. The check is made once, as in a drain of one queue. Returns
    /// [`DrainError::StillBusy`] if items remain.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Group, Workqueue};
    /// use std::time::Duration;
    ///
    /// let tenant = Group::builder("tenant").build()?;
    /// let parse = Workqueue::builder("parse").group(&tenant).build()?;
    /// let store = Workqueue::builder("store").group(&tenant).build()?;
    /// // The items of one queue may queue items on another one, also during the drain.
    /// let parsed = parse.spawn(move || store.spawn(|| "stored"));
    /// tenant.drain_timeout(Duration::from_secs(10))?;
    /// assert_eq!(parsed.join()?.join()?, "stored");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), DrainError> {
        let inner = &*self.inner;
        inner.must_be_at_home();
        if inner.waits_for_this_thread() {
            let error = OwnQueueError::new(&inner.name, Refusal::OwnGroup);
            return Err(reported(error).into());
        }
        report::must_be_free_to_sleep();
        let end_ns = time::ns_after(timeout);
        let _draining = inner.while_draining();
        if inner.drain_by(end_ns) {
            return Ok(());
        }
        let queues = inner.queues();
        let left = queues.iter().flat_map(|queue| queue.left_items());
        Err(StillBusy::new("group", &inner.name, left).into())
    }

    /// Cancels all pending and delayed items of all queues of the group. Returns their number.
    ///
    /// For each queue it does the same as [`Workqueue::cancel_all`](crate::Workqueue::cancel_all),
    /// including its cost. The items of all queues end before a waker is called or a closure is
    /// dropped, so a destructor may wait for a cancelled item of another queue. Never waits for an
    /// item; an item of the group may call it.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Group, JoinError, Workqueue};
    ///
    /// let tenant = Group::builder("tenant").build()?;
    /// let queue = Workqueue::builder("example").group(&tenant).build()?;
    /// tenant.pause();
    /// let handle = queue.spawn(|| ());
    /// assert_eq!(tenant.cancel_all(), 1);
    /// assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_all(&self) -> usize {
        self.inner.must_be_at_home();
        let queues = self.inner.queues();
        let mut cancelled = Cancelled::default();
        queues.iter().for_each(|queue| queue.take_timers(&mut cancelled));
        let mut nr_items = 0;
        for queue in &queues {
            queue.take_items(&mut cancelled);
            if twin::armed("group cancel: notifies before all are taken") {
                let part = std::mem::take(&mut cancelled);
                nr_items += part.nr_items;
                part.end().run();
            }
        }
        nr_items += cancelled.nr_items;
        cancelled.end().run();
        nr_items
    }
}

impl GroupInner {
    /// Returns `true` if items of the group wait for this thread. `runs_here` is checked separately
    /// because it also finds items of a queue that has been destroyed.
    fn waits_for_this_thread(&self) -> bool {
        self.runs_here() || self.queues().iter().any(|queue| queue.waits_for_this_thread())
    }

    fn drain_by(&self, end_ns: u64) -> bool {
        loop {
            for queue in self.queues() {
                wait::before_flushing(&queue.core);
                let settled = &queue.core.settled;
                if !settled.wait_until_by(end_ns, || queue.is_drained()) {
                    return false;
                }
            }
            if twin::armed("group drain: checks each queue once") || self.is_drained() {
                return true;
            }
        }
    }

    fn is_drained(&self) -> bool {
        // Both passes read the same queues.
        let mut queues = Vec::new();
        passes_agree(|pass| -> Option<Vec<u64>> {
            if pass == Pass::First {
                queues = self.queues();
            }
            queues.iter().map(|queue| queue.read_pass(pass)).collect()
        })
    }
}
