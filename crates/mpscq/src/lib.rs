//! An intrusive, wait-free multi-producer single-consumer FIFO queue.
//!
//! Any thread pushes with one swap and one store, whatever other threads do. One thread at a time pops, in the
//! order of the swaps, and never waits either. Items carry their own [`Link`], so the queue allocates nothing.
//!
//! # When to use it, and when not
//!
//! - One owner, many who send it work, and the order matters: this queue.
//! - Many small items from one producer at a time: link them into a [`Chain`] and publish it with one swap.
//! - No order needed, everything taken at once: [`Stack`] is smaller.
//! - Several consumers, or a bound on the length: use a channel. This queue grows as its items do.
//!
//! # The three answers of a pop
//!
//! A push is two steps: a swap that gives the item its place in the order, and a store that links it to the item
//! before. Between the two it has a place and cannot be reached. A consumer that comes by just then is told so
//! ([`Pop::MidPush`]), rather than made to spin for a producer that may have been preempted, or told that the
//! queue is empty. [`Pop::Empty`] is a claim: no push that completed before the pop is still inside.
//!
//! # The parts
//!
//! | part | what it is |
//! |---|---|
//! | [`Queue`], [`Consumer`], [`Drain`] | the safe queue over owned handles |
//! | [`Node`], [`Shared`] | items in boxes and in shared pointers (feature `alloc`, on by default) |
//! | [`Chain`] | items linked privately |
//! | [`RawQueue`], [`RawCursor`] | the two halves, unsafe, to be embedded and placed as you like |
//! | [`Linked`], [`Link`] | how a type of yours becomes an item |
//! | [`Stack`], [`Taken`] | the LIFO list, to measure against and for free lists |
//!
//! # Cost
//!
//! On one thread a push and a pop together cost about as much as one locked instruction and a cache hit. With
//! several producers the line that holds the newest item's address is what they fight for: chains divide that
//! price by their length.
//!
//! Differs from Linux: the stub is a null pointer rather than an item, so an empty queue is a constant and may
//! be moved; a pop tells a producer in mid-push from an empty queue; orderings are those that the C11 model
//! needs instead of full barriers and address dependencies (see `docs/orderings.md`).
#![cfg_attr(not(any(loom, shuttle)), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod chain;
mod link;
#[cfg(feature = "alloc")]
mod node;
mod order;
mod queue;
mod raw;
#[cfg(feature = "alloc")]
mod shared;
mod stack;
#[cfg(all(test, feature = "alloc", not(any(loom, shuttle))))]
mod tests;

pub use chain::Chain;
pub use link::{Link, Linked};
#[cfg(feature = "alloc")]
pub use node::Node;
pub use queue::{Consumer, Drain, Queue, Stopped};
pub use raw::{Pop, RawCursor, RawQueue};
#[cfg(feature = "alloc")]
pub use shared::{Claim, Shared};
pub use stack::{Stack, Taken};
