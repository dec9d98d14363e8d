//! What is left of items that are cancelled many at a time.

use std::ptr::NonNull;

use super::{handles::Dead, head::Head};

/// Items that have been taken as by a run, and what is users' of them.
///
/// First all items are taken, by steps alone; then their ends are told, and last what is users' is dropped. So a waker or a
/// destructor that waits for another of the items finds that one taken, or ended.
#[derive(Default)]
pub(crate) struct Remains {
    /// Their runs are to be ended.
    pub(crate) taken: Vec<NonNull<Head>>,
    /// How many had a place of their queue's capacity, which is to be given back.
    pub(crate) nr_places: usize,
    /// To be dropped.
    pub(crate) dropped: Vec<Box<dyn Send>>,
}

// SAFETY: whoever takes an item as by a run keeps it, and what items hold is `Send`.
unsafe impl Send for Remains {}

impl Remains {
    /// Adds what is left of an item.
    pub(crate) fn bury(&mut self, what: impl Send + 'static) {
        self.dropped.push(Box::new(what));
    }

    /// Adds an item that is to be freed.
    pub(crate) fn bury_dead(&mut self, dead: Option<Dead>) {
        if let Some(dead) = dead {
            self.bury(dead);
        }
    }
}

impl std::fmt::Debug for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remains")
            .field("nr_taken", &self.taken.len())
            .field("nr_places", &self.nr_places)
            .field("nr_dropped", &self.dropped.len())
            .finish()
    }
}
