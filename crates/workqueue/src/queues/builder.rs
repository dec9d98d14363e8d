//! The builder of a queue.

use base::internal::params::MaxActiveScope;
use item::internal::panicked::{ItemPanic, PanicHandler};
use limit::internal::capacity::Capacity;
use limit::internal::queue_core::QueueCore;
use sync::atomic::AtomicU32;
use topology::{AffinityScope, CpuSet};

use super::future;
use super::group::Group;
use super::queue::Workqueue;
use super::registry::Registry;
use crate::pools::rescuer::Rescuer;
use crate::route::attrs::{Attrs, BuildError, MAX_ACTIVE, MAX_CAPACITY, check_shares};
use crate::route::plan::Design;

/// The nice value of `highpri` queues. Corresponds to the kernel's `HIGHPRI_NICE_LEVEL`.
const HIGHPRI_NICE: i8 = -20;

/// Configures a queue and builds it.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{AffinityScope, Workqueue};
///
/// let queue = Workqueue::builder("checksums")
///     .affinity(AffinityScope::Cache)
///     .max_active(4)
///     .build()?;
/// assert_eq!(queue.spawn(|| 6 * 7).join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    pub(super) name: String,
    pub(super) affinity: Option<AffinityScope>,
    pub(super) strict: bool,
    pub(super) cpus: Option<CpuSet>,
    pub(super) max_active: Option<u32>,
    pub(super) capacity: Option<usize>,
    pub(super) shares: Option<u32>,
    pub(super) group: Option<Group>,
    pub(super) max_active_scope: Option<MaxActiveScope>,
    pub(super) nice: i8,
    pub(super) hidden: bool,
    pub(super) help: Option<bool>,
    pub(super) ordered: bool,
    pub(super) cpu_intensive: bool,
    pub(super) blocking: bool,
    pub(super) with_rescuer: bool,
    pub(super) bh: bool,
    pub(super) on_panic: Option<PanicHandler>,
    pub(super) for_all: bool,
}

impl Workqueue {
    /// Returns a builder for a queue called `name`.
    #[doc(alias = "alloc_workqueue")]
    pub fn builder(name: &str) -> Builder {
        Builder {
            name: name.into(),
            affinity: None,
            strict: false,
            cpus: None,
            max_active: None,
            capacity: None,
            shares: None,
            group: None,
            max_active_scope: None,
            nice: 0,
            hidden: false,
            help: None,
            ordered: false,
            cpu_intensive: false,
            blocking: false,
            with_rescuer: false,
            bh: false,
            on_panic: None,
            for_all: false,
        }
    }
}

impl Builder {
    /// Sets the scope that determines which CPUs share a worker pool. The default is the registry's
    /// [`default_affinity_scope`](base::params::Params::default_affinity_scope).
    #[doc(alias = "affinity_scope")]
    pub fn affinity(self, affinity: AffinityScope) -> Self {
        Self { affinity: Some(affinity), ..self }
    }

    /// Keeps workers on the CPUs of their pod at all times; off by default.
    ///
    /// Workers of a non-strict queue start on the CPUs of their pod, too, but may run on other CPUs
    /// while work waits and their own CPUs give them no time.
    ///
    /// Differs from Linux: the kernel moves a non-strict worker back to its pod at each wake-up,
    /// which user space cannot do without a system call.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// Keeps workers on these CPUs; see [`Attrs::cpus`]. The default is all CPUs of the process.
    pub fn cpus(self, cpus: CpuSet) -> Self {
        Self { cpus: Some(cpus), ..self }
    }

    /// Sets the maximum number of threads that run items of this queue at once, in the whole
    /// process. The value may be at most 512; the default is the registry's
    /// [`max_active`](base::params::Params::max_active).
    ///
    /// An item that waits for another item of its own queue keeps its seat. If joiners may help, it
    /// lends the seat to the item for which it waits, even if that was queued on another node or
    /// CPU, for which [`max_active_scope`](Self::max_active_scope) provides separate seats. If
    /// joiners may not help, a chain of `max_active` such waits leaves no seat for the last one and
    /// never ends, as in the kernel; if `max_active` is 1, the wait returns
    /// [`JoinError::OwnQueue`](crate::JoinError::OwnQueue) instead. A chain that returns to this
    /// queue through items of another queue may also never end, because a run lends its seat on its
    /// own thread only, and a worker may start an item of the chain before the joiner does. A
    /// destructor that runs outside of an item, such as a cancelled closure's, has no seat to lend,
    /// so an item that it waits for acquires a seat of its own.
    pub fn max_active(self, max_active: u32) -> Self {
        Self { max_active: Some(max_active), ..self }
    }

