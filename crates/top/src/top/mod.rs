//! `afterwork top`: what a process that uses the library is at, seen from outside.
//!
//! ```text
//! processes.rs   which pages there are
//! plain.rs       names of strangers, as a terminal may have them
//! look.rs        opens one, checks whose it is, asks, reads        ──► a Look, or why there is none
//! rows.rs        what is worth a column, and how fast it changes   ──► rows of cells, alarms marked
//! view.rs       what is on the full screen and what keys change   ──► draw.rs, shown by tui.rs
//! text.rs, tui.rs, json.rs, prometheus.rs                          ──► a terminal, a program
//! screen.rs      acquires the terminal for tui.rs, and restores it when a signal ends or stops the
//! command
//! ```
//!
//! The format of the page and what is believed of it: docs/top.md.

mod args;
mod command;
mod draw;
mod json;
mod look;
mod plain;
mod processes;
mod prometheus;
mod rows;
mod screen;
mod text;
mod tui;
mod view;

pub use args::TopArgs;
pub use command::run;
pub use look::{Look, NoLook, Watched};
