//! Deferred work in user space: the Linux kernel's machinery for work that must run later or elsewhere.
//!
//! ```
//! use std::sync::Arc;
//!
//! use afterwork::{rcu::{self, Rcu}, workqueue::Workqueue};
//!
//! let limit = Arc::new(Rcu::new(10)); // readers take no lock, and writers never wait for them
//! let queue = Workqueue::builder("disk").max_active(4).build()?; // four items at once, and never more
//!
//! let seen = limit.clone();
//! let double = queue.spawn(move || 2 * *seen.load(&rcu::read()));
//! assert_eq!(double.join()?, 20);
//! limit.replace(11);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program defers work in four ways, and the library is these four on one picture of the machine:
//!
//! | to defer | subsystem |
//! |---|---|
//! | to a shared pool of worker threads | [`workqueue`] |
//! | to one thread that owns something | [`mailbox`] |
//! | until no reader can still see the old version | [`rcu`] |
//! | to the CPU that owns a piece of per-CPU data | [`percpu`] |
//!
//! Below them all lies [`wake`]: threads that wait for a condition without a lock.
//!
//! # Features
//!
//! The first four lines are on by default. A program that needs less turns the default features off and builds less.
//!
//! | feature | adds |
//! |---|---|
//! | `workqueue`, `mailbox`, `rcu`, `percpu` | the subsystem |
//! | `observe` | the counters of the process, for itself and for `afterwork top`: [`observe`] |
//! | `params` | tunables, and the environment variable that sets them: [`params`]; every subsystem but `rcu` turns it on |
//! | `synthetic` | machines that a text describes, for tests: `workqueue::Topology::synthetic` |
//! | `io-uring` | mailboxes whose owner sleeps in an io_uring ring: `mailbox::uring` |
//! | `stacks` | a stall is told with the stacks of its workers: `Params::stall_signal` |
//! | `tokio` | futures that use tokio's timers and I/O and are polled by our queues: `workqueue::in_tokio` |
//! | `tracing` | events of workqueues and grace periods for subscribers of the `tracing` crate; docs/observing.md lists them |
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "observe")]
pub mod observe;

#[cfg(feature = "mailbox")]
#[doc(inline)]
pub use ::mailbox;
#[cfg(feature = "percpu")]
#[doc(inline)]
pub use ::percpu;
#[cfg(feature = "rcu")]
#[doc(inline)]
pub use ::rcu;
#[cfg(feature = "workqueue")]
#[doc(inline)]
pub use ::workqueue;
#[cfg(feature = "observe")]
#[doc(hidden)]
pub use base::page;
#[cfg(feature = "params")]
#[doc(inline)]
pub use base::params;
#[doc(inline)]
pub use base::wake;
