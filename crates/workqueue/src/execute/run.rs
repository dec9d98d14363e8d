//! Runs an item that has a state, on a worker that has popped the item, or on a joiner that helps.
//!
//! A thread records the runs that it is in. Runs nest: a thread may run an item that it waits for.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::task::Waker;

use base::internal::panics::{Foreign, contain};
use base::internal::trace;
use item::internal::cleanups;
use item::internal::deferred_drops::{DeferredDrops, deferred_drop};
use item::internal::head::{Dead, Ending, Head, Home, Pop, Popped, State, VTable};
use item::internal::list::{self, Color};
use item::internal::revival::Revivable;
use item::internal::token::Token;
use limit::internal::queue_core::{QueueCore, Unseen};
use sync::Backoff;
use sync::atomic::Ordering;
use sync::unmodelled::Arc;

use super::cancel_cut::{Aftermath, put_back};
use super::lend;
use super::wait::{self, must_have_workers};
use crate::pools::pool::WorkerPool;
use crate::pools::pwq::Pwq;
use crate::pools::seats::GroupGate;

/// Handles an item that the caller has just popped from a list, and runs it if it is pending.
///
/// # Safety
///
/// 1. `item` is linked, and only the caller holds its list link.
pub(crate) unsafe fn pop_and_run(item: NonNull<Head>) -> Popped {
    // SAFETY: (1).
    unsafe { pop_by_and_run(item, |state| Some(state.pop())) }
}

/// Does the same as [`pop_and_run`], but lets `plan` decide how the item is popped.
///
/// # Safety
///
/// 1. The same as for [`pop_and_run`].
#[inline]
pub(crate) unsafe fn pop_by_and_run(
    item: NonNull<Head>,
    plan: impl Fn(State) -> Option<Pop>,
) -> Popped {
    // SAFETY: (1): a linked item is alive.
    let head = unsafe { item.as_ref() };
    // Read this before the transition, after which the item may get another home.
    let home = Pwq::of(head.home.load(Ordering::Relaxed));
    let (from, pop) = head.pop_by(plan);
    match pop {
        Pop::Run(_) => {
            if from.is_counted() && !sync::twin::armed("capacity: a start keeps its permit") {
                // SAFETY: our caller holds the in-flight count, which keeps the pwq alive.
                release_permit(unsafe { &*home });
            }
            // SAFETY: our transition began the run, and our caller keeps the in-flight count.
            let ending = unsafe { run(item, home, false, || ()) };
            match ending {
                Ending::Suspended { keeps_count: true } => Popped::Kept,
                _ => Popped::Ran,
            }
        }
        Pop::Leave(_) => Popped::Left,
        Pop::Discard(state) => {
            if state.frees() {
                // Drop it inside a run, because the closure may own the last handle to its queue,
                // and our caller still holds the queue's in-flight count.
                // SAFETY: no handle, list or running thread refers to the item, and our caller's
                // in-flight count keeps `home` alive.
                unsafe {
                    let dead = Dead::new(item);
                    with_current(ptr::null(), home, || drop(dead));
                }
            }
            Popped::Dropped
        }
    }
}

/// Runs an item that was queued at `home`, as a joiner if `helps` is set and otherwise as a worker,
/// and completes the run. `before_end` is called after the item's own code, and before another
/// thread can see that the item has ended.
///
/// # Safety
///
/// 1. The item's state records that the caller runs it.
/// 2. `home` stays valid until `before_end` is called.
unsafe fn run(
    item: NonNull<Head>,
    home: *const Pwq,
    helps: bool,
    before_end: impl FnOnce(),
) -> Ending {
    // SAFETY: (1): a running item is alive.
    let head = unsafe { item.as_ref() };
    // Freeing the item is part of the run, because a closure may own the last handle to its queue.
    // For the same reason, the code of a trace subscriber is part of the run.
    let run = || {
        // SAFETY: (1): this is the call of the run.
        let call = || unsafe { (head.vtable().call)(item) };
        // SAFETY: (2): this is called before `before_end`.
        let ending = unsafe { with_events(item.as_ptr(), head.vtable(), home, helps, call) };
        if head.vtable().push.is_some() && !matches!(ending, Ending::Suspended { .. }) {
            // The future has ended. An item of another kind may have been queued again already.
            trace::forget(item.as_ptr().addr());
        }
        before_end();
        // SAFETY: (1).
        if unsafe { end_alone(item, ending) } {
            return ending;
        }
        if ending == Ending::Returned && head.load().ends_unseen() {
            forget_item();
            // SAFETY: no handle and no list refers to the item, and its run is over.
            drop(unsafe { Dead::new(item) });
        } else {
            // SAFETY: (1).
            unsafe { end_else(item, ending, true) }.finish();
        }
        ending
    };
    // SAFETY: (1), (2).
    unsafe { with_current(item.as_ptr(), home, run) }
}

