//! A pool workqueue: what links one queue to one pool.

use std::ptr::NonNull;

use sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering},
    unmodelled::Arc,
};

use super::{
    active::{Gate, Seeker},
    colour::Colours,
    head::{Head, VTable},
    histogram::Times,
    list::List,
    mayday::MaydayQueue,
    pool::WorkerPool,
    probe::Probe,
    state::Rules,
};
use crate::{
    panics::{Foreign, contain},
    trace,
    wake::EventCount,
};

/// A queue's handler of panics. Its drop is foreign code.
pub(crate) type Handler = Arc<Foreign<PanicHandler>>;

/// What all links of one queue share. It outlives the queue's handle until the last worker has let go.
pub(crate) struct QueueCore {
    /// I
    pub(crate) name: Box<str>,
    /// A: told when a link that is waited for has nothing in flight, or nothing of a colour that was closed, and when
    /// nobody is seated, or helps since before a flush.
    pub(crate) settled: EventCount,
    /// A: statistics.
    pub(crate) nr_helped: AtomicU64,
    /// A: how often the link of an item was cut out while that ran; a flush looks whether there were any.
    pub(crate) nr_cut: AtomicU64,
    /// A: statistics.
    pub(crate) nr_panicked: AtomicU64,
    /// A: how long sampled items waited for a worker.
    pub(crate) wait: Times,
    /// A: statistics.
    pub(crate) nr_refused: AtomicU64,
    /// Called after a panic that no joiner will see. Goes with the queue, not with who still has this. A leaf.
    pub(super) on_panic: Mutex<Option<Handler>>,
    /// I: its items never count against the workers that a pool runs at once.
    pub(crate) cpu_intensive: bool,
    /// I: its items never sleep, and have one thread a pod.
    pub(crate) bh: bool,
    /// I: where its rescuer is called, if it has one.
    pub(crate) rescuer: Option<Arc<MaydayQueue>>,
    /// What its items have waited for, of queues without a rescuer. A leaf.
    pub(super) waits: Mutex<Vec<Box<str>>>,
}

/// Called with the name of the queue after an item panicked.
pub(crate) type PanicHandler = Box<dyn Fn(&str) + Send + Sync>;

/// Links a queue to one of its pools; items point at it as their home.
#[derive(Debug)]
pub(crate) struct Pwq {
    /// I
    pub(crate) pool: Arc<WorkerPool>,
    /// I: its place in the pool's table.
    pub(crate) slot: usize,
    /// I
    pub(crate) core: Arc<QueueCore>,
    /// I: what its items need a seat of.
    pub(crate) gate: Arc<Gate>,
    /// I: the NUMA node of the pool, as the gate counts them.
    pub(crate) node: usize,
    /// A: how many of its in-flight counts belong to futures that have waited: no items of this link.
    pub(crate) nr_anchored: Arc<AtomicU32>,
    /// A: how many of its items were cancelled since tombstones were cut out of its inactive ones; see `tombstones.rs`.
    pub(crate) nr_cancelled: AtomicU32,
    /// A: how long its items wait.
    pub(crate) probe: Arc<Probe>,
    /// I: what its items are told to let happen to them.
    pub(crate) rules: Rules,
}

impl Pwq {
    /// Leaves a linked item for the workers of its pool.
    #[inline]
    pub(crate) fn push(&self, item: NonNull<Head>) {
        // Before the push: after it the item may be gone.
        // SAFETY: the caller made it pending and linked, so it stays until it is pushed.
        trace::queue_work(|| self.trace(item.as_ptr(), unsafe { item.as_ref() }.vtable()));
        self.probe.note(item);
        self.pool.push(item);
    }

    /// Returns what is told of `item`, which is only named, and does what `vtable` says.
    pub(crate) fn trace(&self, item: *const Head, vtable: &VTable) -> trace::Item<'_> {
        trace::Item {
            address: item.addr(),
            func: vtable.name,
            queue: &self.core.name,
            pool: self.pool.number,
        }
    }

    /// Takes note that a future keeps the in-flight count of the run that it is in.
    pub(crate) fn hold_for_future(&self) {
        self.nr_anchored.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note that a future is about to give its in-flight count back.
    pub(crate) fn release(&self) {
        self.nr_anchored.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a link has counted, under the pool lock. The kernel's `pwq_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Items taken to be run, without those that then were not.
    pub(crate) nr_started: u64,
    /// Items that have run to their end.
    pub(crate) nr_completed: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) nr_cpu_intensive: u64,
    pub(crate) nr_cm_wakeups: u64,
    pub(crate) nr_repatriated: u64,
    pub(crate) nr_maydays: u64,
    pub(crate) nr_rescued: u64,
}

