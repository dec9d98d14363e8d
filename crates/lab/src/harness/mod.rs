//! The method of measurement that all benches share. A bench provides [cases](case::Case). [`run`]
//! interleaves their variants, [`stats`] computes medians, spreads and paired ratios, and [`claim`]
//! judges them. [`fingerprint`] and [`noise`] describe the state of the machine.
//! [`beside`](mod@beside) checks that all background threads still run.

pub mod beside;
pub mod case;
pub mod claim;
pub mod fingerprint;
pub mod handover;
pub mod latency;
pub mod metric;
pub mod noise;
pub mod progress;
pub mod run;
pub mod stats;
pub mod switches;
