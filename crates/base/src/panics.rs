//! Calls of user code: the closures, destructors, wakers, handlers, iterators and `Display`
//! implementations of users.
//!
//! User code may panic, sleep, call back into the library, or drop the last handle to anything. It
//! therefore runs contained, under no lock, and after the protocol that calls it has made its last
//! change (FOREIGN.md has a table). Code that must not panic, because a protocol is incomplete, is
//! called through [`or_abort`]. A panic that is caught here has already been reported by the panic
//! hook.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sync::fork::{self, Process};

pub mod join_error;

/// The payload of a panic.
pub type Payload = Box<dyn Any + Send + 'static>;

/// Returns the message of a payload that is text, as after `panic!` with a message.
pub fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Calls `body`. Returns its result, or the payload of its panic. If a child of `fork` returns from
/// `body` on a thread of the library, the child exits (`sync::fork`).
pub fn guarded<R>(body: impl FnOnce() -> R) -> Result<R, Payload> {
    caught(body, fork::end_child_of_ours)
}

/// Calls `body`, which is the code of an item, as [`guarded`] does. If a child of `fork` returns
/// from `body`, it exits on any thread. Otherwise it would complete the item in a queue whose locks
/// may be held by threads that do not exist.
#[inline]
pub fn guarded_in_item<R>(body: impl FnOnce() -> R) -> Result<R, Payload> {
    caught(body, || fork::end_child())
}

#[inline]
fn caught<R>(body: impl FnOnce() -> R, in_child: fn()) -> Result<R, Payload> {
    sync::lock::assert_none_held();
    let here = Process::now();
    let outcome = catch_unwind(AssertUnwindSafe(body));
    if !here.is_this() {
        in_child();
    }
    outcome
}

/// Calls `body`. Returns `true` if it panicked.
pub fn contain(body: impl FnOnce()) -> bool {
    guarded(body).map_err(discard).is_err()
}

/// The number of payload drops that are attempted. Each may panic with another payload. A guess.
const NR_DROPS: u32 = 16;

/// Drops the payload of a panic, and those of panics in these drops. Leaks the one after
/// `NR_DROPS`.
#[cold]
pub fn discard(mut payload: Payload) {
    for _ in 0..NR_DROPS {
        match guarded(|| drop(payload)) {
            Ok(()) => return,
            Err(again) => payload = again,
        }
    }
    std::mem::forget(payload);
}

/// A user's value whose destructor is user code. Its drop is contained and asserts that no lock is
/// held.
pub struct Foreign<T>(ManuallyDrop<T>);

impl<T> Foreign<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Consuming it may run user code, which the caller must contain.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is taken only once, because `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Deref for Foreign<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Foreign<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Foreign<T> {
    fn drop(&mut self) {
        // SAFETY: the field is dropped only here, once.
        contain(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

impl<T> fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Foreign(..)")
    }
}

/// Calls `body` in the middle of a protocol. If it panics, the process is aborted with the message
/// `what`. In a model, the panic unwinds, because it is the failure of the model.
pub fn or_abort<R>(what: &str, body: impl FnOnce() -> R) -> R {
    if cfg!(any(loom, shuttle)) {
        return body();
    }
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        die(&format!("{what}: {}", text_of(&*payload).unwrap_or("no message")))
    })
}

/// Calls `body`, which calls the C function at `func`. If a C++ exception, `pthread_exit` or a
/// cancellation unwinds out of `body`, the process is aborted with a message that names the
/// function, because `catch_unwind` must not catch those. Blocks if `body` does.
#[inline]
pub fn of_c<R>(what: &str, func: usize, body: impl FnOnce() -> R) -> R {
    /// A value that the unwinder drops before it reaches a frame that catches.
    struct Entered<'a>(&'a str, usize);

    impl Drop for Entered<'_> {
        #[cold]
        fn drop(&mut self) {
            // A model reports a failure as a panic, which must unwind.
            if cfg!(any(loom, shuttle)) {
                return;
            }
            let Self(what, func) = self;
            die(&format!(
                "the {what} at {func:#x} was left by an exception, or by the end of its thread"
            ));
        }
    }

    let entered = Entered(what, func);
    let answer = body();
    std::mem::forget(entered);
    answer
}

/// Aborts the process with the message `why`. Panics in a model.
#[cold]
pub fn die(why: &str) -> ! {
    #[cfg(not(any(loom, shuttle)))]
    sync::process::die(why);
    #[cfg(any(loom, shuttle))]
    panic!("{why}");
}

/// Writes the line `afterwork: {text}` to stderr. Does nothing in a model.
pub fn write_line(text: &str) {
    #[cfg(not(any(loom, shuttle)))]
    sync::process::write_line(text);
    _ = text;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::panic_any("dropped");
            }
        }
    }

    #[test]
    fn panics_of_closures_and_payload_drops_are_contained() {
        assert!(!contain(|| ()));
        assert!(contain(|| std::panic::panic_any("once")));
        assert!(contain(|| std::panic::panic_any(Bomb)));
    }

    #[test]
    fn payloads_of_panicking_payload_drops_are_dropped_too() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        /// A payload that panics with another one when dropped, until its fuse has burned down.
        struct Fuse(u32, Arc<AtomicUsize>);
        impl Fuse {
            fn new(length: u32, nr_there: &Arc<AtomicUsize>) -> Self {
                nr_there.fetch_add(1, Ordering::Relaxed);
                Self(length, nr_there.clone())
            }
        }
        impl Drop for Fuse {
            fn drop(&mut self) {
                self.1.fetch_sub(1, Ordering::Relaxed);
                if let Some(length) = self.0.checked_sub(1) {
                    std::panic::resume_unwind(Box::new(Self::new(length, &self.1)));
                }
            }
        }
        let nr_there = Arc::new(AtomicUsize::new(0));
        for length in [0, 1, 3, NR_DROPS - 1] {
            discard(Box::new(Fuse::new(length, &nr_there)));
            assert_eq!(nr_there.load(Ordering::Relaxed), 0, "a fuse of {length}");
        }
        discard(Box::new(Fuse::new(u32::MAX, &nr_there)));
        assert_eq!(nr_there.load(Ordering::Relaxed), 1, "the last");
    }

    #[test]
    fn a_foreign_destructor_may_panic() {
        let foreign = Foreign::new(Bomb);
        let _: &Bomb = &foreign;
        drop(foreign);
    }
}
