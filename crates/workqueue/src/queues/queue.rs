//! The workqueue handle and its shared state.

use std::panic::{RefUnwindSafe, UnwindSafe};

use base::internal::wake::lane::Lane;
use limit::internal::queue_core::QueueCore;
use sync::Mutex;
use sync::atomic::{AtomicU32, Ordering};
use sync::fork::Process;
use sync::unmodelled::{Arc, Weak};

use super::end::{Lease, Visits, WeakQueue};
use super::group::GroupInner;
use super::registry::Registry;
use super::timers::OwnTimers;
use crate::execute::run::{homes_of_next_runs, is_inside};
use crate::pools::manager::Manager;
use crate::pools::rescuer::Rescuer;
use crate::route::attrs::{BuildError, MAX_ACTIVE, check_shares};
use crate::route::plan::{Design, Plan};
use crate::route::routes::RouteTable;
use crate::route::stats::{QueueReport, QueueStats};

/// Runs work items on worker pools that it shares with other queues.
///
/// An item is queued on the pool of the caller's pod: the group of CPUs that the queue's affinity
/// scope assigns to the caller's CPU. A `Workqueue` is a handle; dropping the last one destroys it.
///
/// # Guarantees
///
/// - Workers pop the items that one thread queued on one pod in the order of queueing. Several
///   workers pop at the same time, and a joiner may run its own item, so items can start and end in
///   a different order, except in an ordered queue.
/// - At most `max_active` threads run items of the queue at once, in the whole process.
/// - A panic in an item reaches its joiner, and the worker keeps running.
///
/// # Blocking
///
/// Queueing never waits for a worker or for memory from the system. It waits at most for a lock
/// that is held briefly, and may wake a worker (a system call). Work items may queue; signal
/// handlers may not.
///
/// Dropping the last handle drops the items held by timers, and drains the queue: the drop blocks
/// until all items have run and all futures have ended. It does not block where that could
/// deadlock: inside an item of the queue or of a bottom-half queue, in a callback of RCU or of a
/// sleepable domain, and on the library's own threads. In these cases the queue is destroyed after
/// its last item has ended.
///
/// A thread that must not block, such as a thread of an async runtime, drops its handle with
/// [`close_in_background`](Self::close_in_background), or with
/// [`shutdown_background`](Self::shutdown_background), which also cancels items that have not
/// started. After [`drain_async`](Self::drain_async) a drop waits only if items are queued again.
///
/// # Panics
///
/// In a child of `fork`, a call panics if it queues on a queue of the parent, changes or queries
/// such a queue, or waits for it or its items. The child has no workers, and locks that the workers
/// held at the fork stay held.
///
/// An item that was idle at the fork may be queued on a queue built in the child. All other items
/// are lost in the child: queueing one or waiting for it panics, and cancelling one does nothing
/// and returns `false`. A waker of a future of the parent does nothing. An item or a handler that
/// forks must end the child itself, by `_exit` or `exec`; if the child returns from the item or
/// handler, it prints a line on stderr and exits with status 1.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
/// let sums: Vec<_> = (0..4u64)
///     .map(|i| queue.spawn(move || (i * 1000..(i + 1) * 1000).sum::<u64>()))
///     .collect();
/// let total: u64 = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
/// assert_eq!(total, 3999 * 4000 / 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "workqueue_struct")]
#[derive(Clone)]
pub struct Workqueue {
    pub(crate) inner: Arc<Inner>,
    /// The lease of all handles. Futures keep `inner` alive for longer, and other users briefly.
    pub(crate) lease: Arc<Lease>,
    /// I: the lane in which items queued by this handle wait.
    pub(crate) lane: Lane,
}

pub(crate) struct Inner {
    /// I
    pub(crate) core: Arc<QueueCore>,
    /// I: the group, if the queue is in one.
    pub(crate) group: Option<Arc<GroupInner>>,
    /// A, rarely written: set while the queue rejects items.
    pub(crate) closed: Closed,
    /// A: the users of the queue that have no handle.
    pub(crate) visits: Visits,
    /// I
    pub(crate) ordered: bool,
    /// I: `true` for a process-wide queue, which no handle can stop.
    pub(crate) for_all: bool,
    /// A: the pwq of each CPU.
    pub(crate) route_table: RouteTable,
    /// W: the attributes behind the routes, and the former routes.
    pub(crate) plan: Mutex<Plan>,
    /// I: the registry's manager. The queue keeps it alive until the queue is destroyed.
    pub(crate) manager: Arc<Manager>,
    pub(crate) timers: OwnTimers,
    pub(crate) rescuer: Mutex<Option<Rescuer>>,
}

