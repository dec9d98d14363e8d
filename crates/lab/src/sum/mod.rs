//! `afterwork sum`: checksums of whole trees, as a program that defers its work.
//!
//! One thread owns an io_uring ring and everything about files: it opens them, reads them, and prints. It never
//! computes: each buffer that was read goes, with the state of its file's checksum, to a workqueue that is limited
//! to the CPUs at hand, and comes home by a mailbox whose bell is polled by the same ring. So one sleep waits for
//! the disk and for the workers together, and nobody else touches a file, a slot or a line of output: no lock.
//!
//! ```text
//! walk.rs ──► pipeline.rs ◄──────── mailbox ◄──────── workers
//!               │   ▲  buffers, checksums so far         ▲
//!        open,  │   │  what was read                     │ a buffer, a checksum so far
//!        read   ▼   │                                    │
//!             files.rs (io_uring) ─────────────► workqueue
//! ```
//!
//! Output and exit status are those of sha256sum. `plain.rs` does the same by one work item a file where there is no
//! io_uring.

mod args;
mod check;
mod command;
mod files;
mod line;
mod order;
mod pipeline;
mod plain;
mod sums;
mod walk;

pub use args::{Read, SumArgs};
pub use command::run;
pub use line::Digest;
pub use pipeline::BUFFER_BYTES;
pub use plain::sum_of;
pub use sums::{Sums, try_uring};
