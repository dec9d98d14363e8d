//! Explores many random interleavings of larger cases. Every ordering is treated as `SeqCst`.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p afterwork --release --test shuttle`
#![cfg(shuttle)]

mod percpu;
mod rcu;
mod rcu_cell;
mod srcu;
mod task_work;
mod wake;
mod workqueue;
mod workqueue_strand;
