//! What comes when something is over: items after a delay (`delayed.rs`), or a grace period of RCU (`rcu_work.rs`), or again and
//! again (`periodic.rs`); tasks that sleep (`sleep.rs`), wait no longer than they may (`timeout.rs`), or tick (`interval.rs`).
//!
//! Items are armed and fired by `timers.rs` of the queues, which keep their timers and take them along when they end; tasks are
//! woken by `sleeps.rs`.

pub(crate) mod delayed;
pub(crate) mod interval;
pub(crate) mod periodic;
#[cfg(feature = "rcu")]
pub(crate) mod rcu_work;
pub(crate) mod sleep;
pub(crate) mod timeout;
