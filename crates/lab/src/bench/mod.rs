//! `afterwork-lab bench`: what is measured.
//!
//! A bench is a module with its options and a function that makes its cases; `harness` does the rest. To add one:
//!
//! 1. its [menu](settings::Menu) says what cases and peers there are; of these [`settings::Settings::make`] makes the cases
//!    picked, and leaves out the peers that were not;
//! 2. it becomes a variant of [`args::Which`], with its own options if it has any.
//!
//! All benches together still end within two minutes with `--quick`, because [`session`] gives each case its share.

pub mod against;
pub mod args;
pub mod blocking;
pub mod child;
pub mod everyday;
pub mod kept;
pub mod max_active;
pub mod mpscq;
pub mod percpu;
pub mod rcu;
pub mod scale;
pub mod session;
pub mod settings;
pub mod task_work;
pub mod workqueue;

pub use args::BenchArgs;
