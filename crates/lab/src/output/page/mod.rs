//! `afterwork-lab report`: what a bench printed as JSON, as a page for people.
//!
//! The page is one file of HTML without scripts and without anything from a network. It is made from the lines of a
//! run alone (`run.rs`), so that a page can be made of a run on another machine, and of two runs side by side.
//!
//! | file | what it makes |
//! |---|---|
//! | `one.rs` | the page of one run |
//! | `bars.rs`, `curves.rs`, `growth.rs` | a plot each; `palette_tests.rs` checks their colours |
//! | `two.rs` | the page of two runs |
//! | `number.rs` | numbers with their units |
//!
//! Plots are written here and not by the crate `plotters` (0.3, four crates): its SVG has black lines and text in pixels, so it
//! is unreadable on a dark page and on a narrow one, and ten curves take 17 kB where ours take 3.

mod args;
mod bars;
mod command;
mod curves;
mod frame;
mod growth;
mod number;
pub mod one;
#[cfg(test)]
mod palette_tests;
mod two;

pub use args::ReportArgs;
pub use command::{may_write, run, write_page};
