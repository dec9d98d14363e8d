//! Futures as work items: an item that runs whenever its waker queues it, until it is ready. A
//! waker may be called by any thread, at any time and any number of times, and must cause another
//! poll. Queueing a work item does the same. A poll is therefore a run, and a wake is an enqueue:
//!
//! - **Polls never overlap.** A wake during a poll only sets `PENDING`; the end of that poll queues
//!   the future again. Waking a pending future queues nothing.
//! - **No wake is lost.** The wake and the end of the poll update one word. A wake that finds the
//!   future pending updates the word, too, so that the next poll sees the waker's earlier writes.
//! - **Cancelling** a future that was polled is a wake with a flag: the next run drops the future
//!   instead of polling it. A worker therefore drops it, once, within the queue's limits, and never
//!   during a poll.
//! - **Cancelling before the first poll.** Such a future is not pinned, and is cancelled like a
//!   closure: the canceller claims it, ends it, and drops it, without a worker. Unlike a closure, a
//!   future may be cancelled by one thread while another joins it. The canceller therefore moves
//!   the future out and stores the outcome before it ends the claim, and wakes the task that awaits
//!   the handle. Twins `future: a cancel moves a polled future`, `future: a cancel ends it without
//!   an outcome` and `future: a cancel forgets its task`.
//! - **The queue stays alive.** From its first suspension until it ends, a future keeps one
//!   in-flight count of the pwq on which it ran at that time (`held_pwq`). A wake that makes it
//!   pending therefore finds an existing queue, because the future cannot end before it is pushed.
//!   Other wakes do not access the queue. A drain waits for futures.
//! - **Memory.** The handle and each waker are counted (`head.rs`). A poll lends an uncounted
//!   waker, so that a poll that keeps no waker updates no count. The last owner, run or handle,
//!   frees the item. A suspended future that has neither wakers nor a handle is dropped by the
//!   thread that dropped the last of them.
//!
//! A [`CancelHandle`] contains a waker, which costs a future's other wakers nothing. The item of a
//! closure has a single, uncounted handle, and its canceller writes the outcome without
//! synchronization, so a closure with a cancel handle is queued as a future with a single poll.
//!
//! The state transitions are in `head/task.rs`. Differs from Linux: the kernel has no counterpart,
//! only items that queue themselves again.

use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use base::internal::panics::join_error::{JoinError, Outcome};
use base::internal::panics::{contain, guarded};
use base::internal::wake::{Maker, note_known};
use item::internal::deferred_drops::DeferredDrops;
use item::internal::head::{
    Ending, Expiry, HandleTable, Handles, Head, Name, Rules, State, Tabled, TaskSlot, VTable,
};
use item::internal::list::{self, Color};
use item::internal::{cleanups, memory};
use sync::atomic::Ordering;
use sync::unmodelled::Arc;
use sync::{fork, twin};

use super::queue::Inner;
use crate::execute::deadline::StartBy;
use crate::execute::join::JoinHandle;
use crate::execute::run::{self, note_panic, within_frame};
use crate::pools::pwq::Pwq;

/// The first fields of every future's item.
#[repr(C)]
struct Base {
    head: Head,
    /// A: the counts of the handle and the wakers.
    handles: Handles,
    /// I: keeps the queue's memory valid. The queue may be destroyed once the future has ended.
    queue: Arc<Inner>,
    /// The pwq on which the future holds an in-flight count, and the color of the count; `None`
    /// until the first suspension. Runs write it, and `free` reads it.
    held_pwq: Cell<Option<(NonNull<Pwq>, Color)>>,
    /// The awaiting task. The handle writes it before it sets the flag that reports a waiting task.
    task: UnsafeCell<Option<Arc<TaskSlot>>>,
}

#[repr(C)]
struct Task<F: Future, S> {
    base: Base,
    /// I, except for the parts that only the handle writes.
    start_by: S,
    /// The stage, which the run accesses first, then the handle, and last the thread that frees it.
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Outcome(Outcome<F::Output>),
    Gone,
}

