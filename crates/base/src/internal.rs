//! Functions for the other crates of afterwork. Programs must not use them, because they may change
//! in any version.

pub use topology::{impl_debug, impl_error, into_io_error};

pub mod admission {
    pub use crate::admission::*;
}

pub mod numbered {
    pub use crate::numbered::*;
}

pub mod page {
    #[cfg(all(feature = "page", not(any(loom, shuttle))))]
    pub use crate::page::sources::describe_all;
    pub use crate::page::{
        count::{Count, Tally},
        image::Image,
        kinds::TIMES_LOG2,
        layout::NAME_BYTES,
        sources::{Joined, join},
        *,
    };
    pub use crate::{pool_figures, queue_figures};

    #[cfg(all(feature = "page", not(any(loom, shuttle))))]
    pub mod publisher {
        pub use crate::page::publisher::*;
    }
}

pub mod panics {
    pub use crate::panics::*;
}

#[cfg(feature = "params")]
pub mod params {
    pub use crate::params::{environment::ignore, threads::ThreadStyle, *};

    pub mod threads {
        pub use crate::params::threads::*;
    }
}

pub mod rcu_tunables {
    pub use crate::rcu_tunables::*;
}

pub mod trace {
    pub use crate::trace::*;
}

pub mod wake {
    pub use crate::wake::{
        harmless::{Maker, fire_known, is_harmless, note_harmless, note_known},
        parker::unpark,
        spin::{
            MAX_POLL_AFTER_WORK_NS, machine_may_spin, poll_as_waiter, spin_as_waiter,
            yield_as_waiter,
        },
        wakeq::fire,
        *,
    };

    pub mod hotplug {
        pub use crate::wake::hotplug::*;
    }

    pub mod lane {
        pub use crate::wake::lane::*;
    }

    pub mod report {
        pub use crate::wake::report::*;
    }

    pub mod sleeper {
        pub use crate::wake::sleeper::*;
    }
}
