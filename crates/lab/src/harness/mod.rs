//! The method of measurement that all benches share.
//!
//! A bench provides [cases](case::Case). A case consists of a question, the variants that answer
//! it, and the [metrics](metric) of a run. [`run`] interleaves the variants. [`summary`] computes
//! medians, spreads and paired ratios, and [`claim`] judges them. [`fingerprint`] and [`noise`]
//! describe the state of the machine. [`beside`](mod@beside) checks that all background
//! threads still run. The module `output` prints the results.

pub mod beside;
pub mod case;
pub mod claim;
pub mod date;
pub mod fingerprint;
pub mod handover;
pub mod latency;
pub mod metric;
pub mod noise;
pub mod progress;
pub mod run;
pub mod stats;
pub mod summary;
pub mod switches;
