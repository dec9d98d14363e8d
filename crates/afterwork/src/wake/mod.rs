//! Threads that wait for a condition that no lock protects: [`EventCount`].
//!
//! Waking a thread that sleeps on another CPU costs the waker microseconds and the sleeper tens of them. A hand-over
//! to a spinning thread costs 0.15 µs. So a wait may spin before it sleeps, for as long as spinning has paid off.
//! It never spins on a machine with one CPU.

// Two kinds of event happen in one folder of the library and concern another folder that it must not name. Both may
// name this folder, so the callee implements a trait here and the caller calls it:
//
// | file | caller | event | callee |
// |---|---|---|---|
// | `report.rs` | every wait of the library | its thread is about to sleep | its worker pool, which lets another worker run; RCU |
// | `hotplug.rs` | a registry of workqueues, or the program | which CPUs are online | per-CPU data |
//
// And two folders have lanes of the same rule: `lane.rs`; and `harmless.rs` tells one folder which wakers another one makes.

mod event_count;
mod harmless;
pub(crate) mod hotplug;
pub(crate) mod lane;
mod parker;
pub(crate) mod report;
mod spin;
mod wakeq;

pub use event_count::{EventCount, Prepared};
pub(crate) use harmless::{Maker, is_harmless, is_known, note_harmless, note_known};
pub(crate) use parker::unpark;
#[doc(hidden)]
pub use parker::{Parker, Unparker};
pub(crate) use spin::{
    LONGEST_LOOK_AFTER_WORK_NS, look_as_waiter, machine_may_spin, spin_as_waiter, yield_as_waiter,
};
#[doc(hidden)]
pub use spin::{SpinBudget, set_waiter_spin_limit};
#[doc(hidden)]
pub use wakeq::{WakeQ, Wakeup};
