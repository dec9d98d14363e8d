//! `afterwork-lab bench task-work`: items for one owner thread that sleeps between them.
//! `docs/bench-method.md` defines the cases and figures.

mod cases;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod service;
pub mod wake;

pub use cases::{MENU, TaskWorkArgs, cases};
