//! Worker pools: where items wait, and who gets up to run them.
//!
//! `pool.rs` has the protocol by which a worker that parks and a producer that leaves an item do not miss each other.
//! `dispatch.rs` is what the pool lock guards: `take.rs` takes batches from it, `retire.rs` gives their counts back. What is
//! to be done is decided by plain functions in `policy.rs`. `pwq.rs` is a queue's link, with the pool's side of it
//! and the futures that it has in flight (`anchors.rs`), and `links.rs` has how links come and go.
//!
//! `worker.rs` is what others reach of a worker, `serve.rs` what its thread does, and `pace.rs` how it waits for work.
//! `blocking.rs` and `sampler.rs` notice that one sleeps, `watchdog.rs` names what stands still; `upkeep.rs` culls. `manager.rs` is
//! what pools ask of the thread that looks after all of them, `mayday.rs` how a rescuer is called where no worker can be had, and `rescuer.rs` that rescuer.
//! `tombstones.rs` cuts out what was cancelled, `cut.rs` all that is to be; `recall.rs` gets back what a worker has in hand.

pub(crate) mod anchors;
pub(crate) mod blocking;
pub(crate) mod cut;
pub(crate) mod dispatch;
#[cfg(all(test, not(any(loom, shuttle))))]
mod kick_and_cull;
pub(crate) mod links;
pub(crate) mod manager;
pub(crate) mod mayday;
pub(crate) mod pace;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod pwq;
pub(crate) mod recall;
pub(crate) mod rescuer;
pub(crate) mod retire;
pub(crate) mod sampler;
pub(crate) mod serve;
pub(crate) mod take;
pub(crate) mod tombstones;
pub(crate) mod upkeep;
pub(crate) mod watchdog;
pub(crate) mod worker;