/// Creates an item that polls `future`, and must first do so by the deadline `start_by`. The item
/// is to be pushed to `home`, a pwq of `queue`. `has_permit` is set if the caller has a permit.
pub(crate) fn task<N, F, S>(
    name: Name<N>,
    start_by: S,
    future: F,
    home: &Pwq,
    queue: Arc<Inner>,
    has_permit: bool,
) -> (NonNull<Head>, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    S: StartBy,
{
    // Only a worker may run the item, and its list link is never removed.
    let rules = Rules { help: false, ordered: false, ..home.rules };
    let item = memory::place(Task {
        base: Base {
            head: Head::new(
                name.vtable::<Task<F, S>>(),
                State::queued(rules).counted(has_permit),
                home.as_home(),
            ),
            handles: Handles::one(),
            queue,
            held_pwq: Cell::new(None),
            task: UnsafeCell::new(None),
        },
        start_by,
        stage: UnsafeCell::new(Stage::Future(future)),
    })
    .cast();
    // SAFETY: the outcome type of the table is the future's, and this is the only handle.
    (item, unsafe { JoinHandle::of(item) })
}

impl<F, S> Tabled for Task<F, S>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    S: StartBy,
{
    const VTABLE: &'static VTable = &VTable {
        run: run::pop_and_run,
        // SAFETY: the contract is that of `pop_and_cancel`.
        cancel: |item, deferred_drops| unsafe {
            run::pop_and_cancel(item, deferred_drops, Self::skip, |state| {
                Some(state.pop_to_cancel())
            })
        },
        call: Self::call,
        name: std::any::type_name::<F>,
        free: Self::free,
        frees_no_user_data: Self::frees_no_user_data,
        // SAFETY: the item is on a list, whose lock makes the poll that queued it visible.
        has_begun: |item| unsafe { base(item).held_pwq() }.is_some(),
        push: Some(push),
        is_work: false,
        handle: Some(HandleTable {
            take: Self::take,
            cancel: Self::cancel,
            leave: Self::leave,
            slot_at: std::mem::offset_of!(Base, task),
            expiry: if S::IS_LIMITED {
                Some(Expiry {
                    left_ns: |item| Self::start_by(item).left_ns(),
                    expire: Self::expire,
                    wake_then: |item, waker| Self::start_by(item).wake_then(waker),
                })
            } else {
                None
            },
            strand: None,
        }),
    };
}

impl<F, S> Task<F, S>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    S: StartBy,
{
    fn start_by<'a>(item: NonNull<Head>) -> &'a S {
        // SAFETY: only items of this type use this table, and its functions are called while the
        // item is allocated.
        unsafe { &(*item.as_ptr().cast::<Self>()).start_by }
    }

    fn stage(item: NonNull<Head>) -> *mut Stage<F> {
        // SAFETY: only items of this type use this table.
        unsafe { (*item.as_ptr().cast::<Self>()).stage.get() }
    }

    unsafe fn call(item: NonNull<Head>) -> Ending {
        // SAFETY: the caller runs the item, which keeps it alive.
        let base = unsafe { base(item) };
        // SAFETY: runs do not overlap, and only runs access the stage until the future ends.
        let stage = unsafe { &mut *Self::stage(item) };
        let is_late = || {
            // SAFETY: the caller runs the item.
            let is_first = unsafe { base.held_pwq() }.is_none();
            is_first && Self::start_by(item).is_over()
        };
        let outcome = if base.head.load().is_cancelled() {
            dropped(stage, Err(JoinError::Cancelled))
        } else if is_late() && !twin::armed("deadline: starts after it") {
            // SAFETY: the caller runs the item.
            unsafe { run::note_expired() };
            // FOREIGN(expired-drop): the drop of an unpolled future whose deadline has passed, on a
            // worker, in the item's run; a panic is contained.
            contain(|| *stage = Stage::Gone);
            Err(JoinError::Expired)
        } else {
            // The waker is lent without a count, because the run keeps the item alive.
            let waker = ManuallyDrop::new(waker(item));
            // FOREIGN(future-poll): the poll, on a worker, in the item's run, with no lock held; a
            // panic is the outcome.
            match guarded(|| poll(stage, &mut Context::from_waker(&waker))) {
                Ok(Poll::Pending) => return base.suspend(),
                Ok(Poll::Ready(value)) => dropped(stage, Ok(value)),
                Err(payload) => dropped(stage, Err(JoinError::panicked(payload))),
            }
        };
        // SAFETY: the caller runs the item.
        unsafe { Self::settle(item, outcome) }
    }

