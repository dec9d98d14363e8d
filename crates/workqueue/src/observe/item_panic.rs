//! The argument of a queue's panic handler.

use std::{any::Any, fmt};

use base::internal::panics::text_of;

/// An item's panic that no joiner receives, as passed to the queue's panic handler
/// ([`Builder::on_panic`](crate::Builder::on_panic)).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ItemPanic<'a> {
    /// The name of the queue.
    pub queue: &'a str,
    /// The type of the item's function or future, as the compiler names it, with its path.
    pub func: &'static str,
    /// The payload of the panic. It is dropped after the handler has returned, unless it can
    /// still be received from the item.
    pub payload: &'a (dyn Any + Send),
}

impl<'a> ItemPanic<'a> {
    /// Returns the payload as text if it is a string, as for a `panic!` with a message.
    pub fn text(&self) -> Option<&'a str> {
        text_of(self.payload)
    }
}

/// Writes the panic on one line.
impl fmt::Display for ItemPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} panicked", self.func, self.queue)?;
        match self.text() {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

base::internal::impl_debug!(ItemPanic<'_>, it => queue: it.queue, func: it.func, text: it.text());
