//! The pools that queues share, and the topology that places them.

use std::fmt;

use base::internal::page::{self, Joined};
use base::internal::panics::Foreign;
use base::internal::params::Params;
use sync::atomic::Ordering;
use sync::time::Instant;
use sync::unmodelled::Arc;
use topology::{CpuSet, Topology};

use super::clock::Clock;
use super::sleeps::Sleeps;
use super::timers::Timers;
use crate::observe::report::Report;
use crate::pools::manager::Manager;
use crate::route::attrs::{BuildError, RegistryError};
use crate::route::machine::Machine;
use crate::route::stats::{PoolStats, QueueReport};

/// A set of worker pools with its own tunables, shared by all queues built on it. Queues with equal
/// pods and attributes share pools, so eight queues need no more threads than one.
///
/// Most programs never name one: [`Builder::build`](crate::Builder::build) uses the registry of the
/// whole process. Other registries are for tests, and for comparing tunables.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

/// The error returned if a registry is shut down while it is still in use. Contains the registry.
#[derive(Debug)]
pub struct StillInUse {
    /// The registry.
    pub registry: Registry,
    /// The number of queues and clones that remain, plus one if the caller is a registry thread.
    pub nr_users: usize,
}

struct Inner {
    machine: Arc<Machine>,
    /// I
    timers: Arc<Timers>,
    /// The registration that makes the registry visible to observers of the process.
    _shown: Joined,
}

impl Registry {
    /// Creates a registry without its manager thread; see `start.rs`.
    pub(crate) fn of(topology: Topology, params: Params, clock: Clock) -> Self {
        let manager = Arc::new(Manager::new(params.thread_style()));
        let slack_ns =
            if clock.is_paused() { 0 } else { params.sleep_slack_us.saturating_mul(1000) };
        let nr_cpus = topology.allowed().len();
        let sleeps = Sleeps::new(nr_cpus, clock.tick_shift(), slack_ns);
        let timers = Arc::new(Timers::new(&manager, clock, sleeps));
        let machine = Arc::new(Machine::new(topology, params, manager));
        let seen = Arc::downgrade(&machine);
        let shown = page::join(move |image| {
            if let Some(machine) = seen.upgrade() {
                machine.describe(image);
            }
        });
        let inner = Inner { machine, timers, _shown: shown };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the topology that this registry uses.
    pub fn topology(&self) -> Arc<Topology> {
        self.here().topology()
    }

    /// Replaces the topology after CPUs were added or removed, or after the allowed CPUs changed.
    ///
    /// Every queue changes its pools, as with
    /// [`Workqueue::set_attrs`](crate::Workqueue::set_attrs). Queued items run on the former pools;
    /// new items go to pools of the new topology. An ordered queue does not change its pools until
    /// its attributes are set. Briefly acquires the locks of queues and pools.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::{params::Params, workqueue::{Registry, Topology, Workqueue}};
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

    /// Asks the registry's source whether the machine has changed. Returns `true` if it has.
    ///
    /// The source of the process-wide registry reads which CPUs are online and which of them this
    /// process may use (affinity mask, cpuset). Reads files of sysfs and procfs, and blocks as
    /// [`set_topology`](Self::set_topology) does.
    pub fn refresh_topology(&self) -> bool {
        self.here().refresh()
    }

    /// Returns the CPUs to which unbound queues are restricted, or `None` if they are not.
    pub fn unbound_cpus(&self) -> Option<CpuSet> {
        self.here().unbound_cpus()
    }

    /// Restricts unbound queues to `cpus`, or, if that is `None`, to all CPUs that the process may
    /// use. Corresponds to the kernel's `/sys/devices/virtual/workqueue/cpumask`.
    ///
    /// The restriction takes effect as [`set_topology`](Self::set_topology) does. If none of a
    /// queue's own [`cpus`](crate::Attrs::cpus) is in the set, the queue uses the whole set. If the
    /// process may use no CPU of the set, the set has no effect.
    #[doc(alias = "workqueue_set_unbound_cpumask")]
    pub fn set_unbound_cpus(&self, cpus: Option<CpuSet>) {
        self.here().set_unbound_cpus(cpus);
    }

    /// Returns the tunables.
    pub fn params(&self) -> &Params {
        &self.inner.machine.params
    }

    /// Returns a report on each queue, in the order in which the queues were built. Briefly
    /// acquires the locks of queues and pools.
    pub fn queue_reports(&self) -> Vec<QueueReport> {
        let queues = self.here().queues();
        queues.iter().filter_map(|queue| queue.report()).collect()
    }

    /// Returns the record of each group.
    #[doc(hidden)]
    pub fn group_records(&self) -> Vec<page::Record> {
        let followers = self.here().queues();
        followers.iter().filter_map(|it| it.group_record()).collect()
    }

    /// Returns the counters of each pool. Briefly acquires each pool's lock.
    pub fn pool_stats(&self) -> Vec<PoolStats> {
        self.here().pools().iter().map(|pool| pool.stats()).collect()
    }

    /// Returns how long kicks held pool locks, if [`Params::lock_stat`] is on.
    #[cfg(feature = "baselines")]
    #[doc(hidden)]
    pub fn lock_hold(&self) -> crate::observe::tally::Histogram {
        let mut all = crate::observe::tally::Histogram::default();
        for pool in self.here().pools() {
            all.merge(&pool.hold.lock().recorded());
        }
        all
    }

    /// Returns the CPU time that threads have spent waiting for pool locks, if
    /// [`Params::lock_stat`] is on.
    #[cfg(feature = "baselines")]
    #[doc(hidden)]
    pub fn lock_wait_ns(&self) -> u64 {
        let pools = self.here().pools();
        let waited = pools.iter().map(|it| it.lock_wait_ns());
        waited.sum()
    }

    /// Calls `handler` with each [`Report`] about the registry's pools and queues. A new handler
    /// replaces the previous one.
    ///
    /// Without a handler, events are only counted ([`PoolStats::stalls`],
    /// [`PoolStats::cpu_intensive`]), because a library must not print unasked.
    ///
    /// # Blocking
    ///
    /// The handler runs with no lock held, on the manager thread or on the thread that causes the
    /// report, and delays that thread. It must not wait for queues of this registry, but it may
    /// drop the last handle to one. If it panics, the payload is dropped.
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
        // FOREIGN(on-report-drop): the drop of a handler, on its last user; a panic is contained by
        // `Foreign`.
        manager.on_report(Arc::new(Foreign::new(Box::new(handler))));
    }

