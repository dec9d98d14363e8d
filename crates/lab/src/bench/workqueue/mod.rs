//! `afterwork-lab bench workqueue`: small items on a pool of workers.
//! `docs/bench-method.md` defines the cases and figures.

pub mod batch;
mod cases;
mod claims;
pub mod completion;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod producers;
pub mod shape;
pub mod subject;

pub use cases::{MENU, WorkqueueArgs, cases};
