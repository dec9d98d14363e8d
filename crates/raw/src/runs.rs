//! The raw items that are executing, and the threads that wait for them.
//!
//! An item's function may free the item, so the run is recorded in the list of a *shard*, which is
//! chosen by a hash of the item's address. The list nodes are on the stacks of the worker and of
//! the waiters.
//!
//! # The protocol
//!
//! ```text
//! worker:    shard lock: is a run of this item in the list?
//!              yes: hand the item to that run
//!              no:  insert the run;  transition to started;
//!                   waiters for this start wait for this run
//!            call the function
//!            shard lock: remove the run;  its waiters are done;  does it have the item?
//!              yes: transition to linked, and put the item back
//! canceller: claim;  remove the item from a list, or take it back from a run
//!            shard lock: runs forget the item;  transition to not pending;
//!              waiters for the start wait for the current run, or are done
//! waiter:    shard lock: pending?  wait for the start and its run;  otherwise for the current run
//! ```
//!
//! Every transition is made under the shard lock, so a waiter never waits for a start that has
//! already happened or will never happen. No thread may access an item, or a waiter's node, after
//! it was freed. A run accesses an item only while the item is handed to it, and a canceller takes
//! the item back before it ends its claim. The last access to a waiter's node is the one that
//! releases the waiter. A producer needs no lock, because a waiter ignores an enqueue that follows
//! its check.
//!
//! # A single run
//!
//! If a run is the only one in its shard and there are no waiters, the worker needs no lock either.
//! The shard's state word is one of:
//!
//! | word | meaning | transitions |
//! |---|---|---|
//! | null | no run, the lock is free | starting worker → its run; locking thread → `BUSY` |
//! | a run | only this run, the lock is free | ending worker → null; locking thread → `BUSY` |
//! | `BUSY` | the lists are valid | unlocking thread → null, if the lists are empty |
//!
//! A thread that locks the shard moves the run into the list. A run outside the list is published
//! before the item's transition, instead of together with it:
//!
//! - A thread that sees the transition finds the run. If the word is null, a thread can conclude
//!   without the lock that the item is not executing.
//! - A waiter may already be waiting for this start. It makes a transition on the item that changes
//!   nothing. If that transition comes first, the worker finds `BUSY` after its own, and assigns
//!   its run to the waiter. It does so only for waiters that saw the sequence number that this
//!   start completed: a waiter for a later enqueue waits for the next start.
//! - If the item turns out to be claimed, the run is removed like a run that has ended. An item
//!   that was handed to it in the meantime is put back.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use base::internal::wake::{EventCount, poll_as_waiter};
use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicBool, AtomicPtr, Ordering};
#[cfg(not(any(loom, shuttle)))]
use sync::fork::PerProcess;
use sync::thread::ShortName;
use sync::{Mutex, MutexGuard};
use workqueue::internal::{Head, Start, State};

use crate::work::{RawWork, WorkFn};

/// The state word while the shard's lists are valid.
const BUSY: *mut Run = ptr::without_provenance_mut(1);

/// The number of shards, a guess: several times the workers that a large machine runs at once.
const NR_SHARDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

type Table = [CachePadded<Shard>; NR_SHARDS];

/// In a child of `fork`, nothing is executing.
#[cfg(not(any(loom, shuttle)))]
static TABLE: PerProcess<Table> = PerProcess::new();

#[cfg(not(any(loom, shuttle)))]
fn table() -> &'static Table {
    TABLE.get().unwrap_or_else(|| TABLE.get_or_set(std::array::from_fn(|_| CachePadded::default())))
}

#[cfg(any(loom, shuttle))]
sync::process_wide! {
    fn table() -> Table = std::array::from_fn(|_| CachePadded::default())
}

sync::thread_local! {
    static INNERMOST: Cell<*const Run> = Cell::new(ptr::null())
}

/// The identity of an item, which may have been freed: its address and that of its function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    item: *const RawWork,
    func: usize,
}

/// A run, on the stack of the thread that executes it.
#[derive(Debug)]
pub(super) struct Run {
    name: Name,
    /// Shard lock: the item, if it was queued and popped again during this run.
    left: Option<NonNull<Head>>,
    /// Shard lock.
    next: *mut Run,
    /// I: the enclosing run on the same thread.
    outer: *const Run,
    /// Own thread only: the name of the thread before the item called [`describe`].
    undescribed: Cell<Option<ShortName>>,
}

