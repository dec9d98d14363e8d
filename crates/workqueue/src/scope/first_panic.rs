//! The first panic in the parts of one scope.

use std::panic::resume_unwind;

use base::internal::panics::{Payload, contain, discard};
use sync::Mutex;

use crate::limit::queue_core::QueueCore;

/// Keeps the first panic, so that the owner can resume it after all parts have ended.
#[derive(Debug, Default)]
pub(super) struct FirstPanic(Mutex<Option<Payload>>);

impl FirstPanic {
    /// Records a panic in work of the queue `core`. Any panic but the first is reported to the
    /// queue's handler and dropped.
    #[cold]
    pub(super) fn note(&self, core: &QueueCore, payload: Payload) {
        let mut first = self.0.lock();
        let later = if first.is_some() { Some(payload) } else { first.replace(payload) };
        drop(first);
        core.note_panic(later.as_deref().map(|later| ("a part of a scope", later)));
        later.into_iter().for_each(discard);
    }

    /// Returns the value of the owner's own part if nothing panicked. Otherwise resumes the panic:
    /// the owner's own if its part panicked, otherwise the first recorded one.
    pub(super) fn go_on<R>(&self, own: Result<R, Payload>) -> R {
        let first = self.0.lock().take();
        match (own, first) {
            (Ok(value), None) => value,
            (Ok(value), Some(payload)) => {
                // FOREIGN(scope-run): the drop of the value of the owner's part, on the owner,
                // which resumes another panic; a panic in the drop is contained.
                contain(|| drop(value));
                resume_unwind(payload)
            }
            (Err(payload), first) => {
                first.into_iter().for_each(discard);
                resume_unwind(payload)
            }
        }
    }
}
