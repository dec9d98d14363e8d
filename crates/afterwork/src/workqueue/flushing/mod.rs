//! Waiting for all that a queue has: `flush.rs` for what it holds now, `drain.rs` until it is empty, with the `rounds.rs` that
//! this takes counted.

pub(crate) mod drain;
pub(crate) mod flush;
pub(crate) mod rounds;
