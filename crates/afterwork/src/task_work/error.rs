//! Why a post or a receipt did not happen.

use std::error::Error;
use std::fmt;

/// Why a post was refused; the item is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError<T> {
    /// The owner closed the mailbox, or dropped it.
    Closed(T),
    /// As many items as the mailbox may hold are inside.
    Full(T),
}

impl<T> PostError<T> {
    /// Returns what was to be posted.
    pub fn into_inner(self) -> T {
        match self {
            Self::Closed(item) | Self::Full(item) => item,
        }
    }

    /// Keeps the reason and changes what was to be posted.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> PostError<U> {
        match self {
            Self::Closed(item) => PostError::Closed(change(item)),
            Self::Full(item) => PostError::Full(change(item)),
        }
    }
}

// By hand: what was to be posted need not be printable.
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

/// Nothing is inside, and nothing will come: closed by the owner, or the last poster is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mailbox is empty and closed")
    }
}

impl Error for Closed {}

/// Why there was nothing to receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryRecvError {
    /// No post that completed before is inside.
    Empty,
    /// A poster is in the middle of its post; come back in a moment.
    MidPush,
    /// Nothing is inside, and nothing will come; see [`Closed`].
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the mailbox is empty",
            Self::MidPush => "a poster is in the middle of its post",
            Self::Closed => "the mailbox is empty and closed",
        })
    }
}

impl Error for TryRecvError {}

impl From<Closed> for TryRecvError {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}
