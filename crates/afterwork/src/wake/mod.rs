//! Sleeping and waking: one waiter, many waiters, and wake-ups that leave a lock first.
//!
//! | type | who sleeps | who wakes |
//! |---|---|---|
//! | [`Parker`] | the one thread that owns it | anybody with its [`Unparker`], by a token |
//! | [`EventCount`] | any number of threads that re-check a condition | whoever changed the condition |
//! | [`WakeQ`] | nobody: it carries wake-ups out of a locked section | the section, after it unlocked |
//!
//! Waking a thread that sleeps on another CPU costs the waker microseconds and the sleeper tens of them,
//! while a hand-over to a spinning thread costs 0.15 µs. So every wait here may look a while before it sleeps, as
//! long as has paid off ([`SpinBudget`]), and never on a machine with one CPU.
//!
//! # Who tells whom
//!
//! Two things happen in one folder and concern another, and neither is to name the other. Both stand on this folder, so
//! they meet here, by a trait that the one who is told implements:
//!
//! | file | who tells | what | who is told |
//! |---|---|---|---|
//! | `report.rs` | every wait of the library | its thread is about to sleep | its worker pool, which lets another worker run; RCU |
//! | `hotplug.rs` | a registry of workqueues, or the program | which CPUs are online | per-CPU data |

mod event_count;
pub(crate) mod hotplug;
mod parker;
pub(crate) mod report;
mod spin;
mod wakeq;

pub use event_count::{EventCount, Prepared};
pub use parker::{Parker, Unparker};
pub use spin::{SpinBudget, set_waiter_spin_limit};
pub(crate) use spin::{machine_may_spin, spin_as_waiter, yield_as_waiter};
pub use wakeq::{WakeQ, Wakeup};
