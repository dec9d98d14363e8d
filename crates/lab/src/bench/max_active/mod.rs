//! `afterwork-lab bench max-active`: the benefits and costs of limiting concurrent items.
//! `docs/bench-method.md` defines the cases and figures.

mod cases;
pub mod drive;
pub mod gauge;
pub mod joins;
pub mod metrics;

pub use cases::{MENU, MaxActiveArgs, cases};
