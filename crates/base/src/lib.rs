//! The parts that the subsystems of afterwork share: waiting, calls to user code, the page of
//! counters, events, tunables.
//!
//! This crate is for the other crates of afterwork. Programs use the crate `afterwork`, which
//! re-exports the public parts.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

/// Defines a struct whose fields have the given defaults. A field after `if "FEATURE"` exists only
/// with that feature, and is hidden from the documentation.
macro_rules! with_defaults {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$about:meta])* $(if $feature:literal)? pub $field:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$about])* $(#[cfg(feature = $feature)] #[doc(hidden)])? pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($(#[cfg(feature = $feature)])? $field: $default,)* }
            }
        }
    };
}

#[doc(hidden)]
mod admission;
#[doc(hidden)]
pub mod internal;
#[doc(hidden)]
mod numbered;
pub mod page;
mod panics;
#[cfg(feature = "params")]
pub mod params;
#[doc(hidden)]
mod rcu_tunables;
#[doc(hidden)]
mod trace;
pub mod wake;
