//! Waiting for what a worker's closure or a local future comes to.

use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sync::twin;
use sync::unmodelled::Arc;

use super::reply::{Reply, ReplyError, ReplyTo, reply};
use super::target::Wakes;
use crate::panics;
use crate::panics::join_error::{JoinError, Outcome};

/// Waits for what a local future or a worker's closure returns.
///
/// A future, for tasks of any thread; threads call [`join`](Self::join). Dropping the handle lets the work go on, and its result
/// go. It may be sent to other threads if the result may be; [`cancel`](Self::cancel) works from there, too.
///
/// # Examples
///
/// ```
/// use afterwork::task_work::Worker;
///
/// let worker = Worker::builder("example").build()?;
/// let handle = worker.spawn(|| 6 * 7);
/// assert_eq!(handle.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the handle gives up the result"]
pub struct JoinHandle<R> {
    reply: Reply<Outcome<R>>,
    /// `None` if it was refused.
    target: Option<Arc<dyn Wakes>>,
    cancels: bool,
}

// Whoever has a handle cannot reach what a panic may have left half-way: that has gone by the time that it is told.
impl<R> UnwindSafe for JoinHandle<R> {}
impl<R> RefUnwindSafe for JoinHandle<R> {}

/// Tells an outcome to the handle, or drops it if there is none any more.
pub(super) fn tell<R>(to: ReplyTo<Outcome<R>>, outcome: Outcome<R>) {
    if let Err(unread) = to.reply(outcome) {
        // FOREIGN(future-outcome): the drop of what nobody joins, on the set's thread. A panic ends here.
        panics::contain(|| drop(unread));
    }
}

fn outcome<R>(answer: Result<Outcome<R>, ReplyError>) -> Outcome<R> {
    // Lost: it was dropped with its mailbox.
    answer.unwrap_or(Err(JoinError::Cancelled))
}

impl<R> JoinHandle<R> {
    pub(super) fn new(reply: Reply<Outcome<R>>, target: Option<Arc<dyn Wakes>>) -> Self {
        Self {
            reply,
            target,
            cancels: false,
        }
    }

    /// Makes the handle of what was not taken.
    pub(super) fn refused() -> Self {
        let (to, reply) = reply();
        tell(to, Err(JoinError::Refused));
        Self::new(reply, None)
    }

    /// Waits for the end, and returns what the future or closure returned.
    ///
    /// # Blocking
    ///
    /// Until the end. A future that has not ended ends when its [`LocalSet`](super::LocalSet) is
    /// dropped. If the mailbox is dropped first, the future is not polled any more, and this waits
    /// until the set is dropped. A closure or future that was spawned on a
    /// [`Worker`](super::Worker) ends with the worker's thread at the latest.
    ///
    /// # Errors
    ///
    /// [`JoinError::Panicked`] if the future or closure, or the drop of the future, panicked.
    /// [`JoinError::Cancelled`] if it was cancelled, if the set was dropped or the worker was shut
    /// down in the background before it ended, and in a child of `fork`.
    /// [`JoinError::Refused`] if it was not taken. [`JoinError::OwnItem`] on the very thread that would have to bring it to its end.
    ///
    /// # Panics
    ///
    /// In an item of a bottom-half queue.
    pub fn join(mut self) -> Result<R, JoinError> {
        if self.is_own() {
            return Err(JoinError::OwnItem);
        }
        outcome(self.reply.wait_within(None))
    }

    /// Waits for the end for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// At most `timeout`, and what the system adds to it. In a model it never times out.
    ///
    /// # Errors
    ///
    /// The handle itself, if the time ran out; inside, those of [`join`](Self::join).
    ///
    /// # Panics
    ///
    /// As `join`.
    pub fn join_timeout(mut self, timeout: Duration) -> Result<Result<R, JoinError>, Self> {
        if self.is_own() {
            return Ok(Err(JoinError::OwnItem));
        }
        match self.reply.wait_within(Some(timeout)) {
            Err(ReplyError::TimedOut) => Err(self),
            answer => Ok(outcome(answer)),
        }
    }

    /// Returns the result if it has ended, else the handle.
    ///
    /// # Errors
    ///
    /// The handle itself, while it has not ended; inside, those of [`join`](Self::join).
    pub fn try_join(mut self) -> Result<Result<R, JoinError>, Self> {
        if self.is_finished() {
            // Never waits.
            Ok(outcome(self.reply.take_ready()))
        } else {
            Err(self)
        }
    }

    /// Returns `true` if it has ended, or has gone with its set.
    pub fn is_finished(&self) -> bool {
        self.reply.is_ready()
    }

    /// Keeps a closure from starting, or a future from being polled again. Returns `true` if that had not started or ended.
    ///
    /// What is cancelled is dropped on the set's thread, when that comes to it; then [`join`](Self::join) returns
    /// [`JoinError::Cancelled`]. A poll that is under way may still bring the future to its end.
    ///
    /// # Blocking
    ///
    /// Never: it posts an item. In a child of `fork` it does nothing and returns `false`.
    #[doc(alias("abort", "kthread_cancel_work_sync"))]
    pub fn cancel(&self) -> bool {
        let target = self.target.as_ref().filter(|_| !self.is_finished());
        target.is_some_and(|target| target.clone().cancel())
    }

    /// Returns the same handle, which cancels when it is dropped.
    #[must_use = "dropping it cancels"]
    #[doc(alias("AbortOnDrop", "AbortOnDropHandle"))]
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels = true;
        self
    }

    /// Returns `true` if a wait on this thread would be one for itself.
    fn is_own(&self) -> bool {
        let is_here = || self.target.as_ref().is_some_and(|target| target.is_here());
        !self.is_finished() && is_here()
    }
}

impl<R> Future for JoinHandle<R> {
    type Output = Result<R, JoinError>;

    /// After it was ready it is `Cancelled`.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx).map(outcome)
    }
}

impl<R> Drop for JoinHandle<R> {
    fn drop(&mut self) {
        if self.cancels && !twin::torn_down() {
            self.cancel();
        }
    }
}

impl<R> fmt::Debug for JoinHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
