//! Captures the stacks of other threads of this process, for reports about stuck threads.
//!
//! ```
//! afterwork_stacks::enable(23).unwrap(); // SIGURG
//! let thread = std::thread::spawn(std::thread::park);
//! # let me = sync::thread::current().0;
//! for stack in afterwork_stacks::capture([me], 23, "std::rt::") {
//!     println!("{stack}");
//! }
//! # thread.thread().unpark();
//! ```
//!
//! The asked thread may be interrupted anywhere, even in the allocator or the loader, whose locks
//! unwinding needs. It therefore only copies: a signal interrupts it, and the handler stores its
//! registers and the top of its stack in a slot (`answer_slot.rs`). The caller walks the copy
//! (`walk.rs`). Sampling profilers work in this way, too. Names are resolved when a stack is
//! displayed.

/// This module is public so that models can use it.
#[doc(hidden)]
pub mod answer_slot;
#[cfg(not(any(loom, shuttle, sim)))]
mod capture;
#[cfg(not(any(loom, shuttle, sim)))]
mod signal;
#[cfg(not(any(loom, shuttle, sim)))]
mod stack;
#[cfg(not(any(loom, shuttle, sim)))]
mod walk;

#[cfg(not(any(loom, shuttle, sim)))]
pub use {
    capture::{capture, enable},
    stack::Stack,
};
