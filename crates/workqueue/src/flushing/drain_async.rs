//! Drains a queue from an async task.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use base::internal::panics::Foreign;
use limit::internal::settled::TaskSeat;
use sync::twin;

use super::{drain::Rounds, flush::OwnQueueError};
use crate::queues::queue::{Draining, Workqueue};

/// A future that drains a queue, created by [`Workqueue::drain_async`].
#[must_use = "a future does nothing until it is polled"]
pub struct Drain<'a> {
    queue: &'a Workqueue,
    /// Set from the first poll until the drain ends.
    under_way: Option<UnderWay<'a>>,
}

struct UnderWay<'a> {
    seat: TaskSeat,
    rounds: Rounds<'a>,
    _draining: Draining<'a>,
}

impl Workqueue {
    /// Returns a future that drains the queue as [`drain`](Self::drain) does, for async tasks.
    ///
    /// From the first poll on, the queue rejects enqueues from outside its items.
    ///
    /// # Guarantees
    ///
    /// - The future is woken only when the queue may have been drained. It does not spin.
    /// - Dropping the future stops the drain: the queue accepts items again, and its items
    ///   continue. A [`timeout`](crate::timeout()) can therefore limit a drain. If it elapses,
    ///   [`drain_timeout`](Self::drain_timeout) with a zero timeout, which never blocks for items,
    ///   returns the remaining ones.
    ///
    /// # Blocking
    ///
    /// A poll never waits for an item. It briefly locks each of the queue's pools, and reports a
    /// long drain as `drain` does.
    ///
    /// # Errors
    ///
    /// Returns [`OwnQueueError`] for a process-wide queue, or if polled inside an item or a future
    /// of this queue, because the drain would wait for that item.
    ///
    /// # Panics
    ///
    /// A poll panics in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Elapsed, Workqueue, block_on, timeout};
    /// # use std::time::Duration;
    /// let requests = Workqueue::builder("requests").build()?;
    /// let tasks = Workqueue::builder("tasks").build()?;
    /// let answer = requests.spawn(|| 42);
    /// let shutdown = tasks.spawn_async(async move {
    ///     requests.drain_async().await?;
    ///     requests.close_in_background();
    ///     Ok::<_, afterwork::workqueue::OwnQueueError>(())
    /// });
    /// shutdown.join()??;
    /// assert!(answer.is_finished());
    ///
    /// // With a time limit, and the names of the remaining items.
    /// let queue = Workqueue::builder("example").build()?;
    /// let mut handle = queue.spawn_async(std::future::pending::<()>());
    /// let drained = block_on(timeout(Duration::from_millis(1), queue.drain_async()));
    /// assert_eq!(drained, Err(Elapsed));
    /// println!("{}", queue.drain_timeout(Duration::ZERO).unwrap_err());
    /// # handle.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "drain_workqueue")]
    pub fn drain_async(&self) -> Drain<'_> {
        Drain { queue: self, under_way: None }
    }
}

impl Future for Drain<'_> {
    type Output = Result<(), OwnQueueError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let inner = &this.queue.inner;
        inner.may_be_stopped()?;
        inner.may_be_awaited()?;
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, with no lock
        // held; it may unwind into the caller of the poll.
        let waker = Foreign::new(context.waker().clone());
        let settled = &inner.core.settled;
        let under_way = this.under_way.get_or_insert_with(|| UnderWay {
            seat: TaskSeat::default(),
            rounds: Rounds::new(inner),
            _draining: inner.closed.while_draining(),
        });
        let mut waker = Some(waker);
        let late = twin::armed("drain: registers its waker after the check");
        let mut leave =
            || waker.take().map(|waker| settled.leave_waker(&mut under_way.seat, waker));
        if !late {
            // Drops the previous waker with no lock held.
            drop(leave());
        }
        if under_way.rounds.have_ended() {
            this.under_way_is_over();
            return Poll::Ready(Ok(()));
        }
        drop(leave());
        Poll::Pending
    }
}

impl Drain<'_> {
    /// Removes the waker, and lets the queue accept items again.
    fn under_way_is_over(&mut self) {
        if let Some(mut under_way) = self.under_way.take()
            // In a child of `fork` the lock may never be released.
            && self.queue.inner.is_at_home()
        {
            let waker = self.queue.inner.core.settled.take_waker(&mut under_way.seat);
            drop(under_way);
            drop(waker);
        }
    }
}

sync::on_drop!(Drain<'_>, it => it.under_way_is_over());

base::internal::impl_debug!(Drain<'_>, it => queue: it.queue.name(), is_under_way: it.under_way.is_some());
