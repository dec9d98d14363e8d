//! Futures as work items: an item that is run as often as its waker queues it, until it is ready.
//!
//! A waker may be called by anybody, at any time, as often as he likes, and must make the future be polled
//! once more: which is what queueing a work item does. So a poll is a run, and a wake is an enqueue:
//!
//! - **Never polled twice at once.** A wake during a poll only says so (`PENDING`); the end of that poll queues
//!   the future again. A wake of a future that is pending does nothing.
//! - **No wake is lost.** The wake and the end of the poll are steps of one word. A wake that finds the future pending
//!   is a step as well, so that the poll to come sees what was written before the wake.
//! - **Cancelling** a future that was polled is a wake with a flag: the next run drops the future
//!   instead of polling it. So a worker drops it, inside the queue's limits, never during a poll,
//!   and once.
//! - **Cancelling before the first poll.** Such a future is not pinned, and is cancelled as a
//!   closure is: the canceller claims it, ends it, and drops it. So it needs no worker, and neither
//!   its memory nor its place of the queue's capacity waits for one. Unlike a closure, a future may
//!   be cancelled by one thread while another joins it. So the canceller takes the future out and
//!   leaves the outcome before it ends the claim, and wakes the task that awaits the handle. Twins
//!   `future: a cancel moves what was polled`, `future: a cancel ends it without an outcome` and
//!   `future: a cancel forgets its task`.
//! - **The queue stays.** From its first suspension on a future keeps one in-flight count, of the link from which it
//!   was run then (`held_link`), until it has ended. So a wake that makes it pending finds the queue in place: the
//!   future cannot end before it has been pushed. No other wake looks at the queue. A drain waits for futures.
//! - **Memory.** The handle and each waker are counted (`handles.rs`); a poll lends its waker uncounted, so that a
//!   poll that keeps none touches no count. Whoever is last, run or handle, frees. A future that waits without
//!   any waker and any handle can never be polled again: it is dropped by whoever made it so.
//!
//! The steps are in `state/task.rs`. Differs from Linux: there is no such thing; nearest is work that requeues itself.

use std::{
    cell::UnsafeCell,
    future::Future,
    mem::ManuallyDrop,
    pin::Pin,
    ptr::{self, NonNull},
    task::{Context, Poll, RawWaker, RawWakerVTable, Waker},
};

use base::internal::{
    panics::{
        contain, guarded,
        join_error::{JoinError, Outcome},
    },
    wake::{Maker, note_known},
};
use sync::{atomic::Ordering, fork, twin, unmodelled::Arc};

use super::queue::Inner;
use crate::{
    errands,
    execute::{
        current::with_freed,
        join::JoinHandle,
        run::{self, note_panic},
    },
    item::{
        colour::Colour,
        handles::{Dead, Handles},
        head::{HandleTable, Head, TaskSlot, VTable},
        list,
        remains::Remains,
        slab,
        state::{Ending, Rules, State},
    },
    pools::pwq::Pwq,
};

/// What every future's item begins with.
#[repr(C)]
struct Base {
    head: Head,
    /// A: the handle, and the wakers.
    handles: Handles,
    /// I: gone as a queue when the future has ended, but here.
    queue: Arc<Inner>,
    /// What keeps a count for it. Who runs it writes it, and who frees it reads it.
    held_link: UnsafeCell<HeldLink>,
    /// Written by the handle before it sets the flag that a task waits.
    task: UnsafeCell<Option<Arc<TaskSlot>>>,
}

/// Where an in-flight count is kept, and in which colour.
#[derive(Clone, Copy)]
struct HeldLink {
    /// Null until the future first waits.
    link: *const Pwq,
    colour: Colour,
}

#[repr(C)]
struct Task<F: Future> {
    base: Base,
    /// Belongs to the run, then to the handle, then to who frees the item.
    stage: UnsafeCell<Stage<F>>,
}

/// How far it is.
enum Stage<F: Future> {
    Future(F),
    Outcome(Outcome<F::Output>),
    Gone,
}

