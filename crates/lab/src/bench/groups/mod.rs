//! `afterwork-lab bench groups`: tenants that share one machine, and the cost of groups.
//! `docs/bench-method.md` defines the cases and figures.

mod cases;
pub mod tenants;

pub use cases::{MENU, cases};
