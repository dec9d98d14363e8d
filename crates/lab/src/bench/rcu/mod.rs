//! `afterwork-lab bench rcu`: a value that some read while others replace it.
//!
//! | case | what is done |
//! |---|---|
//! | `read` | one thread looks at the value, in a section each time |
//! | `replace-idle`, `replace-32-idle` | a value is replaced and its old one freed; no reader, 32 that block |
//! | `replace-1-busy`, `replace-2-busy`, `replace-8-busy` | the same with readers that never pause |
//! | `updaters-8`, `updaters-64` | so many threads replace at once while one reads |
//! | `call` | callbacks: how many a second, how late, and what a barrier costs when there are none |
//! | `bridge` | set-up of bridges: add, configure, delete in a routing table, while two threads look up routes |
//!
//! `replace-…` and `bridge` have the kernel's ways beside ours: its fixed waits of three jiffies, alone (`waits`) and
//! with what shortened them, `early_qs` and `wake_from_gp`.
//!
//! A way to do it is a [`Flavor`](lab_peers::reclaim::Flavor); ours are in [`ours`], all others in `lab-peers`, where
//! unsafe code may be written. liburcu takes part where it was installed when the lab was built.

mod cases;
mod claims;
pub mod metrics;
pub mod ours;
pub mod routes;
pub mod scene;

pub use cases::{BENCH, MENU, RcuArgs, cases};