    /// Makes the creation of every worker and reaper thread fail until this is called with `false`,
    /// to test how a program behaves in that case.
    ///
    /// Work still completes and queues are still destroyed. If all workers of a pool sleep or hog
    /// the CPU, one reserved thread of the registry runs the items, one at a time, so an item that
    /// waits for another item of such a pool waits forever. Another reserved thread fires foreign
    /// wakers and drops cancelled work. See also [`with_rescuer`](crate::Builder::with_rescuer).
    #[doc(hidden)]
    pub fn refuse_threads(&self, refuse: bool) {
        self.inner.machine.manager.refuse_threads.store(refuse, Ordering::Relaxed);
    }

    /// Returns the current time of the clock by which this registry's timers fire. This is the
    /// clock of [`Instant::now`], except in a registry [for tests](Self::for_tests).
    pub fn now(&self) -> Instant {
        self.timers().clock.now()
    }

    /// Waits until all threads of this registry's pools have exited.
    ///
    /// # Blocking
    ///
    /// Blocks until the workers have exited, which they do as soon as they get CPU time.
    ///
    /// # Errors
    ///
    /// Returns [`StillInUse`] if queues or clones of the registry remain, and on a thread of the
    /// registry, which cannot wait for itself. Destructors that the registry runs, report handlers,
    /// and destructors of a worker's thread-locals run on such threads.
    pub fn shutdown(self) -> Result<(), StillInUse> {
        let is_own = self.inner.machine.manager.waits_for_this_thread();
        let nr_users = Arc::strong_count(&self.inner) - 1 + usize::from(is_own);
        if nr_users > 0 {
            return Err(StillInUse { registry: self, nr_users });
        }
        let manager = self.inner.machine.manager.clone();
        drop(self);
        manager.wait_for_departures();
        Ok(())
    }

    pub(crate) fn check_here(&self) -> Result<(), BuildError> {
        let is_here = self.is_here();
        is_here.then_some(()).ok_or(BuildError::Registry(RegistryError::Forked))
    }

    pub(crate) fn is_here(&self) -> bool {
        self.inner.timers.process.is_this()
    }

    /// Returns the machine. Panics in a forked child, in which its locks may be held forever.
    fn here(&self) -> &Machine {
        assert!(
            self.is_here(),
            "this registry was created before the process was forked, and its threads are not in the child: create one there"
        );
        &self.inner.machine
    }

    pub(crate) fn timers(&self) -> &Arc<Timers> {
        &self.inner.timers
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.inner.machine
    }
}

// In a child of `fork`, the manager's thread does not exist, and its locks may be held forever.
sync::on_drop!(Inner, it => if it.timers.process.is_this() {
    // Every queue held a reference, so all pools have been killed.
    it.machine.manager.quit();
});

base::internal::impl_debug!(Registry, it => params: it.params());

impl fmt::Display for StillInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} queues or clones still use the registry", self.nr_users)
    }
}

impl std::error::Error for StillInUse {}

base::internal::into_io_error!(StillInUse, |_| ErrorKind::ResourceBusy);
