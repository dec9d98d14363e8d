//! Which raw items run, and who waits for them.
//!
//! An item's function may free the item, so nothing of a run can be noted in it. A run is noted here instead: in a list of
//! the shard that the item's address falls into, by a link on the stack of the worker. Who waits has such a link too.
//!
//! # The protocol
//!
//! ```text
//! worker:   shard's lock: is a run of this item here?  then step: left to it, and it notes that it has the link
//!                         else step: started;  note the run;  waiters for the start now wait for this run
//!           call the function
//!           shard's lock: strike the run;  its waiters are done;  has it a link?  step: linked     then put it back
//! canceller: claim;  get the link, from a list or from a run
//!           shard's lock: runs forget the link;  step: not pending;  waiters for the start wait for the run, or are done
//! waiter:   shard's lock: pending? wait for its start, and with that for the run; else for the run that is here
//! ```
//!
//! All of that is said under the shard's lock, so a waiter never sleeps for a start that has been, or will not be. What
//! must never happen is a look at an item, or at a waiter's link, that has gone: a run looks at the item only while it is
//! told of a link, which whoever cancels takes back from it before he ends his claim; and a waiter is done by the last step
//! that is taken on its link.
//!
//! Queueing takes no lock of these: what is pending after a waiter's look is not waited for. Nor does the question whether an
//! item runs, where nothing of its shard does: a run is counted before its item's step, and until it is struck off.

use std::{
    cell::Cell,
    ptr::{self, NonNull},
};

use crossbeam_utils::CachePadded;
#[cfg(not(any(loom, shuttle)))]
use sync::fork::PerProcess;
use sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use super::work::{RawWork, WorkFn};
use crate::{
    wake::{EventCount, spin_as_waiter},
    workqueue::item::{
        head::Head,
        state::{State, raw::Start},
    },
};

/// How many lists there are. A guess: some times the workers that a large machine runs at once.
const NR_SHARDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

type Table = [CachePadded<Shard>; NR_SHARDS];

/// The shards of this process: in a child of `fork` nothing runs.
#[cfg(not(any(loom, shuttle)))]
static TABLE: PerProcess<Table> = PerProcess::new();

#[cfg(not(any(loom, shuttle)))]
fn table() -> &'static Table {
    TABLE
        .get()
        .unwrap_or_else(|| TABLE.get_or_set(std::array::from_fn(|_| CachePadded::default())))
}

#[cfg(any(loom, shuttle))]
sync::process_wide! {
    fn table() -> Table = std::array::from_fn(|_| CachePadded::default())
}

sync::thread_local! {
    /// The innermost run of a raw item on this thread.
    static INNERMOST: Cell<*const Run> = Cell::new(ptr::null())
}

/// An item as a run knows it, which may have been freed: its address and its function's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    item: *const RawWork,
    func: usize,
}

/// A run, on the stack of whoever carries it out.
#[derive(Debug)]
pub(super) struct Run {
    name: Name,
    /// Shard's lock: the link of the item, which was queued and popped during this run.
    left: Option<NonNull<Head>>,
    /// Shard's lock.
    next: *mut Run,
    /// I: the run around it, on the same thread.
    outer: *const Run,
}

/// Somebody who waits, on his own stack.
#[derive(Debug)]
struct Waiter {
    /// I
    name: Name,
    /// Shard's lock: the run whose end is waited for; null: the start of one is.
    run: Cell<*const Run>,
    /// Shard's lock.
    next: Cell<*const Waiter>,
    /// A: the last step on this.
    is_done: AtomicBool,
}

/// The runs of some items, and who waits for those.
#[derive(Debug, Default)]
pub(super) struct Shard {
    lists: Mutex<Lists>,
    /// A: how many runs there are, changed under the lock: one more before an item's step to its start.
    nr_runs: AtomicU32,
    /// Told when waiters are done.
    done: EventCount,
}

#[derive(Debug)]
struct Lists {
    runs: *mut Run,
    waiters: Cell<*const Waiter>,
}

// SAFETY: links stay where they are until they are struck off, by their owner or under the lock, and are only looked at
// under it.
unsafe impl Send for Lists {}

impl Default for Lists {
    fn default() -> Self {
        Self {
            runs: ptr::null_mut(),
            waiters: Cell::new(ptr::null()),
        }
    }
}

impl Name {
    pub(super) fn of(item: NonNull<RawWork>, func: Option<WorkFn>) -> Self {
        let item = item.as_ptr().cast_const();
        let func = func.map_or(0, |func| func as usize);
        Self { item, func }
    }

    /// Returns the shard that the item falls into.
    #[inline]
    pub(super) fn shard(self) -> &'static Shard {
        // Items are some dozen bytes apart at least; a multiplication mixes what is above.
        let mixed = (self.item.addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &table()[((mixed >> 58) as usize).rem_euclid(NR_SHARDS)]
    }

