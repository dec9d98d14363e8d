//! `afterwork-lab bench everyday`: properties other than speed that programs need from a pool.
//! `docs/bench-method.md` defines the cases and figures.

mod admission;
mod cases;
mod idle;
mod locked;
mod scopes;
mod sleeps;
mod soon;
mod strands;
mod timeouts;

pub use cases::{ENDED, MENU, cases};
pub use locked::PATIENCE;
