//! Runs items, and waits for them.
//!
//! `run.rs` pops an item and runs it, on a worker or on a joiner's thread, and records the runs
//! that a thread is in. `work.rs` contains items that can be queued repeatedly, and `join.rs` items
//! that run once, with their handles. These can be cancelled by their handle or in bulk
//! (`cancel_cut.rs`), and can have a deadline (`deadline.rs`). `wait.rs` checks a waiter, lets the
//! waiter help on another thread if its stack is too small, and puts it to sleep. `lend.rs` lends
//! the waiter's group seats while it sleeps. `block_on.rs` polls a future on the waiting thread.

pub(crate) mod block_on;
pub(crate) mod cancel_cut;
pub(crate) mod deadline;
pub(crate) mod join;
pub(crate) mod lend;
pub(crate) mod run;
pub(crate) mod wait;
pub(crate) mod work;
