//! What async programs need beside futures that are items (`future.rs` of the queues): many of them as one (`set.rs`), a hold on one
//! that only cancels (`abort.rs`), and tokio's timers and I/O inside (`in_tokio.rs`).

pub(crate) mod abort;
#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
pub(crate) mod in_tokio;
pub(crate) mod set;
