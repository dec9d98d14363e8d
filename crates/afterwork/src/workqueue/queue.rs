//! A workqueue: where users queue items.

use std::fmt;

use sync::{Mutex, unmodelled::Arc};

use super::{
    attrs::Attrs,
    drain::{Closed, Refused},
    end::{Lease, Visits, WeakQueue},
    future,
    histogram::Histogram,
    join::{self, JoinHandle},
    manager::Manager,
    pwq::{PanicHandler, QueueCore},
    registry::Registry,
    reroute::Plan,
    rescuer::Rescuer,
    routes::{Home, RouteTable},
    stats::QueueStats,
};
use crate::params::MaxActiveScope;

/// Runs work items on worker pools that it shares with other queues.
///
/// An item is queued on the pool of the caller's pod, the group of CPUs that the queue's affinity scope puts the
/// caller's CPU into. A `Workqueue` is a handle; the queue goes when the last one is dropped.
///
/// # Guarantees
///
/// - Workers take items that one thread queued on one pod in that order. As several workers take at once, and a
///   joiner runs its own, they may start and end in another. An ordered queue keeps the order of queueing.
/// - At most `max_active` threads run items of the queue at once, in the whole process.
/// - A panic in an item reaches its joiner; the worker goes on.
///
/// # Blocking
///
/// Queueing never waits for a worker or for memory of the system's: at most for a short lock, and it may wake a
/// sleeping worker (a system call). It may be done from work items, not from signal handlers.
///
/// Dropping the last handle drains the queue: it waits until all items have run. It does not wait where waiting could
/// stand still for ever: inside one of the queue's own items or one of a bottom-half queue, in a callback of RCU, and on
/// threads of the library's that serve all. The queue then goes when the last item has ended.
///
/// # Panics
///
/// In a child of `fork`, whatever queues on a queue of its parent's, or waits for it or its items: the workers are not there.
/// A waker of a future of the parent's does nothing there.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
/// let sums: Vec<_> = (0..4u64).map(|i| queue.spawn(move || (i * 1000..(i + 1) * 1000).sum::<u64>())).collect();
/// let total: u64 = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
/// assert_eq!(total, 3999 * 4000 / 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Workqueue {
    pub(super) inner: Arc<Inner>,
    /// Counts the handles; futures hold `inner` for longer, and others for a moment.
    lease: Arc<Lease>,
}

pub(super) struct Inner {
    /// I
    pub(super) core: Arc<QueueCore>,
    /// A, rarely written: who may queue.
    pub(super) closed: Closed,
    /// A: who leaves items here without a handle.
    pub(super) visits: Visits,
    /// I
    pub(super) ordered: bool,
    /// Where items go.
    pub(super) route_table: RouteTable,
    /// How that came, and what there was before.
    pub(super) plan: Mutex<Plan>,
    /// I: of the registry, which the queue keeps until it ends.
    pub(super) manager: Arc<Manager>,
    pub(super) rescuer: Mutex<Option<Rescuer>>,
}

/// What a queue is built from, checked.
pub(super) struct Parts {
    pub(super) attrs: Attrs,
    pub(super) max_active: u32,
    pub(super) max_active_scope: MaxActiveScope,
    pub(super) help: Option<bool>,
    pub(super) ordered: bool,
    pub(super) cpu_intensive: bool,
    pub(super) bh: bool,
    pub(super) rescuer: Option<Rescuer>,
    pub(super) on_panic: Option<PanicHandler>,
}

impl Workqueue {
    pub(super) fn new(name: &str, mut parts: Parts, registry: &Registry) -> Self {
        let core = Arc::new(QueueCore {
            cpu_intensive: parts.cpu_intensive,
            bh: parts.bh,
            rescuer: parts.rescuer.as_ref().map(Rescuer::mayday_queue),
            ..QueueCore::new(name, parts.on_panic.take())
        });
        let (ordered, rescuer) = (parts.ordered, parts.rescuer.take());
        let (plan, routes) = Plan::new(parts, &core, registry.machine());
        let inner = Arc::new(Inner {
            core,
            closed: Closed::new(),
            visits: Visits::new(),
            ordered,
            route_table: RouteTable::new(&routes, ordered),
            plan: Mutex::new(plan),
            manager: registry.machine().manager.clone(),
            rescuer: Mutex::new(rescuer),
        });
        registry.machine().add_queue(&inner);
        // The machine may have changed since the plan was drawn.
        inner.follow(registry.machine());
        let lease = Arc::new(Lease::new(&inner, registry));
        Self { inner, lease }
    }

