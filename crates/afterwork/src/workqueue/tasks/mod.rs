//! What async programs need beside futures that are items (`future.rs` of the queues): many of them as one (`set.rs`), and a hold on
//! one that only cancels (`abort.rs`).

pub(crate) mod abort;
pub(crate) mod set;
