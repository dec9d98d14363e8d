//! `afterwork-lab bench scale`: the growth of costs and of memory.
//!
//! | case | of how many | what is timed |
//! |---|---|---|
//! | `producers` | threads that queue, 1 to 64 | an item, from a fixed number of them |
//! | `queues` | queues, 1 to 1,000 | an item, spread over all of them |
//! | `pending` | items that wait, 1 to 10^6 | an item, queued behind workers that are held, and run |
//! | `length` | nanoseconds of an item, 0 to 1 ms | an item, on all CPUs |
//! | `readers` | registered readers, 1 to 10,000 | a replacement under RCU |
//! | `mailboxes` | mailboxes, 1 to 100,000 | a post and its receipt |
//! | `timers` | sleeps, 1 to 10^7 | to begin one and to give it up |
//!
//! A variant is measured at each number of an [axis](axis::Axis), in a process of its own, for memory is told, too. Cases are
//! ranked by the time at the largest number. How the time of one grows is fitted ([`fit`]) and held against a limit on the same
//! axis: log n, or n log n where one action visits all n.

pub mod axis;
mod cases;
pub mod fit;
pub mod pools;
pub mod things;

pub use cases::{MENU, cases};