    /// Queues `func` to run once, and returns a handle to wait for what it returns.
    ///
    /// Where the queue takes none (see [`try_spawn`](Self::try_spawn)) `func` is dropped, and the handle says so.
    ///
    /// # Cost
    ///
    /// No allocation in the long run: the item's memory is recycled between the threads. A closure, with its
    /// result, of up to 16 bytes takes a cache line; above 208 bytes it is boxed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let handle = queue.spawn(|| "done");
    /// assert_eq!(handle.join()?, "done");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn spawn<T: Send + 'static>(
        &self,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_at(self.here(), func)
    }

    /// Queues `func` to run once at `home`, a link of this queue.
    #[inline]
    pub(super) fn spawn_at<T: Send + 'static>(
        &self,
        home: Home<'_>,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        if !self.admits() {
            // Its doors are not for users' code to stand in.
            drop(home);
            return join::refused(func);
        }
        let (item, handle) = join::joinable(func, &home);
        home.push(item);
        handle
    }

    /// Queues `func` as [`spawn`](Self::spawn) does, or gives it back.
    ///
    /// # Errors
    ///
    /// [`Refused`] with `func` while the queue is being drained by somebody else, and after it was destroyed.
    pub fn try_spawn<T, F>(&self, func: F) -> Result<JoinHandle<T>, Refused<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if !self.admits() {
            let queue = self.name().into();
            return Err(Refused { func, queue });
        }
        let home = self.here();
        let (item, handle) = join::joinable(func, &home);
        home.push(item);
        Ok(handle)
    }

    /// Queues `func` to run once; nobody can wait for it or cancel it. Cheaper than [`spawn`](Self::spawn).
    ///
    /// Where the queue takes none (see [`try_spawn`](Self::try_spawn)) `func` is dropped.
    #[inline]
    pub fn spawn_detached(&self, func: impl FnOnce() + Send + 'static) {
        if self.admits() {
            let home = self.here();
            home.push(join::detached(func, &home));
        }
    }

    /// Queues `future` to be polled by this queue's workers until it is ready, and returns a handle to wait for that.
    ///
    /// Its wakers queue it, on the pool of the pod that they are called in; so the queue is an executor, within its
    /// limits: `max_active` counts polls, not futures that wait, and an ordered queue polls one future at a time, in
    /// the order of the wakes. A poll that blocks holds up a worker: see [`spawn`](Self::spawn) for such work.
    ///
    /// # Guarantees
    ///
    /// - It is never polled twice at once, and each wake is followed by a poll, which sees what was written before it.
    /// - It is dropped by a worker, also when it is [cancelled](JoinHandle::cancel), and when it panics. But a future
    ///   that waits while its handle and all its wakers are gone is dropped by whoever drops the last of them.
    /// - It is in flight until it has ended: [`drain`](Self::drain), and dropping the last handle of the queue, wait
    ///   for futures that wait.
    ///
    /// # Cost
    ///
    /// One block of memory, recycled up to 256 bytes as that of `spawn`. A poll that keeps no waker counts nothing; to
    /// wake a future that waits is to queue an item.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let blocking = queue.clone();
    /// let sum = queue.spawn_async(async move {
    ///     let parts = [1, 2].map(|part| blocking.spawn(move || part));
    ///     let mut sum = 0;
    ///     for part in parts {
    ///         sum += part.await.unwrap();
    ///     }
    ///     sum
    /// });
    /// assert_eq!(sum.join()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_async<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if !self.admits() {
            drop(future);
            return join::refused(|| unreachable!("it is never queued"));
        }
        let home = self.here();
        let (item, handle) = future::task(future, &home, self.inner.clone());
        home.push(item);
        handle
    }

    /// Changes how many threads run items of this queue at once.
    ///
    /// More start at once; if fewer are allowed, those that run finish what they have in hand.
    ///
    /// # Errors
    ///
    /// [`BuildError::MaxActive`](super::BuildError::MaxActive) outside 1 to 512;
    /// [`BuildError::OrderedMaxActive`](super::BuildError::OrderedMaxActive) for an ordered queue.
    pub fn set_max_active(&self, max_active: u32) -> Result<(), super::BuildError> {
        if self.inner.ordered && max_active != 1 {
            return Err(super::BuildError::OrderedMaxActive(max_active));
        }
        if !(1..=super::MAX_ACTIVE).contains(&max_active) {
            return Err(super::BuildError::MaxActive(max_active));
        }
        let seekers = self.inner.plan.lock().set_max_active(max_active);
        for seeker in seekers {
            seeker.pool.take_seat(seeker.slot);
        }
        Ok(())
    }

    pub(super) fn downgrade(&self) -> WeakQueue {
        WeakQueue::new(&self.inner)
    }

    /// Returns the registry whose pools it uses.
    pub(super) fn registry(&self) -> &Registry {
        self.lease.registry()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Returns what the queue has counted.
    ///
    /// # Blocking
    ///
    /// Takes the lock of each of its pools for a moment.
    pub fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    /// Returns how long items waited until a worker took them, of the sampled ones.
    ///
    /// Of [`Params::wait_sample`](crate::params::Params::wait_sample) items of a pool at most one is sampled. Those that
    /// a joiner ran or that were cancelled are not among them.
    pub fn wait_times(&self) -> Histogram {
        self.inner.core.wait.read()
    }
}

impl fmt::Debug for Workqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.name())
            .field("settled", &self.inner.core.settled)
            .field("nr_active", &self.inner.plan.lock().nr_active())
            .field("ordered", &self.inner.ordered)
            .finish_non_exhaustive()
    }
}