/// A flag word that closes a queue to all callers except its own items.
pub(crate) struct Closed {
    /// bits 0..29 drains in progress | bit 29 the group drains | bit 30 has a capacity | bit 31
    /// destroyed
    pub(super) word: AtomicU32,
    /// I: the process that built the queue.
    pub(super) process: Process,
}

const DESTROYED: u32 = 1 << 31;
/// Set if the queue has a capacity. The flag is in this word because queueing reads it anyway.
pub(super) const COUNTS: u32 = 1 << 30;
/// Set while the group drains: items of the whole group may queue.
pub(super) const GROUP_DRAINS: u32 = 1 << 29;

/// A drain in progress. Until it is dropped, even by unwinding, the queue rejects outside items.
pub(crate) struct Draining<'a>(&'a Closed);

impl Closed {
    pub(crate) fn while_draining(&self) -> Draining<'_> {
        self.word.fetch_add(1, Ordering::Relaxed);
        Draining(self)
    }

    /// Rejects items from outside of the group if the group `drains`.
    pub(super) fn set_group_drains(&self, drains: bool) {
        if drains {
            self.word.fetch_or(GROUP_DRAINS, Ordering::Relaxed);
        } else {
            self.word.fetch_and(!GROUP_DRAINS, Ordering::Relaxed);
        }
    }

    pub(crate) fn destroy(&self) {
        self.word.fetch_or(DESTROYED, Ordering::Relaxed);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DESTROYED != 0
    }
}

