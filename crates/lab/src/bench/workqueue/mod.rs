//! `afterwork-lab bench workqueue`: tiny items to a pool of workers.
//!
//! | case | what is done |
//! |---|---|
//! | `one-at-a-time` | each producer queues an item, waits for it, queues the next |
//! | `batch-1000` | each producer queues a thousand, waits for them together, queues the next thousand |
//! | `fan-out` | one producer queues a million and waits for them together |
//! | `lock-hold` | one at a time, with the pool lock under the clock |
//!
//! A pool is a [`Subject`](subject::Subject); whatever takes closures is one through
//! [`OneShot`](subject::OneShot). `docs/bench-method.md` tells what is timed.

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
