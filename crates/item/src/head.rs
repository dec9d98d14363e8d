//! The first part of every work item: its list link, its home pwq, its state and its vtable.
//!
//! The state is a word of flags. Each transition is a function from one value of the word to the
//! next, which [`Head`] applies by compare-exchange. The transitions are the whole protocol of an
//! item:
//!
//! ```text
//!            enqueue                    pop                     complete
//!   idle ──────────────► PENDING+LINKED ───────────► RUNNING ─────────────► idle
//!                           │     ▲                   │   ▲
//!                 cancel    ▼     │ enqueue           │   │ enqueue, pop: PENDING+HANDOFF
//!                         LINKED ─┘ (a tombstone)     └───┘ (runs again after this run)
//! ```
//!
//! - **Runs never overlap.** `RUNNING` is set only by a transition that finds it clear. A worker
//!   that pops a running item sets `HANDOFF`; the running thread puts the item back on the list
//!   when its run ends, if the item is still pending.
//! - **Lazy removal.** Cancelling and helping take an item by clearing `PENDING`. Its link stays in
//!   its list (a *tombstone*) until a worker pops it or it is reaped (`tombstones.rs`). Enqueueing
//!   a tombstone only sets `PENDING` again. A canceller claims the item first: the claim keeps the
//!   link in place, which keeps the home pwq alive.
//! - **In-flight counts** are incremented when a worker adopts the item. They are decremented by
//!   the thread that unlinks the item or, after `HANDOFF`, at the end of the run that was executing
//!   when the item was popped. A helper that takes an item before its adoption is counted at the
//!   gate.
//! - The **completion sequence number** counts completed runs and cancelled enqueues, in enqueue
//!   order. If an enqueue is cancelled while an earlier run is executing, the item is marked `OWED`
//!   and the cancel is counted when that run ends. If it were counted immediately, it would be
//!   mistaken for the end of that run.
//! - **Freeing.** An item without handles (`ORPHAN`) is freed after the transition that leaves it
//!   neither linked, nor running, nor claimed. Dropping the last handle to an idle item and ending
//!   a run omit that transition if no other thread can change the state.
//!
//! # Handles
//!
//! [`Handles`] counts the handles to an item that can gain handles while it runs.
//!
//! The count determines which handle is the last; the item's state determines which thread frees
//! the item. The thread that drops the last handle sets `ORPHAN` in the state. The item is freed
//! after the transition that leaves it without handles and held by no list or thread. A run lends
//! its item a handle that is not counted. If that handle is cloned after all others have been
//! dropped, the count rises from zero, and the clone waits until the state agrees with the count.

use std::any::type_name;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::task::Waker;

use base::internal::panics::Foreign;
use base::internal::wake::lane::Lane;
pub use dead::Dead;
use sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use sync::cell::Fixed;
use sync::futex::{Futex64, Key};
use sync::unmodelled::Arc;
use sync::{Backoff, Mutex};

use super::deferred_drops::DeferredDrops;
use super::list::{self, Color};
use super::revival::Revivable;

mod cancel;
mod dead;
// Models have no timers of raw items.
#[cfg_attr(any(loom, shuttle), allow(dead_code))]
pub mod raw;
mod task;

/// The first part of a pwq, with the fields that items use: see `Pwq::of`.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// I: the index of the pwq in the pool's table.
    pub slot: usize,
    /// I: the lane of the queue.
    pub lane: Lane,
    /// I: the rules that the queue sets for its items.
    pub rules: Rules,
}

/// The first part of every item, except a raw one, whose layout C prescribes.
///
/// After a transition of the state, another thread may free the item, so all fields are cells.
#[repr(C, align(8))]
pub struct Head {
    /// The next item of this item's list, and this item's color; guarded like that list.
    pub next: AtomicPtr<Head>,
    /// The pwq on which the item is, or was last, queued; written by the enqueuer that claimed the
    /// item while it was unlinked.
    pub home: AtomicPtr<Home>,
    /// I
    vtable: Fixed<&'static VTable>,
    /// A: see [`State`].
    pub state: Futex64,
}

