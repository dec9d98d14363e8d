//! Work items in memory of their users', for other languages: fixed in size, nothing to destroy, no allocation.
//!
//! A [`RawWork`] is the kernel's `struct work_struct`: part of a larger structure, with a function that gets its address.
//! Whoever queues it keeps it where it is until it has started, been cancelled, or been flushed. Its own function may free
//! it, for nothing of it is looked at once that has been called. `crates/capi` makes the kernel's names of this.
//!
//! | file | what is in it |
//! |---|---|
//! | `work.rs` | an item: queueing, cancelling, waiting |
//! | `runs.rs` | which items run, and who waits for them: outside of the items |
//! | `delayed.rs` | an item with a timer |
//!
//! # Guarantees
//!
//! Those of [`Work`](workqueue::Work): never twice at once, not even through two queues; a call that answers `true`
//! is followed by exactly one run, unless the item is cancelled; what was written before it is seen by the run. And one
//! more: after a cancel or a flush, as long as nobody queues the item again, its memory is its user's.
//!
//! As in the kernel an item is known by its address *and* its function: one that is laid out anew with another function,
//! inside its own run, is another item.
//!
//! Differs from [`Work`](workqueue::Work): a flush runs an item itself only while nobody has come for it, and to cancel
//! one walks through the list that it is in.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(not(any(loom, shuttle)))]
mod delayed;
mod runs;
mod work;

pub use base::internal::{
    panics::of_c,
    params::threads::{HookOfC, Moment, set_hook_of_c},
};
#[cfg(not(any(loom, shuttle)))]
pub use delayed::{Modified, RawDelayed, take_back_timers};
pub use runs::{current, describe};
pub use work::{Misuse, RawWork, WorkFn};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
