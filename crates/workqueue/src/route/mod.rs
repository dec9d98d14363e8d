//! Which pools the items of a queue go to.
//!
//! `routes.rs` has the protocol: enqueuers read a table from CPU to link without a lock, while others publish a new one.
//! `plan.rs` draws it, from what a queue is to be (`attrs.rs`) and from the machine as the registry sees it (`machine.rs`).

pub(crate) mod attrs;
pub(crate) mod machine;
pub(crate) mod plan;
pub(crate) mod registry_error;
pub(crate) mod routes;
pub(crate) mod stats;
