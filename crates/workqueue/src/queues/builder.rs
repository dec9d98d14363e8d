//! Describing a queue, and building it.

use std::fmt;

use base::internal::params::MaxActiveScope;
use topology::{AffinityScope, CpuSet};

use super::{
    future,
    queue::{Parts, Workqueue},
    registry::Registry,
};
use crate::{
    limit::queue_core::PanicHandler,
    observe::item_panic::ItemPanic,
    pools::rescuer::Rescuer,
    route::{
        attrs::{Attrs, BuildError, MAX_ACTIVE, MAX_CAPACITY, check_shares},
        plan::Design,
        registry_error::RegistryError,
    },
};

/// Describes a queue, and builds it.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{AffinityScope, Workqueue};
///
/// let queue = Workqueue::builder("checksums")
///     .scope(AffinityScope::Cache)
///     .max_active(4)
///     .build()?;
/// assert_eq!(queue.spawn(|| 6 * 7).join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    name: String,
    scope: Option<AffinityScope>,
    strict: bool,
    cpus: Option<CpuSet>,
    max_active: Option<u32>,
    capacity: Option<usize>,
    shares: Option<u32>,
    max_active_scope: Option<MaxActiveScope>,
    nice: i8,
    help: Option<bool>,
    pub(crate) ordered: bool,
    pub(crate) cpu_intensive: bool,
    pub(crate) mem_reclaim: bool,
    pub(crate) bh: bool,
    on_panic: Option<PanicHandler>,
    /// `true` for a process-wide queue, which no handle can stop.
    pub(super) for_all: bool,
}

impl Workqueue {
    /// Starts to describe a queue called `name`.
    #[doc(alias = "alloc_workqueue")]
    pub fn builder(name: &str) -> Builder {
        Builder::new(name)
    }
}

