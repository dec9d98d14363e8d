//! Making registries, and starting what looks after their pools.

use base::internal::params::{self, ParamError, Params};
use sync::{fork::PerProcess, unmodelled::AtomicU32};
use topology::Topology;

use super::manager_loop;
use crate::{
    execute::wait,
    queues::registry::Registry,
    route::registry_error::{RegistryError, TopologyInUse},
};

impl Registry {
    /// Makes a registry for `topology`, and starts the thread that looks after its pools.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Thread`] when the system refuses that thread; [`RegistryError::Params`] when
    /// [`stack_size`](Params::stack_size) or [`thread_name`](Params::thread_name) is out of range, or
    /// [`stall_signal`](Params::stall_signal) cannot be used.
    pub fn new(topology: Topology, params: Params) -> Result<Self, RegistryError> {
        params.check_threads().map_err(RegistryError::Params)?;
        enable_stacks(params.stall_signal).map_err(RegistryError::Params)?;
        let registry = Self::of(topology, params);
        // So that no first run has to measure the clock.
        sync::time::cycles_per_us();
        manager_loop::start(registry.machine(), registry.timers())
            .map_err(RegistryError::Thread)?;
        wait::note_workers();
        Ok(registry)
    }

    /// Makes a registry that asks `source` now and then whether the machine has changed.
    ///
    /// `source` returns what the machine looks like if that is not what it returned last. It is asked by the thread that
    /// looks after the pools, while work waits, every
    /// [`machine_look_ms`](base::params::Params::machine_look_ms), and by [`refresh_topology`](Self::refresh_topology).
    /// Where it panics nothing was seen, and it is asked again. It must not wait for queues of this registry.
    ///
    /// # Errors
    ///
    /// As of [`new`](Self::new).
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

    /// Makes a registry whose manager has no thread, for models.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn unmanaged(topology: Topology, params: Params) -> Self {
        wait::note_workers();
        Self::of(topology, params)
    }

    /// Returns the registry of the whole process, made at the first call for the CPUs that it may use then,
    /// with the tunables that the environment says ([`VARIABLE`](base::params::VARIABLE)). A child of `fork` makes its own.
    ///
    /// It stays until the process ends: references to it, and to the [system queues](crate::system), cannot be taken back.
    /// Threads that can be ended at some moment are those of a registry of one's own ([`shutdown`](Self::shutdown)).
    ///
    /// CPUs that the machine was told to isolate get no workers, unless the process may use no others. A thread
    /// that queues from one of them uses the first pod.
    ///
    /// If the machine shows only parts of sysfs and procfs, or nothing, this is no error: the
    /// registry uses the CPUs of the affinity mask, and one line on stderr names the first missing
    /// file. [`Topology::detect`] describes the assumptions. A program that knows its machine
    /// better passes it to [`set_global_topology`](Self::set_global_topology).
    ///
    /// # Errors
    ///
    /// See [`RegistryError`]. The next call tries again.
    pub fn global() -> Result<&'static Registry, RegistryError> {
        static GLOBAL: PerProcess<Registry> = PerProcess::new();
        if let Some(registry) = GLOBAL.get() {
            return Ok(registry);
        }
        let mut params = Params::from_env().map_err(RegistryError::Params)?;
        if let Err(error) = enable_stacks(params.stall_signal) {
            /// 1 once the lack of stack traces has been reported.
            static IS_REPORTED: AtomicU32 = AtomicU32::new(0);
            params::ignore(error, &IS_REPORTED).map_err(RegistryError::Params)?;
            params.stall_signal = 0;
        }
        let mut seen = sync::cpu::topology().map_err(RegistryError::Topology)?;
        let topology = housekeeping(&seen).map_err(RegistryError::Topology)?;
        let registry = Registry::new(topology, params)?;
        let manager = registry.machine().manager.clone();
        registry.machine().set_source(Box::new(move || {
            // The manager lives on with the mask of the thread that made it; others may pin themselves.
            seen = sync::cpu::topology_changed(&seen, manager.thread_id()?)?;
            housekeeping(&seen).ok()
        }));
        Ok(GLOBAL.get_or_set(registry))
    }

    /// Sets the topology of the process. The [global](Self::global) registry, RCU and per-CPU data
    /// then use it and detect none. CPUs that are added or removed later are not noticed.
    ///
    /// Use this if the machine cannot be detected or is detected wrongly, as in some sandboxes.
    /// `Topology::flat` builds a topology from the CPUs alone, `from_sysfs` reads a saved one, and
    /// `synthetic` parses a description. Call it first in `main`. It does not bind threads: a pool
    /// that serves all CPUs of the topology has the affinity mask of the process's first thread.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// If the process already has a topology, because one was set or because something has used it.
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

/// Uses `signal` to capture stacks; 0 disables that.
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

/// Returns the machine without the CPUs that it was told to isolate, unless it has no others.
fn housekeeping(machine: &Topology) -> Result<Topology, topology::Error> {
    let cpus = machine.allowed().difference(machine.isolated());
    if cpus.is_empty() {
        Ok(machine.clone())
    } else {
        machine.restricted_to(&cpus)
    }
}
