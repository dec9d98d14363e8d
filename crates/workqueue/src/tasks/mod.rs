//! Tools for async programs, besides futures as items (`future.rs` of the queues): sets of items
//! (`set.rs`), handles that only cancel (`abort.rs`), and tokio in futures (`in_tokio.rs`).

pub(crate) mod abort;
#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
pub(crate) mod in_tokio;
pub(crate) mod set;
