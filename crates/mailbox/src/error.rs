//! The errors of posting and receiving.

/// The error of a post that was rejected. Returns the item.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError<T> {
    /// The mailbox was closed or dropped.
    Closed(T),
    /// The mailbox is full.
    Full(T),
}

impl<T> PostError<T> {
    /// Returns the item.
    pub fn into_inner(self) -> T {
        match self {
            Self::Closed(item) | Self::Full(item) => item,
        }
    }

    /// Returns the same error with the item changed by `change`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> PostError<U> {
        match self {
            Self::Closed(item) => PostError::Closed(change(item)),
            Self::Full(item) => PostError::Full(change(item)),
        }
    }
}

base::internal::impl_error! {
    /// Converts the error and drops the item. `Full` becomes
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock), and `Closed` becomes
    /// [`BrokenPipe`](std::io::ErrorKind::BrokenPipe).
    PostError[T] {
        Closed(..) => BrokenPipe, "the mailbox is closed";
        Full(..) => WouldBlock, "the mailbox is full";
    }
}

/// The error of a call that waits for capacity and for the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError<T> {
    /// The mailbox was closed or dropped before there was capacity. Returns the item.
    Closed(T),
    /// The owner dropped the item without an answer, or the mailbox was dropped with the item.
    Lost,
}

impl<T> From<PostError<T>> for CallError<T> {
    fn from(error: PostError<T>) -> Self {
        Self::Closed(error.into_inner())
    }
}

base::internal::impl_error!(without io CallError[T] {
    Closed(..), "the mailbox is closed";
    Lost, "the call was dropped without an answer";
});

/// The mailbox is empty, and no more items will arrive, because it was closed or the last poster
/// was dropped. In a child of `fork`, items behind an unfinished post by another thread of the
/// parent do not count, because that post never ends there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

base::internal::into_io_error!(
    Closed,
    |_| ErrorKind::BrokenPipe,
    "the mailbox is empty and closed"
);

/// The reason why [`Mailbox::try_recv`](super::Mailbox::try_recv) or
/// [`Mailbox::recv_timeout`](super::Mailbox::recv_timeout) returned no item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryRecvError {
    /// The mailbox is empty. The items of all completed posts have been received.
    Empty,
    /// A poster is in the middle of its post. Try again in a moment.
    MidPush,
    /// The mailbox is empty, and no more items will arrive; see [`Closed`].
    Closed,
}

base::internal::impl_error!(TryRecvError {
    Empty => WouldBlock, "the mailbox is empty";
    MidPush => WouldBlock, "a post is not complete yet";
    Closed => BrokenPipe, "the mailbox is empty and closed";
});

impl From<Closed> for TryRecvError {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}
