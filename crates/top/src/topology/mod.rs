//! `afterwork topology`: shows the machine as the library sees it, and the pods of each scope.
//!
//! The machine is this one, a saved one (`--sysfs`), or one made up from a line of text
//! (`--synthetic`). It is shown as a tree for people ([`draw`]) or as one JSON object for programs
//! ([`json`]).

mod command;
pub mod draw;
pub mod json;
mod tree;

pub use self::command::{TopologyArgs, run};
