//! Creates registries and starts their manager threads.

use base::internal::params::{self, ParamError, Params};
use sync::fork::PerProcess;
use sync::unmodelled::AtomicU32;
use topology::Topology;

use super::manager_loop;
use crate::execute::wait;
use crate::queues::clock::Clock;
use crate::queues::registry::Registry;
use crate::route::attrs::{RegistryError, TopologyInUse};

impl Registry {
    /// Creates a registry for `topology` and starts the thread that manages its pools. On x86-64,
    /// the first call in a process also spins for half a millisecond, to measure the rate of the
    /// clock.
    ///
    /// # Errors
    ///
    /// Returns [`RegistryError::Thread`] if that thread cannot be started. Returns
    /// [`RegistryError::Params`] if [`stack_size`](Params::stack_size) or
    /// [`thread_name`](Params::thread_name) is out of range, or if
    /// [`stall_signal`](Params::stall_signal) cannot be used.
    pub fn new(topology: Topology, params: Params) -> Result<Self, RegistryError> {
        Self::with_clock(topology, params, Clock::System)
    }

    pub(super) fn with_clock(
        topology: Topology,
        params: Params,
        clock: Clock,
    ) -> Result<Self, RegistryError> {
        params.check_threads().map_err(RegistryError::Params)?;
        enable_stacks(params.stall_signal).map_err(RegistryError::Params)?;
        if params.rseq_slice_ext {
            // Without support, the registry works as if the tunable was off.
            sync::slice::turn_on();
        }
        let registry = Self::of(topology, params, clock);
        // Calibrate the clock here, so that the first run of an item does not have to.
        sync::time::cycles_per_us();
        manager_loop::start(registry.machine(), registry.timers())
            .map_err(RegistryError::Thread)?;
        wait::note_workers();
        Ok(registry)
    }

    /// Creates a registry that periodically asks `source` whether the machine has changed.
    ///
    /// `source` returns the current topology if it differs from the one returned last. The manager
    /// thread calls it every [`topology_refresh_ms`](base::params::Params::topology_refresh_ms)
    /// while work waits. [`refresh_topology`](Self::refresh_topology) calls it too. If `source`
    /// panics, the topology counts as unchanged until the next call. It must not wait for queues of
    /// this registry. The errors are those of [`new`](Self::new).
    #[doc(hidden)]
    pub fn watching(
        topology: Topology,
        params: Params,
        source: impl FnMut() -> Option<Topology> + Send + 'static,
    ) -> Result<Self, RegistryError> {
        let registry = Self::new(topology, params)?;
        registry.machine().set_source(Box::new(source));
        Ok(registry)
    }

    /// Creates a registry whose manager has no thread, for models.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn unmanaged(topology: Topology, params: Params) -> Self {
        wait::note_workers();
        Self::of(topology, params, Clock::System)
    }

    /// Returns the registry of the process. The first call creates it for the CPUs that the process
    /// may use at that time, with the tunables from the environment (`AFTERWORK`), and starts its
    /// threads; later calls never block. A child of `fork` creates its own. After an error
    /// ([`RegistryError`]), the next call tries again.
    ///
    /// The registry exists until the process ends, because references to it and to the [system
    /// queues](crate::system) are `'static`. If its threads must end earlier, create a separate
    /// registry and call [`shutdown`](Self::shutdown).
    ///
    /// Isolated CPUs get no workers, unless the process may use no others. A thread that queues
    /// from an isolated CPU uses the first pod.
    ///
    /// A machine that exposes only parts of sysfs and procfs, or neither, is not an error: the
    /// registry then uses the CPUs of the affinity mask, and one line on stderr names the first
    /// missing file. [`Topology::detect`] describes the assumptions. A program that knows its
    /// machine better can pass a topology to [`set_global_topology`](Self::set_global_topology).
    pub fn global() -> Result<&'static Registry, RegistryError> {
        static GLOBAL: PerProcess<Registry> = PerProcess::new();
        if let Some(registry) = GLOBAL.get() {
            return Ok(registry);
        }
        let mut params = Params::from_env().map_err(RegistryError::Params)?;
        if let Err(error) = enable_stacks(params.stall_signal) {
            static IS_REPORTED: AtomicU32 = AtomicU32::new(0);
            params::ignore(error, &IS_REPORTED).map_err(RegistryError::Params)?;
            params.stall_signal = 0;
        }
        let mut seen = sync::cpu::topology().map_err(RegistryError::Topology)?;
        let topology = housekeeping(&seen).map_err(RegistryError::Topology)?;
        let registry = Registry::new(topology, params)?;
        let manager = registry.machine().manager.clone();
        registry.machine().set_source(Box::new(move || {
            // Read the mask of the manager's thread, which keeps the mask of its creator, because
            // other threads may pin themselves.
            seen = sync::cpu::topology_changed(&seen, manager.thread_id()?)?;
            housekeeping(&seen).ok()
        }));
        Ok(GLOBAL.get_or_set(registry))
    }

    /// Sets the topology of the process. The [global](Self::global) registry, RCU and per-CPU data
    /// then use it instead of detecting one. CPUs that are added or removed later are not noticed.
    ///
    /// Use this if the machine cannot be detected or is detected incorrectly, as in some sandboxes.
    /// `Topology::flat` builds a topology from the CPUs alone, `from_sysfs` reads a saved one, and
    /// `synthetic` parses a description. Call this first in `main`. It never blocks, and does not
    /// bind threads: a pool that serves all CPUs of the topology has the affinity mask of the
    /// process's first thread.
    ///
    /// # Errors
    ///
    /// Returns the topology in an error if the process already has one, because one was set, or
    /// because a part of the library already uses one.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Registry, Topology};
    ///
    /// Registry::set_global_topology(Topology::flat(&"0-1".parse()?)?)?;
    /// assert_eq!(Registry::global()?.topology().allowed().to_string(), "0-1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_global_topology(topology: Topology) -> Result<(), TopologyInUse> {
        sync::cpu::set_topology(topology).map_err(TopologyInUse)
    }
}

/// Captures stacks with `signal`; 0 disables capture.
fn enable_stacks(signal: u32) -> Result<(), ParamError> {
    #[cfg(feature = "stacks")]
    let enabled = stacks::enable(signal);
    #[cfg(not(feature = "stacks"))]
    let enabled = match signal {
        0 => Ok(()),
        _ => Err("0: this build is without the feature \"stacks\""),
    };
    enabled.map_err(|expects| ParamError::BadValue {
        key: "workqueue.stall_signal",
        value: signal.to_string(),
        expects: expects.into(),
    })
}

/// Returns the machine without its isolated CPUs, unless it has no others.
fn housekeeping(machine: &Topology) -> Result<Topology, topology::Error> {
    let cpus = machine.allowed().difference(machine.isolated());
    if cpus.is_empty() { Ok(machine.clone()) } else { machine.restricted_to(&cpus) }
}
