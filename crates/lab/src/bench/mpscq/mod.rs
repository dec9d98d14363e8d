//! `afterwork-lab bench mpscq`: items from many producers to one consumer.
//!
//! | case | what is done |
//! |---|---|
//! | `push-pop` | items that hang in the queue themselves, or boxes through a channel; far apart in memory |
//! | `push-pop-contiguous` | the same with items side by side in memory |
//! | `owned` | 8 bytes by value: a mailbox that recycles its nodes, against channels |
//!
//! A queue is a [`Fifo`](fifo::Fifo). Items belong to a producer each and come home to it once they were popped
//! ([`flow`]), so that a run allocates nothing but what the queue itself does. `docs/bench-method.md` tells what is
//! timed.

mod cases;
mod claims;
pub mod fifo;
pub mod flow;
pub mod item;
pub mod metrics;
pub mod ours;
pub mod peers;
pub mod polling;
pub mod stock;

pub use cases::{MENU, MpscqArgs, cases};