impl Counts {
    /// Adds another link's.
    pub(crate) fn add(&mut self, other: &Counts) {
        let Counts {
            nr_started,
            nr_completed,
            cpu_ns,
            nr_cpu_intensive,
            nr_cm_wakeups,
            nr_repatriated,
            nr_maydays,
            nr_rescued,
        } = other;
        self.nr_started += nr_started;
        self.nr_completed += nr_completed;
        self.cpu_ns += cpu_ns;
        self.nr_cpu_intensive += nr_cpu_intensive;
        self.nr_cm_wakeups += nr_cm_wakeups;
        self.nr_repatriated += nr_repatriated;
        self.nr_maydays += nr_maydays;
        self.nr_rescued += nr_rescued;
    }
}

/// The pool's side of a link.
///
/// All of it belongs to the pool lock.
#[derive(Debug)]
pub(crate) struct PwqState {
    pub(crate) core: Arc<QueueCore>,
    /// That of the [`Pwq`].
    pub(crate) gate: Arc<Gate>,
    /// That of the [`Pwq`].
    pub(crate) node: usize,
    /// Items that found no seat, oldest first. While it is not empty the link stands in line at the gate, or in
    /// the pool's `ready` with a seat in hand.
    pub(crate) inactive: List,
    /// Links that were adopted and not given back.
    pub(crate) in_flight: Colours,
    /// Links that were ever adopted.
    pub(crate) nr_adopted: u64,
    /// Somebody waits on `core.settled` for nothing to be in flight.
    pub(crate) drain_waits: bool,
    pub(crate) counts: Counts,
    /// That of the [`Pwq`].
    pub(crate) probe: Arc<Probe>,
    /// How many items must have been started before a wait is sampled again.
    pub(crate) next_sample: u64,
    /// No table of the queue leads here any more, though late items may come.
    pub(crate) retired: bool,
    /// An ordered queue's former link has items: all that come here wait as inactive.
    pub(crate) plugged: bool,
    /// The link to unplug when no item is in flight here.
    pub(crate) heir: Option<Seeker>,
    /// That of the [`Pwq`].
    pub(crate) nr_anchored: Arc<AtomicU32>,
}

impl PwqState {
    /// Makes the pool's side of `link`, whose place is not known yet.
    pub(crate) fn new(link: &Pwq, plugged: bool) -> Self {
        Self {
            core: link.core.clone(),
            gate: link.gate.clone(),
            node: link.node,
            inactive: List::new(),
            in_flight: Colours::default(),
            nr_adopted: 0,
            drain_waits: false,
            counts: Counts::default(),
            probe: link.probe.clone(),
            next_sample: 0,
            retired: false,
            plugged,
            heir: None,
            nr_anchored: link.nr_anchored.clone(),
        }
    }

    /// Returns `true` if no item is in flight. A future that waits is none: it goes where the routes lead when it is woken.
    pub(crate) fn is_spent(&self) -> bool {
        self.in_flight.nr_in_flight() == self.nr_anchored.load(Ordering::Relaxed) as usize
    }
}

impl QueueCore {
    pub(crate) fn new(name: &str, on_panic: Option<PanicHandler>) -> Self {
        Self {
            name: name.into(),
            settled: EventCount::new(),
            nr_helped: AtomicU64::new(0),
            nr_cut: AtomicU64::new(0),
            nr_panicked: AtomicU64::new(0),
            wait: Times::default(),
            nr_refused: AtomicU64::new(0),
            // FOREIGN(on-panic-drop): by `Foreign`.
            on_panic: Mutex::new(on_panic.map(|handler| Arc::new(Foreign::new(handler)))),
            cpu_intensive: false,
            bh: false,
            rescuer: None,
            waits: Mutex::new(Vec::new()),
        }
    }

    /// Returns `true` if no item of this queue has waited for `what` before.
    pub(crate) fn is_first_wait_for(&self, what: &str) -> bool {
        let mut waits = self.waits.lock();
        let is_first = waits.iter().all(|it| **it != *what);
        if is_first {
            waits.push(what.into());
        }
        is_first
    }

    /// Takes note of a panic that reached no joiner.
    #[cold]
    pub(crate) fn note_panic(&self, seen_by_joiner: bool) {
        self.nr_panicked.fetch_add(1, Ordering::Relaxed);
        if seen_by_joiner {
            return;
        }
        let handler = self.on_panic.lock().clone();
        if let Some(handler) = handler {
            // FOREIGN(on-panic): a queue's handler, on the thread that ran the item, inside its run; contained.
            contain(|| handler(&self.name));
        }
    }

    /// Takes the handler out, when all items have ended: a worker that is the last to let go of this must not drop it.
    pub(crate) fn take_handler(&self) -> Option<Handler> {
        self.on_panic.lock().take()
    }
}

impl std::fmt::Debug for QueueCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueCore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
