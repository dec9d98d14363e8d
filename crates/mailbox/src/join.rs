//! Waits for the result of a worker's closure or a local future.

use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base::internal::panics;
use base::internal::panics::join_error::{JoinError, Outcome};
use sync::unmodelled::Arc;

use super::reply::{Reply, ReplyError, ReplyTo, reply};
use super::target::Wakes;

/// Waits for the result of a local future or a worker's closure.
///
/// Tasks on any thread await the handle. Threads call [`join`](Self::join). If the handle is
/// dropped, the work continues, and its result is dropped. The handle is `Send` if the result is,
/// and [`cancel`](Self::cancel) works on any thread.
///
/// # Examples
///
/// ```
/// use afterwork::mailbox::Worker;
///
/// let worker = Worker::builder("example").build()?;
/// let handle = worker.spawn(|| 6 * 7);
/// assert_eq!(handle.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the handle discards the result"]
pub struct JoinHandle<R> {
    reply: Reply<Outcome<R>>,
    /// `None` if the work was rejected.
    target: Option<Arc<dyn Wakes>>,
    cancels: bool,
}

// A handle gives no access to data that a panic may have left inconsistent, because that data was
// dropped before the outcome was reported.
impl<R> UnwindSafe for JoinHandle<R> {}
impl<R> RefUnwindSafe for JoinHandle<R> {}

/// Reports an outcome, or drops it if there is no handle.
pub(super) fn answer<R>(to: ReplyTo<Outcome<R>>, outcome: Outcome<R>) {
    if let Err(unread) = to.reply(outcome) {
        // FOREIGN(future-outcome): the drop of an outcome without a joiner, on the set's thread. A
        // panic is caught.
        panics::contain(|| drop(unread));
    }
}

fn outcome<R>(answer: Result<Outcome<R>, ReplyError>) -> Outcome<R> {
    // If the answer was lost, the work was dropped with its mailbox.
    answer.unwrap_or(Err(JoinError::Cancelled))
}

impl<R> JoinHandle<R> {
    pub(super) fn new(reply: Reply<Outcome<R>>, target: Option<Arc<dyn Wakes>>) -> Self {
        Self { reply, target, cancels: false }
    }

    pub(super) fn refused() -> Self {
        let (to, reply) = reply();
        answer(to, Err(JoinError::Closed));
        Self::new(reply, None)
    }

    /// Waits until the future or closure has ended, and returns its result.
    ///
    /// # Blocking
    ///
    /// Blocks until the future or closure has ended. If the mailbox is dropped first, a future is
    /// no longer polled, and this call waits until its [`LocalSet`](super::LocalSet) is dropped.
    /// The work of a [`Worker`](super::Worker) ends no later than its thread.
    ///
    /// # Errors
    ///
    /// Returns [`JoinError::Panicked`] if the future or closure, or the drop of the future,
    /// panicked. Returns [`JoinError::Cancelled`] if it was cancelled, if the set was dropped or
    /// the worker was shut down in the background before it ended, or in a child of `fork`. Returns
    /// [`JoinError::Closed`] if it was rejected, and [`JoinError::OwnItem`] if this is called on
    /// the thread that would have to run it.
    ///
    /// # Panics
    ///
    /// Panics if called in an item of a bottom-half queue.
    pub fn join(mut self) -> Result<R, JoinError> {
        if self.is_own() {
            return Err(JoinError::OwnItem);
        }
        outcome(self.reply.wait_within(None))
    }

    /// Waits for the end for at most `timeout`. Returns `None` if the timeout expired.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`, plus the system's delay. In a model it never times out.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`join`](Self::join), and [`JoinError::Cancelled`] if the result
    /// has already been returned.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as `join`.
    pub fn join_timeout(&mut self, timeout: Duration) -> Option<Result<R, JoinError>> {
        if self.is_own() {
            return Some(Err(JoinError::OwnItem));
        }
        match self.reply.wait_within(Some(timeout)) {
            Err(ReplyError::TimedOut) => None,
            answer => Some(outcome(answer)),
        }
    }

    /// Returns the result if the work has ended. Never waits.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`join_timeout`](Self::join_timeout).
    pub fn try_join(&mut self) -> Option<Result<R, JoinError>> {
        // This does not wait, because it stores no wake-up.
        match self.reply.slot.take(None) {
            Poll::Ready(answer) => Some(outcome(answer)),
            Poll::Pending => None,
        }
    }

    /// Returns `true` if the work has ended, or was dropped with its set.
    pub fn is_finished(&self) -> bool {
        self.reply.is_ready()
    }

    /// Prevents a closure from starting, or a future from being polled again. Returns `true` if the
    /// closure had not started, or the future had not ended.
    ///
    /// Cancelled work is dropped on the set's thread when that thread receives it. After that,
    /// [`join`](Self::join) returns [`JoinError::Cancelled`]. A poll in progress may still complete
    /// the future.
    ///
    /// # Blocking
    ///
    /// Never blocks, because it only posts an item. In a child of `fork`, it does nothing and
    /// returns `false`.
    #[doc(alias("abort", "kthread_cancel_work_sync"))]
    pub fn cancel(&self) -> bool {
        let target = self.target.as_ref().filter(|_| !self.is_finished());
        target.is_some_and(|target| target.clone().cancel())
    }

    /// Returns the same handle, which now cancels the work when it is dropped.
    #[must_use = "dropping it cancels"]
    #[doc(alias("AbortOnDrop", "AbortOnDropHandle"))]
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels = true;
        self
    }

    /// Returns `true` if this thread would wait for itself.
    fn is_own(&self) -> bool {
        let is_here = || self.target.as_ref().is_some_and(|target| target.is_here());
        !self.is_finished() && is_here()
    }
}

impl<R> Future for JoinHandle<R> {
    type Output = Result<R, JoinError>;

    /// Returns `Cancelled` if polled after completion.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx).map(outcome)
    }
}

sync::on_drop!(JoinHandle[R], it => if it.cancels {
    it.cancel();
});
