//! Running items, and waiting for one.
//!
//! `run.rs` takes an item off a list and runs it, on a worker or on the thread of a joiner, as far as a stack reaches
//! (`deep.rs`); `current.rs` knows which runs a thread is in. `work.rs` is an item that can be queued again and again,
//! `join.rs` one that runs once, and may be cancelled with its handle (`cancel_on_drop.rs`) or with all else (`cancel_cut.rs`).
//! Who waits for either sleeps in `wait.rs`, having asked `dependency.rs` whether he may; who waits for a future polls it in
//! `block_on.rs`.

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