/// Makes an item that polls `future`, to be pushed to `home`, which is a link of `queue`; the caller `has_place` for it or not.
pub(crate) fn task<F>(
    future: F,
    home: &Pwq,
    queue: Arc<Inner>,
    has_place: bool,
) -> (NonNull<Head>, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Nobody but a worker may run it, and it is never taken back out of its place.
    let rules = Rules {
        help: false,
        ordered: false,
        ..home.rules
    };
    let item = slab::place(Task {
        base: Base {
            head: Head::new(
                Task::<F>::VTABLE,
                State::queued(rules).counted(has_place),
                home.as_home(),
            ),
            handles: Handles::one(),
            queue,
            held_link: UnsafeCell::new(HeldLink {
                link: ptr::null(),
                colour: Colour::default(),
            }),
            task: UnsafeCell::new(None),
        },
        stage: UnsafeCell::new(Stage::Future(future)),
    })
    .cast();
    // SAFETY: the table's outcome is the future's, and this is the only handle.
    (item, unsafe { JoinHandle::of(item) })
}

impl<F> Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    const VTABLE: &'static VTable = &VTable {
        run: run::pop_and_run,
        // SAFETY: as of `pop_and_cancel`.
        cancel: |item, remains| unsafe { run::pop_and_cancel(item, remains, Self::skip) },
        call: Self::call,
        name: std::any::type_name::<F>,
        free: Self::free,
        is_husk: Self::is_husk,
        // SAFETY: the item is in a list, with the lock of which the poll that put it there is seen.
        has_begun: |item| unsafe { base(item).held_link() }.is_some(),
        push: Some(push),
        is_work: false,
        handle: Some(HandleTable {
            take: Self::take,
            cancel: Self::cancel,
            leave: Self::leave,
            slot_at: std::mem::offset_of!(Base, task),
            expiry: None,
        }),
    };

    fn stage(item: NonNull<Head>) -> *mut Stage<F> {
        // SAFETY: this table belongs to items of this type alone.
        unsafe { (*item.as_ptr().cast::<Self>()).stage.get() }
    }

    unsafe fn call(item: NonNull<Head>) -> Ending {
        // SAFETY: the caller runs the item, which keeps it.
        let base = unsafe { base(item) };
        // SAFETY: runs do not overlap, and nobody else touches the stage before the future has ended.
        let stage = unsafe { &mut *Self::stage(item) };
        let outcome = if base.head.load().is_cancelled() {
            dropped(stage, Err(JoinError::Cancelled))
        } else {
            // Lent, not counted: the run keeps the item.
            let waker = ManuallyDrop::new(waker(item));
            // FOREIGN(future-poll): the future's poll, by a worker in its item, no locks; a panic is its outcome.
            match guarded(|| poll(stage, &mut Context::from_waker(&waker))) {
                Ok(Poll::Pending) => return base.suspend(),
                Ok(Poll::Ready(value)) => dropped(stage, Ok(value)),
                Err(payload) => dropped(stage, Err(JoinError::panicked(payload))),
            }
        };
        // SAFETY: the caller runs the item.
        unsafe { Self::settle(item, outcome) }
    }

    /// Moves a future out that has not been polled, in place of polling it.
    unsafe fn skip(item: NonNull<Head>, remains: &mut Remains) {
        // SAFETY: the caller runs the item, and this is its first run.
        remains.bury(unsafe { Self::set_cancelled(item) });
    }

    /// Makes the outcome that it was cancelled; returns the future.
    ///
    /// # Safety
    ///
    /// 1. The future was never polled, and the caller runs the item or has claimed it.
    unsafe fn set_cancelled(item: NonNull<Head>) -> Stage<F> {
        // SAFETY: (1): no other thread touches the stage before the future has ended.
        let stage = unsafe { &mut *Self::stage(item) };
        // It may be moved, because it has not been pinned.
        std::mem::replace(stage, Stage::Outcome(Err(JoinError::Cancelled)))
    }

    /// Takes the future out of the queue and drops it, if it was never polled. Otherwise a worker
    /// drops it. Returns `false` if it has ended.
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
            unpolled = (!early).then(|| unsafe { Self::set_cancelled(item) });
        });
        if !is_cancelled {
            // SAFETY: as above.
            return unsafe { step(item, State::wake_to_drop) };
        }
        if base.head.load().awaits_task() && !twin::armed("future: a cancel forgets its task") {
            // SAFETY: the slot was written before the flag that a task waits, and is not written again.
            let slot = unsafe { &*base.task.get() };
            let waker = slot.as_ref().and_then(|slot| slot.lock().take());
            waker.into_iter().for_each(errands::fire);
        }
        // FOREIGN(cancel-drop): a future that was never polled, on the thread that cancels; it may unwind to there, for
        // nothing is left to be done.
        drop(unpolled);
        true
    }

    /// Leaves the outcome of a future that has ended to its handle.
    ///
    /// # Safety
    ///
    /// 1. The caller runs the item, of which nothing but this is left to be done.
    unsafe fn settle(item: NonNull<Head>, mut outcome: Outcome<F::Output>) -> Ending {
        // SAFETY: (1): the run keeps the item.
        let base = unsafe { base(item) };
        // SAFETY: (1): nobody else touches the stage before the future has ended.
        let stage = unsafe { &mut *Self::stage(item) };
        let detached = base.head.load().is_detached();
        let mut panicked = false;
        if let Err(JoinError::Panicked(payload)) = &mut outcome {
            panicked = true;
            let unseen = detached.then(|| (std::any::type_name::<F>(), payload.as_any()));
            // SAFETY: the caller runs the item.
            unsafe { note_panic(unseen) };
        }
        if detached {
            // FOREIGN(future-outcome): the drop of what nobody joins, by a worker in its item, no locks; contained.
            contain(|| drop(outcome));
        } else {
            *stage = Stage::Outcome(outcome);
        }
        // SAFETY: the caller runs the item.
        if let Some((held_link, colour)) = unsafe { base.held_link() } {
            // The run that we are in keeps the queue; nobody pushes the item while it is run.
            held_link.release(Self::VTABLE);
            held_link.pool.retire_one(held_link.slot, colour);
        }
        if panicked {
            Ending::Panicked
        } else {
            Ending::Returned
        }
    }

    unsafe fn take(item: NonNull<Head>, into: *mut ()) {
        // SAFETY: the future has ended, and the caller is its only handle.
        let stage = unsafe { &mut *Self::stage(item) };
        if let Stage::Outcome(outcome) = std::mem::replace(stage, Stage::Gone) {
            // SAFETY: the caller points at an `Option<Outcome<T>>`.
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
            // SAFETY: the future has ended, and the caller is its only handle; a waker that frees it comes after us.
            let stage = unsafe { &mut *Self::stage(item) };
            // FOREIGN(future-outcome): the drop of what nobody joins, by who drops the handle, no locks; contained.
            contain(|| *stage = Stage::Gone);
        }
        // SAFETY: the handle is not used again.
        unsafe { base.handles.remove(item) };
    }

    unsafe fn is_husk(item: NonNull<Head>) -> bool {
        // SAFETY: the item has ended, and no handle is left: all of it is the caller's.
        let (stage, slot) = unsafe { (&*Self::stage(item), &*base(item).task.get()) };
        let is_taken = matches!(
            stage,
            Stage::Gone | Stage::Outcome(Err(JoinError::Cancelled))
        );
        slot.is_none() && is_taken
    }

    unsafe fn free(item: NonNull<Head>) {
        // SAFETY: the caller knows that nobody else has the item.
        let (base, stage) = unsafe { (base(item), &mut *Self::stage(item)) };
        // A future that waits has the count of its link; one that has ended has given it back.
        let waits = matches!(stage, Stage::Future(_));
        // SAFETY: nobody else has the item.
        let held_link = unsafe { base.held_link() }.filter(|_| waits);
        // Of its own: with the count the link may go.
        let left = held_link.map(|(held_link, colour)| {
            held_link.release(Self::VTABLE);
            (held_link.pool.clone(), held_link.slot, colour)
        });
        // The future may own the last handle of its queue, which must not wait for the count that we hold.
        let home = held_link.map_or(ptr::null(), |(held_link, _)| ptr::from_ref(held_link));
        // SAFETY: its count keeps the held link until below.
        // FOREIGN(future-drop): the future's drop, or its outcome's, by whoever made it unreachable, no locks; contained.
        unsafe { with_freed(item.as_ptr(), home, || contain(|| *stage = Stage::Gone)) };
        // FOREIGN(future-waker): the drop of the waker that a task left, by the same thread, no locks; contained.
        // SAFETY: nobody else has the item, of which all is dropped but this.
        contain(|| unsafe { ptr::drop_in_place(item.as_ptr().cast::<Base>()) });
        // SAFETY: as above.
        unsafe { slab::give_back(item.cast::<Self>()) };
        if let Some((pool, slot, colour)) = left {
            pool.retire_one(slot, colour);
        }
    }
}

