//! Worker pools: the threads that run items, and the lists in which items wait for them.
//!
//! `pool.rs` describes how a parking worker and a producer avoid missing each other. `dispatch.rs`
//! contains the state that the pool lock guards: `take.rs` takes batches from it and releases
//! in-flight counts, `seats.rs` acquires and releases the seats that the batches need, and
//! `dispatch/shares.rs` divides CPU time. The decisions are plain functions in `policy.rs`.
//! `pwq.rs` contains the pool workqueue, which connects a queue to a pool, and `anchors.rs` counts
//! its waiting futures.
//!
//! `worker.rs` contains the loop of a worker's thread and the part of a worker that other threads
//! use. `pace.rs` decides how a worker waits for work. `blocking.rs` and `sampler.rs` notice that a
//! worker sleeps, `watchdog.rs` reports stalls, and `upkeep.rs` culls idle workers. `manager.rs`
//! contains the requests from pools to the manager. `mayday.rs` decides when a rescuer is called,
//! and `rescuer.rs` is the rescuer's thread. `tombstones.rs` removes cancelled items, and `cut.rs`
//! removes all waiting items of a queue, and puts local batches back.

pub(crate) mod anchors;
pub(crate) mod blocking;
pub(crate) mod cut;
pub(crate) mod dispatch;
#[cfg(all(test, not(any(loom, shuttle))))]
mod kick_and_cull {
    mod tests;
}
pub(crate) mod manager;
pub(crate) mod mayday;
pub(crate) mod pace;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod pwq;
pub(crate) mod rescuer;
pub(crate) mod sampler;
pub(crate) mod seats;
pub(crate) mod take;
pub(crate) mod tombstones;
pub(crate) mod upkeep;
pub(crate) mod watchdog;
pub(crate) mod worker;
