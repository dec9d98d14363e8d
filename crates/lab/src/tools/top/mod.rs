//! `afterwork top`: what a process that uses the library is at, seen from outside.
//!
//! ```text
//! processes.rs   which pages there are
//! look.rs        opens one, checks whose it is, asks, reads        ──► a Look, or why there is none
//! rows.rs        what is worth a column, and how fast it changes   ──► rows of cells, alarms marked
//! text.rs, tui.rs, json.rs, prometheus.rs                          ──► a terminal, a program
//! ```
//!
//! The format of the page and what is believed of it: docs/top.md.

mod args;
mod command;
mod json;
mod look;
mod processes;
mod prometheus;
mod rows;
mod text;
mod tui;

pub use args::TopArgs;
pub use command::run;
pub use look::{Look, NoLook, Watched};
