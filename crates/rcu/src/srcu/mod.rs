//! Readers that may sleep. Each domain has its own readers, and a slow reader delays only the grace
//! periods of its domain.
//!
//! ```
//! use afterwork::rcu::{Rcu, srcu::Domain};
//!
//! let domain = Domain::new();
//! let routes = Rcu::new_in(vec![1, 2], domain.clone());
//! let guard = domain.read(); // may cross `.await` and threads
//! assert_eq!(*routes.load(&guard), [1, 2]);
//! drop(guard);
//! assert_eq!(routes.replace_sync(vec![3]), [1, 2]);
//! ```
//!
//! In return, a grace period adds up the counters of all threads, and a reader that sleeps for an
//! hour delays its domain for an hour.
//!
//! # Costs
//!
//! - A section costs two increments of the thread's own cache line, and three loads of shared lines
//!   that are rarely written.
//! - A grace period costs two sums over a cache line for each thread, and an answer from each
//!   thread that reads. It costs a membarrier if a thread has just stopped reading, and another one
//!   if it has to sleep.
//! - A domain uses 128 bytes for each thread, up to the largest number of threads that read at the
//!   same time.
//!
//! Differs from Linux: there a domain has a plain and a fast flavor. Here all sections are fast,
//! because a thread's own counters need no protection against preemption. A grace period does not
//! delay its start to gather requests. Requests that arrive while it runs share the next one.

mod callback;
mod domain;
mod gp;
mod guard;
mod runners;
mod slots;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use domain::{Cookie, Domain};
pub use guard::{Guard, GuardOf, OwnedGuard};
pub(super) use runners::{hold, inherit};
#[cfg(not(any(loom, shuttle)))]
pub(super) use slots::Parity;

base::internal::impl_debug! {
    impl[] Domain;
    impl[D: std::borrow::Borrow<Domain>] GuardOf<D>;
}