    /// Moves an unpolled future out, instead of polling it.
    unsafe fn skip(item: NonNull<Head>, deferred_drops: &mut DeferredDrops) {
        // SAFETY: the caller runs the item, and this is its first run.
        deferred_drops.defer_drop(unsafe { Self::set_failed(item, JoinError::Cancelled) });
    }

    /// Stores `error` as the outcome, and returns the future.
    ///
    /// # Safety
    ///
    /// 1. The future was never polled, and the caller runs the item or has claimed it.
    unsafe fn set_failed(item: NonNull<Head>, error: JoinError) -> Stage<F> {
        // SAFETY: (1): no other thread accesses the stage before the future has ended.
        let stage = unsafe { &mut *Self::stage(item) };
        // The future may be moved, because it is not pinned.
        std::mem::replace(stage, Stage::Outcome(Err(error)))
    }

    /// Dequeues and drops the future, whose deadline has passed, if it was never polled.
    unsafe fn expire(item: NonNull<Head>) -> bool {
        let mut unpolled = None;
        let is_expired = run::cancel_and(item, State::claim_unpolled, |home| {
            home.core.nr_expired.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller of this closure has claimed the item.
            unpolled = Some(unsafe { Self::set_failed(item, JoinError::Expired) });
        });
        // FOREIGN(expired-drop): the drop of an unpolled future, on the joining thread; a panic is
        // contained.
        contain(|| drop(unpolled));
        is_expired
    }

    /// Dequeues and drops the future if it was never polled; otherwise a worker drops it. Returns
    /// `false` if it has ended.
    unsafe fn cancel(item: NonNull<Head>) -> bool {
        // SAFETY: the caller has the handle, or a waker.
        let base = unsafe { base(item) };
        if base.is_absent() {
            return false;
        }
        let early = twin::armed("future: a cancel ends it without an outcome");
        let mut unpolled = None;
        let is_cancelled = run::cancel_and(item, State::claim_unpolled, |_| {
            // SAFETY: the caller of this closure has claimed the item.
            unpolled = (!early).then(|| unsafe { Self::set_failed(item, JoinError::Cancelled) });
        });
        if !is_cancelled {
            // SAFETY: the caller has the handle, or a waker.
            let is_left = unsafe { transition(item, State::wake_to_drop) };
            if is_left {
                base.head.notify_cancelled();
            }
            return is_left;
        }
        if base.head.load().awaits_task() && !twin::armed("future: a cancel forgets its task") {
            // SAFETY: the slot was written before the flag was set, and is not written again.
            let slot = unsafe { &*base.task.get() };
            let waker = slot.as_ref().and_then(|slot| slot.lock().take());
            waker.into_iter().for_each(cleanups::fire);
        }
        // FOREIGN(cancel-drop): the drop of an unpolled future, on the cancelling thread; a panic
        // unwinds to the caller, because nothing is left to do.
        drop(unpolled);
        true
    }

    /// Stores the outcome of an ended future for its handle.
    ///
    /// # Safety
    ///
    /// 1. The caller runs the item, and only this remains to be done.
    unsafe fn settle(item: NonNull<Head>, mut outcome: Outcome<F::Output>) -> Ending {
        // SAFETY: (1): the run keeps the item alive.
        let base = unsafe { base(item) };
        // SAFETY: (1): no other thread accesses the stage before the future has ended.
        let stage = unsafe { &mut *Self::stage(item) };
        let detached = base.head.load().is_detached();
        let mut panicked = false;
        if let Err(JoinError::Panicked(payload)) = &mut outcome {
            panicked = true;
            let unseen = detached.then(|| ((base.head.vtable().name)(), payload.as_any()));
            // SAFETY: the caller runs the item.
            unsafe { note_panic(unseen) };
        }
        if detached {
            // FOREIGN(future-outcome): the drop of the outcome, on a worker, in the item's run,
            // with no lock held; a panic is contained.
            contain(|| drop(outcome));
        } else {
            *stage = Stage::Outcome(outcome);
        }
        // SAFETY: the caller runs the item.
        if let Some((held_pwq, color)) = unsafe { base.held_pwq() } {
            // The current run keeps the queue alive, and no thread pushes a running item.
            held_pwq.anchors().remove(base.head.vtable());
            held_pwq.pool.retire_one(held_pwq.slot, color);
        }
        if panicked { Ending::Panicked } else { Ending::Returned }
    }

