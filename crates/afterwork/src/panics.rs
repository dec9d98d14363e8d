//! Calling users' code that must not unwind into ours. The panic hook has told of a panic by the time it gets here.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// What a panic carries.
pub(crate) type Payload = Box<dyn Any + Send + 'static>;

/// Calls `body` and returns what it panicked with, if it did.
pub(crate) fn guarded<R>(body: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(body))
}

/// Calls `body`; says whether it panicked.
pub(crate) fn contain(body: impl FnOnce()) -> bool {
    let outcome = guarded(body);
    let panicked = outcome.is_err();
    if let Err(payload) = outcome {
        discard(payload);
    }
    panicked
}

/// Drops what a panic carried. Should that panic again, what it panics with is leaked.
#[cold]
pub(crate) fn discard(payload: Payload) {
    if let Err(again) = guarded(|| drop(payload)) {
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when dropped, outside of a panic.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::panic_any("dropped");
            }
        }
    }

    #[test]
    fn a_panic_ends_here_and_so_does_one_of_what_it_carried() {
        assert!(!contain(|| ()));
        assert!(contain(|| std::panic::panic_any("once")));
        assert!(contain(|| std::panic::panic_any(Bomb)));
    }
}
