//! An owner that is an async task, on any executor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::bell::Sleep;
use super::error::Closed;
use super::mailbox::{Mailbox, PrepareSleep};

/// Receives one item; made by [`Mailbox::recv`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Recv<'m, T>(&'m mut Mailbox<T>);

/// Waits until so many items are there; made by [`Mailbox::ready`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Ready<'m, T> {
    mailbox: &'m mut Mailbox<T>,
    count: usize,
}

impl<T> Mailbox<T> {
    /// Looks whether `count` items are there, or one that was posted to wake the owner; 0 counts as 1.
    ///
    /// Else the task of `cx` is woken when they are, once. Every poll arms anew, so a task that is polled for other
    /// reasons loses nothing.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<Result<(), Closed>> {
        match self.prepare_sleep(count, Sleep::Task(cx.waker())) {
            PrepareSleep::Ready => Poll::Ready(Ok(())),
            PrepareSleep::Closed => Poll::Ready(Err(Closed)),
            PrepareSleep::Sleep => Poll::Pending,
            PrepareSleep::Retry => {
                // A poster is in mid-push: let others run, and look again.
                // FOREIGN(recv-wake): the executor's waker, on the owner, who gets the panic; nothing was changed.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Receives the oldest item, or has the task of `cx` woken when there is one.
    ///
    /// # Blocking
    ///
    /// Never.
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

    /// Receives the oldest item, waiting for it as a task does.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Closed`] when nothing is inside and nothing will come.
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv(self)
    }

    /// Waits as a task does until `count` items are there; see [`poll_ready`](Self::poll_ready).
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn ready(&mut self, count: usize) -> Ready<'_, T> {
        Ready {
            mailbox: self,
            count,
        }
    }
}

impl<T> Future for Recv<'_, T> {
    type Output = Result<T, Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_recv(cx)
    }
}

impl<T> Future for Ready<'_, T> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let count = self.count;
        self.mailbox.poll_ready(cx, count)
    }
}
