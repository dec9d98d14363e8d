//! Waits for points in time and for grace periods. Items are queued after a delay (`delayed.rs`),
//! after a grace period of RCU (`rcu_work.rs`), or periodically (`periodic.rs`). Tasks sleep or
//! wait with a timeout (`sleep.rs`), or wait for ticks (`interval.rs`). They can repeat attempts
//! that fail (`retry.rs`), and limit the rate of operations (`rate.rs`).
//!
//! `queues/timers.rs` arms and fires items: each queue owns its timers, and drops them when it is
//! destroyed. `queues/sleeps.rs` wakes tasks.

pub(crate) mod delayed;
pub(crate) mod interval;
pub(crate) mod periodic;
pub(crate) mod rate;
#[cfg(feature = "rcu")]
pub(crate) mod rcu_work;
pub(crate) mod retry;
pub(crate) mod sleep;
