//! `afterwork topology`: shows the machine as the library sees it, and the pods of each scope.
//!
//! The machine is this one, a saved one (`--sysfs`), or one that a line of text describes
//! (`--synthetic`). The command shows it as a tree for people ([`draw`]) or as one JSON
//! object for programs ([`json`]).

mod command;
pub mod draw;
pub mod json;
mod tree;

pub use self::command::{TopologyArgs, run};
