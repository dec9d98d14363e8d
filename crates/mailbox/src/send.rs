//! Posts that wait for capacity.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base::internal::admission::{Position, Ticket};
use base::internal::wake::sleeper::{self, OnTurn, Sleeper};
use base::internal::wake::{report, spin_as_waiter};

use super::error::PostError;
use super::poster::Poster;

/// The future of [`Poster::send`], which posts an item as soon as there is capacity for it.
///
/// # Guarantees
///
/// - Sends are admitted in the order of their first polls. The item itself waits, not its task, so
///   a task that is slow to poll again does not delay other sends.
/// - Dropping the future removes its item from the wait queue and drops the item, unless it is
///   already in the mailbox. [`take_back`](Self::take_back) returns the item instead. In both
///   cases, later items move up.
#[must_use = "a future does nothing until it is polled"]
pub struct Sending<'p, T> {
    poster: &'p Poster<T>,
    /// The item, until it is posted or waits for capacity.
    item: Option<T>,
    /// The item's position in the wait queue, while it waits for capacity.
    ticket: Option<Ticket>,
}

impl<T> Poster<T> {
    /// Posts an item, and waits for capacity if the mailbox is full. Wakes the owner if it sleeps,
    /// even if it waits for more items than the mailbox can hold. An unbounded mailbox always has
    /// capacity.
    ///
    /// # Blocking
    ///
    /// Never blocks. It returns a future, which is ready when the item is in the mailbox. The
    /// owner's receipts wake the task.
    ///
    /// # Errors
    ///
    /// Returns [`PostError::Closed`] with the item, if the mailbox is closed before there is
    /// capacity. In a child of `fork`, a full mailbox of the parent counts as closed.
    ///
    /// # Panics
    ///
    /// Panics if it is polled after it has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Mailbox, PostError};
    /// use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    ///
    /// let mut mailbox = Mailbox::builder().capacity(1).build();
    /// let poster = mailbox.poster();
    /// let cx = &mut Context::from_waker(Waker::noop()); // an executor's, usually
    /// poster.post(1).unwrap();
    /// let mut second = pin!(poster.send(2));
    /// assert!(second.as_mut().poll(cx).is_pending());
    /// assert_eq!(poster.post(3), Err(PostError::Full(3)));
    ///
    /// assert_eq!(mailbox.try_recv(), Ok(1)); // frees capacity, which the second gets
    /// assert_eq!(mailbox.try_recv(), Ok(2));
    /// assert!(matches!(second.as_mut().poll(cx), Poll::Ready(Ok(()))));
    /// ```
    pub fn send(&self, item: T) -> Sending<'_, T> {
        Sending { poster: self, item: Some(item), ticket: None }
    }

    /// Posts an item as [`send`](Self::send) does, and blocks until it is in the mailbox.
    ///
    /// # Blocking
    ///
    /// Blocks while the mailbox is full. The owner's receipts wake this thread, and so do closing
    /// and dropping the mailbox. Waiting threads and tasks are admitted in order of arrival. An
    /// owner that sends to its own full mailbox waits for itself.
    ///
    /// # Errors
    ///
    /// Returns the same errors as `send`.
    ///
    /// # Panics
    ///
    /// Panics if called in an item of a bottom-half queue, even if the mailbox is not full. The
    /// item is then dropped.
    pub fn send_blocking(&self, item: T) -> Result<(), PostError<T>> {
        self.send_within(item, None)
    }

    /// Posts an item as [`send_blocking`](Self::send_blocking) does, within `timeout`.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`, plus the system's delay. In a model it never times out.
    ///
    /// # Errors
    ///
    /// Returns the same errors as `send_blocking`, and [`PostError::Full`] with the item if the
    /// timeout expired.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as `send_blocking`.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Mailbox, PostError};
    /// use std::time::Duration;
    ///
    /// let mailbox = Mailbox::builder().capacity(1).build();
    /// let poster = mailbox.poster();
    /// let patience = Duration::from_millis(1);
    /// assert_eq!(poster.send_timeout("first", patience), Ok(()));
    /// assert_eq!(poster.send_timeout("second", patience), Err(PostError::Full("second")));
    /// ```
    pub fn send_timeout(&self, item: T, timeout: Duration) -> Result<(), PostError<T>> {
        self.send_within(item, Some(timeout))
    }

    fn send_within(&self, item: T, timeout: Option<Duration>) -> Result<(), PostError<T>> {
        report::must_be_free_to_sleep();
        match self.post(item) {
            Err(PostError::Full(item)) => {
                let sleeper = Sleeper::new(timeout);
                if timeout != Some(Duration::ZERO) {
                    // Spinning first may save the owner the wake-up of a waiter.
                    spin_as_waiter(|| self.shared.has_room());
                }
                self.send(item).wait(sleeper)
            }
            posted => posted,
        }
    }
}

impl<T> Sending<'_, T> {
    /// Ends the future and returns the item. Returns `None` if the item is in the mailbox or was
    /// returned before.
    ///
    /// # Blocking
    ///
    /// Never sleeps, but holds a lock for a few instructions.
    pub fn take_back(&mut self) -> Option<T> {
        let admitted = self.poster.shared.admission.as_ref().zip(self.ticket.take());
        let waiting = admitted.and_then(|(admission, ticket)| admission.leave(ticket));
        self.item.take().or(waiting.map(|waiting| waiting.item))
    }

    /// Advances as far as possible. If it has to wait, calls `on_turn`, whose result is fired when
    /// it can continue.
    fn advance(&mut self, on_turn: impl FnOnce() -> OnTurn) -> Poll<Result<(), PostError<T>>> {
        let shared = &*self.poster.shared;
        if let Some((admission, ticket)) = shared.admission.as_ref().zip(self.ticket) {
            let mut on_turn = Some(on_turn());
            let position = admission.find(ticket, |it| mem::swap(&mut it.on_turn, &mut on_turn));
            if !matches!(position, Position::Waiting) {
                self.ticket = None;
            }
            return match position {
                Position::Waiting => Poll::Pending,
                Position::Inside => Poll::Ready(Ok(())),
                Position::Closed(waiting) => Poll::Ready(Err(PostError::Closed(waiting.item))),
            };
        }
        let item = self.item.take().expect("a send was polled after it had ended");
        match self.poster.post(item) {
            Err(PostError::Full(item)) => {
                // If the clone of the waker panics, the item is still here.
                self.item = Some(item);
                let on_turn = on_turn();
                let item = self.item.take().expect("set just now");
                match shared.wait_for_capacity(item, self.poster.lane, on_turn) {
                    Ok(ticket) => {
                        self.ticket = Some(ticket);
                        Poll::Pending
                    }
                    Err(item) => Poll::Ready(Err(PostError::Closed(item))),
                }
            }
            posted => Poll::Ready(posted),
        }
    }

    fn wait(mut self, mut sleeper: Sleeper) -> Result<(), PostError<T>> {
        let mut in_time = true;
        loop {
            if let Poll::Ready(sent) = self.advance(|| sleeper.on_turn()) {
                return sent;
            }
            if !in_time {
                return self.take_back().map_or(Ok(()), |item| Err(PostError::Full(item)));
            }
            in_time = sleeper.sleep();
        }
    }
}

// The item is moved, never pinned.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), PostError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.advance(|| sleeper::on_turn_of_task(cx))
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        // A panic in the item's drop propagates to the caller.
        if !sync::twin::torn_down() {
            drop(self.take_back());
        }
    }
}
