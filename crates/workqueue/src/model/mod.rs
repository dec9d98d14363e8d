//! Gives models access to internals; compiled only under `--cfg loom` and `--cfg shuttle`.
//!
//! A [`Machine`] is a registry without the manager's thread. It creates workers on request, as the
//! manager does after a kick. The owner of the machine calls the manager's other functions itself.
//! A model therefore has only the threads under test, and nothing in it depends on time.

mod parts;

use base::internal::params::Params;
use base::internal::wake::Parker;
pub use base::internal::wake::sleeper::on_turn_of_task;
use item::internal::head::Name;
pub use limit::internal::capacity::Capacity;
pub use parts::{Blocks, Gates, Injected, Pushed, permits};
use sync::atomic::Ordering;
use sync::unmodelled::Arc;
use topology::Topology;

use super::execute::join::joinable;
use super::manage::manager_loop::ManagerLoop;
use super::pools::policy::Census;
use super::pools::pool::WorkerPool;
use super::queues::expiry::StartBefore;
use super::queues::future::task;
pub use super::scope::model::{OpenPair, OpenRange, OpenScope};
use super::{Group, JoinHandle, Registry, Work, Workqueue};

/// A registry whose manager is the model itself.
pub struct Machine {
    registry: Registry,
    parker: Parker,
}

/// Culls idle workers.
#[derive(Clone)]
pub struct Culler(Vec<Arc<WorkerPool>>);

impl Culler {
    /// Culls every worker that can be culled, as if all timeouts had passed.
    pub fn cull(&self) {
        for pool in &self.0 {
            pool.cull(u64::MAX);
        }
    }
}

impl Machine {
    /// Creates a machine for `topology`.
    pub fn new(topology: &Topology, params: Params) -> Self {
        let registry = Registry::unmanaged(topology.clone(), params);
        let parker = registry.machine().manager.take_post();
        Self { registry, parker }
    }

    /// Returns the registry in which queues can be built.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Starts `count` workers of each pool in use, and counts them as a kick does.
    pub fn start_workers(&self, count: usize) {
        for pool in self.registry.machine().pools() {
            for _ in 0..count {
                pool.lock().nr_creating += 1;
                pool.census.fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
                self.registry.machine().manager.create_worker(&pool);
            }
        }
        self.make_workers();
    }

    /// Creates the workers that kicks have requested.
    pub fn make_workers(&self) {
        let refused = self.registry.machine().manager.create_workers();
        assert!(refused.is_empty(), "thread creation does not fail in a model");
    }

    /// Creates the requested workers until `done` returns `true`. A [`notifier`](Self::notifier)
    /// makes it check the condition again.
    pub fn serve_until(&mut self, done: impl Fn() -> bool) {
        loop {
            self.make_workers();
            if done() {
                return;
            }
            self.parker.park();
        }
    }

    /// Returns a handle that culls idle workers of every pool in use now.
    pub fn culler(&self) -> Culler {
        Culler(self.registry.machine().pools())
    }

    /// Counts a nonexistent worker of each pool as awake and busy, or reverts that if not `busy`.
    pub fn pretend_busy(&self, busy: bool) {
        for pool in self.registry.machine().pools() {
            let census = &pool.census;
            if busy {
                census.fetch_add(Census::AWAKE, Ordering::Relaxed);
            } else {
                census.fetch_sub(Census::AWAKE, Ordering::Relaxed);
            }
        }
    }

    /// Samples all pools once, as the active monitor does.
    pub fn tick(&self) {
        ManagerLoop::new(self.registry.machine(), self.registry.timers()).tick(0);
    }

    /// Calls the rescuers to each pool that has needed a worker for too long, at the time `now_ns`.
    pub fn mayday(&self, now_ns: u64) {
        for pool in self.registry.machine().pools() {
            pool.mayday(now_ns);
        }
    }

    /// Activates the monitor.
    pub fn watch(&self) {
        self.registry.machine().manager.watch();
    }

    /// Returns `true` if the monitor is active.
    pub fn is_watching(&self) -> bool {
        self.registry.machine().manager.armed.load(Ordering::Relaxed)
    }

    /// Returns `true` if the manager has been notified since the last call.
    pub fn was_notified(&mut self) -> bool {
        self.parker.try_park()
    }

    /// Waits until the manager is notified, or [`notifier`](Self::notifier)'s unparker is used.
    pub fn wait(&mut self) {
        self.parker.park();
    }

    /// Returns the unparker that ends [`wait`](Self::wait), and makes
    /// [`serve_until`](Self::serve_until) check its condition again.
    pub fn notifier(&self) -> base::wake::Unparker {
        self.parker.unparker()
    }

    /// Fires the timers that are due at the time `at`, measured from the clock's zero.
    pub fn fire_timers(&self, at: std::time::Duration) {
        self.registry.timers().fire(at.as_nanos() as u64);
    }

    /// Starts a reaper if a deferred cleanup is queued.
    pub fn reap(&self) {
        let refused = self.registry.machine().manager.serve_cleanups(0);
        assert!(!refused, "thread creation does not fail in a model");
    }

    /// Runs the first deferred cleanup on this thread. Returns `true` if there was one.
    pub fn run_fallback(&self) -> bool {
        self.registry.machine().manager.cleanups.run_fallback(false)
    }

    /// Drops the registry, and starts the requested reapers until its queues have been destroyed.
    pub fn end(mut self) {
        let manager = self.registry.machine().manager.clone();
        drop(self.registry);
        while !manager.inbox.lock().quit {
            assert!(!manager.serve_cleanups(0), "thread creation does not fail in a model");
            self.parker.park();
        }
    }

    /// Runs all pending items on this thread, as the manager does if no thread can be created.
    pub fn help_out(&self) {
        for pool in self.registry.machine().pools() {
            super::pools::worker::help_out(&pool, || true);
        }
    }

    /// Returns `true` if a queue or a group has shares in each pool in use.
    pub fn has_shares(&self) -> bool {
        self.registry.machine().pools().iter().all(|pool| pool.lock().is_shared())
    }

    /// Returns the number of workers of all pools.
    pub fn nr_workers(&self) -> usize {
        let pools = self.registry.machine().pools();
        pools.iter().map(|pool| pool.lock().nr_workers).sum()
    }
}

impl Workqueue {
    /// Queues `func` with a deadline that has passed, as a future if `as_future` is set.
    pub fn spawn_overdue<T: Send + 'static>(
        &self,
        as_future: bool,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let (home, start_by) = (self.here(), StartBefore::new(self, 0));
        let name = Name::of(&func);
        let (item, handle) = if as_future {
            task(name, start_by, async move { func() }, home, self.inner.clone(), false)
        } else {
            joinable(name, start_by, func, home, false)
        };
        home.push(item);
        handle
    }
}

impl Group {
    /// Begins a drain, which lasts until the result is dropped.
    pub fn begin_drain(&self) -> impl Drop + '_ {
        self.inner.while_draining()
    }
}

impl Work {
    /// Returns `true` if the item's state records that its last handle was dropped.
    pub fn is_orphaned(&self) -> bool {
        self.head().load().is_orphan()
    }
}