fn poll<F: Future>(stage: &mut Stage<F>, context: &mut Context<'_>) -> Poll<F::Output> {
    let Stage::Future(future) = stage else {
        unreachable!("polled after its end");
    };
    // SAFETY: the item stays where it is until it is freed, and the future is dropped in its place.
    unsafe { Pin::new_unchecked(future) }.poll(context)
}

/// Drops the future in its place and returns `outcome`, or that the drop panicked.
fn dropped<F: Future>(stage: &mut Stage<F>, outcome: Outcome<F::Output>) -> Outcome<F::Output> {
    // FOREIGN(future-drop): the future's drop, by a worker in its item, no locks; a panic is its outcome.
    let dropped = guarded(|| *stage = Stage::Gone);
    let Err(payload) = dropped else {
        return outcome;
    };
    // FOREIGN(future-outcome): the drop of what it returned, or panicked with, by the same worker, no locks; contained.
    contain(|| drop(outcome));
    Err(JoinError::panicked(payload))
}

impl Base {
    /// Notes that the future waits; its first wait keeps the count with which it was run.
    ///
    /// The caller runs the item.
    fn suspend(&self) -> Ending {
        let place = self.held_link.get();
        // SAFETY: who runs the item alone touches the held link.
        let keeps_count =
            unsafe { (*place).link.is_null() } && !twin::armed("future: no held link");
        if keeps_count {
            let link = Pwq::of(self.head.home.load(Ordering::Relaxed));
            let colour = list::colour(NonNull::from(&self.head));
            // SAFETY: as above.
            unsafe { place.write(HeldLink { link, colour }) };
            // SAFETY: the link that an item runs from is there.
            unsafe { &*link }.hold_for_future(self.head.vtable());
        }
        Ending::Suspended { keeps_count }
    }

