//! `afterwork-lab bench task-work`: items for one owner thread that sleeps between them.
//!
//! In the wake cases, poster and owner are the two ends of a [path](wake::Post). [service] does not
//! use a path. The case `owned` of `bench mpscq` measures items by value in a steady state, with an
//! owner that does not sleep. `docs/bench-method.md` defines the cases and figures.

mod cases;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod service;
pub mod wake;

pub use cases::{MENU, TaskWorkArgs, cases};
