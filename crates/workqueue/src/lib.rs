//! Defers work to pools of worker threads that the whole process shares.
//!
//! ```
//! use afterwork::workqueue::{Work, Workqueue};
//!
//! let queue = Workqueue::builder("disk").max_active(4).build()?; // at most four at once
//! let sum = queue.spawn(|| (1..=10).sum::<u32>());
//!
//! let save = Work::new(|| println!("saved"));
//! for _ in 0..1000 {
//!     queue.enqueue(&save); // a pending item is not queued twice
//! }
//! assert_eq!(sum.join()?, 55);
//! queue.flush()?; // all items queued before have run
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Workqueue`] takes closures ([`Workqueue::spawn`]), futures ([`Workqueue::spawn_async`]) or
//! reusable items ([`Work`]) and runs them on a worker pool near the caller's CPU. Queues are cheap
//! and own no threads. Queues with equal attributes share their pools. A pool runs one worker for
//! each CPU, and starts another one when a worker blocks.

// A work item by itself is in the crate `item`, and the limits of a queue are in the crate `limit`.
// ARCHITECTURE.md has the code map, and follows an item from file to file. Code in each folder
// refers only to folders above it in that map. Its `mod.rs` lists its files and protocols.
// `internal.rs` is the interface for `crates/raw`.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

// The page of `Workqueue` lists its methods in the order of these lines.

mod queues;

mod time;

mod scope;

mod flushing;

mod execute;
#[doc(hidden)]
pub mod internal;
mod manage;
mod observe;
mod pools;
mod route;
mod tasks;

#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub mod model;

pub use base::internal::panics::join_error::{JoinError, PanicPayload};
pub use base::internal::params::MaxActiveScope;
pub use execute::block_on::block_on;
pub use execute::join::{CancelOnDrop, JoinHandle};
pub use execute::work::{Busy, FlushError, Work, current_work};
pub use flushing::drain::{Drain, DrainError};
pub use flushing::flush::OwnQueueError;
pub use flushing::shutdown::{shutdown_in_order, shutdown_in_order_async};
pub use item::internal::panicked::ItemPanic;
#[cfg(not(any(loom, shuttle)))]
pub use manage::for_tests::TestRegistry;
pub use observe::left::{Doing, LeftItems, StillBusy};
pub use observe::report::{BusyWorker, ItemName, Report, Stall};
pub use observe::tally::Histogram;
pub use pools::blocking::blocking;
pub use queues::admission::{Reserve, TrySpawnError};
pub use queues::builder::Builder;
pub use queues::future::CancelHandle;
pub use queues::group::{Group, GroupBuilder};
pub use queues::queue::{WeakWorkqueue, Workqueue};
pub use queues::registry::{Registry, StillInUse};
pub use queues::strand::Strand;
pub use queues::system::{
    schedule_on_each_cpu, system, system_highpri, system_long, system_unbound, work_on_cpu,
};
pub use queues::task::TaskOptions;
pub use route::attrs::{
    Attrs, BuildError, MAX_ACTIVE, MAX_CAPACITY, MAX_GROUP_ACTIVE, MAX_SHARES, RegistryError,
    TopologyInUse,
};
pub use route::stats::{GroupStats, PoolStats, QueueReport, QueueStats};
pub use scope::Scope;
#[cfg(feature = "stacks")]
pub use stacks::Stack;
pub use tasks::cancellation::{CancellationToken, Cancelled, is_cancelled};
#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
pub use tasks::in_tokio::{InTokio, in_tokio};
pub use tasks::set::TaskSet;
pub use time::delayed::{Deferred, Delay, DelayedWork};
pub use time::interval::{Interval, MissedTickBehavior, ZeroPeriod, interval};
pub use time::periodic::Periodic;
pub use time::rate::RateLimit;
#[cfg(feature = "rcu")]
pub use time::rcu_work::{GracePeriod, RcuWork};
pub use time::retry::{Backoff, retry, retry_if};
pub use time::sleep::{Elapsed, Sleep, Timeout, sleep, sleep_until, timeout, timeout_at};
pub use topology::{AffinityScope, CpuId, CpuSet, Error as TopologyError, Topology};
