//! `afterwork-lab bench mpscq`: items from several producers to one consumer.
//!
//! A queue is a [`Fifo`](fifo::Fifo). Each item belongs to a producer and returns to that producer
//! after the pop ([`flow`]), so that only the queue itself allocates memory during a run.
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
