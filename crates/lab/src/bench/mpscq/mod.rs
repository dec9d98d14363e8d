//! `afterwork-lab bench mpscq`: items from several producers to one consumer.
//! `docs/bench-method.md` defines the cases and figures.

mod cases;
pub mod fifo;
pub mod flow;
pub mod item;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod polling;
pub mod stock;

pub use cases::{MENU, MpscqArgs, cases};