/// A waiter, on the stack of its thread.
#[derive(Debug)]
struct Waiter {
    /// I
    name: Name,
    /// Shard lock: the run to wait for, or null to wait for a start.
    run: Cell<*const Run>,
    /// I: the completion sequence number that the awaited start completes.
    turn: Cell<u64>,
    /// Shard lock.
    next: Cell<*const Waiter>,
    /// A: set by the last access to this node.
    is_done: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    lists: Mutex<Lists>,
    /// A: the only run, null, or `BUSY`; see the module page.
    alone: AtomicPtr<Run>,
    done: EventCount,
}

#[derive(Debug)]
struct Locked<'a> {
    shard: &'a Shard,
    lists: MutexGuard<'a, Lists>,
}

#[derive(Debug)]
struct Lists {
    runs: *mut Run,
    waiters: Cell<*const Waiter>,
}

// SAFETY: nodes stay in place until they are removed, by their owner or under the lock, and are
// only accessed under the lock.
unsafe impl Send for Lists {}

impl Default for Lists {
    fn default() -> Self {
        Self { runs: ptr::null_mut(), waiters: Cell::new(ptr::null()) }
    }
}

impl Name {
    pub(super) fn of(item: *const RawWork, func: Option<WorkFn>) -> Self {
        let func = func.map_or(0, |func| func as usize);
        Self { item, func }
    }

    #[inline]
    pub(super) fn shard(self) -> &'static Shard {
        // Items are at least a few dozen bytes apart; the multiplication mixes the higher bits.
        let mixed = (self.item.addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &table()[((mixed >> 58) as usize).rem_euclid(NR_SHARDS)]
    }

    pub(super) fn is_current(self) -> bool {
        let mut at = INNERMOST.with(Cell::get);
        // SAFETY: a run stays on this thread's stack until it is over.
        while let Some(run) = unsafe { at.as_ref() } {
            if run.name == self {
                return true;
            }
            at = run.outer;
        }
        false
    }
}

/// Returns the raw item that this thread is executing, or null. The item may have been freed. Never
/// blocks.
pub fn current() -> *const RawWork {
    // SAFETY: a run stays on this thread's stack until it is over.
    let run = unsafe { INNERMOST.with(Cell::get).as_ref() };
    run.map_or(ptr::null(), |run| run.name.item)
}

/// Adds `what` to the thread's name until the end of its raw item's run, if it has one. Never
/// blocks.
pub fn describe(what: &[u8]) {
    // SAFETY: a run stays on this thread's stack until it is over; the field is this thread's own.
    let place = unsafe {
        let run = INNERMOST.with(Cell::get).as_ref();
        run.map(|run| &run.undescribed)
    };
    if let Some(place) = place {
        let before = place.get().unwrap_or_else(ShortName::own);
        place.set(Some(before));
        before.with(what).assume();
    }
}

