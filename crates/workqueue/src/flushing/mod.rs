//! Waits for all items of a queue. `flush.rs` waits for the items that are in flight now.
//! `drain.rs` waits until the queue is empty, on a thread or in a task.
//! `cancel_all.rs` cancels without waiting, and `shutdown.rs` cancels after a time limit.
//! `group.rs` drains and cancels all queues of a group.

pub(crate) mod flush;

pub(crate) mod drain;

pub(crate) mod cancel_all;

pub(crate) mod group;
pub(crate) mod shutdown;
