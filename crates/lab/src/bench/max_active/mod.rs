//! `afterwork-lab bench max-active`: the benefits and costs of limiting concurrent items.
//!
//! | case | scenario |
//! |---|---|
//! | `joins` | items read their blocks several times, all through one buffer pool |
//! | `subsystems` | eight subsystems with a limit each compute, and sometimes wait for a device |
//! | `shares` | one of eight subsystems floods the shared pool; items of the others are timed |
//!
//! A [crew](drive::Crew) of afterwork or of a peer runs the items. [drive] keeps a fixed number of them in
//! flight and times them. [gauge] measures the growth of the process. `docs/bench-method.md`
//! defines the figures.

mod cases;
pub mod drive;
pub mod gauge;
pub mod joins;
pub mod metrics;

pub use cases::{MENU, MaxActiveArgs, cases};