    /// Returns `true` if this thread is inside a run of the item.
    pub(super) fn is_current(self) -> bool {
        let mut at = INNERMOST.with(Cell::get);
        // SAFETY: a run is on the stack below, until it is over.
        while let Some(run) = unsafe { at.as_ref() } {
            if run.name == self {
                return true;
            }
            at = run.outer;
        }
        false
    }
}

/// Returns the raw item that this thread runs; null where it runs none. It may have been freed.
///
/// # Blocking
///
/// Never.
pub fn current() -> *const RawWork {
    // SAFETY: a run is on the stack below, until it is over.
    let run = unsafe { INNERMOST.with(Cell::get).as_ref() };
    run.map_or(ptr::null(), |run| run.name.item)
}

impl Run {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            left: None,
            next: ptr::null_mut(),
            outer: INNERMOST.with(Cell::get),
        }
    }
}

impl Shard {
    /// Decides about an item that the caller took off its list, and notes `run` if that is to be. The answer has been
    /// applied.
    ///
    /// # Safety
    ///
    /// 1. `item` is linked, and the caller alone holds its link.
    /// 2. If it is to be run, `run` stays there until [`end`](Self::end).
    pub(super) unsafe fn begin(&self, item: NonNull<Head>, run: *mut Run) -> Start {
        // SAFETY: (1): a linked item is alive.
        let head = unsafe { item.as_ref() };
        // SAFETY: (2).
        let name = unsafe { (*run).name };
        let mut lists = self.lists.lock();
        let mut under_way = lists.run_of(name);
        if sync::twin::armed("raw: runs beside itself") {
            under_way = ptr::null_mut();
        }
        let is_late = sync::twin::armed("raw: a run is counted after its start");
        if !is_late {
            self.count_run(1);
        }
        let start = loop {
            let from = head.load();
            let (to, start) = from.start(!under_way.is_null());
            if head.step(from, to) {
                break start;
            }
        };
        if is_late {
            self.count_run(1);
        }
        if start != Start::Run {
            self.count_run(-1);
        }
        match start {
            Start::Run => {
                // SAFETY: (2), and nobody else knows it yet.
                unsafe { lists.note(run) };
                drop(lists);
                INNERMOST.with(|innermost| innermost.set(run));
            }
            // SAFETY: a run that is in the list is there; its link is looked at under the lock, which we hold.
            Start::Behind => unsafe { (*under_way).left = Some(item) },
            Start::Claimed => {}
        }
        start
    }

    /// Notes `run`, of an item that the caller has claimed and cut out of its list, by which it is started.
    ///
    /// # Safety
    ///
    /// 1. `run`, which nobody knows yet, stays there until [`end`](Self::end).
    pub(super) unsafe fn begin_claimed(&self, head: &Head, run: *mut Run) {
        let mut lists = self.lists.lock();
        self.count_run(1);
        head.update(|state| Some(state.start_claimed()));
        // SAFETY: (1).
        unsafe { lists.note(run) };
        drop(lists);
        INNERMOST.with(|innermost| innermost.set(run));
    }

    /// Strikes off `run`, which is over; returns the link that it was left, linked again: put it back.
    ///
    /// # Safety
    ///
    /// 1. `run` was noted here by [`begin`](Self::begin), on this thread.
    pub(super) unsafe fn end(&self, run: *mut Run) -> Option<NonNull<Head>> {
        // SAFETY: (1): it is on our stack; fixed when it was made.
        let outer = unsafe { (*run).outer };
        INNERMOST.with(|innermost| innermost.set(outer));
        let mut lists = self.lists.lock();
        lists.strike(run);
        let done = lists.settle(|waiter| ptr::eq(waiter.run.get(), run));
        // SAFETY: (1); nobody else reaches it any more.
        let left = unsafe { (*run).left };
        let left = left.filter(|_| !sync::twin::armed("raw: an end forgets what was left"));
        let left = left.filter(|item| {
            // SAFETY: whoever cancels an item takes its link back from us, under this lock, before he lets it be freed.
            let head = unsafe { item.as_ref() };
            head.update(State::relink).is_some()
        });
        self.count_run(-1);
        drop(lists);
        if done {
            self.done.notify_all();
        }
        left
    }

    /// Ends a claim of the item, which is not pending any more, by the step `plan`; its link is the caller's.
    pub(super) fn release(&self, head: &Head, name: Name, plan: impl Fn(State) -> State) {
        let lists = self.lists.lock();
        let run = lists.run_of(name);
        if !run.is_null() {
            // SAFETY: a run that is in the list is there; its link is looked at under the lock, which we hold.
            unsafe { (*run).left = None };
        }
        head.update(|state| Some(plan(state)));
        let done = if sync::twin::armed("raw: a cancel forgets who waits") {
            false
        } else if run.is_null() {
            lists.settle(|waiter| waiter.awaits_start_of(name))
        } else {
            lists.each_waiter(|waiter| {
                if waiter.awaits_start_of(name) {
                    waiter.run.set(run);
                }
            });
            false
        };
        drop(lists);
        if done {
            self.done.notify_all();
        }
    }

