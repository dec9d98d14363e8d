//! Items that are queued when something is over: a delay (`delayed.rs`), a grace period of RCU (`rcu_work.rs`).
//!
//! Both are armed and fired by `timers.rs` of the queues, which keep their timers and take them along when they end.

pub(crate) mod delayed;
pub(crate) mod rcu_work;
