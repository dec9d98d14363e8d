//! The error of a join, and the panic payload of a work item.

use std::any::Any;
use std::fmt;

use super::{Payload, text_of};

/// The error of joining a spawned closure that has no result.
#[non_exhaustive]
pub enum JoinError {
    /// The closure panicked with this payload.
    Panicked(PanicPayload),
    /// The item was cancelled before it started, or the future was cancelled before it completed.
    Cancelled,
    /// The item tried to join itself.
    OwnItem,
    /// The item cannot start before the item that joined it has ended, because that item has their
    /// queue's only seat, or because both are closures of one strand.
    OwnQueue,
    /// The item had not started by its deadline, and never will.
    Expired,
    /// The queue of the item had no free capacity.
    Full,
    /// The queue of the item was being drained or was destroyed, or the mailbox was closed.
    Closed,
    /// The result was already taken, because the handle was awaited before and was ready.
    Taken,
}

impl JoinError {
    #[doc(hidden)]
    pub fn panicked(payload: Payload) -> Self {
        Self::Panicked(PanicPayload::new(payload))
    }

    /// Resumes the closure's panic. For any other error, starts a new panic.
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

topology::impl_error!(JoinError {
    Panicked(payload) => Other, "the work item panicked{}",
        payload.text().map_or(String::new(), |text| format!(": {text}"));
    Cancelled => Other, "the work item was cancelled";
    OwnItem => Other, "a work item cannot join itself";
    OwnQueue => Other, "the work item cannot start before the item that joins it has ended: they share one seat or one strand";
    Expired => TimedOut, "the work item had not started by its deadline";
    Full => WouldBlock, "the queue rejected the work item: it was full";
    Closed => BrokenPipe, "the work item was rejected: its queue was closed";
    Taken => Other, "the result of the work item was already taken";
});

/// The result of a closure or a future.
pub type Outcome<T> = Result<T, JoinError>;

/// The panic payload of a work item.
///
/// A reference may be shared between threads even if the payload is not `Sync`, because it only
/// gives access to values of `Sync` types.
pub struct PanicPayload(Payload);

// SAFETY: a shared reference gives access to the payload only through `downcast_ref`, which asks
// for the type of the value without reading the value, and returns a reference to a type that is
// `Sync`.
unsafe impl Sync for PanicPayload {}

impl PanicPayload {
    #[doc(hidden)]
    pub fn new(payload: Payload) -> Self {
        Self(payload)
    }

    /// Returns the payload in the form in which [`std::panic::catch_unwind`] and the `join` of
    /// `std::thread` return it.
    pub fn into_inner(self) -> Box<dyn Any + Send + 'static> {
        self.0
    }

    /// Returns the payload if it is a `T`.
    pub fn downcast_ref<T: Any + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// The borrow is exclusive, because not every `Any` may be shared between threads.
    #[doc(hidden)]
    pub fn as_any(&mut self) -> &(dyn Any + Send) {
        &*self.0
    }

    /// Returns the message of a payload that is text, as after `panic!` with a message.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{JoinError, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let handle = queue.spawn(|| panic!("disk {} is missing", 3));
    /// let Err(JoinError::Panicked(payload)) = handle.join() else {
    ///     unreachable!("it panicked");
    /// };
    /// assert_eq!(payload.text(), Some("disk 3 is missing"));
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