/// The functions of an item's type.
pub struct VTable {
    /// Pops the item, which the caller has just taken off a list, and runs it if it is pending.
    pub run: unsafe fn(NonNull<Head>) -> Popped,
    /// Pops the item, which the caller has just taken off a list, and cancels it if it is pending;
    /// returns `Ran` in that case. The remaining work is added to the [`DeferredDrops`].
    pub cancel: unsafe fn(NonNull<Head>, &mut DeferredDrops) -> Popped,
    /// Runs an item that the caller has moved to the running state.
    pub call: unsafe fn(NonNull<Head>) -> Ending,
    /// Returns the type name of the item's function.
    pub name: fn() -> &'static str,
    pub free: unsafe fn(NonNull<Head>),
    /// Returns `true` if freeing the item, which is no longer reachable, drops no user data.
    pub frees_no_user_data: unsafe fn(NonNull<Head>) -> bool,
    /// Returns `true` if the item, which is in a list, is a future that has been polled.
    pub has_begun: unsafe fn(NonNull<Head>) -> bool,
    /// Pushes a future that was woken while it was polled.
    pub push: Option<unsafe fn(NonNull<Head>)>,
    /// Set for an item of a `Work`.
    pub is_work: bool,
    /// Set for an item with a `JoinHandle`.
    pub handle: Option<HandleTable>,
}

impl VTable {
    /// Creates the vtable of an item that has no handle and is not a future.
    pub const fn plain(
        run: unsafe fn(NonNull<Head>) -> Popped,
        cancel: unsafe fn(NonNull<Head>, &mut DeferredDrops) -> Popped,
        call: unsafe fn(NonNull<Head>) -> Ending,
        name: fn() -> &'static str,
        free: unsafe fn(NonNull<Head>),
    ) -> Self {
        Self {
            run,
            cancel,
            call,
            name,
            free,
            frees_no_user_data: |_| false,
            has_begun: |_| false,
            push: None,
            is_work: false,
            handle: None,
        }
    }
}

pub trait Tabled {
    /// The vtable. Its name is the type of the closure or future in the item; [`Name::vtable`]
    /// replaces the name.
    const VTABLE: &'static VTable;
}

/// The name of an item: the type name of the user's function or future, which the closure or future
/// in the item may wrap.
pub struct Name<N>(PhantomData<fn(N)>);

impl<N> Name<N> {
    #[inline(always)]
    pub fn of(_func: &N) -> Self {
        Self(PhantomData)
    }

    /// Returns the vtable of items of type `I` with this name.
    #[inline(always)]
    pub fn vtable<I: Tabled>(self) -> &'static VTable {
        const { &VTable { name: type_name::<N>, ..*I::VTABLE } }
    }
}

/// The mark by which a closure finds its strand, and detects bulk cancels since it was spawned.
#[derive(Clone, Copy, Debug)]
pub struct OfStrand {
    /// The item of the strand. It must only be compared, because it may be freed once the closure
    /// has ended.
    pub item: *const Head,
    /// The number of bulk cancels of the queue when the closure was spawned.
    pub nr_cancels: u32,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for OfStrand {}

/// The functions that a join handle needs without knowing the closure's type.
#[derive(Clone, Copy)]
pub struct HandleTable {
    /// Moves the outcome into the `Option<Outcome<T>>` that the pointer refers to.
    pub take: unsafe fn(NonNull<Head>, *mut ()),
    /// Prevents the item's code from running. Returns `true` if it will no longer run.
    pub cancel: unsafe fn(NonNull<Head>) -> bool,
    /// Releases the handle's reference to the item.
    pub leave: unsafe fn(NonNull<Head>),
    /// The offset in bytes of the item's [`TaskSlot`], an `UnsafeCell<Option<Arc<TaskSlot>>>`.
    pub slot_at: usize,
    /// Set for an item with a deadline.
    pub expiry: Option<Expiry>,
    /// Set for a closure of a strand.
    pub strand: Option<unsafe fn(NonNull<Head>) -> OfStrand>,
}

impl HandleTable {
    /// Returns the location of the item's task slot. The handle writes the slot before it sets the
    /// flag `WAKER`, which records that a task waits.
    ///
    /// # Safety
    ///
    /// 1. The table is the item's, and the item is not freed while the location is used.
    pub unsafe fn slot(&self, item: NonNull<Head>) -> *mut Option<Arc<TaskSlot>> {
        // SAFETY: (1): the offset is that of a field of the item's type.
        unsafe { item.as_ptr().cast::<u8>().add(self.slot_at).cast() }
    }

