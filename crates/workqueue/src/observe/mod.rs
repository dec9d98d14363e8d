//! Observations as plain data and plain functions; the callers that make them are in layers above.
//!
//! `concurrency.rs` decides which workers count as running, `stall.rs` when a pool stalls, `tally.rs` counts runs,
//! `histogram.rs` durations, `arrivals.rs` the ages of pending items. Handlers get `report.rs` of all that, and `item_panic.rs` of
//! a panic. The error of a drain that did not end in time is `left.rs`.

pub(crate) mod arrivals;
pub(crate) mod concurrency;
pub(crate) mod histogram;
pub(crate) mod item_panic;
pub(crate) mod left;
pub(crate) mod report;
pub(crate) mod stall;
pub(crate) mod tally;
