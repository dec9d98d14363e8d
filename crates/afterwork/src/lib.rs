//! Deferred work in user space: the Linux kernel's mechanisms to run work later or elsewhere.
//!
//! ```
//! use std::sync::Arc;
//!
//! use afterwork::{rcu::{self, Rcu}, workqueue::Workqueue};
//!
//! let limit = Arc::new(Rcu::new(10)); // readers take no lock, and writers never wait for them
//! let queue = Workqueue::builder("disk").max_active(4).build()?; // at most four items at once
//!
//! let seen = limit.clone();
//! let double = queue.spawn(move || 2 * *seen.load(&rcu::read()));
//! assert_eq!(double.join()?, 20);
//! limit.replace(11);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program can defer work in four ways, each of which is a subsystem:
//!
//! | to defer | subsystem |
//! |---|---|
//! | to a shared pool of worker threads | [`workqueue`] |
//! | to a thread that owns some data | [`mailbox`] |
//! | until no reader can still see the old version | [`rcu`] |
//! | to the CPU that owns a piece of per-CPU data | [`percpu`] |
//!
//! All are built on [`wake`], which lets threads wait for a condition without a lock.
//!
//! # Features
//!
//! The subsystems, `observe`, `params` and `synthetic` are enabled by default. To build less,
//! disable the default features. Items that connect two subsystems need the features of both:
//! `workqueue::RcuWork` and `TaskOptions::enqueue_rcu` need `workqueue` and `rcu`, and
//! `Mailbox::serve` needs `mailbox` and `rcu`.
//!
//! | feature | adds |
//! |---|---|
//! | `workqueue`, `mailbox`, `rcu`, `percpu` | the subsystem |
//! | `observe` | the counters of the process, for itself and for `afterwork top`: [`observe`] |
//! | `params` | tunables, and the variable that sets them: [`params`]; all but `rcu` need it |
//! | `synthetic` | machines described by a string, for tests: `workqueue::Topology::synthetic` |
//! | `io-uring` | mailboxes whose owner sleeps in an io_uring ring: `mailbox::uring` |
//! | `stacks` | stall reports with the stacks of the workers: `Params::stall_signal` |
//! | `tokio` | futures on queues that use tokio's timers and I/O: `workqueue::in_tokio` |
//! | `tracing` | events of workqueues and grace periods for subscribers of the crate `tracing` |
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "observe")]
pub mod observe;

#[cfg(feature = "mailbox")]
#[doc(inline)]
pub use ::mailbox;
#[cfg(feature = "mailbox")]
#[doc(no_inline)]
pub use ::mailbox::Mailbox;
#[cfg(feature = "percpu")]
#[doc(inline)]
pub use ::percpu;
#[cfg(feature = "rcu")]
#[doc(inline)]
pub use ::rcu;
#[cfg(feature = "rcu")]
#[doc(no_inline)]
pub use ::rcu::Rcu;
#[cfg(feature = "workqueue")]
#[doc(inline)]
pub use ::workqueue;
#[cfg(feature = "workqueue")]
#[doc(no_inline)]
pub use ::workqueue::{DelayedWork, TaskSet, Work, Workqueue, sleep, timeout};
#[cfg(feature = "observe")]
#[doc(hidden)]
pub use base::page;
#[cfg(feature = "params")]
#[doc(inline)]
pub use base::params;
#[doc(inline)]
pub use base::wake;
