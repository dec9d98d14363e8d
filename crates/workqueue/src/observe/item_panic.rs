//! What a queue's handler of panics is told.

use std::{any::Any, fmt};

use base::internal::panics::text_of;

/// A panic of an item of which no joiner will hear, as a queue's handler is told of it:
/// [`Builder::on_panic`](crate::Builder::on_panic).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ItemPanic<'a> {
    /// The name of the queue.
    pub queue: &'a str,
    /// The type of the item's function or future, as the compiler names it, which has the path of where it is written.
    pub func: &'static str,
    /// What it panicked with. It is dropped when the handler has returned, and kept where
    /// somebody can still ask for it.
    pub payload: &'a (dyn Any + Send),
}

impl<'a> ItemPanic<'a> {
    /// Returns the payload as text, if it is such: what `panic!` with a message carries.
    pub fn text(&self) -> Option<&'a str> {
        text_of(self.payload)
    }
}

/// Writes it in a line.
impl fmt::Display for ItemPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} panicked", self.func, self.queue)?;
        match self.text() {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ItemPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemPanic")
            .field("queue", &self.queue)
            .field("func", &self.func)
            .field("text", &self.text())
            .finish_non_exhaustive()
    }
}
