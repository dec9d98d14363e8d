//! Observations as plain data and plain functions, which higher layers call.
//!
//! `concurrency.rs` decides which workers count as running, and `stall.rs` when a pool is stalled.
//! `tally.rs` contains the counts of runs, the histograms of durations, and the ages of pending
//! items. `report.rs` contains the reports to handlers, and `left.rs` the error of a drain.

pub(crate) mod concurrency;
pub(crate) mod left;
pub(crate) mod report;
pub(crate) mod stall;
pub(crate) mod tally;
