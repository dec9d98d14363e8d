//! Bugs that can be reintroduced, to show that a model finds them.
//!
//! A model that passes proves nothing until its *twin* fails: the same model with one line of the
//! shipped code changed to be wrong:
//!
//! ```
//! use sync::{atomic::{AtomicBool, Ordering}, twin};
//! # use afterwork_sync as sync;
//! let state = AtomicBool::new(false);
//! state.store(true, twin::order("park: relaxed store", Ordering::Release));
//! twin::fence("park: no fence");
//! if !twin::armed("park: asleep forever") {
//!     state.store(false, Ordering::Relaxed);
//! }
//! ```
//!
//! On the real machine [`armed`] is the constant `false`, and the branch is removed. A build with
//! `--cfg torture` or `--cfg sim` keeps the branches, to show which bugs a program finds.

use crate::atomic::{self, Ordering};

/// Returns `order`, or `Relaxed` if the bug `name` is armed.
#[inline(always)]
pub fn order(name: &str, order: Ordering) -> Ordering {
    if armed(name) { Ordering::Relaxed } else { order }
}

/// Executes a full fence (`SeqCst`), unless the bug `name` is armed.
#[inline(always)]
pub fn fence(name: &str) {
    if !armed(name) {
        // The caller's comment has both outcomes.
        atomic::fence(Ordering::SeqCst);
    }
}

/// Returns `true` if the bug `name` is armed. Always returns `false` on the real machine.
#[cfg(not(any(loom, shuttle, torture, sim)))]
#[inline(always)]
pub const fn armed(_name: &str) -> bool {
    false
}

/// In a torture build with the bug `name` armed, delays one call in `one_in` by `span_us`, for bugs
/// that show only if a thread is delayed within a window of a few nanoseconds.
#[cfg(not(all(torture, not(any(loom, shuttle)))))]
#[inline(always)]
pub const fn linger(_name: &str, _one_in: u32, _span_us: u64) {}

/// Implements `Drop` for a type, whose generic parameters follow its name in brackets. The
/// destructor evaluates `$end`, where `$this` is a `&mut` to the value, unless a model is
/// torn down.
#[doc(hidden)]
#[macro_export]
macro_rules! on_drop {
    ($name:ident $(<$($lifetime:lifetime),+>)? $([$param:ident])?, $this:ident => $end:expr) => {
        impl $(<$param>)? ::core::ops::Drop for $name $(<$($lifetime),+>)? $(<$param>)? {
            fn drop(&mut self) {
                if !$crate::twin::torn_down() {
                    let $this = self;
                    $end;
                }
            }
        }
    };
}

/// Returns `true` if a failed model is being torn down. Always returns `false` on the real machine.
///
/// The model's objects are then unusable, so a destructor must not change an atomic, or wait.
#[inline(always)]
pub fn torn_down() -> bool {
    #[cfg(any(loom, shuttle))]
    return std::thread::panicking();
    #[cfg(not(any(loom, shuttle)))]
    false
}

#[cfg(any(loom, shuttle))]
mod model {
    use std::cell::Cell;

    // Both models run all of their threads on the OS thread of the test.
    std::thread_local!(static ARMED: Cell<Option<&'static str>> = const { Cell::new(None) });
    // A set of bits, one for each armed name that the code has passed to `armed`.
    std::thread_local!(static MET: Cell<u32> = const { Cell::new(0) });

    /// Returns `true` if the bug `name` is armed in the model that this test runs.
    pub fn armed(name: &str) -> bool {
        let armed = ARMED.with(Cell::get);
        let found = armed.and_then(|names| names.split(" + ").position(|one| one == name));
        found.is_some_and(|at| {
            MET.with(|met| met.set(met.get() | 1 << at));
            true
        })
    }

    /// Runs `model`, which passes even with the bug `name` armed, because other code has the same
    /// effect. `a + b` arms both bugs.
    ///
    /// # Panics
    ///
    /// Panics if the model passes and never reaches one of the bugs, so that it tested nothing.
    pub fn with<R>(name: &'static str, model: impl FnOnce() -> R) -> R {
        MET.with(|met| met.set(0));
        let result = run(name, model);
        for (at, one) in name.split(" + ").enumerate() {
            let met = MET.with(Cell::get) & 1 << at != 0;
            assert!(met, "the model never reaches: {one}");
        }
        result
    }

    fn run<R>(name: &'static str, model: impl FnOnce() -> R) -> R {
        struct Disarm;
        impl Drop for Disarm {
            fn drop(&mut self) {
                ARMED.with(|armed| armed.set(None));
            }
        }
        ARMED.with(|armed| armed.set(Some(name)));
        let _disarm = Disarm;
        model()
    }

    /// Runs `model` like [`with`], and returns the failure with which it must end.
    ///
    /// # Panics
    ///
    /// Panics if the model passes.
    pub fn must_fail<R>(name: &'static str, model: impl FnOnce() -> R) -> String {
        let contained = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(model));
        let Err(payload) = run(name, contained) else {
            panic!("the model passed with the bug put back: {name}");
        };
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "a panic without text".into())
    }

    /// Runs `model` like [`must_fail`], and asserts that it ends in a deadlock.
    pub fn must_deadlock<R>(name: &'static str, model: impl FnOnce() -> R) {
        let failure = must_fail(name, model);
        assert!(failure.contains("deadlock"), "{failure}");
    }
}

#[cfg(any(loom, shuttle))]
pub use model::{armed, must_deadlock, must_fail, with};

/// Declares the tests of a model: each row has a claim, and the calls that show it.
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
#[macro_export]
macro_rules! models {
    ($($(#[$attribute:meta])* fn $claim:ident() = $($shows:expr),+;)*) => {
        $($(#[$attribute])* #[test] fn $claim() { $($shows;)+ })*
    };
}

#[cfg(all(any(torture, sim), not(any(loom, shuttle))))]
mod process {
    use std::sync::OnceLock;

    /// The armed bugs. Set once, before the first thread that could read it starts.
    static ARMED: OnceLock<String> = OnceLock::new();

    /// Returns `true` if the bug `name` is armed in this process.
    pub fn armed(name: &str) -> bool {
        ARMED.get().is_some_and(|armed| armed == name)
    }

    /// Arms the bug `name` for the rest of the process. Only the first call has an effect.
    pub fn arm(name: &str) {
        ARMED.get_or_init(|| name.into());
    }
}

#[cfg(all(any(torture, sim), not(any(loom, shuttle))))]
pub use process::{arm, armed};

/// If the bug `name` is armed, delays one call in `one_in`, chosen at random, for `span_us`.
#[cfg(all(torture, not(any(loom, shuttle))))]
pub fn linger(name: &str, one_in: u32, span_us: u64) {
    if armed(name) && crate::fault::is_drawn(one_in) {
        std::thread::sleep(std::time::Duration::from_micros(span_us));
    }
}
