//! How the lab measures, whatever it measures.
//!
//! A bench offers [cases](case::Case): a question, the variants that answer it, the [metrics](metric) that each run
//! yields. The rest is the same for all: [`run`] interleaves the variants, [`summary`] takes medians,
//! spreads and paired ratios, [`claim`] judges what is said of them. [`fingerprint`] and [`noise`] say what to think of
//! it, and [`beside`](mod@beside) that readers and clients were there. How it is told is the business of `output`.

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
