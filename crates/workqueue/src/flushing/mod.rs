//! Waiting for all that a queue has: `flush.rs` for what it holds now, `drain.rs` until it is empty, and `drain_async.rs` for
//! tasks, with the `rounds.rs` that this takes counted. `cancel_all.rs` is for who does not wait.

pub(crate) mod cancel_all;
pub(crate) mod drain;
pub(crate) mod drain_async;
pub(crate) mod flush;
pub(crate) mod rounds;
