//! Defers work to pools of worker threads that the whole process shares.
//!
//! A [`Workqueue`] takes closures ([`Workqueue::spawn`]), futures ([`Workqueue::spawn_async`]) or reusable items
//! ([`Work`]) and runs them on a worker pool near the caller's CPU. Queues are cheap and own no threads: pools with like attributes are shared by all
//! queues, have as many workers as CPUs while nobody blocks, and get more when somebody does.
//!
//! # Journey of an item
//!
//! `routes.rs` picks the pool of the caller's pod (`reroute.rs` changes which that is), `enqueue.rs` claims the item
//! (`state.rs`, `head.rs`) → `pool.rs` leaves it in the injector (`list.rs`) and kicks a worker if none is looking →
//! `worker.rs` takes a batch of items under the lock (`dispatch.rs`, `take.rs`), with a seat from the queue's gate (`active.rs`) →
//! `run.rs` runs each one and wakes who waits (`wait.rs`, `join.rs`). What is to be done is decided by plain functions
//! in `policy.rs` and `state.rs`. `future.rs` makes an item of a future. `manager.rs` and `upkeep.rs` make workers and
//! cull them; while work waits, `sampler.rs` finds workers that sleep in an item, by the rules of `concurrency.rs`, as
//! `blocking.rs` does for those that say so. `rescuer.rs` runs what no worker can be had for, `watchdog.rs` names what stands still; `kinds.rs` has the kernel's
//! kinds of queues. `machine.rs` makes queues follow CPUs that come and go. `end.rs` has the end of a queue.
//!
//! docs/workqueue.md has the pictures, the proofs and the costs.

mod active;
mod attrs;
mod blocking;
mod builder;
mod colour;
mod concurrency;
mod current;
mod deep;
mod delayed;
mod dependency;
mod describe;
mod dispatch;
mod drain;
mod end;
mod enqueue;
mod errands;
mod flush;
mod future;
mod handles;
mod head;
mod histogram;
mod join;
#[cfg(all(test, not(any(loom, shuttle))))]
mod kick_and_cull;
mod kinds;
mod link;
mod links;
mod list;
mod machine;
mod manager;
mod manager_loop;
mod mayday;
mod panicked;
mod place;
mod plan;
mod policy;
mod pool;
mod probe;
mod pwq;
mod queue;
mod queue_core;
mod rcu_work;
mod registry;
mod registry_error;
mod report;
mod reroute;
mod rescuer;
mod retire;
mod rounds;
mod routes;
mod run;
mod sampler;
mod serve;
mod share;
mod slab;
mod spawn;
mod stall;
mod start;
mod state;
mod stats;
mod system;
mod take;
mod tally;
mod timers;
mod tombstones;
mod upkeep;
mod wait;
mod watchdog;
mod wheel;
mod work;
mod worker;

#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub mod model;

pub use crate::params::MaxActiveScope;
pub use attrs::{Attrs, BuildError, MAX_ACTIVE};
pub use blocking::blocking;
pub use builder::Builder;
pub use delayed::DelayedWork;
pub use flush::OwnQueueError;
pub use histogram::Histogram;
pub use join::{JoinError, JoinHandle};
pub use panicked::PanicPayload;
pub use queue::Workqueue;
pub use rcu_work::RcuWork;
pub use registry::{Registry, StillInUse};
pub use registry_error::RegistryError;
pub use report::{BusyWorker, ItemName, Report, Stall};
pub use spawn::Refused;
pub use stats::{PoolStats, QueueReport, QueueStats};
pub use system::{system, system_highpri, system_long, system_unbound};
pub use topology::{AffinityScope, CpuId};
pub use work::{Busy, FlushError, Work};
