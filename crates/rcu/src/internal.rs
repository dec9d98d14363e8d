//! Functions for the other crates of afterwork. Programs must not use them, because they may change
//! in any version.

pub use crate::batch::of_c;
pub use crate::callback::call_at_once;
