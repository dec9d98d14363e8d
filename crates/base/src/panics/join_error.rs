//! Why there is nothing to join, and what a work item panicked with.

use std::{any::Any, fmt};

use super::{Payload, text_of};

/// The error of joining a spawned closure that has no result.
#[non_exhaustive]
pub enum JoinError {
    /// It panicked with this.
    Panicked(PanicPayload),
    /// It was cancelled before it started; a future, before it ended.
    Cancelled,
    /// It tried to join itself.
    OwnItem,
    /// The item cannot start before the item that joined it has ended, because that item has the
    /// only seat of their queue.
    OwnQueue,
    /// It had not started by its deadline, and never will.
    Expired,
    /// Its queue was being drained, had been destroyed, or had no room.
    Refused,
    /// The result was already taken: the handle was awaited and was ready.
    Taken,
}

impl JoinError {
    #[doc(hidden)]
    pub fn panicked(payload: Payload) -> Self {
        Self::Panicked(PanicPayload::new(payload))
    }

    /// Goes on panicking with what the closure panicked with; any other error is a panic of its own.
    pub fn resume_unwind(self) -> ! {
        match self {
            Self::Panicked(payload) => std::panic::resume_unwind(payload.into_inner()),
            other => panic!("{other}"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(payload) => match payload.text() {
                Some(text) => write!(f, "the work item panicked: {text}"),
                None => f.write_str("the work item panicked"),
            },
            Self::Cancelled => f.write_str("the work item was cancelled"),
            Self::OwnItem => f.write_str("a work item cannot join itself"),
            Self::OwnQueue => f.write_str(
                "the work item cannot start before the item that joins it has ended: their queue has one seat",
            ),
            Self::Expired => f.write_str("the work item had not started by its deadline"),
            Self::Refused => f.write_str(
                "the queue was full, drained or destroyed, and did not take the work item",
            ),
            Self::Taken => f.write_str("the result of the work item was already taken"),
        }
    }
}

impl std::error::Error for JoinError {}

/// What a closure or a future came to.
pub type Outcome<T> = Result<T, JoinError>;

/// What a work item panicked with.
///
/// A reference may be shared between threads although what it carries need not allow that: it shows only values of types
/// that do.
pub struct PanicPayload(Payload);

// SAFETY: a shared reference leads to what is inside by `downcast_ref` alone, which asks the value for its type (that
// reads nothing of it), and gives a reference of a type that is `Sync`.
unsafe impl Sync for PanicPayload {}

impl PanicPayload {
    #[doc(hidden)]
    pub fn new(payload: Payload) -> Self {
        Self(payload)
    }

    /// Returns it as [`std::panic::catch_unwind`] does, and `std::thread`'s `join`.
    pub fn into_inner(self) -> Box<dyn Any + Send + 'static> {
        self.0
    }

    /// Returns it if it is a `T`.
    pub fn downcast_ref<T: Any + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// Returns what it carries. Exclusive, because not every `Any` may be shared between threads.
    #[doc(hidden)]
    pub fn as_any(&mut self) -> &(dyn Any + Send) {
        &*self.0
    }

    /// Returns it as text, if it is such: what `panic!` with a message carries.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{JoinError, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let Err(JoinError::Panicked(payload)) = queue.spawn(|| panic!("disk {} is gone", 3)).join() else {
    ///     unreachable!("it panicked");
    /// };
    /// assert_eq!(payload.text(), Some("disk 3 is gone"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn text(&self) -> Option<&str> {
        text_of(&*self.0)
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PanicPayload").field(&self.text()).finish()
    }
}
