//! A pool workqueue (pwq), which connects one queue to one pool, and the part of it that the pool
//! lock guards.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use base::internal::trace;
use base::internal::wake::lane::{Lane, Turns};
use item::internal::head::{Head, Home, VTable};
use item::internal::list::{Colors, List};
use limit::internal::account::Account;
use limit::internal::active::Gate;
use limit::internal::queue_core::QueueCore;
use sync::atomic::{AtomicU32, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, OnceLock};

use super::anchors::Anchors;
use super::mayday::MaydayQueue;
use super::pool::WorkerPool;
use super::seats::{GroupGate, Level};
use crate::observe::tally::{Arrivals, Cycles, Kept, Ran, Rest};

/// Connects a queue to one of its pools.
///
/// The crate `item`, which is a lower layer, does not know this type. Items point to its first
/// field only.
#[repr(C)]
pub(crate) struct Pwq {
    /// I
    pub(crate) home: Home,
    /// I
    pub(crate) pool: Arc<WorkerPool>,
    /// I
    pub(crate) core: Arc<QueueCore>,
    /// I: the gate that limits its items.
    pub(crate) gate: Arc<Gate<WaitingPwq>>,
    /// I: the gate of the queue's group, if it is in one.
    pub(crate) group: Option<GroupGate>,
    /// I: the mayday queue of the queue's rescuer, if it has one.
    pub(crate) mayday_queue: Option<Arc<MaydayQueue>>,
    /// A: the futures of this pwq that have waited and hold an in-flight count without being on a
    /// list. They are in a separate allocation, which exists only if there was such a future, so
    /// that their updates do not take the cache lines of this struct from producers.
    pub(crate) anchors: OnceLock<Box<Anchors>>,
    /// I: the NUMA node of the pool, as numbered by the gate.
    pub(crate) node: u32,
    /// A: the number of the pwq's items that were cancelled since tombstones were last removed from
    /// its lists; see `tombstones.rs`.
    pub(crate) nr_cancelled: AtomicU32,
    /// A: the pwq for urgent items, created for the first of them. It has the same index in the
    /// pool's table, and therefore the same counts.
    pub(crate) urgent: OnceLock<Box<Pwq>>,
    /// A: created by the first producer, and taken by the pool, which must not allocate under its
    /// lock. A pwq that was never used has none.
    pub(crate) observed: OnceLock<Mutex<Option<Box<Observed>>>>,
}

/// The pool's part of a pwq, guarded by the pool lock.
///
/// The fields that each batch changes are in the first two cache lines; see
/// [`Dispatch`](super::dispatch).
#[repr(C, align(64))]
pub(crate) struct PwqState {
    pub(crate) counts: Counts,
    /// The numbers of items in `lists` and in the pool's `pending`, by lane.
    pub(crate) nr_listed: [usize; 2],
    pub(crate) nr_adopted: u64,
    pub(crate) in_flight: Colors,
    pwq: Arc<Pwq>,
    /// `None` until the first item is adopted.
    pub(crate) observed: Option<Box<Observed>>,
    /// Set if the queue has an urgent lane. All its items then wait in `lists`, and none in the
    /// pool's `pending`.
    pub(crate) has_lanes: bool,
    /// Set while a thread or task waits on `core.settled` for the in-flight count to reach zero.
    pub(crate) drain_waits: bool,
    /// Set if a walk did not find all cancelled items; see `tombstones.rs`.
    pub(crate) missed: bool,
    /// Set once no route of the queue leads here. Late items may still arrive.
    pub(crate) retired: bool,
    /// The reason why the pwq waits, if it does. It waits while it has items in its own lists, and
    /// never twice.
    pub(crate) waits: Option<WaitsFor>,
    /// In an ordered queue, the address of the item for which the pwq keeps the queue's seat; see
    /// `take.rs`.
    pub(crate) deferred: Option<NonZeroUsize>,
    turns: Turns,
    /// The pwq's own lists, by lane, with the oldest item first. The list of ordinary items
    /// contains those that found no seat, and those that urgent items may overtake.
    pub(crate) lists: [List; 2],
    /// The number of the last bulk cancel of this pwq.
    pub(crate) last_cancel: u64,
    /// The pool time that the pwq has used, if queues have shares.
    pub(crate) account: Account,
}

/// Arrival times of the listed items, by lane, and sampled wait and run times of earlier items.
#[derive(Default)]
pub(crate) struct Observed {
    arrivals: [Arrivals; 2],
    pub(crate) wait: Cycles,
    pub(crate) run: Cycles,
    pub(crate) kept: Kept,
}