/// Emits the events of a run of the item at this address, and calls `func`, the item's function,
/// between them. `helps` is set if the thread is a joiner.
///
/// # Safety
///
/// 1. `home` stays valid until this function returns.
#[inline]
pub(crate) unsafe fn with_events<R>(
    item: *const Head,
    vtable: &VTable,
    home: *const Pwq,
    helps: bool,
    func: impl FnOnce() -> R,
) -> R {
    // SAFETY: (1).
    let item_info = || unsafe { &*home }.trace(item, vtable);
    if helps {
        trace::activate_work(item_info);
    }
    let within = trace::enter(item.addr(), vtable.push.is_some());
    trace::execute_start(item_info);
    let result = func();
    trace::execute_end(item_info);
    drop(within);
    result
}

/// User code that remains to be called after a run has ended.
#[derive(Default)]
#[must_use = "a task may wait for it"]
pub(crate) struct Rest {
    pub(super) waker: Option<Foreign<Waker>>,
    pub(super) dead: Option<Dead>,
    /// The remaining steps of a bulk cancel that found this item queued again during its run.
    pub(super) cancelled: Option<Box<Aftermath>>,
}

impl Rest {
    /// Calls the remaining user code. Call it with no lock held.
    fn finish(self) {
        if let Some(waker) = self.waker {
            // FOREIGN(task-wake): the waker of a task that awaits the item, on the thread that ran
            // the item; a panic is contained.
            contain(|| waker.into_inner().wake());
        }
        if let Some(cancelled) = self.cancelled {
            cancelled.run();
        }
        drop(self.dead);
    }
}

/// Ends a run. Calls no user code except the wakers of drains, which the caller can set aside.
///
/// # Safety
///
/// 1. The caller runs `item`.
pub(crate) unsafe fn end(item: NonNull<Head>, ending: Ending) -> Rest {
    // SAFETY: (1).
    unsafe { if end_alone(item, ending) { Rest::default() } else { end_else(item, ending, false) } }
}

/// If ending the run needs no further action, ends the run and returns `true`.
///
/// # Safety
///
/// 1. The caller runs `item`.
#[inline]
unsafe fn end_alone(item: NonNull<Head>, ending: Ending) -> bool {
    // SAFETY: (1): a running item is alive.
    let head = unsafe { item.as_ref() };
    let from = head.load();
    let next = from.complete_alone();
    ending == Ending::Returned && next.is_some_and(|next| head.transition(from, next))
}

/// Ends a run of any kind. `is_current` is `true` if it is this thread's innermost run.
///
/// # Safety
///
/// 1. The caller runs `item`.
unsafe fn end_else(item: NonNull<Head>, ending: Ending, is_current: bool) -> Rest {
    // SAFETY: (1): a running item is alive.
    let head = unsafe { item.as_ref() };
    let mut rest = Rest::default();
    // Read this before the end of the run, after which a waiter may free the item.
    let key = head.key();
    let vtable = head.vtable();
    // SAFETY: (1).
    let ended = unsafe { Head::complete(item, ending) };
    let done = ended.completion;
    if let (true, Some(push)) = (done.push, vtable.push) {
        // SAFETY: (1), and the transition has made the item pending and linked.
        unsafe { push(item) };
    }
    let runs_users_code = done.relink || done.retire_handoff || ended.task.is_some() || done.free;
    if is_current && runs_users_code {
        forget_item();
    }
    if done.relink || done.retire_handoff {
        // SAFETY: the entry popped during the run is still counted, which keeps its home alive.
        let home = unsafe { &*Pwq::of(ended.home) };
        // Clone the pool, because it and the queue may be destroyed once the count is released.
        let (pool, slot) = (home.pool.clone(), home.slot);
        if done.relink {
            // SAFETY: only a `Work` is queued again, and the item is linked, so it is alive.
            let revived = done.revived.then(|| unsafe { item.cast::<Revivable>().as_ref() });
            rest.cancelled = put_back(&pool, item, revived);
        } else {
            pool.retire_one(slot, ended.color);
        }
    }
    if done.wake && !sync::twin::armed("item: completion forgets its sleepers") {
        key.wake(u32::MAX);
    }
    if let (Some(task), false) =
        (ended.task, sync::twin::armed("item: completion forgets its task"))
    {
        rest.waker = task.lock().take();
    }
    // SAFETY: no handle, list or running thread refers to the item.
    rest.dead = done.free.then(|| unsafe { Dead::new(item) });
    rest
}

