//! Work items in the caller's memory, for other languages: fixed in size, without a destructor, and
//! queued without allocation.
//!
//! A [`RawWork`] corresponds to the kernel's `struct work_struct`: a member of a larger structure,
//! with a function that receives its address. The item must stay in place until it has started, has
//! been cancelled or has been flushed. Its own function may free it, because the library does not
//! access the item once it has called the function. `crates/capi` offers these items under the
//! kernel's names.
//!
//! | file | content |
//! |---|---|
//! | `work.rs` | an item: queueing, cancelling, waiting |
//! | `runs.rs` | the executing items and their waiters, stored outside the items |
//! | `delayed.rs` | an item with a timer |
//!
//! # Guarantees
//!
//! The guarantees are those of [`Work`](workqueue::Work): runs of an item never overlap, even if it
//! is queued on two queues. Each call that returns `true` is followed by exactly one run, unless
//! the item is cancelled. The run sees everything that was written before that call. After a cancel
//! or a flush the library does not access the item's memory until the item is queued again.
//!
//! As in the kernel, an item is identified by its address *and* its function: an item that is
//! reinitialized with another function during its own run is a different item.
//!
//! Differs from [`Work`](workqueue::Work): a flush can run an item on the calling thread only until
//! a worker has taken the item, and a cancel walks the list that contains the item.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(not(any(loom, shuttle)))]
mod delayed;
mod runs;
mod work;

pub use base::internal::panics::of_c;
pub use base::internal::params::threads::{HookOfC, Moment, set_hook_of_c};
#[cfg(not(any(loom, shuttle)))]
pub use delayed::{Modified, RawDelayed, take_back_timers};
pub use runs::{current, describe};
pub use work::{Misuse, RawWork, WorkFn};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
