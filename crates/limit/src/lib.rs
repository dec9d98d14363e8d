//! `max_active`, which limits the threads that run items of a queue at once; the capacity, which
//! limits the waiting items; and shares of CPU time.
//!
//! This crate is for the other crates of afterwork. Programs use the crate `afterwork`.

// `active.rs` describes the protocol: for each batch, a worker acquires a *seat* at the queue's
// gate or joins the gate's wait queue. The gate is generic over its waiters. CPUs cache seats
// between runs. `share.rs` selects the next waiter if there are several NUMA nodes. `capacity.rs`
// manages the permits of waiting items and the wait queue of producers. `account.rs`, `level.rs`
// and `tree.rs` select the next pwq in a pool whose queues or groups have shares of CPU time.
// `queue_core.rs` contains the state that the pwqs of a queue share. `settled.rs` notifies threads
// and tasks that wait for items to end.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[doc(hidden)]
mod account;
#[doc(hidden)]
mod active;
#[doc(hidden)]
mod capacity;
#[doc(hidden)]
pub mod internal;
mod level;
#[doc(hidden)]
mod queue_core;
#[doc(hidden)]
mod settled;
mod share;
#[doc(hidden)]
mod tree;
