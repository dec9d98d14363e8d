//! `afterwork-lab report`: creates a page for people from the JSON that a bench printed.
//!
//! The page is a single HTML file without scripts or external resources. It is created only from
//! the lines of a run (`run.rs`), so that it can show runs of other machines.
//!
//! | file | contents |
//! |---|---|
//! | `one.rs` | the page of one run |
//! | `standings.rs` | the first plot: ours compared with the best peer of each case |
//! | `bars.rs` | the plots of a case; `palette_tests.rs` checks their colors |
//! | `number.rs` | numbers with their units |

mod bars;
mod command;
mod frame;
mod number;
pub mod one;
#[cfg(test)]
mod palette_tests;
mod standings;

pub use command::{ReportArgs, may_write, run, write_page};
