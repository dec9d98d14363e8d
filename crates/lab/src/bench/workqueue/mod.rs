//! `afterwork-lab bench workqueue`: small items on a pool of workers.
//!
//! | case | scenario |
//! |---|---|
//! | `one-at-a-time` | each producer queues an item and waits for it before it queues the next |
//! | `batch-1000` | each producer repeatedly queues a thousand items and waits for all of them |
//! | `fan-out` | one producer queues a million items and waits for all of them |
//! | `lock-hold` | one item at a time, with hold times of the pool lock |
//!
//! A pool is a [`Subject`](subject::Subject). [`OneShot`](subject::OneShot) adapts every pool that
//! runs closures. `docs/bench-method.md` defines the figures.

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