impl Builder {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            scope: None,
            strict: false,
            cpus: None,
            max_active: None,
            capacity: None,
            shares: None,
            max_active_scope: None,
            nice: 0,
            help: None,
            ordered: false,
            cpu_intensive: false,
            mem_reclaim: false,
            bh: false,
            on_panic: None,
            for_all: false,
        }
    }

    /// Sets which CPUs share a worker pool; by default the registry's
    /// [`default_affinity_scope`](base::params::Params::default_affinity_scope).
    pub fn scope(mut self, scope: AffinityScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Keeps workers on the CPUs of their pod whatever happens; off by default.
    ///
    /// Workers of a non-strict queue start there too, and are let run elsewhere while their CPUs give them no time
    /// (a real-time thread, say) and work waits.
    ///
    /// Differs from Linux: the kernel moves a non-strict worker home at each wake-up, which user space cannot do
    /// without a system call.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Keeps workers on these CPUs; on all that the process may use by default. See [`Attrs::cpus`].
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Sets how many threads run items of this queue at once, in the whole process; at most 512, by default the
    /// registry's [`max_active`](base::params::Params::max_active).
    ///
    /// An item that waits for another item of its own queue keeps its seat while it waits. If
    /// joiners may help, it lends the seat to the item that it waits for, even if that item was
    /// queued on another node or CPU, for which [`max_active_scope`](Self::max_active_scope)
    /// provides separate seats. If joiners may not help, a chain of `max_active` such waits leaves
    /// no seat for the last one and never ends, as in the kernel; if `max_active` is 1, the wait is
    /// an error instead: [`JoinError::OwnQueue`](crate::JoinError::OwnQueue). A chain
    /// that returns to this queue through items of another queue may also never end, because a run
    /// lends its seat on its own thread only, and a worker may start an item of the chain before
    /// the joiner does. A destructor that runs outside of an item, such as that of a cancelled
    /// closure, has no seat to lend, so an item that it waits for acquires a seat of its own.
    pub fn max_active(mut self, max_active: u32) -> Self {
        self.max_active = Some(max_active);
        self
    }

    /// Sets how many items may wait in this queue, from 1 to [`MAX_CAPACITY`]; without it there is no bound.
    ///
    /// An item waits from when it is queued until it starts, is cancelled, or a future is polled first; those that run are bounded
    /// by `max_active`. So at most the capacity waits, and `max_active` run.
    ///
    /// | beyond the capacity | |
    /// |---|---|
    /// | [`try_spawn`](Workqueue::try_spawn), [`try_enqueue`](Workqueue::try_enqueue) | give the work back, as [`Full`](crate::TrySpawnError::Full) |
    /// | [`spawn_wait`](Workqueue::spawn_wait), [`reserve`](Workqueue::reserve) | wait for room, first come first served |
    /// | [`spawn`](Workqueue::spawn), all else that returns a handle, [`TaskSet::spawn`](crate::TaskSet::spawn) | drop the work, and their handle says [`Refused`](crate::JoinError::Refused) |
    /// | [`spawn_detached`](Workqueue::spawn_detached), `spawn_detached_all` | drop the work; counted as `refused` |
    /// | [`enqueue`](Workqueue::enqueue) and its like, delayed and RCU work, wakes of futures, scopes | go beside it: there are never more of them than items, futures and scopes that their users keep |
    ///
    /// The same holds inside the queue's own items, also in a drain, but that `spawn_wait` does not wait there: it says `Full`. In a
    /// drain others are told `Closed`. A paused queue fills up, and stays full until it is resumed. An
    /// ordered queue takes room in its order of queueing.
    ///
    /// # Cost
    ///
    /// Two steps of one word for each item, which all CPUs share. A queue without a capacity pays nothing.
    #[doc(alias("bounded", "queue_depth", "max_queue"))]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// Sets what the queue gets of the CPU time of its pools when other queues want it too, from 1 to
    /// [`MAX_SHARES`](crate::MAX_SHARES); may be [changed](Workqueue::set_shares) while it is used.
    ///
    /// Without it a pool takes items in the order in which they were queued, of whatever queue: one that floods it has the others
    /// wait behind all that it queued. A `max_active` does not help against that, for it holds while others have nothing to
    /// do, too. Shares do: queues that have work get CPU time in their proportion, and what one does not use goes to the rest.
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
    /// - Queues share a pool that have the same scope, CPUs, nice value and strictness. As soon as one of them has set shares, all of
    ///   the pool count, the others with 100. Where none has, nothing changes.
    /// - Of the waiting queues, the queue that has used least for its shares goes next. A queue
    ///   that was idle goes next at once, but has saved nothing up. A new queue starts at the
    ///   average of the queues that have work for the pool, so a program that builds a queue for
    ///   each item gains no time.
    /// - Time is measured by the batch that a worker takes, and what a queue used too much it waits for afterwards. Of batches
    ///   of a millisecond and more, which may sleep, CPU time counts, of shorter ones the time that has passed.
    ///   What joiners run on their own threads does not count.
    /// - A running item is not interrupted: who comes first waits for as long as one takes. For items of many milliseconds
    ///   `max_active` keeps a worker free.
    /// - `max_active`, the order of an ordered queue, and [lanes](Workqueue::urgent) hold as ever. But items of a pool take a seat,
    ///   as in the kernel, while they wait for a worker: at a small `max_active` those in another pool wait for that worker, too.
    ///
    /// # Cost
    ///
    /// In such a pool a trip for a batch takes one look at each queue that waits, and gives its seat back each time.
    #[doc(alias("weight", "cpu_weight", "stride", "scheduling_group"))]
    pub fn shares(mut self, shares: u32) -> Self {
        self.shares = Some(shares);
        self
    }

    /// Sets what `max_active` is meant for: the whole process, each NUMA node, or each CPU; by default the registry's
    /// [`max_active_scope`](base::params::Params::max_active_scope). An ordered queue's is always the process.
    pub fn max_active_scope(mut self, scope: MaxActiveScope) -> Self {
        self.max_active_scope = Some(scope);
        self
    }

    /// Sets the nice value of the workers, -20 (first) to 19 (last); 0 by default. Rescuers, at nice 0, and threads that help
    /// while they wait run items at their own.
    pub fn nice(mut self, nice: i8) -> Self {
        self.nice = nice;
        self
    }

    /// Sets whether a thread that joins or flushes an item that has not started may run it itself.
    ///
    /// By default it may unless the queue is strict or ordered. It makes waiting for one item at a time ten times
    /// faster and more; it also means that an item may run on its joiner's thread, with that thread's stack and
    /// thread-locals. It counts against `max_active` like any other run.
    pub fn help(mut self, help: bool) -> Self {
        self.help = Some(help);
        self
    }

    /// Makes items run one at a time in the order in which they were queued.
    ///
    /// Implies `max_active(1)`, one pool for the whole machine, and no help. An item that is queued here while it
    /// still runs from another queue loses its place. An item that waits for a later item of the
    /// queue gets an error, such as [`JoinError::OwnQueue`](crate::JoinError::OwnQueue).
    #[doc(alias("alloc_ordered_workqueue", "create_singlethread_workqueue"))]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Calls `handler` after an item panicked of which no joiner will hear, with what is known of that.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let queue = Workqueue::builder("disk").on_panic(move |panic| tell.send(panic.to_string()).unwrap()).build()?;
    /// queue.spawn_detached(|| panic!("sector {} is gone", 7));
    /// let line = told.recv()?;
    /// assert!(line.ends_with(" of disk panicked: sector 7 is gone"), "{line}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Guarantees
    ///
    /// The panic has then been caught and counted, and the worker goes on. It is called on the thread that ran the item, inside the
    /// run; what it panics with is dropped. The handler is dropped by whoever ends the
    /// queue, when all items have ended. Without a handler that is all. A
    /// handler that wants the process to end calls [`std::process::abort`].
    pub fn on_panic(mut self, handler: impl Fn(&ItemPanic<'_>) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Box::new(handler));
        self
    }

    /// Builds the queue on the pools of the whole process.
    ///
    /// # Blocking
    ///
    /// The first queue of a process reads the machine's topology and starts three threads, which sleep. A queue owns none
    /// until something is queued.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; each names what was asked for.
    #[doc(alias = "create_workqueue")]
    pub fn build(self) -> Result<Workqueue, BuildError> {
        let registry = Registry::global().map_err(BuildError::Registry)?;
        self.build_in(registry)
    }

    /// Builds the queue on the pools of `registry`, which has tunables of its own.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build_in(mut self, registry: &Registry) -> Result<Workqueue, BuildError> {
        if !registry.is_here() {
            return Err(BuildError::Registry(RegistryError::Forked));
        }
        if self.name.contains('\0') {
            return Err(BuildError::Name);
        }
        if self.bh {
            self = self.checked_bh()?;
        }
        let params = registry.params();
        let (mut max_active, mut scope) = (params.max_active, params.default_affinity_scope);
        if self.ordered {
            self.check_ordered()?;
            (max_active, scope) = (1, AffinityScope::System);
        }
        let max_active = self.max_active.unwrap_or(max_active);
        let scope = self.scope.unwrap_or(scope);
        if !(1..=MAX_ACTIVE).contains(&max_active) {
            return Err(BuildError::MaxActive(max_active));
        }
        if let Some(capacity) = self.capacity
            && !(1..=MAX_CAPACITY).contains(&capacity)
        {
            return Err(BuildError::Capacity(capacity));
        }
        self.shares.map_or(Ok(()), check_shares)?;
        let attrs = Attrs {
            scope,
            strict: self.strict,
            cpus: self.cpus,
            nice: self.nice,
        };
        attrs.check(self.ordered)?;
        let rescuer = self
            .mem_reclaim
            .then(|| Rescuer::start(&format!("r:{}", self.name), params.thread_style(), || ()));
        let max_active_scope = match self.max_active_scope {
            _ if self.ordered => MaxActiveScope::System,
            None => params.max_active_scope,
            Some(scope) => scope,
        };
        let rescuer = rescuer.transpose().map_err(BuildError::Rescuer)?;
        let design = Design {
            attrs,
            max_active,
            max_active_scope,
            help: self.help,
            ordered: self.ordered,
            mayday_queue: rescuer.as_ref().map(Rescuer::mayday_queue),
        };
        let parts = Parts {
            design,
            cpu_intensive: self.cpu_intensive,
            bh: self.bh,
            rescuer,
            on_panic: self.on_panic,
            for_all: self.for_all,
            capacity: self.capacity,
            shares: self.shares,
        };
        future::note_wakers();
        Ok(Workqueue::new(&self.name, parts, registry))
    }

    fn check_ordered(&self) -> Result<(), BuildError> {
        match (self.max_active, self.scope) {
            (None | Some(1), None | Some(AffinityScope::System)) => {}
            (None | Some(1), Some(scope)) => return Err(BuildError::OrderedScope(scope)),
            (Some(max_active), _) => return Err(BuildError::OrderedMaxActive(max_active)),
        }
        if self.help == Some(true) {
            return Err(BuildError::OrderedHelp);
        }
        Ok(())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("scope", &self.scope)
            .field("strict", &self.strict)
            .field("max_active", &self.max_active)
            .field("capacity", &self.capacity)
            .field("shares", &self.shares)
            .field("nice", &self.nice)
            .field("ordered", &self.ordered)
            .finish_non_exhaustive()
    }
}
