//! Defers until no reader can still see the old version: read-copy-update.
//!
//! A reader marks what it does as a *read-side critical section* ([`read`]) and pays next to nothing for it. Who
//! replaces something takes it out of sight, waits for a *grace period* ([`synchronize`]), and may then free it: every
//! section that could have seen it has ended.
//!
//! | readers | grace periods |
//! |---|---|
//! | short, never sleep | [`read`], [`synchronize`]: one family for the process |
//! | loops that report between rounds | [`qsbr::Reader`]: of the same family, reading for nothing |
//! | sleep, cross `.await` and threads | [`srcu::Domain`]: one for each, independent |
//!
//! # Journey of a grace period
//!
//! `local.rs` finds the thread's slot, `slot.rs` has the reader's words and both ends of what is asked of it →
//! `domain.rs` joins those who wait and hands the right to drive to one of them → `gp.rs` looks at the readers of
//! `roster.rs` and asks those who may be in a section → holdouts report on the tree of `node.rs` → the last report
//! wakes the driver, and the driver whoever waits. What is to be done after a grace period lies on the lists of
//! `callback.rs`, which one thread sweeps, and run as `batch.rs` says. `seq.rs` is the arithmetic of it all, as plain functions.
//!
//! docs/rcu.md has the pictures, the proofs and the costs.

mod bag;
mod batch;
mod call;
mod callback;
mod cell;
mod describe;
mod domain;
mod flavor;
mod fork;
mod future;
mod gp;
mod head;
mod local;
mod node;
mod polled;
pub mod qsbr;
mod roster;
mod seq;
mod slot;
pub mod srcu;
mod stall;
mod tunables;

#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub mod model;

pub use batch::Batch;
pub(crate) use batch::in_callback;
pub use call::{barrier, call, call_drop, call_head, nr_panicked, run_callbacks_on, start_poll};
pub use cell::{Rcu, Replaced};
pub use flavor::{Flavor, Global, Section};
pub use future::{Synchronize, synchronize_async};
pub use head::Head;
pub use local::{Guard, read, read_in_signal_handler};
pub use polled::{cond_synchronize, get_state, poll_state, synchronize, synchronize_expedited};
pub use seq::GpCookie;
pub use stall::{Stall, StallHandler, on_stall};
pub use tunables::{Tunables, set_tunables, tunables};
