//! Functions for the other crates of afterwork. Programs must not use them, because they may change
//! in any version.

pub use topology::{impl_debug, impl_error, into_io_error};

/// Declares modules with the names of modules of this crate, and re-exports all items of each one.
macro_rules! modules {
    ($($name:ident in $($parent:ident)::+),+) => {$(
        pub mod $name {
            pub use $($parent)::+::$name::*;
        }
    )+};
}

modules! {
    admission in crate, numbered in crate, panics in crate, rcu_tunables in crate, trace in crate
}

pub mod page {
    pub use crate::page::count::{Count, Tally};
    pub use crate::page::image::Image;
    pub use crate::page::kinds::TIMES_LOG2;
    pub use crate::page::layout::NAME_BYTES;
    #[cfg(all(feature = "page", not(any(loom, shuttle))))]
    pub use crate::page::sources::describe_all;
    pub use crate::page::sources::{Joined, join};
    pub use crate::page::*;
    pub use crate::{pool_figures, queue_figures};

    #[cfg(all(feature = "page", not(any(loom, shuttle))))]
    modules!(publisher in crate::page);
}

#[cfg(feature = "params")]
pub mod params {
    pub use crate::params::environment::ignore;
    pub use crate::params::threads::ThreadStyle;
    pub use crate::params::*;

    modules!(threads in crate::params);
}

pub mod wake {
    pub use crate::wake::harmless::{Maker, fire_known, is_harmless, note_harmless, note_known};
    pub use crate::wake::parker::unpark;
    pub use crate::wake::spin::{
        MAX_POLL_AFTER_WORK_NS, machine_may_spin, poll_as_waiter, spin_as_waiter, yield_as_waiter,
    };
    pub use crate::wake::wakeq::fire;
    pub use crate::wake::*;

    modules! {
        hotplug in crate::wake, lane in crate::wake, report in crate::wake, sleeper in crate::wake
    }
}