    /// Returns the slot in which the async task that polled the handle stored its waker.
    ///
    /// # Safety
    ///
    /// 1. The same as [`slot`](Self::slot), and the flag `WAKER` is set.
    pub(crate) unsafe fn awaited_slot(&self, item: NonNull<Head>) -> Arc<TaskSlot> {
        // SAFETY: (1): the flag was set after the slot was written, and the slot is not written
        // again.
        let slot = unsafe { &*self.slot(item) };
        slot.clone().expect("written before the flag")
    }
}

/// The functions that a join handle needs for an item that is to start by a deadline.
#[derive(Clone, Copy)]
pub struct Expiry {
    /// Returns the time until the deadline. If the clock is paused, the deadline may not have
    /// passed after that time, so the caller checks again.
    pub left_ns: unsafe fn(NonNull<Head>) -> u64,
    /// Expires the item, whose deadline has passed. Returns `true` if the item had not started, and
    /// therefore never will.
    pub expire: unsafe fn(NonNull<Head>) -> bool,
    /// Registers the waker to be woken at the deadline, in place of an earlier one; returns `false`
    /// if the deadline has passed. Only the handle calls this.
    pub wake_then: unsafe fn(NonNull<Head>, &Waker) -> bool,
}

/// The result of popping an item from a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popped {
    /// The item ran.
    Ran,
    /// The item ran, is a future, and keeps its in-flight count.
    Kept,
    /// Another thread is running or has claimed the item, and inherits the in-flight count.
    Left,
    /// The item was not pending, and was discarded.
    Dropped,
}

impl Popped {
    /// Returns `true` if the worker must release the in-flight count.
    #[inline]
    pub fn counts(self) -> bool {
        matches!(self, Self::Ran | Self::Dropped)
    }

    #[inline]
    pub fn ran(self) -> bool {
        matches!(self, Self::Ran | Self::Kept)
    }
}

/// The place where an async task that waits for an item stores its waker.
pub type TaskSlot = Mutex<Option<Foreign<Waker>>>;

/// The work that remains after a run has ended.
pub struct Ended {
    pub completion: Completion,
    /// The home pwq of the item, and the color in which the item is counted there.
    pub home: *mut Home,
    pub color: Color,
    /// The slot of the task that polled the handle.
    pub task: Option<Arc<TaskSlot>>,
}

impl Head {
    sync::const_unless_model! {
        pub fn new(vtable: &'static VTable, state: State, home: *mut Home) -> Self {
            Self {
                next: AtomicPtr::new(ptr::null_mut()),
                home: AtomicPtr::new(home),
                vtable: Fixed::new(vtable),
                state: Futex64::new(state.0),
            }
        }

        /// Creates the head of an item that was never queued.
        pub fn unqueued(vtable: &'static VTable) -> Self {
            Self::new(vtable, State::IDLE, ptr::null_mut())
        }
    }

