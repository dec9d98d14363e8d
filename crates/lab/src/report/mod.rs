//! `afterwork report`: what a bench printed as JSON, as a page for people.
//!
//! The page is one file of HTML without scripts and without anything from a network. It is made from the lines of a
//! run alone ([`mod@run`]), so that a page can be made of a run on another machine, and of two runs side by side.
//!
//! | file | what it makes |
//! |---|---|
//! | `run.rs` | the cases of a run from its lines |
//! | `page.rs` | the page of one run |
//! | `bars.rs`, `curves.rs` | a plot each |
//! | `compare.rs` | the page of two runs |
//! | `number.rs` | numbers with their units |

mod args;
mod bars;
mod command;
mod compare;
mod curves;
mod frame;
mod number;
pub mod page;
pub mod run;

pub use args::ReportArgs;
pub use command::{run, write_page};
