//! User operations of all kinds, small enough for Miri to interpret, in order to check memory
//! accesses.
//!
//! They also pass quickly on the real machine, where they show little. `xtask/src/test/miri.rs`
//! documents how Miri runs them.

mod ends;
mod percpu;
mod rcu;
mod workqueue;
