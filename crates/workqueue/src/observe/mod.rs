//! Observations as plain data and plain functions, which higher layers call.
//!
//! `concurrency.rs` decides which workers count as running, `stall.rs` when a pool is stalled.
//! `tally.rs` counts runs, `histogram.rs` durations, and `arrivals.rs` the ages of pending items.
//! `report.rs` has the reports to handlers, `item_panic.rs` the report of a panic, and `left.rs`
//! the error of a drain that timed out.

pub(crate) mod arrivals;
pub(crate) mod concurrency;
pub(crate) mod histogram;
pub(crate) mod item_panic;
pub(crate) mod left;
pub(crate) mod report;
pub(crate) mod stall;
pub(crate) mod tally;
