//! `afterwork-lab bench scale`: the growth of costs and of memory.
//!
//! | case | axis | what is timed |
//! |---|---|---|
//! | `producers` | producer threads, 1 to 64 | an item, of a fixed total number |
//! | `queues` | queues, 1 to 1,000 | an item, with items spread over all queues |
//! | `pending` | pending items, 1 to 10^6 | an item, queued to blocked workers and then run |
//! | `length` | nanoseconds of an item, 0 to 1 ms | an item, on all CPUs |
//! | `readers` | registered readers, 1 to 10,000 | a replacement under RCU |
//! | `mailboxes` | mailboxes, 1 to 100,000 | a post and its receipt |
//! | `domains` | SRCU domains, 1 to 1,200 | queueing a domain's first callback, and its run |
//! | `timers` | sleeps, 1 to 10^7 | the start and the cancellation of a sleep |
//!
//! A variant is measured at each number of an [axis](axis::Axis). It runs in a process of its own,
//! because memory is also measured. Variants are ranked by the time at the largest number. The
//! growth of the time is fitted ([`fit`]) and compared with a limit on the same axis: log n, or n
//! log n if one action visits all n things.

pub mod axis;
mod cases;
pub mod fit;
pub mod pools;
pub mod things;

pub use cases::{MENU, cases};