impl Observed {
    /// Adds the wait and run times that a worker has not recorded yet.
    pub(crate) fn add_rest(&mut self, rest: Rest) {
        // `None` if times are not measured.
        let Some(waited) = rest.waited else { return };
        self.wait.add(waited, rest.nr_taken);
        let Ran { count, cycles } = rest.ran;
        if let Some(each) = cycles.checked_div(count) {
            self.run.add_measured(each, count, cycles);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsFor {
    /// It is in the wait queue of a gate, or a seat is being transferred to it.
    Seat,
    /// It has a seat in its queue, and is in `ready` or `seated` of the pool, or in the tree.
    Turn,
}

#[derive(Clone)]
pub(crate) struct WaitingPwq {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) slot: usize,
    pub(crate) level: Level,
}

/// Defines the counters of a pwq, and how two sets of them are added.
macro_rules! counts {
    ($($(#[$about:meta])* $name:ident;)*) => {
        /// Counters of a pwq, guarded by the pool lock. Corresponds to the kernel's `pwq_stats`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub(crate) struct Counts {
            $($(#[$about])* pub(crate) $name: u64,)*
        }

        impl Counts {
            pub(crate) fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Items taken to be run, except those that did not run after all.
    nr_started;
    /// Items whose run has ended.
    nr_completed;
    cpu_ns;
    nr_cpu_intensive;
    nr_cm_wakeups;
    nr_repatriated;
    nr_maydays;
    nr_rescued;
}

impl Pwq {
    /// Returns the pwq whose first field is `home`. Every home is such a field.
    ///
    /// `home` comes from [`as_home`](Self::as_home). A pointer that is derived from a `&Home` could
    /// access only that field.
    pub(crate) fn of(home: *mut Home) -> *const Pwq {
        home.cast()
    }

    /// Returns a pointer to the first field, from which [`of`](Self::of) derives the whole pwq.
    pub(crate) fn as_home(&self) -> *mut Home {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns `true` if `home` is the home of its items in one of the lanes.
    pub(crate) fn has_home(&self, home: *mut Home) -> bool {
        self.lanes().any(|pwq| pwq.as_home() == home)
    }

    /// Returns the pwq for the items of `lane`. `self` is the pwq for ordinary items.
    #[inline]
    pub(crate) fn in_lane(&self, lane: Lane) -> &Pwq {
        match lane {
            Lane::Ordinary => self,
            Lane::Urgent => self.urgent.get_or_init(|| {
                let urgent = Box::new(self.in_urgent_lane());
                self.gate.add_home(urgent.as_home().addr());
                urgent
            }),
        }
    }

    #[cold]
    fn in_urgent_lane(&self) -> Pwq {
        Pwq {
            home: Home { lane: Lane::Urgent, ..self.home },
            pool: self.pool.clone(),
            core: self.core.clone(),
            gate: self.gate.clone(),
            group: self.group.clone(),
            mayday_queue: self.mayday_queue.clone(),
            node: self.node,
            anchors: OnceLock::new(),
            nr_cancelled: AtomicU32::new(0),
            urgent: OnceLock::new(),
            observed: OnceLock::new(),
        }
    }

    /// Returns this pwq and, if it exists, the one for urgent items.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Pwq> {
        [Some(self), self.urgent.get().map(|it| &**it)].into_iter().flatten()
    }

    #[inline]
    pub(crate) fn push(&self, item: NonNull<Head>) {
        // This comes before the push, because the item may be freed after the push.
        // SAFETY: the caller made the item pending and linked, so it stays alive until it is
        // pushed.
        unsafe { self.emit_queued(item) };
        self.pool.push(item);
    }

    /// Traces the queueing of an item.
    ///
    /// # Safety
    ///
    /// 1. The caller has made the item pending and keeps it alive.
    #[inline]
    pub(crate) unsafe fn emit_queued(&self, item: NonNull<Head>) {
        // Models measure no times.
        if !cfg!(any(loom, shuttle)) && self.observed.get().is_none() {
            self.observe();
        }
        // SAFETY: (1).
        let vtable = || unsafe { item.as_ref() }.vtable();
        // SAFETY: (1), so the item is not being polled, and the vtable is its own.
        let begun = || unsafe { (vtable().has_begun)(item) };
        trace::remember(item.as_ptr().addr(), begun);
        trace::queue_work(|| self.trace(item.as_ptr(), vtable()));
    }

    #[cold]
    fn observe(&self) {
        self.observed.get_or_init(|| Mutex::new(Some(Box::default())));
    }

    /// Returns the trace record of `item`, which is not dereferenced. `vtable` is its vtable.
    pub(crate) fn trace(&self, item: *const Head, vtable: &VTable) -> trace::Item<'_> {
        trace::Item {
            address: item.addr(),
            func: vtable.name,
            queue: &self.core.name,
            pool: self.pool.number,
        }
    }

    /// Returns the counts of the futures that hold an in-flight count of this pwq.
    pub(crate) fn anchors(&self) -> &Anchors {
        self.anchors.get_or_init(Box::default)
    }
}

impl Deref for Pwq {
    type Target = Home;

    #[inline]
    fn deref(&self) -> &Home {
        &self.home
    }
}

impl PwqState {
    pub(crate) fn new(pwq: Arc<Pwq>) -> Self {
        Self {
            has_lanes: pwq.core.has_lanes.load(Ordering::Relaxed),
            pwq,
            lists: Default::default(),
            waits: None,
            deferred: None,
            turns: Turns::default(),
            account: Account::default(),
            in_flight: Colors::default(),
            last_cancel: 0,
            nr_listed: [0; 2],
            nr_adopted: 0,
            drain_waits: false,
            counts: Counts::default(),
            observed: None,
            missed: false,
            retired: false,
        }
    }

    pub(crate) fn handle(&self) -> &Arc<Pwq> {
        &self.pwq
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.lists.iter().any(|list| !list.is_empty())
    }

    pub(crate) fn nr_waiting(&self) -> usize {
        self.lists.iter().map(List::len).sum()
    }

    /// Returns the items in this pwq's own lists, urgent ones first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = NonNull<Head>> {
        self.lists.iter().rev().flat_map(List::iter)
    }

    /// Removes an item from this pwq's own lists. Returns `false` if it is in neither.
    pub(crate) fn remove(&mut self, item: NonNull<Head>) -> bool {
        self.lists.iter_mut().any(|list| list.remove(item))
    }

    pub(crate) fn lane_mut(&mut self, lane: Lane) -> &mut List {
        &mut self.lists[lane as usize]
    }

    /// Returns the list whose turn it is, and advances the turn.
    pub(crate) fn next_lane(&mut self) -> &mut List {
        let [ordinary, urgent] = self.lists.each_ref().map(|list| !list.is_empty());
        let lane = self.turns.take(urgent, ordinary);
        self.lane_mut(lane)
    }

    pub(crate) fn nr_listed(&self) -> usize {
        self.nr_listed.iter().sum()
    }

    /// Records that `count` items joined the lists of a lane. `arrival` contains the times at which
    /// the first and the last of them arrived, in cycles, if known.
    pub(crate) fn add_listed(&mut self, lane: Lane, count: usize, arrival: Option<(u64, u64)>) {
        if self.observed.is_none() {
            let mut made = self.pwq.lanes().filter_map(|it| it.observed.get());
            self.observed = made.find_map(|it| it.lock().take());
        }
        let nr_listed = &mut self.nr_listed[lane as usize];
        if let (Some(observed), Some((from, to))) = (&mut self.observed, arrival) {
            observed.arrivals[lane as usize].add_arrivals(*nr_listed, count, from, to);
        }
        *nr_listed += count;
    }

    /// Records that `count` items were removed from positions other than the front.
    pub(crate) fn remove_listed(&mut self, lane: Lane, count: usize) {
        let nr_listed = &mut self.nr_listed[lane as usize];
        if let Some(observed) = &mut self.observed {
            observed.arrivals[lane as usize].cut(*nr_listed, count);
        }
        *nr_listed -= count;
    }

    /// Returns the time at which the `nth` waiting item of a lane was queued, in cycles.
    pub(crate) fn arrived_at(&self, lane: Lane, nth: usize) -> Option<u64> {
        let nr_listed = self.nr_listed[lane as usize];
        let nth = (nth < nr_listed).then_some(nth)?;
        self.observed.as_ref()?.arrivals[lane as usize].arrived_at(nr_listed, nth)
    }
}

impl Deref for PwqState {
    type Target = Pwq;

    #[inline]
    fn deref(&self) -> &Pwq {
        &self.pwq
    }
}

impl Counts {
    /// Subtracts items that workers have taken but not started.
    pub(crate) fn leave_out(&mut self, nr_not_started: u64) {
        self.nr_started = self.nr_started.saturating_sub(nr_not_started);
    }
}
