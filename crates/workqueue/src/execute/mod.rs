//! Running items, and waiting for one.
//!
//! `run.rs` pops an item and runs it, on a worker or on a joiner's thread. `deep.rs` continues on
//! another thread if the joiner's stack is too small. `current.rs` records the runs that a thread
//! is in. `work.rs` has items that can be queued repeatedly, and `join.rs` items that run once.
//! These can be cancelled by their handle (`cancel_on_drop.rs`) or in bulk (`cancel_cut.rs`), and
//! can have a deadline (`deadline.rs`). A waiter is checked by `dependency.rs` and then sleeps in
//! `wait.rs`. `block_on.rs` polls a future on the waiting thread.

pub(crate) mod block_on;
pub(crate) mod cancel_cut;
pub(crate) mod cancel_on_drop;
pub(crate) mod current;
pub(crate) mod deadline;
pub(crate) mod deep;
pub(crate) mod dependency;
pub(crate) mod join;
pub(crate) mod run;
pub(crate) mod wait;
pub(crate) mod work;
