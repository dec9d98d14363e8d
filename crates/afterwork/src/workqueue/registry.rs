//! The pools that queues share, on one picture of the machine.

use std::fmt;

use sync::{OnceLock, unmodelled::Arc};
use topology::{AffinityScope, Pods, ShardParams, Topology};

use super::{
    manager::Manager,
    pool::{PoolAttrs, WorkerPool},
    stats::{LockHold, PoolStats},
};
use crate::params::{ParamError, Params, VARIABLE};

/// Holds worker pools that all queues built on it share, with tunables of its own.
///
/// Most programs never name one: [`Builder::build`](super::Builder::build) uses the registry of the whole process.
/// One of its own is for measuring two sets of tunables side by side, and for tests.
///
/// Queues whose pods and attributes are alike share pools: eight subsystems with eight queues have the threads
/// of one.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

/// Says why a registry could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegistryError {
    /// The machine's topology could not be read.
    Topology(topology::Error),
    /// The system refused the thread that looks after the pools.
    Thread(std::io::Error),
    /// The environment variable [`AFTERWORK`](crate::params::VARIABLE) is wrong.
    Params(ParamError),
}

/// Says that a registry could not be shut down.
#[derive(Debug)]
pub struct StillInUse {
    /// The registry, given back.
    pub registry: Registry,
    /// Queues and clones of the registry that are left.
    pub nr_users: usize,
}

#[derive(Debug)]
struct Inner {
    topology: Topology,
    params: Params,
    manager: Arc<Manager>,
}

impl Registry {
    /// Makes a registry for `topology`, and starts the thread that looks after its pools.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Thread`] when the system refuses that thread.
    pub fn new(topology: Topology, params: Params) -> Result<Self, RegistryError> {
        let manager = Arc::new(Manager::default());
        // So that no first run has to measure the clock.
        sync::time::cycles_per_us();
        manager
            .start(&params, topology.allowed())
            .map_err(RegistryError::Thread)?;
        Ok(Self {
            inner: Arc::new(Inner {
                topology,
                params,
                manager,
            }),
        })
    }

    /// Makes a registry whose manager has no thread, for models.
    #[cfg(any(loom, shuttle))]
    pub(super) fn unmanaged(topology: Topology, params: Params) -> Self {
        let manager = Arc::new(Manager::default());
        Self {
            inner: Arc::new(Inner {
                topology,
                params,
                manager,
            }),
        }
    }

    #[cfg(any(loom, shuttle))]
    pub(super) fn manager(&self) -> &Arc<Manager> {
        &self.inner.manager
    }

    /// Returns the registry of the whole process, made at the first call for the CPUs that it may use then,
    /// with the tunables that the environment says ([`VARIABLE`]).
    ///
    /// CPUs that the machine was told to isolate get no workers, unless the process may use no others. A thread
    /// that queues from one of them uses the first pod.
    ///
    /// # Errors
    ///
    /// See [`RegistryError`]. The next call tries again.
    pub fn global() -> Result<&'static Registry, RegistryError> {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        if let Some(registry) = GLOBAL.get() {
            return Ok(registry);
        }
        let params = Params::from_env().map_err(RegistryError::Params)?;
        let machine = Topology::detect().map_err(RegistryError::Topology)?;
        let housekeeping = machine.allowed().difference(machine.isolated());
        let topology = if housekeeping.is_empty() {
            machine
        } else {
            machine
                .restricted_to(&housekeeping)
                .map_err(RegistryError::Topology)?
        };
        let registry = Registry::new(topology, params)?;
        Ok(GLOBAL.get_or_init(|| registry))
    }

    /// Returns the machine as this registry sees it.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// Returns the tunables.
    pub fn params(&self) -> &Params {
        &self.inner.params
    }

    /// Returns what each pool has counted.
    ///
    /// # Blocking
    ///
    /// Takes each pool's lock for a moment.
    pub fn pool_stats(&self) -> Vec<PoolStats> {
        self.pools().iter().map(|pool| pool.stats()).collect()
    }

    /// Returns how long `queue()` held the lock of any pool, if [`Params::lock_stat`] is on.
    pub fn lock_hold(&self) -> LockHold {
        let mut all = LockHold::default();
        for pool in self.pools() {
            all.merge(&pool.hold.read());
        }
        all
    }

    /// Refuses every new worker thread from now on, or no longer: a way to see what a program does then.
    ///
    /// Work still gets done, by the workers there are or by the registry's own thread.
    pub fn refuse_threads(&self, refuse: bool) {
        self.inner.manager.refuse_threads(refuse);
    }

    /// Waits until all threads of this registry's pools have ended.
    ///
    /// # Blocking
    ///
    /// Until the workers have left, which they do as soon as they get the CPU.
    ///
    /// # Errors
    ///
    /// [`StillInUse`] when queues, or clones of the registry, are left.
    pub fn shutdown(self) -> Result<(), StillInUse> {
        let nr_users = Arc::strong_count(&self.inner) - 1;
        if nr_users > 0 {
            return Err(StillInUse {
                registry: self,
                nr_users,
            });
        }
        let manager = self.inner.manager.clone();
        drop(self);
        manager.wait_for_departures();
        Ok(())
    }

    /// Returns the pods of `scope`.
    pub(super) fn pods(&self, scope: AffinityScope) -> Pods {
        let shards = ShardParams {
            cache_shard_size: self.inner.params.cache_shard_size,
        };
        self.inner.topology.pods(scope, &shards)
    }

    /// Returns the pool with these attributes, made if there is none, with one more user.
    pub(super) fn pool(&self, attrs: PoolAttrs) -> Arc<WorkerPool> {
        let mut roster = self.inner.manager.roster.lock();
        if let Some((pool, nr_users)) = roster.iter_mut().find(|(pool, _)| pool.attrs == attrs) {
            *nr_users += 1;
            return pool.clone();
        }
        let number = (0..)
            .find(|number| roster.iter().all(|(pool, _)| pool.number != *number))
            .expect("fewer pools than numbers");
        let confined = attrs.cpus != *self.inner.topology.allowed();
        let pool = Arc::new(WorkerPool::new(
            number,
            attrs,
            confined,
            self.inner.params.clone(),
            self.inner.manager.clone(),
        ));
        roster.push((pool.clone(), 1));
        pool
    }

    /// Takes note that a pool has one user less; the last one ends it.
    pub(super) fn release(&self, pool: &Arc<WorkerPool>) {
        let mut roster = self.inner.manager.roster.lock();
        let at = roster
            .iter()
            .position(|(other, _)| Arc::ptr_eq(pool, other))
            .expect("a pool in use");
        roster[at].1 -= 1;
        if roster[at].1 == 0 {
            let (pool, _) = roster.swap_remove(at);
            drop(roster);
            pool.kill();
        }
    }

    pub(super) fn pools(&self) -> Vec<Arc<WorkerPool>> {
        let roster = self.inner.manager.roster.lock();
        roster.iter().map(|(pool, _)| pool.clone()).collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if sync::twin::torn_down() {
            return;
        }
        // Every queue held us, so every pool has been killed.
        self.manager.quit();
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(error) => write!(f, "the machine's topology cannot be read: {error}"),
            Self::Thread(error) => write!(f, "the manager's thread was refused: {error}"),
            Self::Params(error) => write!(f, "{VARIABLE}: {error}"),
        }
    }
}

impl std::error::Error for RegistryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Topology(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::Params(error) => Some(error),
        }
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
