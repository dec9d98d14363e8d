//! Calling foreign code: closures, destructors, wakers, handlers, iterators and `Display` of users.
//!
//! It may panic, sleep, come back to us, or drop the last handle of anything. So it runs contained, under no lock, and
//! after the protocol that calls it has made its last change. FOREIGN.md has the table of all places; each carries
//! its `FOREIGN(…)` *(checked: `foreign`)*, and a debug build asserts that no lock is held there.
//!
//! What must not panic, since a protocol is half-way, goes through [`or_abort`]. The panic hook has told of a panic by
//! the time it gets here.

use std::{
    any::Any,
    fmt,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
};

use sync::fork::{self, Process};

pub mod join_error;

/// What a panic carries.
pub type Payload = Box<dyn Any + Send + 'static>;

/// Returns what a panic carries as text, if it is such: what `panic!` with a message carries.
pub fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Calls `body` and returns what it panicked with, if it did.
///
/// Where `body` forks on a thread of ours and comes back in the child, the child ends (`sync::fork`).
pub fn guarded<R>(body: impl FnOnce() -> R) -> Result<R, Payload> {
    caught(body, fork::end_child_of_ours)
}

/// Calls `body`, which is an item's, as [`guarded`] does; a child does not come back from it on any thread. It would end
/// the item, in a queue of which other threads may hold the locks.
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

/// Calls `body`; returns `true` if it panicked.
pub fn contain(body: impl FnOnce()) -> bool {
    let outcome = guarded(body);
    let panicked = outcome.is_err();
    if let Err(payload) = outcome {
        discard(payload);
    }
    panicked
}

/// How many panics of drops are followed: each may carry what panics when it is dropped, without end. A guess; one is odd.
const NR_DROPS: u32 = 16;

/// Drops the payload of a panic. If a drop panics, drops its payload as well, at most `NR_DROPS` payloads; the next one leaks.
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

/// A value of a user's whose destructor is foreign code: its drop is contained, and asserts that no lock is held.
pub struct Foreign<T>(ManuallyDrop<T>);

impl<T> Foreign<T> {
    /// Keeps `value`.
    pub const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Returns the value, to be used up in foreign code that is contained.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, for `this` is not dropped.
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
        // SAFETY: dropped here alone, and once.
        contain(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

impl<T> fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Foreign(..)")
    }
}

/// Calls `body`, which is in the middle of a protocol: should it panic, the process ends with the line `what`.
///
/// In a model a panic is the model's way to fail, and unwinds.
pub fn or_abort<R>(what: &str, body: impl FnOnce() -> R) -> R {
    #[cfg(not(any(loom, shuttle)))]
    return catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = text_of(&*payload).unwrap_or("no message");
        sync::process::die(&format!("{what}: {text}"))
    });
    #[cfg(any(loom, shuttle))]
    {
        let _ = what;
        body()
    }
}

/// Calls `body`, which calls the C function at `func`. If anything unwinds out of `body`, the
/// process ends with a line that names the function. Only a C++ exception, or the end of the thread
/// by `pthread_exit` or a cancellation, can unwind, and `catch_unwind` must not catch those.
///
/// # Blocking
///
/// As `body`.
#[inline]
pub fn of_c<R>(what: &str, func: usize, body: impl FnOnce() -> R) -> R {
    /// Dropped by the unwinder, which passes through this frame before it reaches a frame that
    /// catches.
    struct Entered<'a>(&'a str, usize);

    impl Drop for Entered<'_> {
        #[cold]
        fn drop(&mut self) {
            // A model fails by a panic.
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

/// Ends the process with the line `why`. In a model it panics.
#[cold]
pub fn die(why: &str) -> ! {
    #[cfg(not(any(loom, shuttle)))]
    sync::process::die(why);
    #[cfg(any(loom, shuttle))]
    panic!("{why}");
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

    #[test]
    fn what_the_drop_of_a_payload_panics_with_is_dropped_too_and_that_ends() {
        use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
        /// Panics with another as long as its fuse is.
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
