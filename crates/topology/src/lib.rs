//! The CPUs of a machine: which exist, which may be used, and which share caches and memory.
//!
//! ```
//! use afterwork_topology::{AffinityScope, CpuId, ShardParams, Topology};
//!
//! let topology = Topology::synthetic("2 numa x 4 llc x 12 core x 2 smt")?;
//! let pods = topology.pods(AffinityScope::CacheShard, &ShardParams::default());
//!
//! // Twelve cores exceed the limit of eight for one shard, so there are two shards of six.
//! assert_eq!(pods.len(), 2 * 4 * 2);
//! let pod = pods.pod_of(CpuId::new(0)).expect("CPU 0 is allowed");
//! assert_eq!(pods.pod(pod).cpus.to_string(), "0-11");
//! assert_eq!(pods.pod(pod).node, Some(0));
//! # Ok::<(), afterwork_topology::Error>(())
//! ```
//!
//! Deferred work runs best near its caller, on a CPU that shares the caller's caches and memory.
//! This crate finds these CPUs and divides the machine into *pods*, whose CPUs share a worker pool.
//!
//! ```text
//!   /sys, /proc            a saved tree        "2 numa x 4 llc x 8 core x 2 smt"
//!   Topology::detect       ::from_sysfs        ::synthetic
//!         └───────────────────┬───────────────────┘
//!                          Topology   online, allowed, isolated CPUs; cores, caches, nodes; quota
//!                             │  pods(scope, params)
//!                            Pods     a partition of the allowed CPUs
//! ```
//!
//! # Guarantees
//!
//! - [`Topology::pods`] partitions the allowed CPUs: each is in one pod, and others are in none.
//! - Each scope refines the next coarser one on any machine, even if its hardware or firmware
//!   contradicts that; see [`AffinityScope`].
//! - No input makes this crate panic. A malformed saved file or string is an [`Error`] that names
//!   the file and the position, in one line.
//! - [`Topology::detect`] always finds CPUs. It ignores the parts of this machine that it cannot
//!   read, and reports that ([`Quirk::Ignored`]).
//! - A [`Topology`] never changes; see [`Topology::changed`].
//!
//! # Cost
//!
//! Detection reads about twenty small files for each online CPU, once, at start-up.
//! [`Pods::pod_of`] is one array access. The other functions are meant for start-up and for tools.

#![forbid(unsafe_code)]

// Every other crate builds after this one, so other platforms report only this error.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("afterwork needs 64-bit Linux: its waits are futexes, and its words are of 64 bits");

/// Implements the conversion of an error into an `io::Error`. With a message, also implements
/// `Error`.
#[doc(hidden)]
#[macro_export]
macro_rules! into_io_error {
    ($error:ty, $kind:expr, $message:literal) => {
        impl ::std::fmt::Display for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str($message)
            }
        }
        impl ::std::error::Error for $error {}
        $crate::into_io_error!($error, $kind);
    };
    ($error:ty, $kind:expr) => {
        impl From<$error> for ::std::io::Error {
            fn from(error: $error) -> Self {
                use ::std::io::ErrorKind;
                let kind: fn(&$error) -> ErrorKind = $kind;
                Self::new(kind(&error), error)
            }
        }
    };
}

/// Implements the traits of an error. Each row has a variant, the kind of its `io::Error`, and its
/// message.
///
/// The type parameter of a generic error is the type of the caller's value, which `Debug` does not
/// show, and the conversion to `io::Error` drops. With `without io`, there is no conversion.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_error {
    ($error:ident {
        $($variant:ident $(($($field:tt)+))? => $kind:ident, $text:literal $(, $value:expr)?;)+
    } $($source:tt)*) => {
        $crate::impl_error!(without io $error {
            $($variant $(($($field)+))?, $text $(, $value)?;)+
        } $($source)*);
        $crate::into_io_error!($error, |error| match error {
            $($error::$variant { .. } => ErrorKind::$kind,)+
        });
    };
    (without io $error:ident {
        $($variant:ident $(($($field:tt)+))?, $text:literal $(, $value:expr)?;)+
    } $(source { $($inner:pat => $source:expr,)+ })?) => {
        impl ::std::fmt::Display for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $(Self::$variant $(($($field)+))? => write!(f, $text $(, $value)?),)+
                }
            }
        }
        impl ::std::error::Error for $error {
            $(fn source(&self) -> Option<&(dyn ::std::error::Error + 'static)> {
                match self {
                    $($inner => Some($source),)+
                    _ => None,
                }
            })?
        }
    };
    ($(#[$about:meta])* $error:ident[$param:ident] {
        $($variant:ident $(($($field:tt)+))? => $kind:ident, $text:literal;)+
    }) => {
        $crate::impl_error!(without io $error[$param] { $($variant $(($($field)+))?, $text;)+ });
        $(#[$about])*
        impl<$param> From<$error<$param>> for ::std::io::Error {
            fn from(error: $error<$param>) -> Self {
                let kind = match &error {
                    $($error::$variant { .. } => ::std::io::ErrorKind::$kind,)+
                };
                Self::new(kind, error.to_string())
            }
        }
    };
    (without io $error:ident[$param:ident] {
        $($variant:ident $(($($field:tt)+))?, $text:literal;)+
    }) => {
        impl<$param> ::std::fmt::Debug for $error<$param> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant { .. } => concat!(
                        stringify!($variant) $(, "(", stringify!($($field)+), ")")?
                    ),)+
                })
            }
        }
        impl<$param> ::std::fmt::Display for $error<$param> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant { .. } => $text,)+
                })
            }
        }
        impl<$param> ::std::error::Error for $error<$param> {}
    };
}

/// Implements `Debug` for a type, whose generic parameters follow its name in brackets. The output
/// has the name and the given values, which may borrow from `$this`. For a type after
/// `impl[PARAMETERS]`, the output has only the name.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_debug {
    ($(impl[$($params:tt)*] $name:ident $(<$($arg:tt),*>)?;)+) => {$(
        impl<$($params)*> ::std::fmt::Debug for $name $(<$($arg),*>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
    ($name:ident $(<$($lifetime:lifetime),+>)? $([$param:ident])?, $this:ident => $($field:ident: $value:expr),+ $(,)?) => {
        impl $(<$param>)? ::std::fmt::Debug for $name $(<$($lifetime),+>)? $(<$param>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &$value))+
                    .finish_non_exhaustive()
            }
        }
    };
}

mod cpu_id;
mod cpuset;
#[cfg(feature = "text")]
mod list;
#[cfg(feature = "detect")]
mod machine;
#[cfg(feature = "text")]
mod scope;
#[cfg(feature = "synthetic")]
mod synthetic;
#[cfg(feature = "text")]
mod text;

pub use crate::cpu_id::CpuId;
pub use crate::cpuset::{CpuSet, Iter};
#[cfg(feature = "detect")]
pub use crate::machine::{
    bounds::current_bounds,
    cgroup::current_quota,
    error::Error,
    parts::{Core, Cpu, Llc, LlcSource, Node, Package},
    pods::{Pod, Pods},
    quirk::Quirk,
    quota::CpuQuota,
    shard::ShardParams,
    snapshot::save_snapshot,
    topology::Topology,
};
#[cfg(feature = "synthetic")]
pub use crate::synthetic::SyntheticError;
#[cfg(feature = "text")]
pub use crate::{
    list::ParseCpuListError,
    scope::{AffinityScope, UnknownScope},
};
