//! Borrowed data: several threads work on data on one thread's stack, and stop before that thread
//! continues.
//!
//! `crew.rs` describes the protocol: a ticket, which is an item of the queue, brings a worker to
//! the owner's work, and no worker is still inside when the owner continues. `scoped.rs` contains
//! scopes, whose pending items are in `pending.rs`. `pieces.rs` cuts a slice into pieces as threads
//! take them, and `join.rs` calls two closures.
//!
//! The owner runs the items that no worker has started. It needs no seat: to the queue, these runs
//! are part of the code that the owner executes anyway. While it waits, it runs no other items,
//! which might need a lock or a seat that it holds itself. A scope, a join or work on pieces
//! therefore waits only for workers that are already inside:
//!
//! | the queue | effect on the work |
//! |---|---|
//! | has no free seat or no threads, is paused, or the owner is in its item | the owner runs it |
//! | is being drained, or was destroyed | tickets are rejected; the owner runs it |
//! | is a bottom-half queue | the owner runs it: parts may block, the queue's workers must not |
//! | is ordered | items of a scope run in order, one at a time, but overlap with other items |
//!
//! A drain waits for tickets as for any item, and so for parts that workers have started, but not
//! for parts that the owner has yet to run.

mod crew;
mod join;
#[cfg(any(loom, shuttle))]
pub(crate) mod model;
mod pending;
mod pieces;
mod scoped;

pub use scoped::Scope;