impl Run {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            left: None,
            next: ptr::null_mut(),
            outer: INNERMOST.with(Cell::get),
            undescribed: Cell::new(None),
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        &self.lists
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Lists {
        &mut self.lists
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.lists.runs.is_null() && self.lists.waiters.get().is_null() {
            // ORDER(raw-alone): other end in `note_alone`.
            // Test: raw_item_runs_once_for_each_enqueue_without_overlap
            self.shard.alone.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

impl Shard {
    #[inline]
    fn lock(&self) -> Locked<'_> {
        let mut lists = self.lists.lock();
        // Only the holder of the lock changes `BUSY`.
        if self.alone.load(Ordering::Relaxed) != BUSY {
            // ORDER(raw-alone): other end in `note_alone`; both ends on this line, too: a swap sees
            // the writes before the previous one.
            // Test: raw_item_is_not_helped_during_its_run
            let run = self.alone.swap(BUSY, Ordering::AcqRel);
            // The word shows that the lists are empty. A run found there needs the lock to end.
            lists.runs = run;
        }
        Locked { shard: self, lists }
    }

    /// Publishes `run` without the lock; returns `true` on success.
    #[inline]
    fn note_alone(&self, run: *mut Run) -> bool {
        // ORDER(raw-alone): publish and consume, other end in `lock`, `strike_alone` and the drop
        // of `Locked`.
        //   end:  writes by the function;  run → null  Release
        //   here: run.name;  null → run  AcqRel;  next run
        //   lock: run → BUSY  Acquire;  read run.name
        // If the exchange of the other end comes first, ours fails and we acquire the lock. If ours
        // comes first, the other end finds the run.
        // Test: raw_item_runs_once_for_each_enqueue_without_overlap
        self.alone
            .compare_exchange(ptr::null_mut(), run, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Removes `run` without the lock; returns `false` if another thread has locked the shard.
    #[inline]
    fn strike_alone(&self, run: *mut Run) -> bool {
        // ORDER(raw-alone): other end in `note_alone`.
        // Test: raw_item_runs_once_for_each_enqueue_without_overlap
        self.alone
            .compare_exchange(run, ptr::null_mut(), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Assigns `run`, which was published without the lock, to the waiters that arrived before the
    /// item's start, when the run was not in the list. `from` is the item's state before the start.
    #[inline]
    fn adopt(&self, run: *mut Run, from: State) {
        // ORDER(raw-alone): other end in `lock`.
        //   waiter: run → BUSY;  its transition on the item: pending
        //   here:   the start's transition on the item;  load the word
        // If the waiter's transition comes first, ours acquires it, and the load finds `BUSY`. If
        // ours comes first, the waiter finds the item started and the run in the list.
        // Test: a_raw_item_that_was_flushed_has_run_and_may_be_freed
        if self.alone.load(Ordering::Relaxed) != run {
            // SAFETY: the run is the caller's.
            let name = unsafe { (*run).name };
            self.lock().adopt(name, from.completion_seq(), run);
        }
    }

    /// Starts an item, which the caller has removed from its list, and records `run`, or hands the
    /// item to the run that is executing it. Returns the decision. If the item does not start, also
    /// returns an item that was handed to `run` in the meantime; that item is linked again, and the
    /// caller puts it back.
    ///
    /// # Safety
    ///
    /// 1. `item` is linked, and only the caller holds its list link.
    /// 2. If the item is to run, `run` stays in place until [`end`](Self::end).
    #[inline]
    pub(super) unsafe fn begin(
        &self,
        item: NonNull<Head>,
        run: *mut Run,
    ) -> (Start, Option<NonNull<Head>>) {
        // SAFETY: (1): a linked item is alive.
        let head = unsafe { item.as_ref() };
        let is_late = sync::twin::armed("raw: a run is noted after its start");
        if is_late || !self.note_alone(run) {
            // SAFETY: (1), (2).
            return (unsafe { self.begin_among(item, run, is_late) }, None);
        }
        INNERMOST.with(|innermost| innermost.set(run));
        let (from, start) = step_to_start(head, false);
        if start == Start::Run {
            self.adopt(run, from);
            return (start, None);
        }
        // SAFETY: the run was recorded above.
        (start, unsafe { self.end(run) })
    }

    /// Implements [`begin`](Self::begin) for a shard that has other runs or waiters.
    ///
    /// # Safety
    ///
    /// 1. The same as (1) of [`begin`](Self::begin).
    /// 2. The same as (2) of [`begin`](Self::begin).
    #[cold]
    unsafe fn begin_among(&self, item: NonNull<Head>, run: *mut Run, is_late: bool) -> Start {
        // SAFETY: (1): a linked item is alive.
        let head = unsafe { item.as_ref() };
        // SAFETY: (2).
        let name = unsafe { (*run).name };
        let early = is_late.then(|| step_to_start(head, false));
        let mut lists = self.lock();
        let mut under_way = lists.run_of(name);
        if sync::twin::armed("raw: runs overlap") {
            under_way = ptr::null_mut();
        }
        let (from, start) = early.unwrap_or_else(|| step_to_start(head, !under_way.is_null()));
        match start {
            Start::Run => {
                // SAFETY: (2), and no other thread knows the run yet.
                unsafe { lists.note(run) };
                lists.adopt(name, from.completion_seq(), run);
                drop(lists);
                INNERMOST.with(|innermost| innermost.set(run));
            }
            // SAFETY: a run in the list is alive; its `left` is guarded by the lock, which we hold.
            Start::Behind => unsafe { (*under_way).left = Some(item) },
            Start::Claimed => {}
        }
        start
    }

    /// Records `run` and starts its item, which the caller has claimed and removed from its list.
    ///
    /// # Safety
    ///
    /// 1. `run`, which no other thread knows yet, stays in place until [`end`](Self::end).
    #[inline]
    pub(super) unsafe fn begin_claimed(&self, head: &Head, run: *mut Run) {
        INNERMOST.with(|innermost| innermost.set(run));
        if self.note_alone(run) {
            let from = step_claimed(head);
            self.adopt(run, from);
        } else {
            let mut lists = self.lock();
            // SAFETY: (1).
            unsafe { lists.note(run) };
            let from = step_claimed(head);
            // SAFETY: (1).
            lists.adopt(unsafe { (*run).name }, from.completion_seq(), run);
        }
    }

    /// Removes `run`, which has ended. Returns the item that was handed to it, linked again; the
    /// caller puts it back.
    ///
    /// # Safety
    ///
    /// 1. `run` was recorded here by [`begin`](Self::begin), on this thread.
    pub(super) unsafe fn end(&self, run: *mut Run) -> Option<NonNull<Head>> {
        // SAFETY: (1): the run is on our stack, and these fields are written by this thread only.
        let (outer, undescribed) = unsafe { ((*run).outer, (*run).undescribed.get()) };
        INNERMOST.with(|innermost| innermost.set(outer));
        if let Some(name) = undescribed {
            name.assume();
        }
        if self.strike_alone(run) {
            return None;
        }
        // SAFETY: (1).
        unsafe { self.end_among(run) }
    }

    /// Implements [`end`](Self::end) for a shard that has other runs or waiters.
    ///
    /// # Safety
    ///
    /// 1. The same as [`end`](Self::end).
    #[cold]
    unsafe fn end_among(&self, run: *mut Run) -> Option<NonNull<Head>> {
        let mut lists = self.lock();
        lists.strike(run);
        let done = lists.settle(|waiter| ptr::eq(waiter.run.get(), run));
        // SAFETY: (1); other threads can no longer reach the run.
        let left = unsafe { (*run).left };
        let left = left.filter(|_| !sync::twin::armed("raw: an end forgets a deferred item"));
        let left = left.filter(|item| {
            // SAFETY: a canceller takes the item back, under this lock, before it can be freed.
            let head = unsafe { item.as_ref() };
            head.update(State::relink).is_some()
        });
        drop(lists);
        if done {
            self.done.notify_all();
        }
        left
    }

    /// Ends the caller's claim on the item, whose list link it holds, with the transition `plan`.
    pub(super) fn release(&self, head: &Head, name: Name, plan: impl Fn(State) -> State) {
        let lists = self.lock();
        let run = lists.run_of(name);
        if !run.is_null() {
            // SAFETY: a run in the list is alive; its `left` is guarded by the lock, which we hold.
            unsafe { (*run).left = None };
        }
        head.update(|state| Some(plan(state)));
        let done = if sync::twin::armed("raw: a cancel forgets the waiters") {
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

    /// Returns `true` if the item is executing. The caller must already have loaded or changed the
    /// item's state. This function then finds every run that started before.
    #[inline]
    pub(super) fn runs(&self, name: Name) -> bool {
        // ORDER(raw-alone): other end in `note_alone`, `strike_alone`.
        //   begin: word = run;  transition to started  AcqRel
        //   asker: a transition or load after that of the start;  load the word  Acquire
        // The asker's transition acquired the publication of the run, so the load cannot come
        // before it. If the load comes before the exchange of the end, it finds the run, or `BUSY`.
        // If it comes after, it sees the writes by the function.
        // Test: raw_item_is_not_helped_during_its_run
        let word = self.alone.load(Ordering::Acquire);
        !word.is_null() && !self.lock().run_of(name).is_null()
    }

    /// Waits for the end of the current run or, if `pending` returns the item's sequence number, of
    /// the next one. Returns `true` if there was a run to wait for. The wait does not access the
    /// item. `pending` makes a transition on the item, which may change nothing. The thread that
    /// ends the run or cancels the item wakes the caller.
    pub(super) fn wait(&self, name: Name, pending: impl FnOnce() -> Option<u64>) -> bool {
        let waiter = Waiter {
            name,
            run: Cell::new(ptr::null()),
            turn: Cell::new(0),
            next: Cell::new(ptr::null()),
            is_done: AtomicBool::new(false),
        };
        let lists = self.lock();
        if let Some(turn) = pending() {
            waiter.turn.set(turn);
        } else {
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
        //   run:  the function's writes;  done = true  Release
        //   here: done  Acquire;  read those writes
        // If the store comes first, the load that reads it sees these writes. If the load comes
        // first, it reads `false`, and we wait.
        // Test: flush_sees_writes_of_the_function
        let is_done = || waiter.is_done.load(Ordering::Acquire);
        if !poll_as_waiter(is_done) {
            self.done.wait_until(is_done);
        }
        true
    }
}

impl Lists {
    fn run_of(&self, name: Name) -> *mut Run {
        let mut at = self.runs;
        // SAFETY: nodes in the list are alive, and guarded by the lock, which the caller holds.
        while !at.is_null() && unsafe { (*at).name } != name {
            // SAFETY: as above.
            at = unsafe { (*at).next };
        }
        at
    }

    /// Adds a run.
    ///
    /// # Safety
    ///
    /// 1. No other thread knows `run`, and it stays in place until it is removed.
    unsafe fn note(&mut self, run: *mut Run) {
        // SAFETY: (1).
        unsafe { (*run).next = self.runs };
        self.runs = run;
    }

    /// Assigns `run` to the waiters whose awaited start completes the sequence number `turn`.
    fn adopt(&self, name: Name, turn: u64, run: *const Run) {
        if sync::twin::armed("raw: a start forgets its waiters") {
            return;
        }
        self.each_waiter(|waiter| {
            if waiter.awaits_start_of(name) && waiter.turn.get() == turn {
                waiter.run.set(run);
            }
        });
    }

    fn strike(&mut self, run: *mut Run) {
        let mut place: *mut *mut Run = &raw mut self.runs;
        // SAFETY: `place` points into this value or a node in the list, which is alive; we hold the
        // lock.
        while unsafe { *place } != run {
            // SAFETY: as above; `run` is in the list, so the walk does not reach its end.
            place = unsafe { &raw mut (**place).next };
        }
        // SAFETY: as above.
        unsafe { *place = (*run).next };
    }

    fn each_waiter(&self, change: impl Fn(&Waiter)) {
        let mut at = self.waiters.get();
        // SAFETY: nodes in the list are alive, and the caller holds the lock.
        while let Some(waiter) = unsafe { at.as_ref() } {
            change(waiter);
            at = waiter.next.get();
        }
    }

    /// Removes the `chosen` waiters and marks them as done; returns `true` if there were any.
    fn settle(&self, chosen: impl Fn(&Waiter) -> bool) -> bool {
        let mut place = &self.waiters;
        let mut any = false;
        // SAFETY: nodes in the list are alive, and the caller holds the lock.
        while let Some(waiter) = unsafe { place.get().as_ref() } {
            if !chosen(waiter) {
                place = &waiter.next;
                continue;
            }
            place.set(waiter.next.get());
            any = true;
            // ORDER(raw-done): other end in `wait`. This is the last access to the node, because
            // the waiter may then return.
            waiter.is_done.store(true, Ordering::Release);
        }
        any
    }
}

/// Starts an item that the caller has removed from its list. `runs` is `true` if the item is
/// already executing. Returns the previous state.
fn step_to_start(head: &Head, runs: bool) -> (State, Start) {
    loop {
        let from = head.load();
        let (to, start) = from.start(runs);
        if head.transition(from, to) {
            return (from, start);
        }
    }
}

/// Starts an item that the caller has claimed. Returns the previous state.
fn step_claimed(head: &Head) -> State {
    loop {
        let from = head.load();
        if head.transition(from, from.start_claimed()) {
            return from;
        }
    }
}

impl Waiter {
    fn awaits_start_of(&self, name: Name) -> bool {
        self.name == name && self.run.get().is_null()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::thread;

    use super::*;

    fn name() -> Name {
        let item = ptr::without_provenance(64);
        Name { item, func: 0 }
    }

    #[test]
    fn waiter_for_the_next_start_outlasts_this_run() {
        let shard = Shard::default();
        thread::scope(|scope| {
            let (mut this, mut next) = (Run::new(name()), Run::new(name()));
            let (this, next) = (&raw mut this, &raw mut next);
            assert!(shard.note_alone(this));
            // Here a transition completes sequence number 0, and the item is queued again.
            let waiter = scope.spawn(|| shard.wait(name(), || Some(1)));
            while shard.lock().waiters.get().is_null() {
                thread::yield_now();
            }
            shard.lock().adopt(name(), 0, this);
            // SAFETY: the run was recorded above.
            assert!(unsafe { shard.end(this) }.is_none());
            assert!(!shard.lock().waiters.get().is_null());
            let mut lists = shard.lock();
            // SAFETY: the run stays in place until it is ended below.
            unsafe { lists.note(next) };
            lists.adopt(name(), 1, next);
            drop(lists);
            // SAFETY: the run was recorded above.
            assert!(unsafe { shard.end(next) }.is_none());
            assert!(waiter.join().unwrap());
        });
        assert!(shard.alone.load(Ordering::Relaxed).is_null());
    }
}