    /// Sets the vtable of an item that C code may have initialized.
    ///
    /// # Safety
    ///
    /// 1. `head` is alive, and its vtable field contains null or `vtable`.
    #[cfg(not(any(loom, shuttle)))]
    pub unsafe fn adopt(head: *const Head, vtable: &'static VTable) {
        let (null, ours) = (ptr::null_mut(), ptr::from_ref(vtable).cast_mut());
        // SAFETY: (1); the field is a cell, so it may be written; it is not written again once set.
        let table = unsafe { &*(&raw const (*head).vtable).cast::<AtomicPtr<VTable>>() };
        if table.load(Ordering::Relaxed).is_null() {
            // Only the first thread writes, because others may already be reading the field.
            let _ = table.compare_exchange(null, ours, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn vtable(&self) -> &'static VTable {
        self.vtable.get()
    }

    #[inline]
    pub fn load(&self) -> State {
        // Acquire pairs with `transition`: the loader sees everything before the transition that
        // wrote this state.
        State(self.state.word().load(Ordering::Acquire))
    }

    #[inline]
    pub fn key(&self) -> Key {
        self.state.key()
    }

    /// Applies one transition. Returns `false` if the word has changed since `from` was read.
    ///
    /// Every transition acquires and releases: a run sees all writes by the enqueuer, a second run
    /// those by the first, and a flusher those by the run that it waited for.
    #[inline]
    pub fn transition(&self, from: State, to: State) -> bool {
        // ORDER(item): publish and consume; both ends are transitions of this word.
        //   enqueue:  data = x;  transition to pending (release)
        //   pop:      transition to running (acquire);  read data
        //   complete: result = y;  transition to idle (release)
        //   flush:    read of idle (acquire, `load`);  read result
        // ORDER(item): the other end of each of these is the next transition.
        // Test: flush_sees_writes_of_the_run
        let order = if sync::twin::armed("item: relaxed transitions") {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        self.state.word().compare_exchange_weak(from.0, to.0, order, Ordering::Relaxed).is_ok()
    }

    /// Retries until a transition succeeds or `plan` returns `None`; returns the state before and
    /// after.
    #[inline]
    pub fn update(&self, plan: impl Fn(State) -> Option<State>) -> Option<(State, State)> {
        let mut from = self.load();
        loop {
            let to = plan(from)?;
            if self.transition(from, to) {
                return Some((from, to));
            }
            from = self.load();
        }
    }

    /// Decides how to enqueue at `home`. `is_ours` returns whether a pwq, which is only compared,
    /// belongs to the same queue; if not, the item is moved. If the returned plan has a state, that
    /// state has been applied. If `has_permit` is set, the item then owns the caller's capacity
    /// permit. `revivable` is given for an item whose link may stay in its list after a cancel.
    #[inline]
    pub fn enqueue(
        &self,
        home: &Home,
        is_ours: impl Fn(*const Home) -> bool,
        has_permit: bool,
        revivable: Option<&Revivable>,
    ) -> Enqueue {
        let mut from = self.load();
        loop {
            let at = self.home.load(Ordering::Relaxed);
            let here = ptr::eq(at, home);
            let ours = || here || is_ours(at);
            let plan = from.enqueue(here, ours, home.rules, has_permit);
            let (to, keeps_permit) = match plan {
                Enqueue::Revive(to) => (to, true),
                Enqueue::Push(to) | Enqueue::Claim(to) | Enqueue::Elsewhere(to) => (to, false),
                // Even if a bulk cancel came in between, this transition queues the item.
                Enqueue::Pending if from.is_left() && revivable.is_some() => (from.revived(), true),
                // This is also a transition, so that the next run sees all writes before this call.
                Enqueue::Pending if !sync::twin::armed("item: pending is no transition") => {
                    (from, false)
                }
                Enqueue::Pending | Enqueue::Disabled => return plan,
            };
            let is_as_it_was = || self.load() == from;
            if keeps_permit && !revivable.is_some_and(|item| item.note(is_as_it_was)) {
                from = self.load();
                continue;
            }
            if self.transition(from, to) {
                return plan;
            }
            from = self.load();
        }
    }

    /// Ends a run and returns the remaining work; the state is set, so the item may already be
    /// freed.
    ///
    /// # Safety
    ///
    /// 1. `item` is running, and the caller runs it.
    #[inline]
    pub unsafe fn complete(item: NonNull<Head>, ending: Ending) -> Ended {
        // SAFETY: (1): a running item is alive. It is not accessed after the final transition.
        let head = unsafe { item.as_ref() };
        let mut from = head.load();
        let mut task = None;
        loop {
            let completion = from.complete(ending);
            if completion.wake_task && task.is_none() {
                let table = head.vtable().handle.as_ref();
                // SAFETY: (1). The item has this table, and its state has the flag.
                task = table.map(|table| unsafe { table.awaited_slot(item) });
            }
            let home = head.home.load(Ordering::Relaxed);
            let color = list::color(item);
            if head.transition(from, completion.next) {
                return Ended {
                    completion,
                    home,
                    color,
                    task: task.filter(|_| completion.wake_task),
                };
            }
            from = head.load();
        }
    }
}

/// The count of the handles to an item.
pub struct Handles(AtomicUsize);

impl Handles {
    pub fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// Adds a handle; the caller has a handle, or is inside the item's run, which lends one.
    pub fn add(&self, head: &Head) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            // The last handle was dropped, and the run that we are in lends its own. The thread
            // that dropped the last handle may not have updated the state yet. We wait for that
            // update, because it would cause the item to be freed if it came after ours.
            let mut backoff = Backoff::new();
            while head.update(State::adopt).is_none() {
                if sync::twin::armed("item: a clone does not wait") {
                    break;
                }
                backoff.pause();
            }
        }
    }

    /// Removes a handle. If it was the last one, and no list or thread holds the item, returns the
    /// item; dropping the result frees it.
    ///
    /// # Safety
    ///
    /// 1. `item` has these handles, and the caller owns one of them, which it does not use again.
    pub unsafe fn leave(&self, item: NonNull<Head>) -> Option<Dead> {
        // If the decrement of another handle comes last, its Acquire below sees our uses of the
        // item. If ours comes last, we see the uses by all others, and the item is ours to free.
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return None;
        }
        // ORDER(handles): publish and consume, other end in the decrement above.
        //   here:        nr_handles -= 1 (to 0);  read nr_handles Acquire;  free
        //   other drops: uses of the item;  nr_handles -= 1 Release
        // ORDER(handles): the decrement above is the other end.
        // Test: a_dropped_item_is_freed_once
        // This is not a fence, because ThreadSanitizer does not model fences.
        self.0.load(Ordering::Acquire);
        // SAFETY: (1): the last handle keeps the item alive until the transition below.
        unsafe { orphaned(item) }
    }
}

