//! A workqueue: where users queue items.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

use sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
    fork::Process,
    twin,
    unmodelled::Arc,
};

use super::{
    end::{Lease, Visits, WeakQueue},
    registry::Registry,
    timers::OwnTimers,
};
use crate::{
    execute::current::is_inside,
    item::lane::Lane,
    limit::{
        queue_core::{PanicHandler, QueueCore},
        room::Room,
    },
    observe::histogram::Histogram,
    pools::{manager::Manager, rescuer::Rescuer},
    route::{
        attrs::{BuildError, MAX_ACTIVE},
        plan::{Design, Plan},
        routes::RouteTable,
        stats::QueueStats,
    },
};

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
/// Dropping the last handle drops the items held by timers, and drains the queue: the drop blocks
/// until all items have run and all futures have ended. It does not block where that could
/// deadlock: inside an item of the queue or of a bottom-half queue, in a callback of RCU or of a
/// sleepable domain, and on the library's own threads. In these cases the queue ends after its last
/// item.
///
/// A thread that must not block, such as a thread of an async runtime, drops its handle with
/// [`close_in_background`](Self::close_in_background), which never waits, or with
/// [`shutdown_background`](Self::shutdown_background), which also cancels items that have not
/// started. After [`drain_async`](Self::drain_async) a drop does not wait unless items are queued
/// again.
///
/// # Panics
///
/// In a child of `fork`, whatever queues on a queue of its parent's, changes or asks it, or waits for it or its items: the
/// workers are not there, and have what they have locked.
/// An item that was idle when the process was forked may be queued in the child, on a queue of the child's. All others are lost to
/// it: to queue one, or to wait for it, panics, and to cancel one does nothing and says false.
/// A waker of a future of the parent's does nothing there. An item, or a handler, that forks ends the child itself, by `_exit`
/// or `exec`; a child that comes back from it ends, with a line on stderr and status 1, and runs nothing of its parent's.
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
#[doc(alias = "workqueue_struct")]
#[derive(Clone)]
pub struct Workqueue {
    pub(crate) inner: Arc<Inner>,
    /// Counts the handles; futures hold `inner` for longer, and others for a moment.
    pub(super) lease: Arc<Lease>,
    /// I: where what is queued by this handle waits.
    pub(crate) lane: Lane,
}

pub(crate) struct Inner {
    /// I
    pub(crate) core: Arc<QueueCore>,
    /// A, rarely written: who may queue.
    pub(crate) closed: Closed,
    /// A: who leaves items here without a handle.
    pub(crate) visits: Visits,
    /// I
    pub(crate) ordered: bool,
    /// I: `true` for a process-wide queue, which no handle can stop.
    pub(crate) for_all: bool,
    /// Where items go.
    pub(crate) route_table: RouteTable,
    /// How that came, and what there was before.
    pub(crate) plan: Mutex<Plan>,
    /// I: of the registry, which the queue keeps until it ends.
    pub(crate) manager: Arc<Manager>,
    pub(crate) timers: OwnTimers,
    pub(crate) rescuer: Mutex<Option<Rescuer>>,
}

/// Who has closed a queue to all but its own items.
#[derive(Debug)]
pub(crate) struct Closed {
    /// bits 0..30 drains under way | bit 30 has a capacity | bit 31 destroyed
    word: AtomicU32,
    /// I: where the queue was made.
    process: Process,
}

const DESTROYED: u32 = 1 << 31;
/// What is queued here is counted: so that a queue without a capacity is told by the word that is read anyway.
const COUNTS: u32 = 1 << 30;

/// Whether a queue takes an item.
pub(crate) enum Admission<'a> {
    /// It does.
    Open,
    /// It does if there is room.
    Counted(&'a Room),
    /// It takes none; that has been counted.
    Closed,
}

/// A drain under way, which refuses what others queue; until dropped, also by a panic that leaves it.
pub(crate) struct Draining<'a>(&'a Closed);

