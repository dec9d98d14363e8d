//! `afterwork-lab bench groups`: tenants that share one machine, and the cost of groups.
//!
//! | case | scenario |
//! |---|---|
//! | `parts` | eight tenants with different shares always have work, and one of them floods |
//! | `flood` | one tenant floods; the items of the others are timed, alone and during the flood |
//! | `one-at-a-time-grouped` | one item at a time, with and without a group |
//! | `batch-1000-grouped` | batches of 1000 items, with and without a group |
//!
//! [tenants] contains the scenarios. `docs/bench-method.md` defines the figures.

mod cases;
pub mod tenants;

pub use cases::{MENU, cases};
