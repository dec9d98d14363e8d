//! What is going on: the numbers of every subsystem, at one moment.

#[cfg(not(any(loom, shuttle)))]
mod publish;
mod snapshot;

#[cfg(not(any(loom, shuttle)))]
pub use publish::{publish, unpublish};
pub use snapshot::{Snapshot, snapshot, snapshot_of};