/// Cancels a pending item that was just removed from a list, and pops it as `plan` decides, usually
/// by [`State::pop_to_cancel`]. Begins the item's run, and adds the item to `deferred_drops`, so
/// that the caller can [`end`] the run later. `skip` moves the user's values to `deferred_drops`.
///
/// # Safety
///
/// 1. `item` is linked, and only the caller holds its list link.
pub(crate) unsafe fn pop_and_cancel(
    item: NonNull<Head>,
    deferred_drops: &mut DeferredDrops,
    skip: unsafe fn(NonNull<Head>, &mut DeferredDrops),
    plan: impl Fn(State) -> Option<Pop>,
) -> Popped {
    // SAFETY: (1): a linked item is alive.
    let head = unsafe { item.as_ref() };
    // Read this before the transition, after which the item may get another home.
    let home = Pwq::of(head.home.load(Ordering::Relaxed));
    let (from, pop) = head.pop_by(plan);
    let is_cancelled = !matches!(pop, Pop::Leave(_)) && from.is_pending();
    if is_cancelled && from.is_counted() {
        deferred_drops.nr_places += 1;
    }
    match pop {
        Pop::Run(_) => {
            trace::forget(item.as_ptr().addr());
            // SAFETY: our transition began the run.
            unsafe { skip(item, deferred_drops) };
            deferred_drops.taken.push(item);
            return Popped::Ran;
        }
        Pop::Leave(_) => return Popped::Left,
        Pop::Discard(state) => {
            // SAFETY: no handle, list or running thread refers to the item.
            let dead = state.frees().then(|| unsafe { Dead::new(item) });
            deferred_drops.dropped.extend(dead.map(deferred_drop));
        }
    }
    if from.is_running() {
        // The item's count may belong to a helper's run, which continues: see `flush.rs`.
        // SAFETY: our caller keeps the in-flight count.
        unsafe { &*home }.core.nr_cut.fetch_add(1, Ordering::Relaxed);
    }
    // A running item does not count as cancelled.
    Popped::Dropped
}

/// Runs a pending item on this thread, if helping is allowed and a seat is free. Returns `true` if
/// it ran. The caller must be waiting for this item: running an unrelated item inside a wait can
/// deadlock on a resource that the caller holds.
pub(crate) fn help(item: NonNull<Head>) -> bool {
    must_have_workers();
    wait::within_a_stack(item, help_here)
}

fn help_here(item: NonNull<Head>) -> bool {
    // SAFETY: the caller holds a handle, which keeps the item alive.
    let head = unsafe { item.as_ref() };
    let begin = |home: &Pwq, claimed: State| {
        // If this succeeds, no tombstone is left for a worker to remove.
        let taken_back = home.pool.injector.take_back(item);
        head.update(|state| {
            let next = state.run_claimed();
            Some(if taken_back { next.unlink() } else { next })
        });
        if claimed.is_counted() {
            release_permit(home);
        }
        true
    };
    // For an item with a join handle, the flag `REVIVED` means that a task may wait. Such an item
    // is queued only once, so it is never revived.
    let may_be_revived = head.vtable().handle.is_none();
    // SAFETY: (1) The caller holds a handle. `begin` turns the claim into a run, and `run` ends it.
    // (2) Only an item without a join handle can be revived.
    unsafe {
        help_from(item, may_be_revived, begin, |home, before_end| {
            run(item, home, true, before_end);
        })
    }
}

