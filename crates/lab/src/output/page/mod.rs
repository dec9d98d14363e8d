//! `afterwork-lab report`: creates a page for people from the JSON that a bench printed.
//!
//! The page is a single HTML file without scripts or external resources. It is created only from
//! the lines of a run (`run.rs`), so that it can show runs of other machines.

mod bars;
mod command;
mod frame;
mod number;
pub mod one;
#[cfg(test)]
mod palette_tests;
mod standings;

pub use command::{ReportArgs, may_write, run, write_page};
