//! Events for the `tracing` crate, behind the feature `tracing`. They correspond to the kernel's
//! trace points of workqueues and RCU.
//!
//! Without the feature, and in a model, `off.rs` defines the same names. Its functions do nothing
//! and do not evaluate their arguments. With the feature, an event without a subscriber costs one
//! relaxed load and a comparison.
//!
//! # A subscriber is user code
//!
//! - It is called with no lock of the library held. Events that occur under the pool lock are
//!   recorded there ([`Noted`]) and emitted after the lock is released.
//! - Its panics are caught: an event is emitted in the middle of a worker's loop, which a panic
//!   must not end.
//! - It is called between the claim of an item and its push, inside an item, and inside a grace
//!   period. It must not wait there for the same item or grace period.
//! - It is not called while other threads wait for this one to leave a queue: during a visit
//!   (`queues/end.rs` of `crates/workqueue`), and between the two steps of an enqueue on an ordered
//!   queue (`route/routes.rs` there). During such a stay, a [`Held`] keeps the events of its thread
//!   and the spans that it drops, and emits the events after the stay. A subscriber may therefore
//!   cancel everything, change attributes, or drop last handles.
//! - It may drop the last handle to a queue or change attributes, because neither waits inside a
//!   subscriber. See [`is_emitting`].
//!
//! The data of an item's event is read while the item is known to exist: before it is pushed, under
//! the lock of the pool from which it is taken, or during its run.

#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
mod held;
#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
mod off;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
mod on;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
mod spans;

#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
pub use held::{Held, hold, hold_without_span};
#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
pub use off::*;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
pub use on::*;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
pub use spans::{enter, forget, remember};

/// The data of an item that events report.
pub struct Item<'a> {
    /// Its address, which distinguishes it from other existing items.
    pub address: usize,
    /// A function that returns the type name of the item's function.
    pub func: fn() -> &'static str,
    pub queue: &'a str,
    /// The number of its pool, which is part of the names of workers.
    pub pool: usize,
}