/// What a queue is built from, checked.
pub(crate) struct Parts {
    pub(crate) design: Design,
    pub(crate) cpu_intensive: bool,
    pub(crate) bh: bool,
    pub(crate) rescuer: Option<Rescuer>,
    pub(crate) on_panic: Option<PanicHandler>,
    pub(crate) for_all: bool,
    pub(crate) capacity: Option<usize>,
    pub(crate) shares: Option<u32>,
}

impl Closed {
    fn new(counts: bool) -> Self {
        Self {
            word: AtomicU32::new(if counts { COUNTS } else { 0 }),
            process: Process::this(),
        }
    }

    /// Refuses what others queue, until the answer is dropped.
    pub(crate) fn while_draining(&self) -> Draining<'_> {
        self.word.fetch_add(1, Ordering::Relaxed);
        Draining(self)
    }

    /// Refuses whatever is queued, for ever.
    pub(crate) fn destroy(&self) {
        self.word.fetch_or(DESTROYED, Ordering::Relaxed);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DESTROYED != 0
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if !twin::torn_down() {
            self.0.word.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Workqueue {
    pub(crate) fn new(name: &str, mut parts: Parts, registry: &Registry) -> Self {
        let core = Arc::new(QueueCore {
            cpu_intensive: parts.cpu_intensive,
            bh: parts.bh,
            reclaim: parts.rescuer.is_some(),
            room: parts.capacity.map(Room::new),
            shares: AtomicU32::new(parts.shares.unwrap_or(0)),
            ..QueueCore::new(name, parts.on_panic.take())
        });
        let ordered = parts.design.ordered;
        let (plan, routes) = Plan::new(parts.design, &core, registry.machine());
        let inner = Arc::new(Inner {
            core,
            closed: Closed::new(parts.capacity.is_some()),
            visits: Visits::new(),
            ordered,
            for_all: parts.for_all,
            route_table: RouteTable::new(&routes),
            plan: Mutex::new(plan),
            manager: registry.machine().manager.clone(),
            timers: OwnTimers::new(registry.timers()),
            rescuer: Mutex::new(parts.rescuer),
        });
        let follower = Arc::<Inner>::downgrade(&inner);
        registry.machine().add_queue(follower);
        // The machine may have changed since the plan was drawn.
        inner.reroute(registry.machine(), &|_| ());
        let lease = Arc::new(Lease::new(&inner, registry));
        Self {
            inner,
            lease,
            lane: Lane::Ordinary,
        }
    }

    /// Changes how many threads run items of this queue at once.
    ///
    /// More start at once; if fewer are allowed, those that run finish what they have in hand.
    ///
    /// # Errors
    ///
    /// [`BuildError::MaxActive`](crate::BuildError::MaxActive) outside of 1 to 512;
    /// [`BuildError::OrderedMaxActive`](crate::BuildError::OrderedMaxActive) for an
    /// ordered queue; [`BuildError::System`](crate::BuildError::System) for a
    /// process-wide queue.
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
        let seekers = self.inner.plan.lock().set_max_active(max_active);
        for seeker in seekers {
            seeker.take_seat();
        }
        Ok(())
    }

    pub(crate) fn to_weak(&self) -> WeakQueue {
        WeakQueue::new(&self.inner, self.lane)
    }

    /// Returns the registry whose pools it uses.
    pub(crate) fn registry(&self) -> &Registry {
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
        self.inner.must_be_at_home();
        self.inner.stats()
    }

    /// Returns how long items waited from being queued until a worker took them.
    ///
    /// Each item that a worker took has its share, but for those at the very end that the worker has not told of yet: see
    /// [`Params::wait_sample`](base::params::Params::wait_sample). Those that a joiner ran are not among them. A wait is known
    /// to within a factor of two, and to within less if the queue is short.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("disk").max_active(1).help(false).build()?;
    /// for _ in 0..20 {
    ///     queue.spawn_detached(|| sleep(Duration::from_millis(2)));
    /// }
    /// queue.drain()?;
    /// // The last one waited for the nineteen before it.
    /// assert!(queue.wait_times().quantile_ns(1.0) > 19_000_000);
    /// assert!(queue.run_times().quantile_ns(0.5) >= 2_000_000);
    /// assert_eq!(queue.oldest_wait(), None, "nothing waits");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    ///
    /// As [`stats`](Self::stats).
    pub fn wait_times(&self) -> Histogram {
        self.inner.must_be_at_home();
        self.inner.times().0
    }

    /// Returns how long workers ran items; each poll of a future counts by itself.
    ///
    /// Each item has its share, as of [`wait_times`](Self::wait_times); of those that a worker took together, the first one's time
    /// stands for all, and the total is right. A run is told when its worker next has the pool lock.
    ///
    /// # Blocking
    ///
    /// As [`stats`](Self::stats).
    #[doc(alias("latency", "duration"))]
    pub fn run_times(&self) -> Histogram {
        self.inner.must_be_at_home();
        self.inner.times().1
    }

    /// Returns for how long the oldest item waits that no worker has taken; nothing if none waits.
    ///
    /// Computed when it is asked, by what is noted when items come: exact for an item that came to an empty pool, else to within
    /// the time for which it lay where producers leave items. After cancels of items in the middle of the line it is an
    /// estimate. With [`Params::wait_sample`](base::params::Params::wait_sample) of 0 nothing is noted.
    ///
    /// # Blocking
    ///
    /// As [`stats`](Self::stats).
    #[doc(alias("age", "lag"))]
    pub fn oldest_wait(&self) -> Option<Duration> {
        self.inner.must_be_at_home();
        self.inner.oldest()
    }

    /// Returns `true` if the caller may queue items beside the capacity, and counts it if not.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !matches!(self.admission(), Admission::Closed)
    }

    /// Returns whether the caller may queue items, and counts it if not.
    #[inline]
    pub(crate) fn admission(&self) -> Admission<'_> {
        let closed = &self.inner.closed;
        if closed.word.load(Ordering::Relaxed) == 0 && closed.process.is_this() {
            return Admission::Open;
        }
        self.inner.admission_else()
    }
}

