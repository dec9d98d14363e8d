//! `afterwork-lab bench max-active`: the benefits and costs of limiting concurrent items.
//!
//! A [crew](drive::Crew) of afterwork or of a peer runs the items. [drive] keeps a fixed number of
//! them in flight and times them. [gauge] measures the growth of the process.
//! `docs/bench-method.md` defines the cases and figures.

mod cases;
pub mod drive;
pub mod gauge;
pub mod joins;
pub mod metrics;

pub use cases::{MENU, MaxActiveArgs, cases};
