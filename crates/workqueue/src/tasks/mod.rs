//! Tools for async programs, besides futures as items (`future.rs` of the queues): sets of items
//! (`set.rs`), and tokio in futures (`in_tokio.rs`).

#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
pub(crate) mod in_tokio;
pub(crate) mod set;
