//! Very many interleavings of larger cases, every ordering taken for `SeqCst`.
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