    unsafe fn take(item: NonNull<Head>, into: *mut ()) {
        // SAFETY: the future has ended, and the caller is its only handle.
        let stage = unsafe { &mut *Self::stage(item) };
        if let Stage::Outcome(outcome) = std::mem::replace(stage, Stage::Gone) {
            // SAFETY: the caller passes a pointer to an `Option<Outcome<T>>`.
            unsafe { *into.cast::<Option<Outcome<F::Output>>>() = Some(outcome) };
        }
    }

    unsafe fn leave(item: NonNull<Head>) {
        // SAFETY: the caller has the handle.
        let base = unsafe { base(item) };
        if base.is_absent() {
            return;
        }
        let detached = base.head.update(|state| Some(state.detach()));
        if detached.is_some_and(|(_, state)| state.has_ended()) {
            // SAFETY: the future has ended, and the caller is its only handle; a waker frees the
            // item only after `remove` below.
            let stage = unsafe { &mut *Self::stage(item) };
            // FOREIGN(future-outcome): the drop of the outcome, on the thread that drops the
            // handle, with no lock held; a panic is contained.
            contain(|| *stage = Stage::Gone);
        }
        // SAFETY: the handle is not used again.
        drop(unsafe { base.handles.leave(item) });
    }

    unsafe fn frees_no_user_data(item: NonNull<Head>) -> bool {
        // SAFETY: the item has ended and no handle is left, so only the caller accesses it.
        let (stage, slot) = unsafe { (&*Self::stage(item), &*base(item).task.get()) };
        let is_taken = matches!(
            stage,
            Stage::Gone | Stage::Outcome(Err(JoinError::Cancelled | JoinError::Expired))
        );
        slot.is_none() && is_taken
    }

    unsafe fn free(item: NonNull<Head>) {
        // SAFETY: the caller guarantees that no other thread has the item.
        let (base, stage) = unsafe { (base(item), &mut *Self::stage(item)) };
        // A suspended future holds an in-flight count; a future that has ended has released it.
        let waits = matches!(stage, Stage::Future(_));
        // SAFETY: no other thread has the item.
        let held_pwq = unsafe { base.held_pwq() }.filter(|_| waits);
        // Copy these, because the pwq may be freed once the count is released.
        let left = held_pwq.map(|(held_pwq, color)| {
            held_pwq.anchors().remove(base.head.vtable());
            (held_pwq.pool.clone(), held_pwq.slot, color)
        });
        // The future may own the last handle to its queue, whose drop must not wait for this count.
        let home = held_pwq.map_or(ptr::null(), |(held_pwq, _)| ptr::from_ref(held_pwq));
        // SAFETY: the count keeps the held pwq alive until it is released below.
        // FOREIGN(future-drop): the drop of the future or its outcome, on the thread that made it
        // unreachable, with no lock held; a panic is contained.
        unsafe { within_frame(item.as_ptr(), home, false, || contain(|| *stage = Stage::Gone)) };
        // This comes after the drop, which may have requested a token.
        base.head.unwatch();
        // FOREIGN(future-waker): the drop of a waker, on the same thread, with no lock held; a
        // panic is contained.
        // SAFETY: no other thread has the item, and its base has not been dropped yet.
        contain(|| unsafe { ptr::drop_in_place(item.as_ptr().cast::<Base>()) });
        // SAFETY: as above; only the deadline has not been dropped yet.
        unsafe { ptr::drop_in_place(&raw mut (*item.as_ptr().cast::<Self>()).start_by) };
        // SAFETY: no other thread has the item, and all of it is dropped.
        unsafe { memory::release(item.cast::<Self>()) };
        if let Some((pool, slot, color)) = left {
            pool.retire_one(slot, color);
        }
    }
}

fn poll<F: Future>(stage: &mut Stage<F>, context: &mut Context<'_>) -> Poll<F::Output> {
    let Stage::Future(future) = stage else {
        unreachable!("polled after its end");
    };
    // SAFETY: the item does not move until it is freed, and the future is dropped in place.
    unsafe { Pin::new_unchecked(future) }.poll(context)
}