/// Claims a pending item and runs it on this thread, if helping is allowed, a seat is free, and
/// `begin` returns `true`. Returns `true` if the item ran.
///
/// `begin` receives the item's home and its claimed state. `run` receives the home and a function,
/// which releases the seat. `run` calls this function before the end of the run, and does not
/// access the home afterwards.
///
/// # Safety
///
/// 1. The caller keeps the item alive. If `begin` returns `true`, `begin` or `run` turns the claim
///    into a run, and `run` ends it.
/// 2. `may_be_revived` is set only as [`unclaim`] describes.
#[inline]
pub(crate) unsafe fn help_from(
    item: NonNull<Head>,
    may_be_revived: bool,
    begin: impl FnOnce(&Pwq, State) -> bool,
    run: impl FnOnce(*const Pwq, &mut dyn FnMut()),
) -> bool {
    // SAFETY: (1).
    let head = unsafe { item.as_ref() };
    let Some((_, claimed)) = head.update(State::claim) else {
        return false;
    };
    // SAFETY: until we unlink it, the claimed item keeps the queue alive; then our seat does.
    let home: &Pwq = unsafe { &*Pwq::of(head.home.load(Ordering::Relaxed)) };
    // An outer run of the same queue on this thread lends its seat. Seats count threads, so a wait
    // for another seat could be a wait for this thread itself.
    let lent = is_seated(&home.core);
    // This is a raw pointer, because a reference would have to stay valid until the run is over.
    let place = &raw const *home;
    // SAFETY: first our claim and then our seat keeps the queue alive.
    let leave = |seats| unsafe { Pwq::leave_last(place, seats) };
    // The seat is acquired before the item is unlinked: see `take_back`.
    let seats = match lend::try_help(home, lent) {
        Some(seats) if begin(home, claimed) => seats,
        others => {
            // Clone the pool, because it and the queue may be destroyed once the claim is released.
            let pool = home.pool.clone();
            if let Some(seats) = others {
                leave(seats).apply();
            }
            // SAFETY: (1), (2).
            unsafe { unclaim(item, &pool, may_be_revived) };
            return false;
        }
    };
    home.gate.note_helped(&home.core, seats.of_queue);
    let mut left = None;
    run(place, &mut || {
        left = Some(leave(seats));
        forget_seats(lent);
    });
    if let Some(left) = left {
        left.apply();
    }
    true
}

/// Gives up the claim on an item that was claimed while it was linked. If its link was handed to
/// the claim, the item returns to the list of `pool`, which is its home's. `may_be_revived` is set
/// if the item begins with a [`Revivable`] once it is marked as revived.
///
/// # Safety
///
/// 1. The caller claimed the item, and keeps its memory alive.
/// 2. `may_be_revived` is set only as described.
unsafe fn unclaim(item: NonNull<Head>, pool: &Arc<WorkerPool>, may_be_revived: bool) {
    // SAFETY: (1).
    let head = unsafe { item.as_ref() };
    let unclaimed = head.update(|state| Some(state.unclaim().0));
    if let Some((from, _)) = unclaimed
        && from.unclaim().1
    {
        let is_revived = may_be_revived && from.is_revived();
        // SAFETY: (2). The item is linked, so it is alive.
        let revived = is_revived.then(|| unsafe { item.cast::<Revivable>().as_ref() });
        if let Some(cancelled) = put_back(pool, item, revived) {
            cancelled.run();
        }
    }
}

/// The in-flight count of an item that has been cut out of its list. Dropping this releases the
/// count, for which drains wait, and then calls the wakers. Drop it with no lock and no claim held.
#[must_use = "its drop calls wakers"]
pub(crate) struct CountToRelease {
    pool: Arc<WorkerPool>,
    slot: usize,
    color: Color,
    wakers: Vec<Foreign<Waker>>,
}

impl CountToRelease {
    fn of(item: NonNull<Head>, home: &Pwq) -> Self {
        let (pool, slot) = (home.pool.clone(), home.slot);
        Self { pool, slot, color: list::color(item), wakers: Vec::new() }
    }
}

