//! A little of everything, small enough for Miri to interpret: what users do, for the sake of the memory under it.
//!
//! They pass on the real machine as well, in an instant, where they show little. `xtask/src/test/miri.rs` says how Miri
//! runs them.

mod ends;
mod percpu;
mod rcu;
mod workqueue;
