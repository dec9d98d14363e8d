//! `afterwork-lab bench rcu`: a value that readers use while updaters replace it.
//! `docs/bench-method.md` defines the cases and figures.
//!
//! Each variant is a [`Flavor`](lab_peers::reclaim::Flavor). The flavors of afterwork are in
//! [`ours`]. The others are in `lab-peers`, which may contain unsafe code.

mod cases;
mod claims;
pub mod metrics;
pub mod ours;
pub mod routes;
pub mod scene;

pub use cases::{BENCH, MENU, RcuArgs, cases};
