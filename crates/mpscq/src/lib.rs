//! An intrusive, wait-free multi-producer single-consumer FIFO queue.
//!
//! ```
//! use afterwork_mpscq::{Node, Pop, Queue};
//!
//! static QUEUE: Queue<Node<u64>> = Queue::new();
//!
//! std::thread::spawn(|| QUEUE.push(Node::new(7))).join().unwrap();
//! let mut consumer = QUEUE.try_consumer().unwrap();
//! let Pop::Item(item) = consumer.pop() else { panic!("one was pushed") };
//! assert_eq!(item.into_inner(), 7);
//! ```
//!
//! A push costs one swap and one store, no matter what other threads do. Only one thread at a time
//! pops. It receives the items in the order of the swaps, and never waits. Items carry their own
//! [`Link`].
//!
//! # When to use it
//!
//! - One consumer and many producers, and the order matters: use this queue.
//! - One producer has many small items: link them into a [`Chain`] and publish it with one swap.
//! - The order does not matter and all items are taken at once: [`Stack`] is smaller.
//! - There are several consumers, or the length must be bounded: use a channel. This queue is
//!   unbounded.
//!
//! # The three results of a pop
//!
//! A push has two steps: a swap gives the item its position in the order, and a store links it to
//! the item before. In between, the item cannot be reached, and a pop returns [`Pop::MidPush`]: the
//! consumer neither spins for a producer that may have been preempted, nor mistakes the queue for
//! empty. [`Pop::Empty`] is a guarantee: every push that completed before the pop has been popped.
//!
//! # The parts
//!
//! | part | purpose |
//! |---|---|
//! | [`Queue`], [`Consumer`], [`Drain`] | the safe queue over owned handles |
//! | [`Node`], [`Shared`] | items in boxes and in shared pointers (default feature `alloc`) |
//! | [`Chain`] | items linked privately |
//! | [`RawQueue`], [`RawCursor`] | the two halves, unsafe, to be embedded in other structures |
//! | [`RawStack`] | the word of a LIFO list, to be embedded in other structures |
//! | [`Linked`], [`Link`] | for types of your own as items |
//! | [`Stack`], [`Taken`] | the LIFO list, for comparison and for free lists |
//!
//! # Cost
//!
//! On one thread, a push and a pop together cost about one locked instruction and a cache hit.
//! Several producers contend for the cache line of the newest item's address. A chain contends once
//! for all of its items.
//!
//! Differs from Linux: the stub is a null pointer instead of an item, so an empty queue is a
//! constant and may be moved. A pop distinguishes a producer in mid-push from an empty queue. The
//! orderings are those that the C11 model requires, instead of full barriers and address
//! dependencies.
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
pub use stack::{RawStack, Stack, Taken};
