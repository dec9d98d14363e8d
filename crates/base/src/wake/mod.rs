//! Threads that wait for a condition that no lock protects: [`EventCount`].
//!
//! Waking a thread on another CPU costs the waker a few microseconds and the sleeper tens of
//! microseconds. Handing work over to a spinning thread costs 0.15 µs. A wait may therefore spin
//! before it sleeps, for as long as spinning has paid off, but never on a machine with one CPU.

// Two kinds of events occur in one part of the library and concern another part that it must not
// name. The callee registers with a file of this folder, and the caller calls that:
//
// | file | caller | event | callee |
// |---|---|---|---|
// | `report.rs` | every wait in the library | its thread is about to sleep | its worker pool; RCU |
// | `hotplug.rs` | a queue registry, the program | online CPUs have changed | per-CPU data |
//
// Workqueues and mailboxes share the order of lanes in `lane.rs`.

mod event_count;
#[doc(hidden)]
pub(crate) mod harmless;
#[doc(hidden)]
pub(crate) mod hotplug;
#[doc(hidden)]
pub(crate) mod lane;
pub(crate) mod parker;
#[doc(hidden)]
pub(crate) mod report;
#[doc(hidden)]
pub(crate) mod sleeper;
pub(crate) mod spin;
pub(crate) mod wakeq;

pub use event_count::{EventCount, Prepared};
pub use parker::{Parker, Unparker};
pub use spin::SpinBudget;
pub use wakeq::WakeQ;