    /// Adds `by` to the count of runs. The caller has the lock.
    fn count_run(&self, by: i32) {
        let nr_runs = self.nr_runs.load(Ordering::Relaxed);
        // ORDER(raw-runs): publish and consume, other end in `runs`.
        //   begin: nr_runs += 1;  step: started  AcqRel
        //   end:   what the function did;  nr_runs -= 1  Release
        //   asker: a step, or a load, behind that of the start;  load nr_runs  Acquire
        // The asker's load cannot come before the first store, which its own step acquired. If it comes before the second
        // one, it finds the count and looks for the run. If it comes after that, it sees what the function did.
        // Test: a_raw_item_is_not_helped_beside_its_run, a_run_must_be_counted_before_its_start
        self.nr_runs
            .store(nr_runs.wrapping_add_signed(by), Ordering::Release);
    }

    /// Returns `true` if the item runs. Asked after a step or a load of the item that may come after a start of it.
    pub(super) fn runs(&self, name: Name) -> bool {
        // ORDER(raw-runs): other end in `count_run`.
        // Test: a_raw_item_is_not_helped_beside_its_run, a_run_must_be_counted_before_its_start
        self.nr_runs.load(Ordering::Acquire) > 0 && !self.lists.lock().run_of(name).is_null()
    }

    /// Waits for the end of the run that is under way; if `is_pending` says so, of the one that is to start instead. Returns
    /// `true` if there was anything to wait for. The item is not looked at once this waits.
    ///
    /// # Blocking
    ///
    /// Until then. Woken by whoever ends the run, or cancels the item.
    pub(super) fn wait(&self, name: Name, is_pending: impl FnOnce() -> bool) -> bool {
        let waiter = Waiter {
            name,
            run: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            is_done: AtomicBool::new(false),
        };
        let lists = self.lists.lock();
        if !is_pending() {
            let run = lists.run_of(name);
            if run.is_null() {
                return false;
            }
            waiter.run.set(run);
        }
        waiter.next.set(lists.waiters.get());
        lists.waiters.set(&raw const waiter);
        drop(lists);
        // ORDER(raw-done): publish and consume, other end in `settle`.
        //   run:  what the function did;  done = true  Release
        //   here: done  Acquire;  what the function did
        // Test: a_flush_sees_what_the_function_wrote
        let is_done = || waiter.is_done.load(Ordering::Acquire);
        if !spin_as_waiter(is_done) {
            self.done.wait_until(is_done);
        }
        true
    }
}

impl Lists {
    /// Returns the run of an item; null for none.
    fn run_of(&self, name: Name) -> *mut Run {
        let mut at = self.runs;
        // SAFETY: what is in the list is there, and changed under the lock alone, which our caller holds.
        while !at.is_null() && unsafe { (*at).name } != name {
            // SAFETY: as above.
            at = unsafe { (*at).next };
        }
        at
    }

    /// Adds a run, whose end is waited for from now on by who waited for a start.
    ///
    /// # Safety
    ///
    /// 1. `run` is known to nobody, and stays until it is struck off.
    unsafe fn note(&mut self, run: *mut Run) {
        // SAFETY: (1).
        let name = unsafe {
            (*run).next = self.runs;
            (*run).name
        };
        self.runs = run;
        if sync::twin::armed("raw: a start forgets its waiters") {
            return;
        }
        self.each_waiter(|waiter| {
            if waiter.awaits_start_of(name) {
                waiter.run.set(run);
            }
        });
    }

    fn strike(&mut self, run: *mut Run) {
        let mut place: *mut *mut Run = &raw mut self.runs;
        // SAFETY: places are in this value or in links of the list, which are there; we hold the lock.
        while unsafe { *place } != run {
            // SAFETY: as above; `run` is in the list, so its end is not met.
            place = unsafe { &raw mut (**place).next };
        }
        // SAFETY: as above.
        unsafe { *place = (*run).next };
    }

    fn each_waiter(&self, change: impl Fn(&Waiter)) {
        let mut at = self.waiters.get();
        // SAFETY: what is in the list is there, and our caller holds the lock.
        while let Some(waiter) = unsafe { at.as_ref() } {
            change(waiter);
            at = waiter.next.get();
        }
    }

    /// Strikes off the waiters that are `chosen`, who are done; returns `true` if there were any.
    fn settle(&self, chosen: impl Fn(&Waiter) -> bool) -> bool {
        let mut place = &self.waiters;
        let mut any = false;
        // SAFETY: what is in the list is there, and our caller holds the lock.
        while let Some(waiter) = unsafe { place.get().as_ref() } {
            if !chosen(waiter) {
                place = &waiter.next;
                continue;
            }
            place.set(waiter.next.get());
            any = true;
            // ORDER(raw-done): other end in `wait`. The last step: the waiter may go by it.
            // Test: a_flush_sees_what_the_function_wrote
            waiter.is_done.store(true, Ordering::Release);
        }
        any
    }
}

impl Waiter {
    fn awaits_start_of(&self, name: Name) -> bool {
        self.name == name && self.run.get().is_null()
    }
}