/// Drops the future in place. Returns `outcome`, or the panic from the drop.
fn dropped<F: Future>(stage: &mut Stage<F>, outcome: Outcome<F::Output>) -> Outcome<F::Output> {
    // FOREIGN(future-drop): the drop, on a worker, in the item's run, with no lock held; a panic is
    // the outcome.
    let dropped = guarded(|| *stage = Stage::Gone);
    let Err(payload) = dropped else {
        return outcome;
    };
    // FOREIGN(future-outcome): the drop of the outcome, on the same worker, with no lock held; a
    // panic is contained.
    contain(|| drop(outcome));
    Err(JoinError::panicked(payload))
}

impl Base {
    /// Suspends the future after a poll, in its run. The first suspension keeps the run's count.
    fn suspend(&self) -> Ending {
        let keeps_count = self.held_pwq.get().is_none() && !twin::armed("future: no held pwq");
        if keeps_count {
            // SAFETY: the pwq from which an item runs exists.
            let pwq = unsafe { &*Pwq::of(self.head.home.load(Ordering::Relaxed)) };
            let color = list::color(NonNull::from(&self.head));
            self.held_pwq.set(Some((NonNull::from(pwq), color)));
            pwq.anchors().add(self.head.vtable());
        }
        Ending::Suspended { keeps_count }
    }

    /// Returns `true` in a child of `fork` if the future belongs to the parent. It is not used
    /// there, and nothing in it is dropped, because its state may be inconsistent.
    fn is_absent(&self) -> bool {
        fork::is_child() && !self.queue.is_at_home()
    }

    /// Returns the pwq of the future's in-flight count, and the color of the count.
    ///
    /// # Safety
    ///
    /// 1. The caller runs the item, or is about to free it, so that no other thread writes the
    ///    field.
    /// 2. The result is used only while the count is held.
    unsafe fn held_pwq(&self) -> Option<(&Pwq, Color)> {
        // SAFETY: (2): the count keeps the pwq alive.
        self.held_pwq.get().map(|(pwq, color)| unsafe { (pwq.as_ref(), color) })
    }
}

/// Applies a transition, and pushes the item if necessary. Returns `false` if the future has ended.
///
/// # Safety
///
/// 1. `item` belongs to a future, and the caller has a handle to it.
unsafe fn transition(item: NonNull<Head>, plan: impl Fn(State) -> Option<(State, bool)>) -> bool {
    // SAFETY: (1).
    let base = unsafe { base(item) };
    if base.is_absent() {
        return false;
    }
    if twin::armed("future: pending is no transition") && base.head.load().is_pending() {
        return true;
    }
    let Some((from, _)) = base.head.update(|state| Some(plan(state)?.0)) else {
        return false;
    };
    if plan(from).is_some_and(|(_, push)| push) {
        // SAFETY: this thread made the item pending and linked.
        unsafe { push(item) };
    }
    true
}

/// Pushes a future to the pool to which the queue's current routes lead.
///
/// # Safety
///
/// 1. `item` belongs to a future, and the caller made it pending and linked. Until it is pushed, it
///    stays allocated and cannot end.
unsafe fn push(item: NonNull<Head>) {
    // SAFETY: (1). The clone keeps the queue's state alive until the push, even if the future is
    // freed.
    let queue = unsafe { base(item) }.queue.clone();
    // SAFETY: (1).
    let at = unsafe { &item.as_ref().home };
    // SAFETY: the held pwq keeps the queue alive until the push, and the queue keeps all its pwqs
    // alive.
    let lane = unsafe { &*at.load(Ordering::Relaxed) }.lane;
    let home = queue.route_table.routes().here().in_lane(lane);
    at.store(home.as_home(), Ordering::Relaxed);
    home.push(item);
}

/// # Safety
///
/// 1. `item` belongs to a future, and stays allocated while the result is used.
unsafe fn base<'a>(item: NonNull<Head>) -> &'a Base {
    // SAFETY: (1): a `Task` begins with its `Base`.
    unsafe { item.cast::<Base>().as_ref() }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, remove);

/// Registers futures' wakers as ones that never block. Call it before the first future is queued.
pub(crate) fn note_wakers() {
    note_known(Maker::Future, &WAKER, wake_ours);
}

