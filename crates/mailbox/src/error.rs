//! The errors of posting and receiving.

use std::error::Error;
use std::{fmt, io};

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

// This is written by hand, because items need not be `Debug`.
impl<T> fmt::Debug for PostError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "Closed(..)",
            Self::Full(_) => "Full(..)",
        })
    }
}

impl<T> fmt::Display for PostError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "the mailbox is closed",
            Self::Full(_) => "the mailbox is full",
        })
    }
}

impl<T> Error for PostError<T> {}

/// Converts the error and drops the item. `Full` becomes [`WouldBlock`](io::ErrorKind::WouldBlock),
/// and `Closed` becomes [`BrokenPipe`](io::ErrorKind::BrokenPipe).
impl<T> From<PostError<T>> for io::Error {
    fn from(error: PostError<T>) -> Self {
        let kind = match &error {
            PostError::Closed(_) => io::ErrorKind::BrokenPipe,
            PostError::Full(_) => io::ErrorKind::WouldBlock,
        };
        Self::new(kind, error.to_string())
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

// This is written by hand, because items need not be `Debug`.
impl<T> fmt::Debug for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "Closed(..)",
            Self::Lost => "Lost",
        })
    }
}

impl<T> fmt::Display for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "the mailbox is closed",
            Self::Lost => "the call was dropped without an answer",
        })
    }
}

impl<T> Error for CallError<T> {}

/// The mailbox is empty, and no more items will arrive, because it was closed or the last poster
/// was dropped.
///
/// In a child of `fork`, this is also the error if the next item is behind an unfinished post by
/// another thread of the parent, because that post never ends in the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mailbox is empty and closed")
    }
}

impl Error for Closed {}

base::internal::into_io_error!(Closed, |_| ErrorKind::BrokenPipe);

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

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the mailbox is empty",
            Self::MidPush => "a post is not complete yet",
            Self::Closed => "the mailbox is empty and closed",
        })
    }
}

impl Error for TryRecvError {}

base::internal::into_io_error!(TryRecvError, |error| match error {
    TryRecvError::Closed => ErrorKind::BrokenPipe,
    _ => ErrorKind::WouldBlock,
});

impl From<Closed> for TryRecvError {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}
