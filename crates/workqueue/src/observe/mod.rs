//! What is noticed and counted, as plain data and plain functions: who looks, and where, stands above.
//!
//! `concurrency.rs` says who counts as running, `stall.rs` when work is said not to move, `tally.rs` what a worker has run;
//! `histogram.rs` how long something took, `arrivals.rs` since when items wait. `report.rs` is what is told of all that, `stacks/` where workers were then, `item_panic.rs` of a panic, `left.rs` what is
//! told to whoever waited in vain.

pub(crate) mod arrivals;
pub(crate) mod concurrency;
pub(crate) mod histogram;
pub(crate) mod item_panic;
pub(crate) mod left;
pub(crate) mod report;
pub(crate) mod stacks;
pub(crate) mod stall;
pub(crate) mod tally;
