//! Workqueues: queueing, their pools' registry, their timers, their end.
//!
//! `queue.rs` is the queue, `builder.rs` describes it, with the kernel's kinds in `kinds.rs` and the kernel's queues in
//! `system.rs`. `enqueue.rs` claims an item and pushes it, `spawn.rs` does so with closures and futures (`future.rs`), `spawn_all.rs` with many, `place.rs`
//! where one says, `admission.rs` where there is room, `expiry.rs` by a deadline, `urgent.rs` ahead of others; `weak.rs` has handles
//! that keep no queue. `shares.rs` sets what a queue gets of its pools' time. `reroute.rs` changes the routes of a queue in use. `registry.rs` holds
//! pools that queues share, and the timers (`timers.rs`, in a `wheel.rs`) that queue items later, and wake tasks (`sleeps.rs`).
//! `end.rs` has the protocol of a queue's end. `describe.rs` gathers
//! what is known of a queue.

pub(crate) mod admission;
pub(crate) mod builder;
pub(crate) mod describe;
pub(crate) mod end;
pub(crate) mod enqueue;
pub(crate) mod expiry;
pub(crate) mod future;
pub(crate) mod kinds;
pub(crate) mod place;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod reroute;
pub(crate) mod shares;
pub(crate) mod sleeps;
pub(crate) mod spawn;
pub(crate) mod spawn_all;
pub(crate) mod system;
pub(crate) mod timers;
pub(crate) mod urgent;
pub(crate) mod weak;
pub(crate) mod wheel;
