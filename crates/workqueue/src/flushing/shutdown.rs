//! Shuts queues down within a time limit, in order.
//!
//! A shutdown is a drain with a time limit (`drain.rs`): it closes the queue, waits until it is
//! drained, and at the limit cancels the remaining items. Several queues are shut down one after
//! another. A queue stays open until those before it have been drained, because their items may
//! queue items there. At the limit all remaining queues are closed before the first is cancelled,
//! so that no running item can refill a cancelled queue.

use std::time::Duration;

use sync::time;

use super::drain::DrainError;
use super::flush::OwnQueueError;
use crate::observe::left::{Doing, LeftItems, StillBusy};
use crate::queues::queue::{Inner, Workqueue};
use crate::queues::timers::Due;
use crate::time::sleep::Timeout;

impl Workqueue {
    /// Shuts the queue down: rejects new items, waits at most `timeout` for the existing ones, and
    /// then cancels those that have not started. Returns the remaining items as an error.
    ///
    /// The call first closes the queue, which other handles cannot undo. Only the queue's own items
    /// may still queue items there, but without a delay. A paused queue is resumed. Items that wait
    /// for a timer or a grace period are cancelled: a flush of such an item returns `Ok(false)`,
    /// and the item can be queued on another queue. To run a delayed item before the queue ends,
    /// first call [`reschedule`](Self::reschedule) with a delay of zero.
    ///
    /// The error lists the items that remained at the time limit, and the delayed items that the
    /// call cancelled. Of the items that remained, the ones that had not started are cancelled as
    /// if by [`shutdown_background`](Self::shutdown_background): they have ended when this returns,
    /// and threads of the registry drop them. A running item continues, and
    /// [`is_cancelled`](crate::is_cancelled) returns `true` in it. After an error, dropping the
    /// last handle still waits for the running items and suspended futures;
    /// [`close_in_background`](Self::close_in_background) does not.
    ///
    /// If `timeout` is [`Duration::MAX`], there is no time limit: the call waits for all items, and
    /// drops the cancelled delayed items itself before it waits.
    ///
    /// Blocks and panics as [`drain`](Self::drain) does, for at most `timeout`. With zero, the
    /// queue is checked once; an item that has just ended may still count.
    ///
    /// # Errors
    ///
    /// Returns [`DrainError::StillBusy`] if items remained. If all items have ended in time, the
    /// result is `Ok`, even if delayed items were cancelled. Returns [`DrainError::OwnQueue`] from
    /// inside an item of this queue, and for a process-wide queue; in that case nothing has
    /// changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{DelayedWork, JoinError, Workqueue};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let queue = Workqueue::builder("jobs").max_active(1).help(false).build()?;
    /// let (send, receive) = mpsc::channel::<()>();
    /// queue.spawn_detached(move || drop(receive.recv())).unwrap();
    /// let waits = queue.spawn(|| ());
    /// let save = DelayedWork::new(|| println!("saved"));
    /// queue.enqueue_after(&save, Duration::from_secs(60));
    /// let left = queue.shutdown(Duration::from_millis(1)).unwrap_err();
    /// println!("{left}"); // workqueue "jobs" still has 3 items: …
    /// assert!(left.to_string().ends_with("is delayed")); // the function comes first
    /// assert!(matches!(waits.join(), Err(JoinError::Cancelled)));
    /// drop(send);
    /// queue.shutdown(Duration::MAX)?; // waits for the running item
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("shutdown_timeout", "destroy", "destroy_workqueue"))]
    pub fn shutdown(&self, timeout: Duration) -> Result<(), DrainError> {
        one(shutdown_in_order(&[self], timeout)?)
    }

    /// Shuts the queue down as [`shutdown`](Self::shutdown) does, for async tasks.
    ///
    /// If the future is dropped, the queue stays closed, and its items continue. A poll never waits
    /// for an item, and panics in a child of `fork`. The errors are those of
    /// [`shutdown`](Self::shutdown).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Workqueue, block_on};
    /// # use std::time::Duration;
    /// let queue = Workqueue::builder("jobs").build()?;
    /// let job = queue.spawn(|| 7);
    /// block_on(queue.shutdown_async(Duration::from_secs(10)))?;
    /// assert_eq!(job.join()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn shutdown_async(&self, timeout: Duration) -> Result<(), DrainError> {
        one(shutdown_in_order_async(&[self], timeout).await?)
    }
}

