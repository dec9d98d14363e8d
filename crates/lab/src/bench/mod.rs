//! `afterwork-lab bench`: the benches.
//!
//! A bench is a module with its options and a function that creates its cases, which `harness`
//! runs. To add a bench:
//!
//! 1. Define its [menu](settings::Menu), which lists its cases and peers.
//!    [`settings::Settings::make`] creates the selected ones.
//! 2. Add a variant to [`args::Which`], with the options of the bench if it has any.
//!
//! With `--quick`, all benches end within two minutes: [`session`] limits the time of each case.

pub mod against;
pub mod args;
pub mod blocking;
pub mod child;
pub mod everyday;
pub mod groups;
pub mod max_active;
pub mod mpscq;
pub mod percpu;
pub mod questions;
pub mod rcu;
pub mod scale;
pub mod seeds;
pub mod session;
pub mod settings;
pub mod task_work;
pub mod workqueue;

pub use args::BenchArgs;
