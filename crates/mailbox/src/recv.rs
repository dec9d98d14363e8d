//! Lets an async task be the owner, on any executor.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use super::error::Closed;
use super::mailbox::{Mailbox, PrepareSleep};
use super::owner_waker::Sleep;

impl<T> Mailbox<T> {
    /// Returns `Ready` if the mailbox contains `count` items (at least 1) or an eager one.
    /// Otherwise registers the task of `cx`, which is woken once when this is the case. Each poll
    /// registers the waker again, so extra polls are harmless.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// Returns [`Closed`] if no item is in the mailbox and none will arrive.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<Result<(), Closed>> {
        match self.prepare_sleep(count, Sleep::Task(cx.waker())) {
            PrepareSleep::Ready => Poll::Ready(Ok(())),
            PrepareSleep::Closed => Poll::Ready(Err(Closed)),
            PrepareSleep::Sleep => Poll::Pending,
            PrepareSleep::Retry => {
                // A poster is in mid-push, so let other tasks run, and poll again.
                // FOREIGN(recv-wake): the executor's waker, on the owner, to which a panic
                // propagates. Nothing has changed.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Receives the oldest item, if there is one. Otherwise registers the task of `cx`, which is
    /// woken when an item arrives.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`poll_ready`](Self::poll_ready).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        if let Ok(item) = self.try_recv() {
            return Poll::Ready(Ok(item));
        }
        match self.poll_ready(cx, 1) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(self.try_recv().expect("one is ready"))),
            Poll::Ready(Err(Closed)) => Poll::Ready(Err(Closed)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Returns a future that receives the oldest item. No item is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// Returns [`Closed`] if no item is in the mailbox and none will arrive.
    pub fn recv(&mut self) -> impl Future<Output = Result<T, Closed>> + Unpin {
        poll_fn(|cx| self.poll_recv(cx))
    }

    /// Returns a future that is ready when the mailbox contains `count` items or an eager one; see
    /// [`poll_ready`](Self::poll_ready).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`recv`](Self::recv).
    pub fn ready(&mut self, count: usize) -> impl Future<Output = Result<(), Closed>> + Unpin {
        poll_fn(move |cx| self.poll_ready(cx, count))
    }
}