    /// Returns `true` if it is a parent's, in a child of `fork`: no worker polls it here, and its words may be in any state. So
    /// nothing is done to it, and nothing that it holds is dropped.
    fn is_absent(&self) -> bool {
        fork::is_child() && !self.queue.is_at_home()
    }

    /// Returns the link that keeps a count for it, and the colour of that.
    ///
    /// # Safety
    ///
    /// 1. The caller runs the item, or is about to free it.
    /// 2. The answer is used only while the count is there.
    unsafe fn held_link(&self) -> Option<(&Pwq, Colour)> {
        // SAFETY: (1): nobody writes it.
        let held_link = unsafe { *self.held_link.get() };
        // SAFETY: (2): the count keeps the link.
        let link = unsafe { held_link.link.as_ref() }?;
        Some((link, held_link.colour))
    }
}

/// Takes a step that may have to push the item; returns `false` when the future has ended.
///
/// # Safety
///
/// 1. `item` is a future's, and the caller has a handle of it.
unsafe fn step(item: NonNull<Head>, plan: impl Fn(State) -> Option<(State, bool)>) -> bool {
    // SAFETY: (1).
    let base = unsafe { base(item) };
    if base.is_absent() {
        return false;
    }
    if twin::armed("future: pending is no step") && base.head.load().is_pending() {
        return true;
    }
    let Some((from, _)) = base.head.update(|state| Some(plan(state)?.0)) else {
        return false;
    };
    if plan(from).is_some_and(|(_, push)| push) {
        // SAFETY: made pending and linked by us.
        unsafe { push(item) };
    }
    true
}