sync::on_drop!(Draining<'_>, it => it.0.word.fetch_sub(1, Ordering::Relaxed));

impl Workqueue {
    pub(super) fn with_core(
        core: QueueCore,
        design: Design,
        group: Option<Arc<GroupInner>>,
        rescuer: Option<Rescuer>,
        for_all: bool,
        registry: &Registry,
    ) -> Self {
        let (core, ordered) = (Arc::new(core), design.ordered);
        let (plan, routes) = Plan::new(design, &core, registry.machine());
        let counts = if core.capacity.is_some() { COUNTS } else { 0 };
        let inner = Arc::new(Inner {
            closed: Closed { word: AtomicU32::new(counts), process: Process::this() },
            core,
            group,
            visits: Visits::default(),
            ordered,
            for_all,
            route_table: RouteTable::new(&routes),
            plan: Mutex::new(plan),
            manager: registry.machine().manager.clone(),
            timers: OwnTimers::new(registry.timers()),
            rescuer: Mutex::new(rescuer),
        });
        let follower = Arc::<Inner>::downgrade(&inner);
        registry.machine().add_queue(follower);
        // The machine may have changed since the plan was computed.
        inner.reroute(registry.machine(), &|_| ());
        if let Some(group) = &inner.group {
            group.add(&inner);
        }
        let registry = registry.clone();
        let lease = Arc::new(Lease { inner: inner.clone(), registry, in_background: false });
        Self { inner, lease, lane: Lane::Ordinary }
    }

    /// Changes the number of threads that may run items of this queue at once.
    ///
    /// A higher limit starts more items at once. With a lower limit, local batches still finish.
    /// Briefly acquires locks, and may wake workers.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::MaxActive`] if `max_active` is not between 1 and 512,
    /// [`BuildError::OrderedMaxActive`] for an ordered queue, and [`BuildError::System`] for a
    /// process-wide queue. Nothing has changed in these cases.
    #[doc(alias = "workqueue_set_max_active")]
    pub fn set_max_active(&self, max_active: u32) -> Result<(), BuildError> {
        self.inner.must_not_be_for_all()?;
        if self.inner.ordered && max_active != 1 {
            return Err(BuildError::OrderedMaxActive(max_active));
        }
        if !(1..=MAX_ACTIVE).contains(&max_active) {
            return Err(BuildError::MaxActive(max_active));
        }
        self.inner.must_be_at_home();
        let waiters = self.inner.plan.lock().set_max_active(max_active);
        for waiter in waiters {
            waiter.take_seat();
        }
        Ok(())
    }

    pub(crate) fn to_weak(&self) -> WeakQueue {
        WeakQueue::new(&self.inner, self.lane)
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.lease.registry
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Returns the queue's counters. Briefly acquires the lock of each of its pools.
    pub fn stats(&self) -> QueueStats {
        self.inner.must_be_at_home();
        self.inner.stats()
    }

    /// Returns a description of the queue: its attributes, counters, times and capacity. Blocks as
    /// [`stats`](Self::stats) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("disk").max_active(1).help(false).build()?;
    /// for _ in 0..20 {
    ///     queue.spawn_detached(|| sleep(Duration::from_millis(2)))?;
    /// }
    /// queue.drain()?;
    /// let report = queue.report();
    /// // The last one waited for the nineteen before it.
    /// assert!(report.wait.quantile_ns(1.0) > 19_000_000);
    /// assert!(report.run.quantile_ns(0.5) >= 2_000_000);
    /// assert_eq!(report.oldest, None, "nothing waits");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("wait_times", "run_times", "latency", "lag", "capacity"))]
    pub fn report(&self) -> QueueReport {
        self.inner.must_be_at_home();
        self.inner.report_all()
    }

    /// Sets the queue's share of its pools' CPU time while other queues compete for it; see
    /// [`Builder::shares`](crate::Builder::shares).
    ///
    /// The share also applies to items that are already waiting.
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each of its pools. The first call visits each pending item.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::Shares`] if `shares` is not between 1 and
    /// [`MAX_SHARES`](crate::MAX_SHARES), and [`BuildError::System`] for a process-wide queue.
    /// Nothing has changed in these cases.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let compaction = Workqueue::builder("compaction").shares(100).build()?;
    /// // The disk fills up, so compaction must not fall behind now.
    /// compaction.set_shares(1000)?;
    /// assert_eq!(compaction.report().shares, Some(1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "cpu_weight")]
    pub fn set_shares(&self, shares: u32) -> Result<(), BuildError> {
        check_shares(shares)?;
        self.inner.must_not_be_for_all()?;
        self.inner.must_be_at_home();
        // The lock ensures that a pwq created at the same time gets the shares, too.
        let plan = self.inner.plan.lock();
        self.inner.core.shares.store(shares, Ordering::Relaxed);
        for pwq in &plan.pwqs {
            pwq.pool.lock().set_shares(pwq.slot, shares);
        }
        Ok(())
    }

    /// Returns a handle to this queue. Items that are queued through it are *urgent*: they start
    /// before ordinary ones.
    ///
    /// Use it for a few items among many: a read that a user waits for on a queue of prefetches, or
    /// a flush on a queue of compactions. The handle belongs to the same queue, with one
    /// `max_active`, one capacity, one drain, and one set of statistics.
    ///
    /// # Guarantees
    ///
    /// - An urgent item starts before all ordinary items of the queue that wait in the same pool,
    ///   and after older urgent ones. Running items are not interrupted.
    /// - Ordinary items are not starved: while items of both kinds wait in a pool, every tenth item
    ///   that starts is ordinary.
    /// - Urgent items do not overtake items of other queues.
    ///
    /// Other operations treat the lanes as follows:
    ///
    /// - An ordered queue has no urgent lane.
    /// - A pending item keeps its lane; to hasten it, cancel it and queue it again.
    /// - `max_active` and [`pause`](Self::pause) apply to both lanes; the next seat goes to the
    ///   urgent item. As in the kernel, an item that waits for a worker of its pool holds a seat.
    ///   With a small `max_active`, items in other pools wait for that worker, too.
    /// - A capacity counts and rejects items of both lanes; waiters get it in order of arrival.
    /// - [`flush`](Self::flush), [`drain`](Self::drain) and [`cancel_all`](Self::cancel_all) cover
    ///   both lanes, through any handle.
    /// - Delayed, periodic and RCU work, futures and scopes keep the lane of the handle that queued
    ///   them each time they are queued.
    /// - Joiners help with items of either lane.
    ///
    /// # Cost
    ///
    /// After the first call, workers take the queue's items of both lanes one at a time, which
    /// costs about 100 ns for each item. For items of a microsecond or more, the cost is not
    /// measurable. A queue on which this is never called pays nothing.
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each of the queue's pools.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::OrderedUrgent`] for an ordered queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("disk").max_active(1).build()?;
    /// let urgent = queue.urgent()?;
    /// let (send, order) = std::sync::mpsc::channel();
    /// queue.pause();
    /// for name in ["prefetch", "scrub"] {
    ///     let send = send.clone();
    ///     queue.spawn_detached(move || send.send(name).unwrap())?;
    /// }
    /// urgent.spawn_detached(move || send.send("read").unwrap())?;
    /// queue.resume();
    /// assert_eq!(order.iter().collect::<Vec<_>>(), ["read", "prefetch", "scrub"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("priority", "spawn_urgent", "enqueue_urgent", "queue_front"))]
    pub fn urgent(&self) -> Result<Workqueue, BuildError> {
        self.inner.must_be_at_home();
        if self.inner.ordered {
            return Err(BuildError::OrderedUrgent);
        }
        self.inner.open_lanes();
        Ok(Self { lane: Lane::Urgent, ..self.clone() })
    }
}

impl Inner {
    /// Rejects a change that other users of a process-wide queue would notice.
    pub(crate) fn must_not_be_for_all(&self) -> Result<(), BuildError> {
        if self.for_all { Err(BuildError::System(self.core.name.clone())) } else { Ok(()) }
    }

    /// Returns `true` if this thread is inside an item of this queue, or is freeing one.
    pub(crate) fn runs_here(&self) -> bool {
        is_inside(&self.core)
    }

    /// Returns `true` if the queue's items wait for this thread: it is inside an item of this
    /// queue, or inside an item that is also queued here and starts only after its present run.
    pub(crate) fn waits_for_this_thread(&self) -> bool {
        let is_ours = |home| self.plan.lock().pwqs.iter().any(|pwq| pwq.has_home(home));
        self.runs_here() || homes_of_next_runs().any(is_ours)
    }

    /// Returns `true` if the queue's workers are in this process.
    pub(crate) fn is_at_home(&self) -> bool {
        self.closed.process.is_this()
    }

    /// Panics in a child of `fork`, in which the queue's workers do not exist.
    pub(crate) fn must_be_at_home(&self) {
        let name = &self.core.name;
        assert!(
            self.is_at_home(),
            "workqueue {name:?} was created before the process was forked, and its workers are not in the child: make a \
             queue there"
        );
    }

    pub(super) fn set_group_shares(&self, shares: u32) {
        // The lock has the same purpose as in `set_shares`.
        let plan = self.plan.lock();
        self.core.group_shares.store(shares, Ordering::Relaxed);
        for pwq in &plan.pwqs {
            pwq.pool.lock().set_group_shares(pwq.slot, shares);
        }
    }

    /// Makes urgent items overtake ordinary ones in all pools of the queue from now on.
    pub(super) fn open_lanes(&self) {
        if self.core.has_lanes.load(Ordering::Relaxed) {
            return;
        }
        self.must_be_at_home();
        // The lock ensures that a pwq created at the same time has lanes, too.
        let plan = self.plan.lock();
        self.core.has_lanes.store(true, Ordering::Relaxed);
        let pwqs = plan.pwqs.clone();
        drop(plan);
        // The pwqs stay valid without the lock, because a queue in use keeps its pwqs.
        for pwq in pwqs {
            pwq.pool.open_lanes(pwq.slot);
        }
    }
}

// A panic unwinds before the first change to the queue, or is contained.
impl UnwindSafe for Workqueue {}
impl RefUnwindSafe for Workqueue {}

base::internal::impl_debug!(Workqueue, it =>
    name: it.name(),
    settled: it.inner.core.settled,
    // In a child of `fork` the lock may be held forever.
    nr_active: it.inner.is_at_home().then(|| it.inner.plan.lock().nr_active()),
    ordered: it.inner.ordered,
    lane: it.lane,
);

/// A handle that does not keep its queue alive.
///
/// Use it for values that are owned by a queue and also queue there, such as an item that queues
/// itself again. With a [`Workqueue`] of its own, such a value would keep the queue alive forever.
#[derive(Clone)]
#[must_use = "it keeps no queue alive, and does nothing by itself"]
pub struct WeakWorkqueue {
    lease: Weak<Lease>,
    lane: Lane,
}

impl WeakWorkqueue {
    /// Creates a handle that does not keep `queue` alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{WeakWorkqueue, Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let weak = WeakWorkqueue::new(&queue);
    /// let again = Work::with_handle(move |this| {
    ///     // Ends with the queue.
    ///     if let Some(queue) = weak.upgrade() {
    ///         queue.enqueue(this);
    ///     }
    /// });
    /// queue.enqueue(&again);
    /// drop(queue);
    /// assert!(!again.is_busy());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "downgrade")]
    pub fn new(queue: &Workqueue) -> Self {
        Self { lease: Arc::<Lease>::downgrade(&queue.lease), lane: queue.lane }
    }

    /// Returns a handle, or `None` if the last one was dropped, even while items run. Never blocks.
    ///
    /// The returned handle may be the last one; [`Workqueue`] documents what its drop waits for.
    #[must_use]
    pub fn upgrade(&self) -> Option<Workqueue> {
        let lease = self.lease.upgrade()?;
        Some(Workqueue { inner: lease.inner.clone(), lease, lane: self.lane })
    }
}

base::internal::impl_debug!(WeakWorkqueue, it => nr_handles: it.lease.strong_count());
