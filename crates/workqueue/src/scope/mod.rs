//! Borrowed data: several threads work at what lies on one thread's stack, and are gone before that goes on.
//!
//! `crew.rs` has the protocol: workers come to the owner's work by tickets, which are items of the queue, and nobody is
//! inside any more when the owner goes on. `scoped.rs` is a scope, whose items stand in a `line.rs`; `pieces.rs` cuts a
//! slice while it is worked at, and `join.rs` calls two closures. What panics is kept in `first_panic.rs`.
//!
//! # The owner helps with its own work only
//!
//! It runs what no worker has started, on no seat of the queue's: to the queue that is a part of what the owner does
//! anyway. It never runs anything else meanwhile, so that it cannot meet a lock, or a seat, that it holds itself. Hence
//! none of these three waits for a worker to be had, only for one that is inside already:
//!
//! | the queue | what becomes of the work |
//! |---|---|
//! | has no seat left, is paused, gets no threads, or the owner is in an item of it | the owner does it |
//! | is being drained, or was destroyed | tickets are refused, the owner does it |
//! | is of bottom halves | the owner does it: its parts may wait, which the queue's workers must not |
//! | is ordered | a scope's items start in order, one at a time, beside other items of the queue |
//!
//! A drain waits for tickets, as for any item: for what workers have started, not for what the owner may yet do.

mod crew;
mod first_panic;
mod join;
mod line;
#[cfg(any(loom, shuttle))]
pub(crate) mod model;
mod pieces;
mod scoped;
mod stand;

pub use scoped::Scope;
