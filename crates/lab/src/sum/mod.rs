//! `afterwork sum`: checksums of whole trees, as a program that defers its work.
//!
//! ```text
//! walk.rs ──► sums.rs ──── batches of files ────► workqueue, limited to the CPUs at hand
//!                ▲                                    │  a ring and buffers of this CPU: reader.rs
//!                │                                    │  opens, reads by one ring:       files.rs
//!                └───── mailbox ◄──── checksums ──────┘  hashes where it has read:       hash.rs
//! ```
//!
//! A path has one holder at a time: the walk gives it to a batch, the batch to the mailbox, that to whoever prints. Nothing
//! is replaced while others read it, so there is no table of paths, and nothing here for RCU to do.
//!
//! Output and exit status are those of sha256sum. Where there is no io_uring, workers read by plain calls (`plain.rs`).

mod args;
mod check;
mod command;
mod files;
mod hash;
mod line;
mod order;
mod plain;
mod reader;
mod sums;
mod walk;

pub use args::{Read, SumArgs};
pub use command::run;
pub use line::Digest;
pub use plain::sum_of;
pub use sums::{Sums, try_uring};
pub use walk::Walk;

pub use reader::BATCH;

/// What a read brings at most.
pub const BUFFER_BYTES: usize = 64 * 1024;