/// Creates a waker, a handle that is not counted yet.
fn waker(item: NonNull<Head>) -> Waker {
    // SAFETY: the functions of the table count handles, and a handle keeps the item alive.
    unsafe { Waker::from_raw(RawWaker::new(item.as_ptr().cast(), &WAKER)) }
}

/// Creates a counted waker.
///
/// # Safety
///
/// 1. `item` belongs to a future, and the caller has a handle to it.
pub(crate) unsafe fn counted_waker(item: NonNull<Head>) -> Waker {
    // SAFETY: (1).
    let base = unsafe { base(item) };
    base.handles.add(&base.head);
    waker(item)
}

fn item_of(data: *const ()) -> NonNull<Head> {
    NonNull::new(data.cast_mut().cast()).expect("created from an item")
}

/// Fires a future's waker, without user code. Returns the item if it must be freed.
fn wake_ours(waker: Waker) -> Option<Box<dyn Send>> {
    let item = item_of(ManuallyDrop::new(waker).data());
    // SAFETY: the waker is a handle, and is not used after this.
    let dead = unsafe {
        transition(item, State::wake);
        base(item).handles.leave(item)
    };
    dead.map(|dead| Box::new(dead) as Box<dyn Send>)
}

/// Cancels the future of `waker`, as its handle does. Returns `false` if it has ended.
pub(crate) fn cancel_by(waker: &Waker) -> bool {
    let item = item_of_waker(waker);
    // SAFETY: the borrowed waker keeps the item alive.
    let table = unsafe { item.as_ref() }.vtable().handle.as_ref();
    let table = table.expect("a future has a table for its handle");
    // SAFETY: the table belongs to the item, and the waker is a handle.
    unsafe { (table.cancel)(item) }
}

pub(crate) fn has_ended(waker: &Waker) -> bool {
    // SAFETY: the borrowed waker keeps the item alive.
    unsafe { base(item_of_waker(waker)) }.head.load().has_ended()
}

fn item_of_waker(waker: &Waker) -> NonNull<Head> {
    assert!(ptr::eq(waker.vtable(), &WAKER), "created by a future");
    item_of(waker.data())
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the borrowed waker keeps the item alive.
    let base = unsafe { base(item_of(data)) };
    base.handles.add(&base.head);
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the caller passes its waker, which is not used after `remove`.
    unsafe {
        wake_by_ref(data);
        remove(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker is a handle.
    unsafe { transition(item_of(data), State::wake) };
}

unsafe fn remove(data: *const ()) {
    if twin::torn_down() {
        return;
    }
    // SAFETY: the waker keeps the item alive.
    if unsafe { base(item_of(data)) }.is_absent() {
        return;
    }
    // SAFETY: the waker keeps the item alive, and is not used again.
    drop(unsafe { base(item_of(data)).handles.leave(item_of(data)) });
}

/// Cancels a closure or future independently of its [`JoinHandle`](crate::JoinHandle); set by
/// [`TaskOptions::cancel_handle`](crate::TaskOptions::cancel_handle).
///
/// Dropping the handle does not cancel the item. The handle keeps a future alive, even without
/// other wakers. The default handle belongs to no item, like the handle to rejected work.
#[doc(alias = "AbortHandle")]
#[derive(Clone, Default)]
#[must_use = "it does nothing by itself"]
pub struct CancelHandle {
    /// The waker of the future; `None` if there is no item.
    pub(super) waker: Option<Waker>,
}

impl CancelHandle {
    /// Cancels the item; returns `true` if it had not ended.
    ///
    /// A closure that has not started, or a future that was never polled, is dropped by this call,
    /// and a panic in the drop is propagated to the caller. A worker drops a future that was
    /// polled. An item that is executing continues to its end, or to its next `.await`;
    /// [`JoinHandle::join`](crate::JoinHandle::join) returns the outcome.
    ///
    /// Blocks as [`JoinHandle::cancel`](crate::JoinHandle::cancel) does. In a child of `fork`,
    /// returns `false` for a parent's item.
    #[doc(alias = "abort")]
    pub fn cancel(&self) -> bool {
        self.waker.as_ref().is_some_and(cancel_by)
    }

    /// Returns `true` if the item has ended, or if there is none.
    pub fn is_finished(&self) -> bool {
        self.waker.as_ref().is_none_or(has_ended)
    }
}

base::internal::impl_debug!(CancelHandle, it => is_finished: it.is_finished());
