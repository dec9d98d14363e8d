//! Shuts queues down within a time limit, in order.
//!
//! A shutdown is a drain with a time limit (`rounds.rs` contains the loop): it closes the queue,
//! waits until it is drained, and at the limit cancels the remaining items. Several queues are shut
//! down one after another. A queue stays open until those before it have been drained, because
//! their items may queue items there. At the limit all remaining queues are closed before the first
//! of them is cancelled, so that a running item cannot refill a cancelled queue.

use std::time::Duration;

use sync::time;

use super::{drain::DrainError, flush::OwnQueueError};
use crate::{
    observe::left::StillBusy,
    queues::{
        queue::{Inner, Workqueue},
        timers::Due,
    },
    time::timeout::Timeout,
};

impl Workqueue {
    /// Shuts the queue down: rejects new items, waits at most `timeout` for the existing ones, and
    /// then cancels those that have not started. Returns the remaining items as an error.
    ///
    /// The queue is closed as if by [`destroy`](Self::destroy), which waits without a limit: items
    /// that wait for a timer are cancelled, a paused queue is resumed, and only the queue's own
    /// items may still queue items there. The error lists the items that remained at the time
    /// limit. Of these, the ones that had not started are cancelled as if by
    /// [`shutdown_background`](Self::shutdown_background): they have ended when this returns, and
    /// threads of the registry drop them. A running item continues, and
    /// [`is_cancelled`](crate::is_cancelled) returns `true` in it.
    ///
    /// # Blocking
    ///
    /// The same as [`drain`](Self::drain), for at most `timeout`. If `timeout` is zero, the queue
    /// is checked once.
    ///
    /// # Errors
    ///
    /// Returns [`DrainError::StillBusy`] if items remained. Returns [`DrainError::OwnQueue`] from
    /// inside an item of this queue, and for a process-wide queue; in that case nothing has
    /// changed.
    ///
    /// # Panics
    ///
    /// The same as [`drain`](Self::drain).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{JoinError, Workqueue};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let queue = Workqueue::builder("jobs").max_active(1).help(false).build()?;
    /// let (send, receive) = mpsc::channel::<()>();
    /// queue.spawn_detached(move || drop(receive.recv())).unwrap();
    /// let waits = queue.spawn(|| ());
    /// let left = queue.shutdown_timeout(Duration::from_millis(1)).unwrap_err();
    /// println!("{left}"); // workqueue "jobs" still has 2 items: …
    /// assert!(matches!(waits.join(), Err(JoinError::Cancelled)));
    /// drop(send);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_timeout(&self, timeout: Duration) -> Result<(), DrainError> {
        one(shutdown_in_order(&[self], timeout)?)
    }

    /// Shuts the queue down as [`shutdown_timeout`](Self::shutdown_timeout) does, for async tasks.
    ///
    /// If the future is dropped, the queue stays closed, and its items continue.
    ///
    /// # Blocking
    ///
    /// A poll never waits for an item.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`shutdown_timeout`](Self::shutdown_timeout).
    ///
    /// # Panics
    ///
    /// A poll panics in a child of `fork`.
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

    /// Drains the queue as [`drain_async`](Self::drain_async) does, for at most `timeout`. Then it
    /// returns the remaining items as an error, as [`drain_timeout`](Self::drain_timeout) does.
    ///
    /// # Blocking
    ///
    /// A poll never waits for an item.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`drain_timeout`](Self::drain_timeout).
    ///
    /// # Panics
    ///
    /// A poll panics in a child of `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{DrainError, Workqueue, block_on};
    /// # use std::time::Duration;
    /// let queue = Workqueue::builder("example").build()?;
    /// let handle = queue.spawn_async(std::future::pending::<()>());
    /// let drain = queue.drain_timeout_async(Duration::from_millis(1));
    /// let Err(DrainError::StillBusy(busy)) = block_on(drain) else {
    ///     unreachable!("the future is never ready");
    /// };
    /// assert_eq!(busy.nr_left, 1);
    /// # let mut handle = handle;
    /// # handle.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn drain_timeout_async(&self, timeout: Duration) -> Result<(), DrainError> {
        let drain = self.registry().timeout(timeout, self.drain_async());
        match drain.await {
            Ok(drained) => Ok(drained?),
            Err(_) => Err(self.inner.left().into()),
        }
    }
}

/// Shuts several queues down, one after the other, within `timeout`. Returns the remaining items.
///
/// Each queue is shut down as if by [`Workqueue::shutdown_timeout`]. It accepts items until the
/// queues before it in `queues` have been drained. If the items of one queue enqueue work on
/// another, put their own queue first. At the time limit, all remaining queues are closed and
/// cancelled, and the result has one entry for each of them that had items.
///
/// # Blocking
///
/// The same as [`Workqueue::drain`], for at most `timeout`.
///
/// # Errors
///
/// Returns [`OwnQueueError`] from inside an item of one of the queues, and for a process-wide
/// queue. In that case no queue has changed.
///
/// # Panics
///
/// The same as [`Workqueue::drain`].
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
    let end_ns = time::ns_after(timeout);
    for (place, queue) in queues.iter().enumerate() {
        queue.inner.close_in_background();
        if !queue.inner.drain_by(Some(end_ns)) {
            return Ok(cancel_rest(&queues[place..]));
        }
    }
    Ok(Vec::new())
}

/// Shuts several queues down as [`shutdown_in_order`] does, for async tasks.
///
/// If the future is dropped, the queues that it has closed stay closed, and their items continue.
///
/// # Blocking
///
/// A poll never waits for an item.
///
/// # Errors
///
/// Returns the same errors as [`shutdown_in_order`].
///
/// # Panics
///
/// A poll panics in a child of `fork`.
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
        queue.inner.close_in_background();
        match Timeout::of(limit, queue.drain_async()).await {
            Ok(drained) => drained?,
            Err(_) => return Ok(cancel_rest(&queues[place..])),
        }
    }
    Ok(Vec::new())
}

fn one(left: Vec<StillBusy>) -> Result<(), DrainError> {
    left.into_iter().next().map_or(Ok(()), |left| Err(left.into()))
}

/// Closes all queues, cancels their items, and returns the items that remained.
fn cancel_rest(queues: &[&Workqueue]) -> Vec<StillBusy> {
    queues.iter().for_each(|queue| queue.inner.close_in_background());
    let left = queues.iter().map(|queue| {
        let left = queue.inner.left();
        queue.inner.cancel_in_background();
        left
    });
    left.filter(|left| left.nr_left > 0).collect()
}

impl Inner {
    /// Rejects all items from now on, except those that the queue's own items queue, and resumes
    /// the queue. Returns the items whose timers were cancelled.
    pub(super) fn close(&self) -> Vec<Due> {
        self.closed.destroy();
        let due = self.timers.cancel();
        // Resume before the drop, because a destructor may wait for an item of the queue.
        self.pass_pauses();
        due
    }

    /// Closes the queue. Threads of the registry run the user code.
    fn close_in_background(&self) {
        let due = self.close().into_iter();
        self.manager.leave_to_reapers(due.filter_map(Due::leave));
    }
}
