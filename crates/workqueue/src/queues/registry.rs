//! The pools that queues share, on one picture of the machine.

use std::fmt;

use base::internal::{
    page::{self, Joined},
    params::Params,
};
use sync::{fork::Process, unmodelled::Arc};
use topology::{CpuSet, Topology};

use super::timers::Timers;
use crate::{
    observe::report::Report,
    pools::manager::{Manager, ReportHandler},
    route::{
        machine::Machine,
        stats::{PoolStats, QueueReport},
    },
};

/// Holds worker pools that all queues built on it share, with tunables of its own.
///
/// Most programs never name one: [`Builder::build`](crate::Builder::build) uses the registry of the whole process.
/// One of its own is for measuring two sets of tunables side by side, and for tests.
///
/// Queues whose pods and attributes are alike share pools: eight subsystems with eight queues have the threads
/// of one.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

/// The error of shutting down a registry that is still in use. Gives the registry back.
#[derive(Debug)]
pub struct StillInUse {
    /// The registry, given back.
    pub registry: Registry,
    /// Queues and clones of the registry that are left, and the caller's thread where that is one of the registry's.
    pub nr_users: usize,
}

#[derive(Debug)]
struct Inner {
    machine: Arc<Machine>,
    /// I
    timers: Arc<Timers>,
    /// I: where it was made.
    process: Process,
    /// Shown to whoever looks at the process.
    _shown: Joined,
}

impl Registry {
    /// Makes a registry without the thread that looks after it: see `start.rs`.
    pub(crate) fn of(topology: Topology, params: Params) -> Self {
        let manager = Arc::new(Manager::new(params.thread_style()));
        let timers = Arc::new(Timers::new(&manager));
        let machine = Arc::new(Machine::new(topology, params, manager));
        let seen = Arc::downgrade(&machine);
        let shown = page::join(move |image| {
            if let Some(machine) = seen.upgrade() {
                machine.describe(image);
            }
        });
        let inner = Inner {
            machine,
            timers,
            process: Process::this(),
            _shown: shown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.inner.machine.manager
    }

    /// Returns the machine as this registry sees it.
    pub fn topology(&self) -> Arc<Topology> {
        self.here().topology()
    }

    /// Gives the registry the present `topology`, after CPUs have come or gone, or the allowed CPUs have changed.
    ///
    /// Every queue changes its pools, as with [`Workqueue::set_attrs`](crate::Workqueue::set_attrs). Items that are
    /// already queued run where they are; new items go to pools of the present CPUs. An ordered queue whose last change has not
    /// taken effect follows later.
    ///
    /// # Blocking
    ///
    /// Takes the locks of queues and pools for a moment.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::{params::Params, workqueue::{Registry, Workqueue}};
    /// use topology::Topology;
    ///
    /// let machine = Topology::synthetic("2 llc x 2 core")?;
    /// let registry = Registry::new(machine.clone(), Params::default())?;
    /// let queue = Workqueue::builder("example").build_in(&registry)?;
    /// registry.set_topology(machine.restricted_to(&"0-1".parse()?)?);
    /// assert_eq!(queue.spawn(|| 7).join()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_topology(&self, topology: Topology) {
        self.here().set_topology(topology);
    }

    /// Asks the source of this registry whether the machine has changed; returns `true` if it had.
    ///
    /// The source of the process-wide registry reads which CPUs are online and which this process may use (affinity
    /// mask, cpuset).
    ///
    /// # Blocking
    ///
    /// Reads a few files of sysfs and procfs, and as [`set_topology`](Self::set_topology).
    pub fn refresh_topology(&self) -> bool {
        self.here().look()
    }

    /// Returns the CPUs that unbound queues may use, if there is a bound.
    pub fn unbound_cpus(&self) -> Option<CpuSet> {
        self.here().unbound_cpus()
    }

    /// Lets unbound queues use `cpus` alone, or all that the process may use. The kernel's
    /// `/sys/devices/virtual/workqueue/cpumask`.
    ///
    /// It takes effect as [`set_topology`](Self::set_topology) does. A queue that by its own
    /// [`cpus`](crate::Attrs::cpus) would be left with none uses these; a set without any CPU that may be used
    /// bounds nothing.
    #[doc(alias = "workqueue_set_unbound_cpumask")]
    pub fn set_unbound_cpus(&self, cpus: Option<CpuSet>) {
        self.here().set_unbound_cpus(cpus);
    }

    /// Returns the tunables.
    pub fn params(&self) -> &Params {
        &self.inner.machine.params
    }