sync::on_drop!(CountToRelease, count => {
    let release = || count.pool.retire_one(count.slot, count.color);
    let ((), mut wakers) = cleanups::with_wakers_aside(release);
    wakers.append(&mut count.wakers);
    cleanups::fire_all(wakers);
});

/// Removes a claimed item from its list. Runs no user code, because that may wait for the claim.
pub(crate) fn cut_out(item: NonNull<Head>) -> CountToRelease {
    // SAFETY: the caller holds a handle and a claim, each of which keeps the item alive.
    let head = unsafe { item.as_ref() };
    // SAFETY: until the claim ends, the in-flight count of the item keeps the home alive.
    let home: &Pwq = unsafe { &*Pwq::of(head.home.load(Ordering::Relaxed)) };
    // The count holds a clone of the pool, because the queue may be destroyed once the item is
    // unlinked.
    let mut count = CountToRelease::of(item, home);
    if head.load().is_running() {
        // The item's count may belong to a helper's run, which continues: see `flush.rs`.
        home.core.nr_cut.fetch_add(1, Ordering::Relaxed);
    }
    ((), count.wakers) = cleanups::with_wakers_aside(|| {
        let mut backoff = Backoff::new();
        // If unlinking fails, a worker is popping the item, and hands it over to us or to the run.
        while !take_over(item, home) && !count.pool.unlink(count.slot, item) {
            // The worker has not handed the item over yet.
            backoff.pause();
        }
    });
    // An item gets its color when it is adopted, which may have happened in the loop.
    count.color = list::color(item);
    count
}

/// Takes over the link of a claimed item, if a worker has popped the item and handed the link over
/// to the claim or to a run. Call it with wakers set aside.
fn take_over(item: NonNull<Head>, home: &Pwq) -> bool {
    // SAFETY: the claim keeps the item alive.
    let head = unsafe { item.as_ref() };
    let taken = head.update(State::take_handoff).is_some();
    if taken && home.rules.ordered && !sync::twin::armed("cancel: a deferred item keeps its seat") {
        home.pool.note_return(home.slot, item);
    }
    taken
}

/// Expires an item if it has not started, and counts the expiry. Returns `true` if it expired.
pub(crate) fn expire(item: NonNull<Head>) -> bool {
    cancel_and(item, State::claim_pending, |home| {
        home.core.nr_expired.fetch_add(1, Ordering::Relaxed);
    }) || sync::twin::armed("deadline: expires a started item")
}

pub(crate) fn cancel(item: NonNull<Head>) -> bool {
    cancel_and(item, State::claim_pending, |_| ())
}

/// Cancels an item if the caller can `claim` it. Returns `true` if it was cancelled. `note` is
/// called with the item's home while the item is claimed, before its end is visible.
pub(crate) fn cancel_and(
    item: NonNull<Head>,
    claim: fn(State) -> Option<State>,
    note: impl FnOnce(&Pwq),
) -> bool {
    // SAFETY: the caller holds a handle.
    let head = unsafe { item.as_ref() };
    let key = head.key();
    let Some((_, claimed)) = head.update(claim) else {
        return false;
    };
    // Forget the item while no other thread can queue it.
    trace::forget(item.as_ptr().addr());
    // SAFETY: until the claim ends, the in-flight count of the item keeps the home alive.
    let home = unsafe { &*Pwq::of(head.home.load(Ordering::Relaxed)) };
    note(home);
    // Clone the core, because the queue may be destroyed once the claim has ended. The count and
    // the capacity permit are released after the claim, because a waker that their release calls
    // may use the same item, or drop the last handle to its queue.
    let counted_by = claimed.is_counted().then(|| home.core.clone());
    let (mut left, mut wakers) = (None, Vec::new());
    if claimed.is_ordered() {
        left = Some(cut_out(item));
    } else if !is_in_strand(head) {
        // A strand counts itself in flight instead of its closures, and removes their tombstones.
        wakers = home.note_cancelled();
    }
    let wakes = loop {
        if let Some((from, _)) = head.update(|state| Some(state.cancel()?.0)) {
            break from.cancel().is_some_and(|(_, wakes)| wakes);
        }
        // A worker popped the item in the meantime, and handed it over to us.
        let (taken, mut woken) = cleanups::with_wakers_aside(|| take_over(item, home));
        wakers.append(&mut woken);
        if taken {
            left = Some(CountToRelease::of(item, home));
        }
    };
    if wakes {
        key.wake(u32::MAX);
    }
    let capacity = counted_by.as_ref().and_then(|core| core.capacity.as_deref());
    if left.is_some() || capacity.is_some() {
        // A waker may wait for capacity or for the count, so both are released first.
        let ((), woken) = cleanups::with_wakers_aside(|| {
            if let Some(capacity) = capacity {
                capacity.release(1);
            }
            drop(left);
        });
        wakers.extend(woken);
    }
    cleanups::fire_all(wakers);
    true
}