    /// Sets the maximum number of items that may wait in the queue, from 1 to [`MAX_CAPACITY`]. By
    /// default there is no limit.
    ///
    /// An item waits from the time it is queued until it starts or is cancelled; a future, until it
    /// is first polled. At most `capacity` items wait, and at most `max_active` run.
    ///
    /// If the queue is full:
    ///
    /// - [`try_spawn`](Workqueue::try_spawn), [`try_enqueue`](Workqueue::try_enqueue) and
    ///   [`spawn_detached`](Workqueue::spawn_detached) return the work in the
    ///   [error](crate::TrySpawnError).
    /// - [`wait_for_capacity`](crate::TaskOptions::wait_for_capacity) and
    ///   [`reserve`](crate::TaskOptions::reserve) wait for free capacity, in order of arrival.
    /// - [`spawn`](Workqueue::spawn), other calls that return a handle, and
    ///   [`TaskSet::spawn`](crate::TaskSet::spawn) drop the work; the handle returns
    ///   [`Full`](crate::JoinError::Full).
    /// - [`spawn_detached_all`](crate::TaskOptions::spawn_detached_all) drops the work, and counts
    ///   it as `refused`.
    /// - [`enqueue`](Workqueue::enqueue) and its variants, delayed and RCU work, woken futures, and
    ///   scopes queue the work without counting it: its amount is bounded by the items, futures and
    ///   scopes that the callers keep.
    ///
    /// The same holds inside the queue's own items, even during a drain, except that
    /// `wait_for_capacity` does not wait there. A drain rejects the work of other callers. A paused
    /// queue fills up, and stays full until it is resumed.
    ///
    /// # Cost
    ///
    /// Each item costs two atomic updates to a shared word. A queue without a capacity pays
    /// nothing.
    #[doc(alias("bounded", "queue_depth", "max_queue"))]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity: Some(capacity), ..self }
    }

    /// Sets the queue's share of the CPU time of its pools while other queues compete for it, from
    /// 1 to [`MAX_SHARES`](crate::MAX_SHARES). It can be
    /// [changed](Workqueue::set_shares) while the queue is in use.
    ///
    /// Without shares a pool runs items of all queues in the order of queueing, so a queue that
    /// floods the pool makes other queues wait behind all of its items. `max_active` is no remedy,
    /// because it also applies while the others are idle. With shares, queues that have work get
    /// CPU time in proportion to their shares, and time that a queue does not use goes to the
    /// others.
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let requests = Workqueue::builder("requests").shares(900).build()?;
    /// let compaction = Workqueue::builder("compaction").shares(100).build()?;
    /// let flood: Vec<_> = (0..1000).map(|_| compaction.spawn(|| ())).collect();
    /// assert_eq!(requests.spawn(|| "answer").join()?, "answer");
    /// for item in flood {
    ///     item.join()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Guarantees
    ///
    /// - Queues with the same scope, CPUs, nice value and strictness share a pool. As soon as one
    ///   of them, or the group of one of them, has set shares, shares apply to all queues of the
    ///   pool; the default is 100. If none has set shares, nothing changes.
    /// - The queues of a [group](Self::group) compete with each other for the time of the group.
    ///   The group competes with other groups and with queues without a group; see
    ///   [`GroupBuilder::shares`](crate::GroupBuilder::shares).
    /// - Of the waiting queues, the queue that has used the least time relative to its shares runs
    ///   next. A queue that was idle runs next as soon as it has work, but accumulates no credit. A
    ///   new queue starts at the average of the queues that have work for the pool, so a program
    ///   that builds a queue for each item gains no time.
    /// - Time is measured for each batch that a worker takes. A queue that used more than its share
    ///   waits longer afterwards. Batches of a millisecond or more, which may sleep, are charged
    ///   their CPU time; shorter ones are charged their elapsed time.
    /// - Items that joiners run on their own threads are not charged.
    /// - A running item is not interrupted, so the next item waits until one ends. If items take
    ///   many milliseconds, `max_active` can keep a worker free.
    /// - `max_active`, the order of an ordered queue, and [lanes](Workqueue::urgent) work as they
    ///   do without shares. As in the kernel, an item holds a seat while it waits for a worker of
    ///   its pool. With a small `max_active`, items in other pools wait for that worker, too.
    ///
    /// # Cost
    ///
    /// In a pool to which shares apply, a worker changes a sorted set of the waiting queues a few
    /// times per batch, under the pool's lock, in time logarithmic in their number. For thousands
    /// of states, use [strands](crate::Workqueue::strand) instead of queues.
    #[doc(alias("weight", "cpu_weight", "stride", "scheduling_group"))]
    pub fn shares(self, shares: u32) -> Self {
        Self { shares: Some(shares), ..self }
    }

    /// Puts the queue permanently into `group`. A group can limit, pause, drain and cancel all its
    /// queues together, and give them a share of CPU time. The default is no group.
    pub fn group(self, group: &Group) -> Self {
        Self { group: Some(group.clone()), ..self }
    }

    /// Sets whether `max_active` applies to the whole process, to each NUMA node, or to each CPU.
    /// The default is the registry's [`max_active_scope`](base::params::Params::max_active_scope).
    /// For an ordered queue it is always the process.
    pub fn max_active_scope(self, scope: MaxActiveScope) -> Self {
        Self { max_active_scope: Some(scope), ..self }
    }

    /// Sets the nice value of the workers, from -20 (highest priority) to 19 (lowest); 0 by
    /// default. Rescuers run items at nice 0. Helpers run items at their own nice value.
    pub fn nice(self, nice: i8) -> Self {
        Self { nice, ..self }
    }

    /// Leaves the queue out of the lists of queues: [`Registry::queue_reports`], the page that
    /// `afterwork top` shows, and the Prometheus text.
    ///
    /// Use it for thousands of queues, whose lines would bury the others. [`Workqueue::stats`] and
    /// the statistics of its pools still count the queue. For thousands of small serial queues,
    /// [strands](Workqueue::strand) are cheaper.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Registry, Workqueue};
    ///
    /// let queue = Workqueue::builder("session 4711").hidden().build()?;
    /// let reports = Registry::global()?.queue_reports();
    /// assert!(reports.iter().all(|report| report.name != queue.name()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }

    /// Sets whether a thread that joins or flushes an item that has not started may run it itself.
    ///
    /// By default it may, unless the queue is strict or ordered. This makes it at least ten times
    /// faster to wait for one item at a time. An item may then run with the stack and thread-locals
    /// of its joiner's thread. A helped run counts against `max_active` like any other run.
    pub fn help(self, help: bool) -> Self {
        Self { help: Some(help), ..self }
    }

    /// Makes items run one at a time in the order in which they were queued.
    ///
    /// Implies `max_active(1)`, one pool for the whole machine, and that joiners do not help. If an
    /// item is queued here while it still runs from another queue, it and all later items start
    /// after that run has ended; if the run waits for one of them, it waits forever. An item of
    /// this queue that waits for a later one gets an error, such as
    /// [`JoinError::OwnQueue`](crate::JoinError::OwnQueue).
    #[doc(alias("alloc_ordered_workqueue", "create_singlethread_workqueue"))]
    pub fn ordered(self) -> Self {
        Self { ordered: true, ..self }
    }

    /// Calls `handler` with a description of each panic in an item that no joiner receives.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let queue = Workqueue::builder("disk")
    ///     .on_panic(move |panic| sender.send(panic.to_string()).unwrap())
    ///     .build()?;
    /// queue.spawn_detached(|| panic!("sector {} is gone", 7))?;
    /// let line = receiver.recv()?;
    /// assert!(line.ends_with(" of disk panicked: sector 7 is gone"), "{line}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Guarantees
    ///
    /// The panic has already been caught and counted, and the worker keeps running. The handler
    /// runs on the thread that ran the item, as part of that run. If the handler panics, its
    /// payload is dropped. The thread that destroys the queue drops the handler, after all items
    /// have ended. Without a handler, a panic is only caught and counted. To end the process, call
    /// [`std::process::abort`] in the handler.
    pub fn on_panic(self, handler: impl Fn(&ItemPanic<'_>) + Send + Sync + 'static) -> Self {
        Self { on_panic: Some(Box::new(handler)), ..self }
    }

    /// Runs items one at a time on the CPU that queued them, like the kernel's `WQ_PERCPU`.
    ///
    /// Equivalent to the affinity `Cpu`, `strict(true)` and a `max_active` for each CPU. Each CPU's
    /// pool runs one worker at a time, and another one if that worker blocks (see
    /// [`blocking`](crate::blocking)) or hogs the CPU.
    #[doc(alias = "WQ_PERCPU")]
    pub fn per_cpu(self) -> Self {
        self.affinity(AffinityScope::Cpu).strict(true).max_active_scope(MaxActiveScope::Cpu)
    }

    /// Runs workers at the nice value -20, ahead of other threads, like the kernel's `WQ_HIGHPRI`.
    ///
    /// This needs a permission that most processes do not have. Without it, [`build`](Self::build)
    /// returns [`BuildError::NicePermission`].
    #[doc(alias = "WQ_HIGHPRI")]
    pub fn highpri(self) -> Self {
        self.nice(HIGHPRI_NICE)
    }

    /// Runs workers at the nice value -20, as [`highpri`](Self::highpri) does, if this process may
    /// set it, and otherwise at 0. See [`report`](crate::Workqueue::report).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("example").highpri_if_permitted().build()?;
    /// assert!([-20, 0].contains(&queue.report().attrs.nice));
    /// # Ok::<(), afterwork::workqueue::BuildError>(())
    /// ```
    pub fn highpri_if_permitted(self) -> Self {
        if sync::thread::may_set_nice(HIGHPRI_NICE).is_ok() { self.highpri() } else { self.nice(0) }
    }

    /// Marks the queue's items as CPU-intensive: they do not count toward the workers that a pool
    /// runs at once. Corresponds to the kernel's `WQ_CPU_INTENSIVE`.
    ///
    /// Other items of the pool run at the same time, and the scheduler divides the CPU among them.
    /// `max_active` bounds the number of CPU-intensive items that run. An item of any queue that
    /// has used the CPU for 10 ms while others wait is treated the same way from then on (see
    /// [`Params::cpu_intensive_thresh_us`](base::params::Params)).
    ///
    /// Differs from Linux: there the flag has no effect on unbound queues, whose items never count.
    #[doc(alias = "WQ_CPU_INTENSIVE")]
    pub fn cpu_intensive(self) -> Self {
        Self { cpu_intensive: true, ..self }
    }

    /// Lets all items of the queue block: they do not count toward the workers that a pool runs at
    /// once. By default, at most [`MAX_ACTIVE`](crate::MAX_ACTIVE) of them run at once.
    ///
    /// Use it as a pool for blocking calls, so that no item needs [`blocking`](crate::blocking). It
    /// includes [`cpu_intensive`](Self::cpu_intensive), with its errors. Set
    /// [`max_active`](Self::max_active) to bound its threads.
    ///
    /// # Cost
    ///
    /// Workers take one item at a time, and start another worker while items wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let files = Workqueue::builder("files").blocking().build()?;
    /// let name = files.spawn(|| std::fs::read_to_string("/proc/self/comm"));
    /// assert!(name.join()?.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("spawn_blocking", "max_blocking_threads"))]
    pub fn blocking(self) -> Self {
        Self { blocking: true, cpu_intensive: true, ..self }
    }

    /// Reserves a thread for times when no worker can be created; the kernel's `WQ_MEM_RECLAIM`.
    ///
    /// # Guarantees
    ///
    /// While thread creation fails, an item of this queue starts within about 10 ms after the
    /// rescuer has completed the items before it. One rescuer serves all pods, one item at a time,
    /// so an item that waits for another item of its own queue waits forever, as in the kernel.
    ///
    /// # Cost
    ///
    /// The queue has a sleeping thread. The thread's stack uses address space from the start, and
    /// memory when it is first used.
    #[doc(alias("WQ_MEM_RECLAIM", "mem_reclaim"))]
    pub fn with_rescuer(self) -> Self {
        Self { with_rescuer: true, ..self }
    }

    /// Runs items to completion on one high-priority thread for each CPU; the kernel's `WQ_BH`.
    ///
    /// Use it for short items that never sleep. An item runs on the CPU on which it was queued,
    /// after earlier items. The thread yields its CPU after ten batches or two milliseconds, as the
    /// kernel does.
    ///
    /// Differs from Linux: there items run at the end of the interrupt. Here they run on a thread
    /// that must be woken, at nice -20 if that is permitted, otherwise at 0. Joiners never help.
    ///
    /// # Panics
    ///
    /// A wait in this library inside such an item panics instead of sleeping, as does
    /// [`blocking`](crate::blocking). An item that blocks in another way delays the other
    /// bottom-half items of its CPU, because no other worker replaces it. Dropping a queue's last
    /// handle does not wait in such an item.
    ///
    /// The parts of a [`scope`](crate::Workqueue::scope), a join or a range on this queue may block
    /// if their owner may, because the owner runs all of them itself, in turn.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) returns [`BuildError::Bh`] if the queue is also `ordered`,
    /// `cpu_intensive` or `with_rescuer`, or is in a group.
    #[doc(alias("WQ_BH", "tasklet_struct", "tasklet_schedule", "system_bh_wq"))]
    pub fn bh(self) -> Self {
        Self { bh: true, ..self }
    }

    /// Builds the queue on the pools of the whole process.
    ///
    /// # Blocking
    ///
    /// The first queue of a process reads the machine's topology and starts three threads, which
    /// sleep. Workers are created when items are queued.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    #[doc(alias = "create_workqueue")]
    pub fn build(self) -> Result<Workqueue, BuildError> {
        let registry = Registry::global().map_err(BuildError::Registry)?;
        self.build_in(registry)
    }

    /// Builds the queue on the pools of `registry`, which has its own tunables. Blocks at most
    /// briefly, on locks of the registry. The errors are those of [`build`](Self::build).
    pub fn build_in(mut self, registry: &Registry) -> Result<Workqueue, BuildError> {
        registry.check_here()?;
        if self.name.contains('\0') {
            return Err(BuildError::Name);
        }
        if self.bh {
            if self.ordered || self.cpu_intensive || self.with_rescuer || self.group.is_some() {
                return Err(BuildError::Bh);
            }
            self = self.per_cpu().help(false).highpri_if_permitted();
        }
        let params = registry.params();
        let (mut max_active, mut affinity) = (params.max_active, params.default_affinity_scope);
        if self.blocking {
            max_active = MAX_ACTIVE;
        }
        if self.ordered {
            if let Some(max_active) = self.max_active.filter(|&it| it != 1) {
                return Err(BuildError::OrderedMaxActive(max_active));
            }
            if self.help == Some(true) {
                return Err(BuildError::OrderedHelp);
            }
            (max_active, affinity) = (1, AffinityScope::System);
        }
        let max_active = self.max_active.unwrap_or(max_active);
        let affinity = self.affinity.unwrap_or(affinity);
        if !(1..=MAX_ACTIVE).contains(&max_active) {
            return Err(BuildError::MaxActive(max_active));
        }
        if let Some(capacity) = self.capacity
            && !(1..=MAX_CAPACITY).contains(&capacity)
        {
            return Err(BuildError::Capacity(capacity));
        }
        self.shares.map_or(Ok(()), check_shares)?;
        let group = self.group.map(|group| group.inner);
        if let Some(group) = &group {
            group.check_registry(registry)?;
        }
        let attrs = Attrs { affinity, strict: self.strict, cpus: self.cpus, nice: self.nice };
        attrs.check(self.ordered)?;
        let max_active_scope = match self.max_active_scope {
            _ if self.ordered => MaxActiveScope::System,
            scope => scope.unwrap_or(params.max_active_scope),
        };
        let start = || Rescuer::start(&format!("r:{}", self.name), params.thread_style(), || ());
        let rescuer = self.with_rescuer.then(start).transpose().map_err(BuildError::Rescuer)?;
        let design = Design {
            attrs,
            max_active,
            max_active_scope,
            help: self.help,
            ordered: self.ordered,
            mayday_queue: rescuer.as_ref().map(Rescuer::mayday_queue),
            group: group.as_ref().map(|group| group.gate.clone()),
        };
        let manager = &registry.machine().manager;
        let capacity = |capacity| Box::new(Capacity::new(capacity, manager.clone()));
        let core = QueueCore {
            cpu_intensive: self.cpu_intensive,
            bh: self.bh,
            hidden: self.hidden,
            reclaim: rescuer.is_some(),
            capacity: self.capacity.map(capacity),
            shares: AtomicU32::new(self.shares.unwrap_or(0)),
            ..QueueCore::new(&self.name, self.on_panic)
        };
        future::note_wakers();
        Ok(Workqueue::with_core(core, design, group, rescuer, self.for_all, registry))
    }
}

base::internal::impl_debug!(Builder, it =>
    name: it.name,
    affinity: it.affinity,
    strict: it.strict,
    max_active: it.max_active,
    capacity: it.capacity,
    shares: it.shares,
    group: it.group,
    nice: it.nice,
    ordered: it.ordered,
);
