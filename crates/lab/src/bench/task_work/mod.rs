//! `afterwork-lab bench task-work`: items for one owner thread that sleeps between them.
//!
//! | case | scenario |
//! |---|---|
//! | `wake` | one item every 10 µs to an owner that waits for it: the cost of both wake-ups |
//! | `wake-burst` | the same items in bursts of 32 |
//! | `service-8`, `service-1024` | a TCP service on io_uring; requests return as task work |
//!
//! In the wake cases, poster and owner are the two ends of a [path](wake::Post). [service] does not use a
//! path. `docs/bench-method.md` defines the figures. The case `owned` of `bench mpscq` measures
//! items by value in a steady state, with an owner that does not sleep.

mod cases;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod service;
pub mod wake;

pub use cases::{MENU, TaskWorkArgs, cases};