pub(crate) fn is_in_strand(head: &Head) -> bool {
    let table = head.vtable().handle.as_ref();
    table.is_some_and(|table| table.strand.is_some())
}

fn release_permit(home: &Pwq) {
    if let Some(capacity) = &home.core.capacity {
        capacity.release(1);
    }
}

/// Counts the expiry of the item that this thread runs.
///
/// # Safety
///
/// 1. The same as for [`note_panic`].
#[cold]
pub(crate) unsafe fn note_expired() {
    // SAFETY: (1), as in `note_panic`.
    let home = unsafe { &*current_home() };
    home.core.nr_expired.fetch_add(1, Ordering::Relaxed);
}

/// Counts a panic in the item that this thread runs. `unseen` is `Some` if no joiner receives it.
///
/// # Safety
///
/// 1. The caller runs an item, inside [`with_current`], and `before_end` has not been called.
#[cold]
pub(crate) unsafe fn note_panic(unseen: Option<Unseen<'_>>) {
    // SAFETY: (1): the pwq of a running item is alive. A worker releases its in-flight count after
    // the run, and a helper's seat keeps the queue alive.
    let home = unsafe { &*current_home() };
    home.core.note_panic(unseen);
}

/// A run that this thread is in. A frame stays on the stack of its thread.
#[derive(Clone)]
struct Frame {
    /// The enclosing run, on this stack or on that of a thread that waits for this one; or null.
    outer: *const Frame,
    /// Null for an item without handles, and once the item has ended, because it may then be freed.
    item: Cell<*const Head>,
    /// The pwq from which the item runs; null once the run no longer keeps the pwq alive.
    home: Cell<*const Pwq>,
    /// The item's token once this run has requested it, otherwise null; valid as long as the item.
    token: Cell<*const Token>,
    /// The number of runs on this thread's stack, including this one.
    depth: u32,
    /// `true` if the thread has a seat in the home's queue and in its group, until `forget_seats`.
    has_seat: Cell<bool>,
    /// Set in [`block_on`](super::block_on::block_on), where a polled future delays the run.
    blocks: bool,
}

impl Frame {
    fn item(&self) -> Option<&Head> {
        // SAFETY: the item of a run is alive until the run ends, and forgotten before it is freed.
        unsafe { self.item.get().as_ref() }
    }

    fn home(&self) -> Option<&Pwq> {
        // SAFETY: the run keeps its home alive, if the pointer is not null: see `with_current`.
        unsafe { self.home.get().as_ref() }
    }

    /// Makes this the innermost run until the result is dropped. The frame stays in place.
    #[inline]
    fn enter(&self) -> Outer {
        Outer(INNERMOST.with(|innermost| innermost.replace(self)))
    }
}

/// The enclosing run. Dropping this makes it the innermost run again.
struct Outer(*const Frame);

sync::on_drop!(Outer, it => INNERMOST.with(|innermost| innermost.set(it.0)));

sync::thread_local! {
    /// The innermost run; null outside of runs.
    static INNERMOST: Cell<*const Frame> = Cell::new(ptr::null())
}

/// A request to another thread to help with an item, as if it were inside the runs of the thread
/// that creates the request.
pub(crate) struct HelpRequest {
    innermost: *const Frame,
    item: NonNull<Head>,
}

// SAFETY: (1) of `answer` guarantees that the frames and the item stay valid while another thread
// uses them.
unsafe impl Send for HelpRequest {}