/// Shuts several queues down, one after the other, within `timeout`. Returns the remaining items.
///
/// Each queue is shut down as if by [`Workqueue::shutdown`]. It accepts items until the queues
/// before it in `queues` have been drained. If the items of one queue enqueue work on another, put
/// their own queue first. At the time limit, all remaining queues are closed and cancelled, and the
/// result has one entry for each of them that had items, pending or delayed.
///
/// Blocks and panics as [`Workqueue::drain`] does, for at most `timeout`.
///
/// # Errors
///
/// Returns [`OwnQueueError`] from inside an item of one of the queues, and for a process-wide
/// queue. In that case no queue has changed.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{Workqueue, shutdown_in_order};
/// use std::time::Duration;
///
/// let parse = Workqueue::builder("parse").build()?;
/// let store = Workqueue::builder("store").build()?;
/// let next = store.clone();
/// let parsed = parse.spawn(move || next.spawn(|| "stored"));
/// let left = shutdown_in_order(&[&parse, &store], Duration::from_secs(10))?;
/// assert!(left.is_empty());
/// assert_eq!(parsed.join()?.join()?, "stored");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn shutdown_in_order(
    queues: &[&Workqueue],
    timeout: Duration,
) -> Result<Vec<StillBusy>, OwnQueueError> {
    for queue in queues {
        queue.inner.may_be_stopped()?;
        queue.inner.may_wait()?;
    }
    if timeout == Duration::MAX {
        for queue in queues {
            queue.inner.destroy();
        }
        return Ok(Vec::new());
    }
    let end_ns = time::ns_after(timeout);
    for (place, queue) in queues.iter().enumerate() {
        let delayed = queue.inner.close_in_background();
        if !queue.inner.drain_by(Some(end_ns)) {
            return Ok(cancel_rest(&queues[place..], delayed));
        }
    }
    Ok(Vec::new())
}

/// Shuts several queues down as [`shutdown_in_order`] does, for async tasks.
///
/// If the future is dropped, the queues that it has closed stay closed, and their items continue. A
/// poll never waits for an item, and panics in a child of `fork`. The errors are those of
/// [`shutdown_in_order`].
pub async fn shutdown_in_order_async(
    queues: &[&Workqueue],
    timeout: Duration,
) -> Result<Vec<StillBusy>, OwnQueueError> {
    for queue in queues {
        queue.inner.may_be_stopped()?;
        queue.inner.may_be_awaited()?;
    }
    // The time limit is measured on the clock of each registry, because the clock of a test
    // advances only when the test advances it.
    let limits: Vec<_> = queues.iter().map(|queue| queue.registry().sleep(timeout)).collect();
    for (place, (queue, limit)) in queues.iter().zip(limits).enumerate() {
        let delayed = queue.inner.close_in_background();
        match Timeout::of(limit, queue.drain_async()).await {
            Ok(drained) => drained?,
            Err(_) => return Ok(cancel_rest(&queues[place..], delayed)),
        }
    }
    Ok(Vec::new())
}

fn one(left: Vec<StillBusy>) -> Result<(), DrainError> {
    left.into_iter().next().map_or(Ok(()), |left| Err(left.into()))
}

/// Closes all queues, cancels their items, and returns the items that remained. The first queue is
/// closed already, and `delayed` are its cancelled timers.
fn cancel_rest(queues: &[&Workqueue], delayed: Vec<LeftItems>) -> Vec<StillBusy> {
    let rest = queues[1..].iter().map(|queue| queue.inner.close_in_background());
    let delayed: Vec<_> = [delayed].into_iter().chain(rest).collect();
    let left = queues.iter().zip(delayed).map(|(queue, delayed)| {
        let left = queue.inner.left_and(delayed);
        // A busy queue may have no listed item.
        let is_busy = left.nr_left > 0 || !queue.inner.drain_by(Some(0));
        queue.inner.cancel_in_background();
        is_busy.then_some(left)
    });
    left.flatten().collect()
}

impl Inner {
    /// Rejects all items from now on, except those that the queue's own items queue, and resumes
    /// the queue. Returns the items whose timers were cancelled.
    fn close(&self) -> Vec<Due> {
        self.closed.destroy();
        let due = self.timers.cancel();
        // Resume before the drop, because a destructor may wait for an item of the queue.
        self.pass_pauses();
        due
    }

    /// Closes the queue. Reapers run the user code. Returns the items whose timers were cancelled.
    fn close_in_background(&self) -> Vec<LeftItems> {
        let due = self.close();
        let delayed = due.iter().map(|due| LeftItems::new(Doing::IsDelayed, Some(due.func()), 1));
        let delayed = delayed.collect();
        self.manager.leave_to_reapers(due.into_iter().filter_map(Due::leave));
        delayed
    }

    /// Closes the queue, drops the items of cancelled timers, and waits until the queue is drained.
    pub(crate) fn destroy(&self) {
        // FOREIGN(item-free): the drop of items without handles, on the thread that closes the
        // queue; a panic is contained by `Dead`.
        self.close().into_iter().for_each(|due| drop(due.leave()));
        self.drain();
    }
}
