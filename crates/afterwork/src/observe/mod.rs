//! The counters of a process, as a snapshot and for `afterwork top`.
//!
//! ```
//! use afterwork::{observe, workqueue};
//!
//! workqueue::system()?.spawn(|| ()).join()?;
//! println!("{}", observe::snapshot()?); // tables, one for each kind of thing
//! print!("{}", observe::snapshot()?.to_prometheus()); // the body of a response to `GET /metrics`
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`snapshot`] returns the counters of all subsystems, and [`publish`] shows them to other
//! processes of the same user.

mod exposition;
#[cfg(not(any(loom, shuttle)))]
mod publish;
#[cfg(feature = "workqueue")]
mod snapshot;

pub use exposition::Exposition;
#[cfg(not(any(loom, shuttle)))]
pub use publish::{publish, unpublish};
#[cfg(feature = "workqueue")]
pub use snapshot::{Snapshot, snapshot, snapshot_of};
