//! `afterwork-lab bench rcu`: a value that readers use while updaters replace it.
//!
//! | case | scenario |
//! |---|---|
//! | `read` | one thread reads the value, each time in a new section |
//! | `replace-idle`, `replace-32-idle` | a value is replaced and freed, with 0 or 32 idle readers |
//! | `replace-1-busy`, `replace-2-busy`, `replace-8-busy` | readers that do not pause |
//! | `updaters-8`, `updaters-64` | 8 or 64 threads replace the value while one reads |
//! | `call` | callbacks: rate, delay, and cost of a barrier without pending callbacks |
//! | `bridge` | a routing table gets and loses bridges while two threads look up routes |
//!
//! `replace-…` and `bridge` also measure the kernel's methods: fixed waits of three jiffies, alone
//! (`waits`) and with the changes that shortened them, `early_qs` and `wake_from_gp`.
//!
//! Each variant is a [`Flavor`](lab_peers::reclaim::Flavor). The flavors of afterwork are in
//! [`ours`]. The others are in `lab-peers`, which may contain unsafe code. liburcu is included if
//! it was installed when the lab was built.

mod cases;
mod claims;
pub mod metrics;
pub mod ours;
pub mod routes;
pub mod scene;

pub use cases::{BENCH, MENU, RcuArgs, cases};
