//! What the subsystems of afterwork share: waiting, calls of users' code, the page of counters, events, tunables.
//!
//! Made for the crates of afterwork. Programs use the crate `afterwork`, which re-exports what they need.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[doc(hidden)]
mod admission;
#[doc(hidden)]
pub mod internal;
#[doc(hidden)]
mod numbered;
pub mod page;
mod panics;
pub mod params;
#[doc(hidden)]
mod trace;
pub mod wake;