impl Inner {
    /// Rejects a change that other users of a process-wide queue would notice.
    pub(crate) fn must_not_be_for_all(&self) -> Result<(), BuildError> {
        if self.for_all {
            Err(BuildError::System(self.core.name.clone()))
        } else {
            Ok(())
        }
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.closed.word.load(Ordering::Relaxed) & DESTROYED != 0
    }

    /// Returns `true` if this thread is inside an item of this queue, even if it is only freeing
    /// the item.
    pub(crate) fn runs_here(&self) -> bool {
        is_inside(&self.core)
    }

    /// Of a queue that has a capacity, or is closed to all but its own items.
    #[cold]
    fn admission_else(&self) -> Admission<'_> {
        self.must_be_at_home();
        let is_open = self.closed.word.load(Ordering::Relaxed) & !COUNTS == 0;
        if !is_open && !self.runs_here() {
            self.note_refused();
            return Admission::Closed;
        }
        match &self.core.room {
            Some(room) => Admission::Counted(room),
            None => Admission::Open,
        }
    }

    /// Counts an attempt to queue that is refused.
    pub(crate) fn note_refused(&self) {
        self.core.nr_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns `true` if the queue's workers are in this process.
    pub(crate) fn is_at_home(&self) -> bool {
        self.closed.process.is_this()
    }

    /// Before anything is left to workers, or waited for.
    ///
    /// # Panics
    ///
    /// In a child of `fork`, which has none of them.
    pub(crate) fn must_be_at_home(&self) {
        let name = &self.core.name;
        assert!(
            self.is_at_home(),
            "workqueue {name:?} was made before the process was forked, and its workers are not in the child: make a \
             queue there"
        );
    }
}

// A panic leaves nothing of it half-way: it unwinds before its first change, or is contained.
impl UnwindSafe for Workqueue {}
impl RefUnwindSafe for Workqueue {}

impl fmt::Debug for Workqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In a child of `fork` the lock may be held for ever.
        let plan = self.inner.is_at_home().then(|| self.inner.plan.lock());
        f.debug_struct("Workqueue")
            .field("name", &self.name())
            .field("settled", &self.inner.core.settled)
            .field("nr_active", &plan.map(|plan| plan.nr_active()))
            .field("ordered", &self.inner.ordered)
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}