    /// Returns all that is known of each queue, in the order in which they were built.
    ///
    /// # Blocking
    ///
    /// Takes the locks of queues and pools for a moment.
    pub fn queue_reports(&self) -> Vec<QueueReport> {
        let queues = self.here().queues();
        queues.iter().filter_map(|queue| queue.report()).collect()
    }

    /// Returns what each pool has counted.
    ///
    /// # Blocking
    ///
    /// Takes each pool's lock for a moment.
    pub fn pool_stats(&self) -> Vec<PoolStats> {
        self.here()
            .pools()
            .iter()
            .map(|pool| pool.stats())
            .collect()
    }

    /// Returns how long `queue()` held the lock of any pool, if [`Params::lock_stat`] is on.
    #[cfg(feature = "baselines")]
    #[doc(hidden)]
    pub fn lock_hold(&self) -> crate::observe::histogram::Histogram {
        let mut all = crate::observe::histogram::Histogram::default();
        for pool in self.here().pools() {
            all.merge(&pool.hold.lock().told());
        }
        all
    }

    /// Calls `handler` with what is noticed of the registry's pools and queues: [`Report`] has a list. The last handler given
    /// is the one that is called.
    ///
    /// Without one such things are counted alone ([`PoolStats::stalls`], [`PoolStats::cpu_intensive`]): a library prints
    /// nothing unasked. A report's `Display` is one line.
    ///
    /// # Blocking
    ///
    /// The handler runs with no lock held, on the thread that looks after all pools, or on the one that does what is
    /// reported, and holds it up: it must not wait for queues of this registry, but may drop the last handle of one. What
    /// it panics with is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Registry;
    ///
    /// Registry::global()?.on_report(|report| eprintln!("afterwork: {report}"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_report(&self, handler: impl Fn(&Report) + Send + Sync + 'static) {
        let manager = &self.inner.machine.manager;
        manager.on_report(ReportHandler::new(handler));
    }

    /// Refuses every new worker thread from now on, or no longer: a way to see what a program does then. Also the threads
    /// on which queues end whose last holder must not wait.
    ///
    /// Work still gets done, and queues still end: the workers there are do it, and where all of a pool's sleep or hog the
    /// CPU, a thread that is set aside for all pools of the registry, an item at a time; another one fires other executors' wakers and drops
    /// what was cancelled. So an item that sleeps until
    /// another one of such a pool has run waits for ever if that thread runs it; [`mem_reclaim`](crate::Builder::mem_reclaim)
    /// gives a queue a thread of its own.
    #[doc(hidden)]
    pub fn refuse_threads(&self, refuse: bool) {
        self.inner.machine.manager.refuse_threads(refuse);
    }

    /// Waits until all threads of this registry's pools have ended.
    ///
    /// # Blocking
    ///
    /// Until the workers have left, which they do as soon as they get the CPU.
    ///
    /// # Errors
    ///
    /// [`StillInUse`] when queues, or clones of the registry, are left; and on a thread of the registry's own, which cannot wait
    /// for itself: in destructors of what items left behind, in a handler of reports, in locals of a worker's thread.
    pub fn shutdown(self) -> Result<(), StillInUse> {
        let is_own = self.inner.machine.manager.waits_for_this_thread();
        let nr_users = Arc::strong_count(&self.inner) - 1 + usize::from(is_own);
        if nr_users > 0 {
            return Err(StillInUse {
                registry: self,
                nr_users,
            });
        }
        let manager = self.inner.machine.manager.clone();
        drop(self);
        manager.wait_for_departures();
        Ok(())
    }

    /// Returns `true` if its threads are in this process.
    pub(crate) fn is_here(&self) -> bool {
        self.inner.process.is_this()
    }

    /// Returns the machine, whose locks nobody has who is not in this process.
    fn here(&self) -> &Machine {
        assert!(
            self.is_here(),
            "this registry was made before the process was forked, and its threads are not in the child: make one there"
        );
        &self.inner.machine
    }

    /// Returns what waits for its time.
    pub(crate) fn timers(&self) -> &Arc<Timers> {
        &self.inner.timers
    }

    /// Returns what queues and pools are placed by.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.inner.machine
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if sync::twin::torn_down() {
            return;
        }
        if !self.process.is_this() {
            // The manager is not here, and its locks may be held for ever.
            return;
        }
        // Every queue held us, so every pool has been killed.
        self.machine.manager.quit();
    }
}

impl fmt::Display for StillInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} queues or clones still use the registry",
            self.nr_users
        )
    }
}

impl std::error::Error for StillInUse {}
