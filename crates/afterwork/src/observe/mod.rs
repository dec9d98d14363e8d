//! What is going on: the numbers of every subsystem, at one moment.

mod snapshot;

pub use snapshot::{Snapshot, snapshot, snapshot_of};
