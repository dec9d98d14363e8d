//! `max_active`, how many threads run items of one queue at once, the capacity, how many items wait in it, and its shares.
//!
//! `active.rs` has the protocol: a worker takes a *seat* at the queue's gate for a batch, and whoever finds none stands in
//! line. What stands there, the gate does not ask. `stock.rs` has the seats that CPUs keep between runs. `share.rs` says whose turn it is where there are NUMA nodes.
//! `room.rs` has the places for items that wait, and the line of those who would queue one more.
//! `account.rs` says whose turn it is in a pool in which queues have shares of the CPU time.
//! `queue_core.rs` is what the links of a queue share, and `settled.rs` whom the last to leave a gate tells.

pub(crate) mod account;
pub(crate) mod active;
pub(crate) mod queue_core;
pub(crate) mod room;
pub(crate) mod settled;
pub(crate) mod share;
pub(crate) mod stock;
