//! What the parts of one scope panicked with.

use std::panic::resume_unwind;

use base::internal::panics::{Payload, contain, discard};
use sync::Mutex;

use crate::limit::queue_core::QueueCore;

/// Keeps the first of many panics, to go on with it when all have ended.
#[derive(Debug, Default)]
pub(super) struct FirstPanic(Mutex<Option<Payload>>);

impl FirstPanic {
    /// Takes note of a panic in work of the queue `core`. Any but the first is told to its handler and dropped.
    #[cold]
    pub(super) fn note(&self, core: &QueueCore, payload: Payload) {
        let mut first = self.0.lock();
        let later = match *first {
            None => {
                *first = Some(payload);
                None
            }
            Some(_) => Some(payload),
        };
        drop(first);
        core.note_panic(later.as_deref().map(|later| ("a part of a scope", later)));
        if let Some(later) = later {
            discard(later);
        }
    }

    /// Returns what the owner's own part returned, if nothing panicked; else goes on with that: with the owner's, if it did.
    pub(super) fn go_on<R>(&self, own: Result<R, Payload>) -> R {
        let first = self.0.lock().take();
        match (own, first) {
            (Ok(value), None) => value,
            (Ok(value), Some(payload)) => {
                // FOREIGN(scope-run): what the owner's part returned, on the owner, who goes on with another panic; contained.
                contain(|| drop(value));
                resume_unwind(payload)
            }
            (Err(payload), first) => {
                if let Some(first) = first {
                    discard(first);
                }
                resume_unwind(payload)
            }
        }
    }
}