/// Records that an item's last handle is dropped; frees the item if no list or thread holds it.
///
/// # Safety
///
/// 1. The caller owns the last handle to `item`, which it does not use again.
pub unsafe fn orphan(item: NonNull<Head>) {
    // SAFETY: (1).
    drop(unsafe { orphaned(item) });
}

/// Records that an item's last handle is dropped; returns the item if no list or thread holds it.
///
/// # Safety
///
/// 1. The same as [`orphan`].
unsafe fn orphaned(item: NonNull<Head>) -> Option<Dead> {
    // SAFETY: (1).
    let head = unsafe { item.as_ref() };
    // If the item is idle, no other thread can change the state. A thread needs a handle to make an
    // idle item pending, and we see the transitions of all handles that were dropped. `load`
    // acquires the writes by the last run.
    let mut state = head.load().orphan();
    if state.frees() && sync::twin::armed("item: the last handle leaves an idle item") {
        return None;
    }
    if !state.frees() {
        (_, state) = head.update(|state| Some(state.orphan()))?;
    }
    // SAFETY: no handle and no list link is left, and no thread runs the item.
    state.frees().then(|| unsafe { Dead::new(item) })
}

/// The state word: bits 0..15 flags | bits 15..48 completion sequence number | bits 48..64 disable
/// depth, or the flags of a future: see `head/task.rs`
///
/// The low half, on which flushers sleep, contains seventeen bits of the sequence number. A run
/// that ends between a flusher's check and its sleep therefore changes the futex word, and the
/// flusher does not sleep.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct State(pub u64);

