//! `max_active`, how many threads run items of one queue at once, and the capacity, how many items wait in it.
//!
//! `active.rs` has the protocol: a worker takes a *seat* at the queue's gate for a batch, and whoever finds none stands in
//! line. What stands there, the gate does not ask. `share.rs` says whose turn it is where there are NUMA nodes.
//! `room.rs` has the places for items that wait, and the line of those who would queue one more.
//! `queue_core.rs` is what the links of a queue share, and `settled.rs` whom the last to leave a gate tells.

pub(crate) mod active;
pub(crate) mod queue_core;
pub(crate) mod room;
pub(crate) mod settled;
pub(crate) mod share;
