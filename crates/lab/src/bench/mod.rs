//! `afterwork bench`: what is measured.
//!
//! A bench is a module with its options and a function that makes its cases; `measure` does the rest. To add one:
//!
//! 1. its menu says what cases and peers there are ([`pick::Menu`]), and its options contain the
//!    [pick](pick::Pick) of them, which makes the cases asked for and leaves out the peers that were not;
//! 2. its options become a variant of [`args::Which`].
//!
//! All benches together still end within two minutes with `--quick`, because [`session`] gives each case its share.

pub mod args;
pub mod blocking;
pub mod max_active;
pub mod mpscq;
pub mod percpu;
pub mod pick;
pub mod rcu;
pub mod session;
pub mod sum;
pub mod task_work;
pub mod top;
pub mod workqueue;

pub use args::BenchArgs;
