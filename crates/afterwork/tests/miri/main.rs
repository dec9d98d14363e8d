//! User operations of all kinds, small enough for Miri, in order to check memory accesses.
//!
//! `xtask/src/test/miri.rs` documents how Miri runs them. They also pass on the real machine.

mod ends;
mod percpu;
mod rcu;
mod workqueue;
