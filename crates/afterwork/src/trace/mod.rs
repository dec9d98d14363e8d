//! Events for the `tracing` crate: what the kernel's trace points of workqueues and RCU are, behind the feature `tracing`.
//!
//! Without the feature, and under a model, nothing of it is there: `off.rs` has the same names, which do nothing and make
//! none of their arguments. With it an event that no subscriber wants costs one relaxed load and a compare.
//!
//! # A subscriber is user code
//!
//! - It is called with no lock of ours held. What is to be told of a step under the pool lock is noted there
//!   ([`Noted`]) and told after it.
//! - What it panics with is dropped: an event is told in the middle of a worker's round, which must not end there.
//! - Between the claim of an item and its push, in an item, and in a grace period it is called where it must not
//!   wait for that very thing; docs/observing.md says so to users.
//!
//! What is told of an item is read while the item is sure to be there: before it is pushed, under the lock of the pool
//! that it is taken from, and inside its run.

#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
mod off;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
mod on;

#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
pub(crate) use off::*;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
pub(crate) use on::*;

/// What is told of an item.
#[cfg_attr(
    not(all(feature = "tracing", not(any(loom, shuttle)))),
    expect(dead_code, reason = "made by the feature `tracing` alone")
)]
pub(crate) struct Item<'a> {
    /// Its address, which tells it from others that are there at the same time.
    pub(crate) address: usize,
    /// Returns the type of its function.
    pub(crate) func: fn() -> &'static str,
    pub(crate) queue: &'a str,
    /// The number of its pool, which the names of workers carry.
    pub(crate) pool: usize,
}
