//! Read-copy-update: readers without locks, and old versions that are freed after their last
//! reader.
//!
//! ```
//! use afterwork::rcu::{self, Rcu};
//!
//! let routes = Rcu::new(vec![1, 2]);
//! let guard = rcu::read();
//! let seen = routes.load(&guard);
//! routes.replace(vec![3]); // `seen` stays valid
//! assert_eq!(*seen, [1, 2]);
//! drop(guard);
//! rcu::barrier(); // the old version has been dropped
//! ```
//!
//! A reader reads in a *read-side critical section* ([`read`]), which costs a few plain loads and
//! stores. A writer unlinks a value, waits for a *grace period* ([`synchronize`]), and frees the
//! value. By then, every section that could have seen it has ended. [`Rcu`] does this for one
//! value, without unsafe code.
//!
//! | readers | use | grace periods |
//! |---|---|---|
//! | are short and never sleep | [`read`], [`synchronize`] | one domain for the process |
//! | are loops that report between rounds | [`qsbr::Reader`] | the same domain; reads are free |
//! | sleep, or cross `.await` and threads | [`srcu::Domain`] | a domain of its own for each |

// docs/rcu.md contains the diagrams, the proofs and the costs.
//
// A grace period passes through the files as follows. `local.rs` finds the thread's slot. `slot.rs`
// contains the reader's words and the requests from drivers. `periods.rs` makes one of the waiters
// the driver. In `domain.rs`, the driver scans the readers and asks those that may be in a section.
// Holdouts report on the tree of `node.rs`. The last report wakes the driver, and the driver wakes
// the waiters. Callbacks wait in the lists of `callback.rs`, and closures in the bags of `bag.rs`.
// One thread sweeps the lists, and `batch.rs` runs the callbacks.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[doc(hidden)]
pub mod internal;

mod bag;
mod batch;
mod callback;
mod cell;
mod describe;
mod domain;
mod flavor;
mod fork;
mod future;
mod head;
mod local;
mod node;
mod periods;
mod polled;
pub mod qsbr;
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub mod raw;
mod slot;
pub mod srcu;
mod stall;
mod tunables;

#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub mod model;

pub use batch::Batch;
pub use callback::{
    Full, barrier, call, call_drop, nr_panicked, run_callbacks_on, start_poll, try_call,
};
pub use cell::{Rcu, Replaced};
pub use flavor::{Flavor, Global, Section};
pub use future::{Synchronize, synchronize_async};
pub use head::Head;
pub use local::{Guard, read, read_in_signal_handler};
pub use periods::GpCookie;
pub use polled::{cond_synchronize, get_state, poll_state, synchronize, synchronize_expedited};
pub use stall::{Stall, StallHandler, on_stall};
pub use tunables::{Tunables, set_tunables, tunables};

base::internal::impl_debug! {
    impl[] Batch;
    impl[] Guard;
    impl[T, F: Flavor] Rcu<T, F>;
    impl[F: Flavor] Synchronize<F>;
}