impl HelpRequest {
    pub(crate) fn new(item: NonNull<Head>) -> Self {
        Self { innermost: INNERMOST.with(Cell::get), item }
    }

    /// Calls `help` as if this thread were inside the runs of the thread that created the request.
    ///
    /// # Safety
    ///
    /// 1. The thread that created the request has a handle to the item, and waits until this
    ///    function has returned.
    pub(crate) unsafe fn answer(self, help: fn(NonNull<Head>) -> bool) -> bool {
        // SAFETY: (1).
        let theirs = unsafe { self.innermost.as_ref() };
        let frame = theirs.map(|theirs| Frame { depth: 0, ..theirs.clone() });
        let _outer = frame.as_ref().map(Frame::enter);
        help(self.item)
    }
}

/// Returns the innermost run of this thread. The caller uses it only within that run.
#[inline]
fn innermost<'a>() -> Option<&'a Frame> {
    // SAFETY: the callers of `enter` keep a frame in place until it is no longer the innermost one.
    // By (1) of `HelpRequest::answer`, another thread's frame stays alive, too.
    unsafe { INNERMOST.with(Cell::get).as_ref() }
}

/// Returns the runs of this thread, innermost first. The caller uses each only within that run.
fn frames<'a>() -> impl Iterator<Item = &'a Frame> {
    // SAFETY: as in `innermost`.
    std::iter::successors(innermost(), |frame| unsafe { frame.outer.as_ref() })
}

pub(crate) fn is_current(item: NonNull<Head>) -> bool {
    frames().any(|frame| ptr::eq(frame.item.get(), item.as_ptr()))
}

/// Returns `true` if this thread is inside a run of the queue `core`, or is freeing one of its
/// items that is in flight. The queue is not destroyed until the run or the freeing has ended.
pub(crate) fn is_inside(core: &Arc<QueueCore>) -> bool {
    runs_from(|home| Arc::ptr_eq(&home.core, core))
}

/// Returns the homes, for comparison only, of the items that this thread runs and that are queued
/// again. They start only after these runs.
pub(crate) fn homes_of_next_runs() -> impl Iterator<Item = *mut Home> {
    let queued = frames().filter_map(Frame::item).filter(|head| head.load().is_pending());
    queued.map(|head| head.home.load(Ordering::Relaxed))
}

/// Returns `true` if this thread has a seat in the queue `core`, which it may lend while it waits.
pub(crate) fn is_seated(core: &Arc<QueueCore>) -> bool {
    has_seat_of(|home| Arc::ptr_eq(&home.core, core))
}

/// Returns `true` if this thread is in a run whose pwq passes `test`, and has a seat for it.
pub(crate) fn has_seat_of(test: impl Fn(&Pwq) -> bool) -> bool {
    frames().any(|frame| frame.has_seat.get() && frame.home().is_some_and(&test))
}

pub(crate) fn runs_in_group(group: &GroupGate) -> bool {
    runs_from(|home| home.is_in(group))
}

fn runs_from(test: impl FnMut(&Pwq) -> bool) -> bool {
    frames().filter_map(Frame::home).any(test)
}

/// Returns the pwq of each run on this thread's own stack that has a seat, innermost first, except
/// the `nr_outer` outermost runs. The caller uses each pwq only within its run.
pub(super) fn own_homes<'a>(nr_outer: u32) -> impl Iterator<Item = &'a Pwq> {
    // The search ends at the `nr_outer` outermost runs, at a run of a thread that waits for this
    // one (its depth is 0), or when no run is left.
    let own = frames().take_while(move |frame| frame.depth > nr_outer);
    own.filter(|frame| frame.has_seat.get()).filter_map(Frame::home)
}

pub(crate) fn is_blocking() -> bool {
    innermost().is_some_and(|frame| frame.blocks)
}

/// Calls `body` with this thread's innermost run marked as being in
/// [`block_on`](super::block_on::block_on).
pub(crate) fn while_blocking<R>(body: impl FnOnce() -> R) -> R {
    let frame = innermost().map(|outer| Frame { outer, blocks: true, ..outer.clone() });
    let _outer = frame.as_ref().map(Frame::enter);
    body()
}

