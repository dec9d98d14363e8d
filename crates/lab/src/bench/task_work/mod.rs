//! `afterwork-lab bench task-work`: items for one owner thread that sleeps between them.
//!
//! | case | what is done |
//! |---|---|
//! | `wake` | one item every 10 µs to an owner that waits for it: what the wake-ups cost whom |
//! | `wake-burst` | the same items in bursts of 32 |
//! | `service-8`, `service-1024` | a TCP service on io_uring whose finished requests return as task work |
//!
//! In the wake cases, owner and poster are the two ends of a [road]; [service] stands alone. `docs/bench-method.md` lists the timed intervals. Items by value in a steady
//! state, with an owner that does not sleep, are the case `owned` of `bench mpscq`.

mod cases;
mod claims;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod road;
pub mod service;
pub mod thread_usage;
pub mod wake;

pub use cases::{MENU, TaskWorkArgs, cases};