/// Defines the flags of a state and their names. `is_set` returns `true` if the flag is set, and
/// `set` sets it.
macro_rules! flags {
    ($($(#[$about:meta])* $flag:ident = $bit:literal $name:literal
        $vis:vis $is_set:ident $(+ $set:ident)?;)*) => {
        $(const $flag: u64 = 1 << $bit;)*
        const NAMES: &[(u64, &str)] = &[$(($flag, $name)),*];

        impl State {$(
            $(#[$about])* #[inline] $vis fn $is_set(self) -> bool { self.has($flag) }
            $(#[inline] pub fn $set(self) -> State { self.with($flag) })?
        )*}
    };
}

flags! {
    /// Returns `true` if the item is queued, or its timer is armed.
    PENDING = 0 "pending" pub is_pending;
    LINKED = 1 "linked" is_linked;
    RUNNING = 2 "running" pub is_running;
    /// Returns `true` if the link is in no list, but was handed to a run or a claim.
    HANDOFF = 3 "handoff" pub is_left;
    OWED = 4 "owes a turn" owes;
    /// Returns `true` if a thread or a timer has claimed the item.
    CLAIMED = 5 "claimed" pub is_claimed;
    WAITED = 6 "waited" is_waited + wait;
    /// Returns `true` if the last handle has been dropped.
    ORPHAN = 7 "orphan" pub is_orphan + orphan;
    /// Returns `true` if the last run panicked.
    PANICKED = 8 "panicked" pub has_panicked;
    /// Returns `true` if a task has polled the handle. Do not call it for a `Work`, for which no
    /// task waits.
    WAKER = 9 "waker or revived" pub awaits_task + await_task;
    /// Returns `true` if a joiner may run the item.
    HELP = 10 "helpable" pub lets_help;
    /// Returns `true` if the position in the list matters.
    ORDERED = 11 "ordered" pub is_ordered;
    /// Returns `true` if the queue's workers share one CPU.
    ONE_CPU = 12 "on one cpu" pub is_on_one_cpu;
    /// Returns `true` if the queue has a rescuer.
    RECLAIM = 13 "rescued" pub has_rescuer;
    /// Returns `true` if the item owns a capacity permit of its queue, which is released when the
    /// item starts or is cancelled; see `limit/capacity.rs`.
    COUNTED = 14 "counted" pub is_counted;
}

/// The flags through which another thread takes part in the end of a run, except those of handles.
const OTHERS: u64 = PENDING | LINKED | HANDOFF | OWED | CLAIMED | WAITED | WAKER;

/// Set if the item was queued into its old position, where it may look older than it is. The flag
/// is used only for items that can be queued again, for which no task waits.
const REVIVED: u64 = WAKER;

const RULES: u64 = HELP | ORDERED | ONE_CPU | RECLAIM;

const SEQ_SHIFT: u32 = 15;
const SEQ_BITS: u32 = 33;
const SEQ_ONE: u64 = 1 << SEQ_SHIFT;
const SEQ_MASK: u64 = ((1 << SEQ_BITS) - 1) << SEQ_SHIFT;
const DISABLE_SHIFT: u32 = 48;
const DISABLE_ONE: u64 = 1 << DISABLE_SHIFT;

/// The rules of a queue for its items; part of the state word while an item is queued there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Set if a joiner may run the item.
    pub help: bool,
    /// Set if the item's position in its list matters, because it can be queued again. A cancel
    /// then removes it from the list instead of leaving a tombstone.
    pub ordered: bool,
    /// Set if the queue's workers share one CPU. A waiter then yields instead of busy-polling.
    pub one_cpu: bool,
    /// Set if the queue has a rescuer.
    pub reclaim: bool,
}

impl Rules {
    fn bits(self) -> u64 {
        (u64::from(self.help) * HELP)
            | (u64::from(self.ordered) * ORDERED)
            | (u64::from(self.one_cpu) * ONE_CPU)
            | (u64::from(self.reclaim) * RECLAIM)
    }
}

/// The action of an enqueuer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enqueue {
    /// Do nothing: the item is already pending.
    Pending,
    /// Do nothing: the item is disabled.
    Disabled,
    /// Set the state; the link is still in a list of this queue, where a worker will find it.
    Revive(State),
    /// Set the state and push the item.
    Push(State),
    /// Set the state, write the new home pwq, publish the item, and push it.
    Claim(State),
    /// Set the state, remove the link from another queue's list or take it back from the run that
    /// it was handed to, and continue as for `Claim`.
    Elsewhere(State),
}

/// The action of a worker that unlinked an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pop {
    /// Set the state and run the item.
    Run(State),
    /// Set the state; the thread that runs or claims the item inherits its list link and in-flight
    /// count.
    Leave(State),
    /// Set the state and release the in-flight count: the item is not pending.
    Discard(State),
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The code returned.
    Returned,
    /// The code panicked.
    Panicked,
    /// The item is a future that waits for its waker.
    Suspended {
        /// The item stays counted in flight on the pwq on which it ran, until the future has ended.
        keeps_count: bool,
    },
}

/// The state after a run, and the remaining work of the thread that ran the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    pub next: State,
    /// Push the item again, at the front: it was queued and popped during the run.
    pub relink: bool,
    /// The item's position is older than its last enqueue.
    pub revived: bool,
    /// Push the item: the future was woken while it was polled.
    pub push: bool,
    /// Release the in-flight count of an item that was popped during the run and then cancelled.
    pub retire_handoff: bool,
    /// Wake the threads that sleep on the word.
    pub wake: bool,
    /// Wake the async task that polled the handle.
    pub wake_task: bool,
    pub free: bool,
}

impl State {
    pub const IDLE: State = State(0);

    /// Returns the state of a new one-shot item that is about to be pushed.
    #[inline]
    pub fn queued(rules: Rules) -> State {
        State(PENDING | LINKED | rules.bits())
    }

    /// Returns the state of a one-shot item that will never run.
    #[inline]
    pub fn ended() -> State {
        State::IDLE.next_completion()
    }