/// Leaves a future for the workers of the pool to which the queue's routes lead now.
///
/// # Safety
///
/// 1. The caller made `item`, which is a future's, pending and linked: until it is pushed it stays, and cannot end.
unsafe fn push(item: NonNull<Head>) {
    // SAFETY: (1). The queue's inside is held until the home is looked at no more, though the future may be gone.
    let queue = unsafe { base(item) }.queue.clone();
    // SAFETY: (1).
    let at = unsafe { &item.as_ref().home };
    // SAFETY: the held link keeps the queue until the push, and the queue all links that the future ever was at.
    let lane = unsafe { &*at.load(Ordering::Relaxed) }.lane;
    let home = queue.route_table.here().in_lane(lane);
    at.store(home.as_home(), Ordering::Relaxed);
    home.push(item);
}

/// # Safety
///
/// 1. `item` is a future's, and stays while the answer is used.
unsafe fn base<'a>(item: NonNull<Head>) -> &'a Base {
    // SAFETY: (1): a `Task` begins with its `Base`.
    unsafe { item.cast::<Base>().as_ref() }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, remove);

/// Notes that the wakers of futures do not block. Call it before the first future is queued.
pub(crate) fn note_wakers() {
    note_known(Maker::Future, &WAKER);
}

/// Makes a waker, which is a handle that is not counted yet.
fn waker(item: NonNull<Head>) -> Waker {
    // SAFETY: the table's functions keep the contract: they count handles, and a handle keeps the item.
    unsafe { Waker::from_raw(RawWaker::new(item.as_ptr().cast(), &WAKER)) }
}

/// Makes a waker.
///
/// # Safety
///
/// 1. `item` is a future's, and the caller has a handle of it.
pub(crate) unsafe fn counted_waker(item: NonNull<Head>) -> Waker {
    // SAFETY: (1).
    let base = unsafe { base(item) };
    base.handles.add(&base.head);
    waker(item)
}

fn item_of(data: *const ()) -> NonNull<Head> {
    NonNull::new(data.cast_mut().cast()).expect("made from an item")
}

/// Fires `waker` if it is a future's, which runs no users' code; returns the item, if that is to be freed. Else gives it back.
pub(crate) fn wake_ours(waker: Waker) -> Result<Option<Dead>, Waker> {
    if !ptr::eq(waker.vtable(), &WAKER) {
        return Err(waker);
    }
    let item = item_of(ManuallyDrop::new(waker).data());
    // SAFETY: the waker is a handle, and is used no more after this.
    Ok(unsafe {
        step(item, State::wake);
        base(item).handles.leave(item)
    })
}

/// Cancels the future whose waker `waker` is, as its handle does; returns `false` if it has ended.
pub(crate) fn cancel_by(waker: &Waker) -> bool {
    let item = item_of_waker(waker);
    // SAFETY: the waker, which is there, keeps the item.
    let table = unsafe { item.as_ref() }.vtable().handle.as_ref();
    let table = table.expect("a future has a table for its handle");
    // SAFETY: the table is the item's, and the waker is a handle.
    unsafe { (table.cancel)(item) }
}

/// Returns `true` if the future whose waker `waker` is has ended.
pub(crate) fn has_ended(waker: &Waker) -> bool {
    // SAFETY: the waker, which is there, keeps the item.
    unsafe { base(item_of_waker(waker)) }
        .head
        .load()
        .has_ended()
}

fn item_of_waker(waker: &Waker) -> NonNull<Head> {
    assert!(ptr::eq(waker.vtable(), &WAKER), "made by a future");
    item_of(waker.data())
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned keeps the item.
    let base = unsafe { base(item_of(data)) };
    base.handles.add(&base.head);
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker is ours, and is used no more after the second step.
    unsafe {
        wake_by_ref(data);
        remove(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker is a handle.
    unsafe { step(item_of(data), State::wake) };
}

unsafe fn remove(data: *const ()) {
    if twin::torn_down() {
        return;
    }
    // SAFETY: the waker keeps the item.
    if unsafe { base(item_of(data)) }.is_absent() {
        return;
    }
    // SAFETY: the waker keeps the item, and is not used again.
    unsafe { base(item_of(data)).handles.remove(item_of(data)) };
}
