//! `afterwork-lab bench mpscq`: items from several producers to one consumer.
//!
//! | case | scenario |
//! |---|---|
//! | `push-pop` | intrusive items, or boxes through a channel; scattered in memory |
//! | `push-pop-contiguous` | the same with items next to each other in memory |
//! | `owned` | 8 bytes by value: a mailbox that recycles its nodes, and channels |
//!
//! A queue is a [`Fifo`](fifo::Fifo). Each item belongs to a producer and returns to that producer
//! after the pop ([`flow`]), so that only the queue itself allocates memory during a run.
//! `docs/bench-method.md` defines the figures.

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