    #[inline]
    fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }
    #[inline]
    fn with(self, flags: u64) -> State {
        State(self.0 | flags)
    }
    #[inline]
    fn without(self, flags: u64) -> State {
        State(self.0 & !flags)
    }
    #[inline]
    fn next_completion(self) -> State {
        State((self.0 & !SEQ_MASK) | (self.0.wrapping_add(SEQ_ONE) & SEQ_MASK))
    }

    pub fn is_revived(self) -> bool {
        self.has(REVIVED)
    }
    /// Records that the item was queued again into its old position.
    pub fn revived(self) -> State {
        self.with(REVIVED)
    }
    /// Returns `true` if a list, or the thread that runs or claims the item, holds its link.
    #[inline]
    pub fn has_link(self) -> bool {
        self.has(LINKED | HANDOFF)
    }
    /// Returns `true` if the item is neither queued nor running nor claimed.
    #[inline]
    pub fn is_idle(self) -> bool {
        !self.has(PENDING | RUNNING | CLAIMED)
    }
    /// Returns how many times the item has been disabled and not enabled again.
    #[inline]
    pub fn disable_depth(self) -> u16 {
        (self.0 >> DISABLE_SHIFT) as u16
    }
    /// Returns the completion sequence number, which wraps around.
    #[inline]
    pub fn completion_seq(self) -> u64 {
        (self.0 & SEQ_MASK) >> SEQ_SHIFT
    }
    /// Returns the completion sequence number that is reached when everything that is queued or
    /// running now has ended.
    pub fn last_completion_seq(self) -> u64 {
        let nr_left = u64::from(self.has(RUNNING)) + u64::from(self.has(PENDING | CLAIMED));
        self.completion_seq().wrapping_add(nr_left) & (SEQ_MASK >> SEQ_SHIFT)
    }
    /// Returns `true` if `seq` has been reached. Numbers wrap, so a waiter must not sleep through
    /// half of them (2^32).
    #[inline]
    pub fn has_reached(self, seq: u64) -> bool {
        let ahead = seq.wrapping_sub(self.completion_seq()) & (SEQ_MASK >> SEQ_SHIFT);
        ahead == 0 || ahead > 1 << (SEQ_BITS - 1)
    }
    /// Gives a pending item a capacity permit of its queue if `has_permit` is set.
    #[inline]
    pub fn counted(self, has_permit: bool) -> State {
        self.with(u64::from(has_permit) * COUNTED)
    }

    /// Plans an enqueue. `here` is set if the home pwq is the one that will be used; `ours` returns
    /// `true` if the home pwq belongs to the same queue. The item receives a capacity permit if
    /// `has_permit` is set.
    pub fn enqueue(
        self,
        here: bool,
        ours: impl FnOnce() -> bool,
        rules: Rules,
        has_permit: bool,
    ) -> Enqueue {
        // The new enqueue takes the sequence number of one that was cancelled during the same run.
        let queued = self.without(OWED).counted(has_permit);
        let fresh = queued.without(RULES | REVIVED).with(rules.bits());
        if self.disable_depth() > 0 {
            Enqueue::Disabled
        } else if self.has(PENDING | CLAIMED) {
            Enqueue::Pending
        } else if self.has(LINKED | HANDOFF) {
            // A link that was handed to a run is in no list, so a bulk cancel could not find it.
            if !self.has(HANDOFF) && ours() {
                Enqueue::Revive(queued.with(PENDING | REVIVED))
            } else {
                Enqueue::Elsewhere(fresh.with(CLAIMED))
            }
        } else if here {
            Enqueue::Push(fresh.with(PENDING | LINKED))
        } else {
            Enqueue::Claim(fresh.with(CLAIMED))
        }
    }

    /// Ends the claim of an enqueuer that has written the new home pwq.
    #[inline]
    pub fn publish(self) -> State {
        self.without(CLAIMED).with(PENDING | LINKED)
    }

    #[inline]
    pub fn pop(self) -> Pop {
        let popped = self.without(LINKED);
        let busy = self.has(RUNNING) && !sync::twin::armed("item: runs overlap");
        // This applies even if the item is not pending, because the link that a helper left in the
        // list is counted until the helper's run has ended.
        let busy =
            busy && (self.has(PENDING) || !sync::twin::armed("item: forgets a helper's link"));
        if self.has(CLAIMED) || busy {
            Pop::Leave(popped.with(HANDOFF))
        } else if self.has(PENDING) {
            Pop::Run(popped.without(PENDING | PANICKED | COUNTED).with(RUNNING))
        } else {
            Pop::Discard(popped)
        }
    }

    /// Returns `true` if the item must be freed, after it has been discarded or has lost its last
    /// handle.
    pub fn frees(self) -> bool {
        self.has(ORPHAN) && !self.has(LINKED | RUNNING | CLAIMED | PENDING | HANDOFF)
    }

    /// Ends a run that returned, if no other work is left: no thread waits, and the item was not
    /// queued again. This is the common case.
    #[inline]
    pub fn complete_alone(self) -> Option<State> {
        (!self.has(OTHERS | ORPHAN)).then(|| self.without(RUNNING).next_completion())
    }

    /// Returns `true` if the running item has no handle and no list link, and no other thread has
    /// claimed it. Only the run can then change the state, so its end needs no transition.
    #[inline]
    pub fn ends_unseen(self) -> bool {
        let is_unseen = self.has(ORPHAN) && !self.has(OTHERS);
        is_unseen && !sync::twin::armed("item: completion never frees")
    }

    #[inline]
    pub fn complete(self, ending: Ending) -> Completion {
        if matches!(ending, Ending::Suspended { .. }) {
            return self.suspend();
        }
        // The thread that claims the item handles the link that was handed over.
        let handed_over = self.has(HANDOFF) && !self.has(CLAIMED);
        let relink = handed_over && self.has(PENDING);
        let mut next = self.without(RUNNING | OWED | WAITED | WAKER).next_completion();
        if self.owes() {
            next = next.next_completion();
        }
        if handed_over {
            next = next.without(HANDOFF);
        }
        if relink {
            // The link may be handed to another run, and keeps its age.
            next = next.with(LINKED | self.0 & REVIVED);
        }
        if ending == Ending::Panicked {
            next = next.with(PANICKED);
        }
        if !next.has(LINKED | HANDOFF | CLAIMED) {
            // A future that was woken in its last poll has ended, and is not polled again.
            next = next.without(PENDING);
        }
        Completion {
            next,
            relink,
            revived: self.is_revived(),
            retire_handoff: handed_over && !relink,
            wake: self.is_waited(),
            wake_task: self.has(WAKER),
            free: next.frees() && !sync::twin::armed("item: completion never frees"),
            ..Completion::default()
        }
    }

    /// Starts to help: the claim keeps the home pwq alive, so the helper can access it. A worker
    /// that pops the link before the claim ends hands it, with its count, to the claim.
    #[inline]
    pub fn claim(self) -> Option<State> {
        let helpable = self.is_pending()
            && self.is_linked()
            && self.lets_help()
            && !self.has(RUNNING | CLAIMED);
        helpable.then(|| self.with(CLAIMED))
    }

    /// Turns a helper's claim into a run. If the link was popped during the claim, the run owns it,
    /// and it is counted until the run ends.
    #[inline]
    pub fn run_claimed(self) -> State {
        self.without(PENDING | CLAIMED | PANICKED | COUNTED).with(RUNNING)
    }

    /// Releases a helper's claim. The flag is set if the link has been popped since the claim and
    /// must be pushed again.
    #[inline]
    pub fn unclaim(self) -> (State, bool) {
        let next = self.without(CLAIMED);
        if self.has(HANDOFF) { (next.without(HANDOFF).with(LINKED), true) } else { (next, false) }
    }

    #[inline]
    pub fn unlink(self) -> State {
        self.without(LINKED)
    }

    /// Takes over a link that was popped during a claim.
    #[inline]
    pub fn take_handoff(self) -> Option<State> {
        self.has(HANDOFF).then(|| self.without(HANDOFF))
    }

    /// Clears `ORPHAN`. Returns `None` while it is not set.
    pub fn adopt(self) -> Option<State> {
        self.has(ORPHAN).then(|| self.without(ORPHAN))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "turn {}", self.completion_seq())?;
        for &(flag, name) in NAMES {
            if self.has(flag) {
                write!(f, " {name}")?;
            }
        }
        if self.disable_depth() > 0 {
            write!(f, " disabled×{}", self.disable_depth())?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
