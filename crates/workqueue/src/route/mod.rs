//! The map from a queue and a CPU to a pool.
//!
//! `routes.rs` describes the protocol: enqueuers read a table from CPU to pwq without a lock, while
//! another thread may publish a new one. `plan.rs` builds the table from the queue's attributes
//! (`attrs.rs`) and from the registry's view of the machine (`machine.rs`).

pub(crate) mod attrs;
pub(crate) mod machine;
pub(crate) mod plan;
pub(crate) mod routes;
pub(crate) mod stats;
