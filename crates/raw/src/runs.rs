//! Which raw items run, and who waits for them.
//!
//! An item's function may free the item, so nothing of a run can be noted in it. A run is noted here instead: in a list of
//! the shard that the item's address falls into, by a link on the stack of the worker. Who waits has such a link too.
//!
//! # The protocol
//!
//! ```text
//! worker:   shard's lock: is a run of this item here?  then step: left to it, and it notes that it has the link
//!                         else note the run;  step: started;  waiters for this start now wait for this run
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
//! Queueing takes no lock of these: what is pending after a waiter's look is not waited for.
//!
//! # A run alone
//!
//! A run that is the only one of its shard, with nobody waiting there, takes no lock either. The shard's word says what there is:
//!
//! | word | what there is | moved by |
//! |---|---|---|
//! | null | nothing, and nobody has the lock | a worker → its run; whoever takes the lock → `BUSY` |
//! | a run | this run, and nobody has the lock | its worker, at its end → null; whoever takes the lock → `BUSY`, the run is in the list now |
//! | `BUSY` | lists under the lock | who gives the lock back, if the lists are empty → null |
//!
//! Such a run is noted before its item's step and not together with it. Three things follow from the moment between the two:
//!
//! - Whoever finds the step done finds the run: the question whether an item runs needs no lock where the word is null.
//! - A waiter may have come for this very start. It makes a step of its own on the item, which changes nothing: if that is the first
//!   of the two steps, the worker finds `BUSY` behind its own, and gives its run to the waiter. It does so for who saw the turn that it
//!   ended: who waits for what was queued since waits for the next start.
//! - The item may turn out to be claimed. The run is struck off as one that ended, with what has been left to it meanwhile.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
};

use base::internal::wake::{EventCount, look_as_waiter};
use crossbeam_utils::CachePadded;
#[cfg(not(any(loom, shuttle)))]
use sync::fork::PerProcess;
use sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, Ordering},
    thread::ShortName,
};

use workqueue::internal::{Head, Start, State};

use crate::work::{RawWork, WorkFn};

/// What a shard's word says while its lists count.
const BUSY: *mut Run = ptr::without_provenance_mut(1);

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
    /// Own thread only: the thread's name before the item described itself.
    undescribed: Cell<Option<ShortName>>,
}

/// Somebody who waits, on his own stack.
#[derive(Debug)]
struct Waiter {
    /// I
    name: Name,
    /// Shard's lock: the run whose end is waited for; null: the start of one is.
    run: Cell<*const Run>,
    /// I: the item's turn that the start will end.
    turn: Cell<u64>,
    /// Shard's lock.
    next: Cell<*const Waiter>,
    /// A: the last step on this.
    is_done: AtomicBool,
}

/// The runs of some items, and who waits for those.
#[derive(Debug, Default)]
pub(super) struct Shard {
    lists: Mutex<Lists>,
    /// A: the only run, or null, or `BUSY`: see the page.
    alone: AtomicPtr<Run>,
    /// Told when waiters are done.
    done: EventCount,
}

