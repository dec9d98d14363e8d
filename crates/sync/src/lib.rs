//! Atomics, locks, threads, clocks and system calls, on the real machine and in models.
//!
//! ```
//! use afterwork_sync::{Mutex, atomic::{AtomicU32, Ordering}, thread};
//!
//! static COUNT: AtomicU32 = AtomicU32::new(0);
//! let thread = thread::spawn("counter", || { COUNT.fetch_add(1, Ordering::Relaxed); })?;
//! thread.join().unwrap();
//! assert_eq!(COUNT.load(Ordering::Relaxed), 1);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Code above this crate never uses `std::sync`, `std::thread`, a clock or a system call directly.
//! One source therefore runs on five back ends:
//!
//! | back end | chosen by | purpose |
//! |---|---|---|
//! | the real machine | default | production |
//! | [loom](https://docs.rs/loom) | `--cfg loom` | all interleavings of a small case, weak memory |
//! | [shuttle](https://docs.rs/shuttle) | `--cfg shuttle` | many interleavings of a large case |
//! | a simulated machine (`afterwork-simachine`) | `--cfg sim` | scaling on 8 to 1024 CPUs |
//! | [Miri](https://github.com/rust-lang/miri) | `--cfg miri`, by itself | undefined behavior |
//!
//! A back end is never chosen by a Cargo feature. Cargo unifies features across a build, and a
//! model's clock must not end up in a release.
//!
//! Without the feature `std` it is `no_std`, with [`atomic`], [`cell`], [`hint`] and [`twin`].
//!
//! # Limits of models
//!
//! Loom treats `SeqCst` *accesses* as `AcqRel`, but checks `SeqCst` fences. It runs at most five
//! threads, and no timed wait times out. Shuttle treats every ordering as `SeqCst`. A protocol that
//! needs a store before a later load therefore uses `fence(SeqCst)` on both sides.
//!
//! Miri runs the code of the real machine, except for a few calls that it does not emulate.
#![cfg_attr(not(any(feature = "std", loom, shuttle, sim)), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(not(target_endian = "little"))]
compile_error!("afterwork waits on the low half of 64-bit words: little-endian machines only");

#[cfg(all(sim, not(all(feature = "std", feature = "sim"))))]
compile_error!("`--cfg sim` needs the features `std` and `sim` of afterwork-sync");
#[cfg(all(loom, not(feature = "loom")))]
compile_error!("`--cfg loom` needs the feature `loom` of afterwork-sync");
#[cfg(all(shuttle, not(feature = "shuttle")))]
compile_error!("`--cfg shuttle` needs the feature `shuttle` of afterwork-sync");

// The back end. It has the modules `sync` and `thread` of the standard library; `core` has only
// `sync`. The back ends of models are public, but only for the macros of this crate.
#[cfg(not(any(feature = "std", loom, shuttle, sim)))]
use core as backend;
#[cfg(all(feature = "std", not(any(loom, shuttle, sim))))]
use std as backend;

#[cfg(loom)]
#[doc(hidden)]
pub use loom as backend;
#[cfg(shuttle)]
#[doc(hidden)]
pub use shuttle as backend;
#[cfg(sim)]
use simachine as backend;

pub mod atomic;
pub mod barrier;
pub mod cell;
pub mod fault;
pub mod hint;
#[cfg_attr(not(feature = "std"), path = "no_slice.rs")]
pub mod slice;
pub mod span;
#[cfg(feature = "std")]
mod system;
mod tunable;
pub mod twin;

#[cfg(all(test, sim))]
#[path = "simulated_tests.rs"]
mod simulated;

/// The simulated machine.
#[cfg(sim)]
pub use simachine as sim;
#[cfg(all(feature = "processes", not(any(loom, shuttle))))]
pub use system::shared_file;
#[cfg(feature = "std")]
pub use system::{
    Backoff, Mutex, MutexGuard, OnceLock, asym, cpu, env, eventfd, fork, futex, identity, lock,
    pages, process, thread, time, usage,
};
pub use tunable::Tunable;

/// A shared pointer, whose count is visible to loom.
#[cfg(all(feature = "alloc", not(loom)))]
pub use alloc::sync::Arc;

#[cfg(all(feature = "alloc", loom))]
pub use loom::sync::Arc;

/// Types whose operations and orderings are invisible to a model.
#[cfg(feature = "alloc")]
pub mod unmodelled {
    /// A shared pointer that may be a method receiver, unlike a model's.
    pub use alloc::sync::{Arc, Weak};
    /// Atomics that each thread reads only after its own writes, or that no model changes.
    pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
}

/// Declares functions that are `const` on the real machine and plain in a model.
///
/// A constructor for a `static` needs this, because a model's atomics have no constant ones.
#[macro_export]
macro_rules! const_unless_model {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($args:tt)*) -> $result:ty $body:block)*) => {$(
        #[cfg(not(any(loom, shuttle)))]
        $(#[$meta])* $vis const fn $name($($args)*) -> $result $body
        #[cfg(any(loom, shuttle))]
        $(#[$meta])* $vis fn $name($($args)*) -> $result $body
    )*};
}

/// Creates an array from an expression, which is constant on the real machine.
#[macro_export]
macro_rules! array_of {
    ($each:expr; $len:ident) => {{
        #[cfg(not(any(loom, shuttle)))]
        let array = [const { $each }; $len];
        #[cfg(any(loom, shuttle))]
        let array: [_; $len] = ::core::array::from_fn(|_| $each);
        array
    }};
}

/// Declares a value that lives as long as the process, and the function that returns it.
///
/// On the real machine it is a `static` with a constant initializer. A model creates it on the
/// first call of each run, and drops it after the run, when only the first thread may exist.
///
/// ```
/// # use afterwork_sync as sync;
/// use sync::atomic::{AtomicU32, Ordering};
/// sync::process_wide! {
///     /// Counts something.
///     fn counter() -> AtomicU32 = AtomicU32::new(5)
/// }
/// assert_eq!(counter().load(Ordering::Relaxed), 5);
/// ```
#[cfg(feature = "std")]
#[macro_export]
macro_rules! process_wide {
    ($(#[$meta:meta])* $vis:vis fn $name:ident() -> $type:ty = $init:expr) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$meta])*
        #[inline(always)]
        $vis const fn $name() -> &'static $type {
            static VALUE: $type = $init;
            &VALUE
        }
        #[cfg(any(loom, shuttle))]
        $(#[$meta])*
        $vis fn $name() -> &'static $type {
            $crate::backend::lazy_static! { static ref VALUE: $type = $init; }
            &VALUE
        }
    };
}

/// The model checker itself, for tests.
#[cfg(loom)]
pub use loom::{MAX_THREADS, model};
