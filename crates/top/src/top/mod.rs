//! `afterwork top`: shows the activity of a process that uses the library, from outside the
//! process.
//!
//! ```text
//! processes.rs   finds the pages
//! plain.rs       makes untrusted names safe for a terminal
//! snapshot.rs    opens a page, checks whose it is, asks, reads    ──► a Snapshot, or a NoSnapshot
//! rows.rs        chooses columns, and computes rates              ──► rows of cells, alarms marked
//! view.rs        the state of the full screen, and the keys       ──► draw.rs, shown by tui.rs
//! text.rs, tui.rs, json.rs, prometheus.rs                         ──► a terminal, a program
//! screen.rs      acquires the terminal for tui.rs, and restores it when a signal ends or stops the
//!                command
//! ```
//!
//! docs/observing.md describes the format of the page and the checks of its contents.

mod args;
mod command;
mod draw;
mod json;
mod plain;
mod processes;
mod prometheus;
mod rows;
mod screen;
mod snapshot;
mod text;
mod tui;
mod view;

pub use args::TopArgs;
pub use command::run;
pub use snapshot::{NoSnapshot, Snapshot, Watched};
