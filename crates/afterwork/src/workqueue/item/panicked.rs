//! What a work item panicked with.

use std::{any::Any, fmt};

use crate::panics::Payload;

/// What a work item panicked with.
///
/// A reference may be shared between threads although what it carries need not allow that: it shows only values of types
/// that do.
pub struct PanicPayload(Payload);

// SAFETY: a shared reference leads to what is inside by `downcast_ref` alone, which asks the value for its type (that
// reads nothing of it), and gives a reference of a type that is `Sync`.
unsafe impl Sync for PanicPayload {}

impl PanicPayload {
    pub(crate) fn new(payload: Payload) -> Self {
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
        let text = self.downcast_ref::<&str>().copied();
        text.or_else(|| self.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PanicPayload").field(&self.text()).finish()
    }
}