/// The lists of a shard whose word says `BUSY`.
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
    pub(super) fn of(item: *const RawWork, func: Option<WorkFn>) -> Self {
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

/// Describes the raw item that this thread runs, in the thread's name, until the run has ended.
/// Does nothing outside of a run.
///
/// # Blocking
///
/// Never.
pub fn describe(what: &[u8]) {
    // SAFETY: a run stays on the stack below us until it is over, and only this thread uses the
    // field.
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
            // Test: a_raw_item_runs_once_for_each_enqueue_and_never_twice_at_once
            self.shard.alone.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

impl Shard {
    #[inline]
    fn lock(&self) -> Locked<'_> {
        let mut lists = self.lists.lock();
        // While we hold the lock nobody else changes `BUSY`.
        if self.alone.load(Ordering::Relaxed) != BUSY {
            // ORDER(raw-alone): other end in `note_alone`; both on this line, too: a swap finds what the last one left.
            // Test: a_run_must_be_noted_before_its_start
            let run = self.alone.swap(BUSY, Ordering::AcqRel);
            // It said that the lists are empty. The run, if there is one, will not end without the lock.
            lists.runs = run;
        }
        Locked { shard: self, lists }
    }

    /// Notes `run` without the lock; returns `true` if it could.
    #[inline]
    fn note_alone(&self, run: *mut Run) -> bool {
        // ORDER(raw-alone): publish and consume, other end in `lock`, `strike_alone` and the drop of `Locked`.
        //   end:    what the function did;  word = null  Release;   here: null → run  Acquire;  step;  call the next
        //   here:   run.name;  null → run  Release;                 lock: run → BUSY  Acquire;  read run.name
        // If the exchange of the other end comes first, ours fails and we take the lock. If ours comes first, the other end finds
        // the run.
        // Test: a_raw_item_runs_once_for_each_enqueue_and_never_twice_at_once
        self.alone
            .compare_exchange(ptr::null_mut(), run, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Strikes off `run` without the lock; returns `true` if it could: nobody has come for it.
    #[inline]
    fn strike_alone(&self, run: *mut Run) -> bool {
        // ORDER(raw-alone): other end in `note_alone`.
        // Test: a_raw_item_runs_once_for_each_enqueue_and_never_twice_at_once
        self.alone
            .compare_exchange(run, ptr::null_mut(), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Has those wait for `run`, which has been noted alone, who came for its start before the step `from` which took place, and
    /// to whom it was no run yet.
    #[inline]
    fn adopt(&self, run: *mut Run, from: State) {
        // ORDER(raw-alone): other end in `lock`.
        //   waiter: run → BUSY;  its step on the item: pending
        //   here:   the start's step on the item;  load the word
        // If the waiter's step comes first, ours acquires it, and the load finds `BUSY`. If ours comes first, the waiter's finds
        // the item started, and the run in the list.
        // Test: a_waiter_must_make_a_step
        if self.alone.load(Ordering::Relaxed) != run {
            // SAFETY: the caller's.
            let name = unsafe { (*run).name };
            self.lock().adopt(name, from.completion_seq(), run);
        }
    }

    /// Decides about an item that the caller took off its list, and notes `run` if that is to be. The answer has been
    /// applied. What else has been left to the run, which then was not to be, is returned linked again: put it back.
    ///
    /// # Safety
    ///
    /// 1. `item` is linked, and the caller alone holds its link.
    /// 2. If it is to be run, `run` stays there until [`end`](Self::end).
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
        // SAFETY: noted above.
        (start, unsafe { self.end(run) })
    }

    /// As [`begin`](Self::begin), where others run or are waited for.
    ///
    /// # Safety
    ///
    /// 1. And (2): as there.
    #[cold]
    unsafe fn begin_among(&self, item: NonNull<Head>, run: *mut Run, is_late: bool) -> Start {
        // SAFETY: (1): a linked item is alive.
        let head = unsafe { item.as_ref() };
        // SAFETY: (2).
        let name = unsafe { (*run).name };
        let early = is_late.then(|| step_to_start(head, false));
        let mut lists = self.lock();
        let mut under_way = lists.run_of(name);
        if sync::twin::armed("raw: runs beside itself") {
            under_way = ptr::null_mut();
        }
        let (from, start) = early.unwrap_or_else(|| step_to_start(head, !under_way.is_null()));
        match start {
            Start::Run => {
                // SAFETY: (2), and nobody else knows it yet.
                unsafe { lists.note(run) };
                lists.adopt(name, from.completion_seq(), run);
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

    /// Strikes off `run`, which is over; returns the link that it was left, linked again: put it back.
    ///
    /// # Safety
    ///
    /// 1. `run` was noted here by [`begin`](Self::begin), on this thread.
    pub(super) unsafe fn end(&self, run: *mut Run) -> Option<NonNull<Head>> {
        // SAFETY: (1): it is on our stack; fixed when it was made.
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

    /// As [`end`](Self::end), where others run or are waited for.
    ///
    /// # Safety
    ///
    /// 1. As there.
    #[cold]
    unsafe fn end_among(&self, run: *mut Run) -> Option<NonNull<Head>> {
        let mut lists = self.lock();
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
        drop(lists);
        if done {
            self.done.notify_all();
        }
        left
    }

    /// Ends a claim of the item, which is not pending any more, by the step `plan`; its link is the caller's.
    pub(super) fn release(&self, head: &Head, name: Name, plan: impl Fn(State) -> State) {
        let lists = self.lock();
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

    /// Returns `true` if the item runs. Asked after a step or a load of the item that may come after a start of it.
    #[inline]
    pub(super) fn runs(&self, name: Name) -> bool {
        // ORDER(raw-alone): other end in `note_alone`, `strike_alone`.
        //   begin: word = run;  step: started  AcqRel
        //   asker: a step, or a load, behind that of the start;  load the word  Acquire
        // The load cannot come before the run's note, which the asker's own step acquired. If it comes before the end's exchange,
        // it finds the run, or `BUSY`. If it comes after that, it sees what the function did.
        // Test: a_raw_item_is_not_helped_beside_its_run, a_run_must_be_noted_before_its_start
        let word = self.alone.load(Ordering::Acquire);
        !word.is_null() && !self.lock().run_of(name).is_null()
    }

    /// Waits for the end of the run that is under way; if `pending` says so by the item's turn, of the one that is to start
    /// instead. Returns `true` if there was anything to wait for. The item is not looked at once this waits.
    ///
    /// `pending` makes a step on the item, which may change nothing.
    ///
    /// # Blocking
    ///
    /// Until then. Woken by whoever ends the run, or cancels the item.
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
        //   run:  what the function did;  done = true  Release
        //   here: done  Acquire;  what the function did
        // Test: a_flush_sees_what_the_function_wrote
        let is_done = || waiter.is_done.load(Ordering::Acquire);
        if !look_as_waiter(is_done) {
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

    /// Adds a run.
    ///
    /// # Safety
    ///
    /// 1. `run` is known to nobody, and stays until it is struck off.
    unsafe fn note(&mut self, run: *mut Run) {
        // SAFETY: (1).
        unsafe { (*run).next = self.runs };
        self.runs = run;
    }

    /// Has those wait for `run` who wait for the start that ended the turn `turn`.
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

/// Takes an item off its list, which the caller holds alone; `runs` when a run of it is under way. Returns its state before.
fn step_to_start(head: &Head, runs: bool) -> (State, Start) {
    loop {
        let from = head.load();
        let (to, start) = from.start(runs);
        if head.step(from, to) {
            return (from, start);
        }
    }
}

/// Starts an item that the caller has claimed; returns its state before.
fn step_claimed(head: &Head) -> State {
    loop {
        let from = head.load();
        if head.step(from, from.start_claimed()) {
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
    fn who_waits_for_the_next_start_does_not_go_with_this_run() {
        let shard = Shard::default();
        thread::scope(|scope| {
            let (mut this, mut next) = (Run::new(name()), Run::new(name()));
            let (this, next) = (&raw mut this, &raw mut next);
            assert!(shard.note_alone(this));
            // Here the item's turn 0 is ended by a step, and it is queued again.
            let waiter = scope.spawn(|| shard.wait(name(), || Some(1)));
            while shard.lock().waiters.get().is_null() {
                thread::yield_now();
            }
            shard.lock().adopt(name(), 0, this);
            // SAFETY: noted above.
            assert!(unsafe { shard.end(this) }.is_none());
            assert!(!shard.lock().waiters.get().is_null());
            let mut lists = shard.lock();
            // SAFETY: it stays until it is ended below.
            unsafe { lists.note(next) };
            lists.adopt(name(), 1, next);
            drop(lists);
            // SAFETY: noted above.
            assert!(unsafe { shard.end(next) }.is_none());
            assert!(waiter.join().unwrap());
        });
        assert!(shard.alone.load(Ordering::Relaxed).is_null());
    }
}
