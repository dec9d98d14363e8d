//! Tools for async programs, in addition to futures as items (`queues/future.rs`): sets of items
//! (`set.rs`), cancellation (`cancellation.rs`), and tokio in futures (`in_tokio.rs`).

pub(crate) mod cancellation;
#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
pub(crate) mod in_tokio;
pub(crate) mod set;
