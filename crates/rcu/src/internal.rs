//! What the other crates of afterwork use, and no program may: it changes with any version.

pub use crate::{batch::of_c, call::call_at_once};
