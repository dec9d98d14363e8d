//! `afterwork bench`: what is measured.
//!
//! A bench is a module with its options and a function that makes its cases; `measure` does the rest. To add
//! one: its options become a variant of [`args::Which`], its cases an arm of `session::cases`, and all benches
//! together still end within two minutes with `--quick`, because [`session`] gives each case its share.

pub mod args;
pub mod mpscq;
pub mod session;
pub mod task_work;
pub mod workqueue;

pub use args::BenchArgs;