pub(crate) fn is_cancelled() -> bool {
    let Some(frame) = innermost() else {
        return false;
    };
    let is_cancelled = frame.item().is_some_and(|head| {
        let state = head.load();
        if head.vtable().is_work {
            state.disable_depth() > 0
        } else {
            state.is_cancelled() || state.is_watched() && has_cancelled_token(frame, head)
        }
    });
    let queue = frame.home().and_then(|home| home.core.token.get());
    is_cancelled || queue.is_some_and(|token| token.is_set())
}

/// Returns `true` if the token of `item` was cancelled, even by the item itself. `frame` is the run
/// of `item`.
fn has_cancelled_token(frame: &Frame, item: &Head) -> bool {
    let token = &frame.token;
    if token.get().is_null() {
        // An earlier poll of the future requested the token, so this frame does not have it yet.
        token.set(item.token());
    }
    // SAFETY: the table keeps the token alive until the item is freed, and the item is alive.
    unsafe { token.get().as_ref() }.is_some_and(Token::is_set)
}

/// Returns the token of the innermost run, a child of its queue's token; outside, a new token.
pub(crate) fn current_token() -> Arc<Token> {
    let frame = innermost();
    let Some(home) = frame.and_then(Frame::home) else {
        return Token::new();
    };
    let token = home.core.token().child();
    match frame.and_then(Frame::item).filter(|head| head.vtable().handle.is_some()) {
        Some(head) => head.watch(token),
        None => token,
    }
}

/// Returns the number of runs on this thread's own stack.
#[inline]
pub fn depth() -> u32 {
    innermost().map_or(0, |frame| frame.depth)
}

pub(crate) fn is_bottom_half() -> bool {
    runs_from(|home| home.core.bh)
}

/// Calls `body` with the pwq of the innermost run for which `chosen` returns `true`, if any.
pub(crate) fn innermost_home(chosen: impl Fn(&Pwq) -> bool, body: impl FnOnce(&Pwq)) {
    if let Some(home) = frames().filter_map(Frame::home).find(|home| chosen(home)) {
        body(home);
    }
}

pub(crate) fn current_home() -> *const Pwq {
    innermost().map_or(ptr::null(), |frame| frame.home.get())
}

pub(crate) fn current_item() -> Option<NonNull<Head>> {
    NonNull::new(innermost()?.item.get().cast_mut())
}

/// Records that the item of the innermost run has ended, and that another thread may free it.
pub(crate) fn forget_item() {
    if let Some(frame) = innermost() {
        frame.item.set(ptr::null());
    }
}

/// Records that the helper in the innermost run has released its seats. If the queue's seat was
/// `lent`, an outer run keeps the home alive. Otherwise the run no longer keeps it alive.
pub(crate) fn forget_seats(lent: bool) {
    if let Some(frame) = innermost() {
        match lent {
            true => frame.has_seat.set(false),
            false => frame.home.set(ptr::null()),
        }
    }
}

/// Calls `body` as part of the run of `item` from the pwq `home`, for which this thread has a seat.
///
/// # Safety
///
/// 1. `home` stays valid until `body` returns or calls [`forget_seats`].
/// 2. `item` is null, or stays valid until `body` returns or calls [`forget_item`].
#[inline]
pub(crate) unsafe fn with_current<R>(
    item: *const Head,
    home: *const Pwq,
    body: impl FnOnce() -> R,
) -> R {
    // SAFETY: (1), (2).
    unsafe { within_frame(item, home, true, body) }
}

/// Calls `body` as [`with_current`] does. If `has_seat` is false, the pwq `home` still has an
/// in-flight count for the item, but this thread has no seat to lend.
///
/// # Safety
///
/// 1. The same as (1) of [`with_current`].
/// 2. The same as (2) of [`with_current`].
#[inline]
pub(crate) unsafe fn within_frame<R>(
    item: *const Head,
    home: *const Pwq,
    has_seat: bool,
    body: impl FnOnce() -> R,
) -> R {
    let frame = Frame {
        outer: INNERMOST.with(Cell::get),
        item: Cell::new(item),
        home: Cell::new(home),
        token: Cell::new(ptr::null()),
        depth: depth() + 1,
        has_seat: Cell::new(has_seat),
        blocks: false,
    };
    let _outer = frame.enter();
    body()
}
