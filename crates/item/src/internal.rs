//! Items of this crate for the other crates of afterwork. Programs must not use them, because they
//! may change in any version.

/// Declares modules with the names of modules of this crate, and re-exports all items of each one.
macro_rules! modules {
    ($($name:ident),+) => {$(
        pub mod $name {
            pub use crate::$name::*;
        }
    )+};
}

modules! { cleanups, deferred_drops, head, list, memory, panicked, revival, slab, token }
