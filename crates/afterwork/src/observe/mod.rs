//! The counters of a process, as a snapshot and for `afterwork top`.
//!
//! ```
//! use afterwork::{observe, workqueue};
//!
//! workqueue::system()?.spawn(|| ()).join()?;
//! println!("{}", observe::snapshot()?); // tables of queues and pools
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`snapshot`] returns the counters of workqueues. [`publish`] shows the counters of every subsystem to other processes of
//! the same user.

#[cfg(not(any(loom, shuttle)))]
mod publish;
mod snapshot;

#[cfg(not(any(loom, shuttle)))]
pub use publish::{publish, unpublish};
pub use snapshot::{Snapshot, snapshot, snapshot_of};
