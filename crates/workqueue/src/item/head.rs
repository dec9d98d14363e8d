//! The first part of every work item: its list link, its home pwq, its state and its vtable.

use std::{
    ptr::{self, NonNull},
    task::Waker,
};

use base::internal::panics::Foreign;
use sync::{
    Mutex,
    atomic::{AtomicPtr, Ordering},
    cell::Fixed,
    futex::{Futex64, Key},
    unmodelled::Arc,
};

use super::{
    colour::Colour,
    lane::Lane,
    list,
    remains::Remains,
    revival::Revivable,
    state::{Completion, Ending, Enqueue, Pop, Rules, State},
};

/// The first part of a pwq, with the fields that items use: see `Pwq::of`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// I: the index of the pwq in the pool's table.
    pub(crate) slot: usize,
    /// I: the lane of the queue.
    pub(crate) lane: Lane,
    /// I: the rules that the queue sets for its items.
    pub(crate) rules: Rules,
}

/// The first part of every item, except a raw one, whose layout C prescribes.
///
/// After a transition of the state, another thread may free the item, so all fields are cells.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Head {
    /// The next item of this item's list, and this item's colour; guarded like that list.
    pub(crate) next: AtomicPtr<Head>,
    /// The pwq on which the item is, or was last, queued; written by the enqueuer that claimed the
    /// item while it was unlinked.
    pub(crate) home: AtomicPtr<Home>,
    /// I
    vtable: Fixed<&'static VTable>,
    /// A: see `state.rs`.
    pub(crate) state: Futex64,
}

/// The functions of an item's type.
#[derive(Debug)]
pub struct VTable {
    /// Pops the item, which the caller just took off a list, and runs it if it is to run.
    pub(crate) run: unsafe fn(NonNull<Head>) -> Popped,
    /// Pops the item, which the caller just took off a list, and cancels it if it is pending;
    /// returns `Ran` in that case. The remaining work is added to the remains.
    pub(crate) cancel: unsafe fn(NonNull<Head>, &mut Remains) -> Popped,
    /// Runs an item that the caller has moved to the running state.
    pub(crate) call: unsafe fn(NonNull<Head>) -> Ending,
    /// Returns the type name of the item's function.
    pub(crate) name: fn() -> &'static str,
    /// Frees the item.
    pub(crate) free: unsafe fn(NonNull<Head>),
    /// Returns `true` if freeing the item, which is not reachable any more, drops no user data.
    pub(crate) is_husk: unsafe fn(NonNull<Head>) -> bool,
    /// Returns `true` if the item, which is in a list, is a future that was polled before.
    pub(crate) has_begun: unsafe fn(NonNull<Head>) -> bool,
    /// Pushes a future that was woken while it was polled.
    pub(crate) push: Option<unsafe fn(NonNull<Head>)>,
    /// Set for an item of a [`Work`](crate::Work).
    pub(crate) is_work: bool,
    /// Set for an item with a [`JoinHandle`](crate::JoinHandle).
    pub(crate) handle: Option<HandleTable>,
}

impl VTable {
    /// Creates the vtable of an item that has no handle and is not a future.
    pub const fn plain(
        run: unsafe fn(NonNull<Head>) -> Popped,
        cancel: unsafe fn(NonNull<Head>, &mut Remains) -> Popped,
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
            is_husk: |_| false,
            has_begun: |_| false,
            push: None,
            is_work: false,
            handle: None,
        }
    }
}

/// The functions that a join handle needs without knowing the closure's type.
#[derive(Debug)]
pub(crate) struct HandleTable {
    /// Moves the outcome into the `Option<Outcome<T>>` that the pointer refers to.
    pub(crate) take: unsafe fn(NonNull<Head>, *mut ()),
    /// Prevents the item's code from running. Returns `true` if it will not run any more.
    pub(crate) cancel: unsafe fn(NonNull<Head>) -> bool,
    /// Releases the handle's reference to the item.
    pub(crate) leave: unsafe fn(NonNull<Head>),
    /// The offset in bytes of the item's [`TaskSlot`], an `UnsafeCell<Option<Arc<TaskSlot>>>`.
    pub(crate) slot_at: usize,
    /// Set for an item with a deadline.
    pub(crate) expiry: Option<Expiry>,
}

impl HandleTable {
    /// Returns the location of the item's task slot. The handle writes it before it sets the flag
    /// that a task waits.
    ///
    /// # Safety
    ///
    /// 1. The table is the item's, and the item is not freed while the location is used.
    pub(crate) unsafe fn slot(&self, item: NonNull<Head>) -> *mut Option<Arc<TaskSlot>> {
        // SAFETY: (1): the offset is that of a field of the item's type.
        unsafe { item.as_ptr().cast::<u8>().add(self.slot_at).cast() }
    }

    /// Returns the slot in which the async task that polled the handle stored its waker.
    ///
    /// # Safety
    ///
    /// 1. As [`slot`](Self::slot), and the flag that a task waits is set.
    pub(crate) unsafe fn awaited_slot(&self, item: NonNull<Head>) -> Arc<TaskSlot> {
        // SAFETY: (1): the flag was set after the slot was written, and the slot is not written
        // again.
        let slot = unsafe { &*self.slot(item) };
        slot.clone().expect("written before the flag")
    }
}

/// The functions that a join handle needs for an item that is to start by a deadline.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// Returns the deadline as a clock time.
    pub(crate) at_ns: unsafe fn(NonNull<Head>) -> u64,
    /// Expires the item, whose deadline has passed. Returns `true` if it has not started, and never
    /// will.
    pub(crate) expire: unsafe fn(NonNull<Head>) -> bool,
    /// Registers the waker to be woken at the deadline, in place of an earlier one; returns `false`
    /// if the deadline has passed. Only for the handle.
    pub(crate) wake_then: unsafe fn(NonNull<Head>, &Waker) -> bool,
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
    pub(crate) fn counts(self) -> bool {
        matches!(self, Self::Ran | Self::Dropped)
    }

    pub(crate) fn ran(self) -> bool {
        matches!(self, Self::Ran | Self::Kept)
    }
}

/// The place where an async task that waits for an item stores its waker.
pub(crate) type TaskSlot = Mutex<Option<Foreign<Waker>>>;

/// The work that is left after a run has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) completion: Completion,
    /// The home pwq of the item, and the colour in which the item is counted there.
    pub(crate) home: *mut Home,
    pub(crate) colour: Colour,
    /// The slot of the task that polled the handle.
    pub(crate) task: Option<Arc<TaskSlot>>,
}

impl Head {
    pub(crate) fn new(vtable: &'static VTable, state: State, home: *mut Home) -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            home: AtomicPtr::new(home),
            vtable: Fixed::new(vtable),
            state: Futex64::new(state.0),
        }
    }

    sync::const_unless_model! {
        /// Creates the head of an item that was never queued.
        pub fn unqueued(vtable: &'static VTable) -> Self {
            Self {
                next: AtomicPtr::new(ptr::null_mut()),
                home: AtomicPtr::new(ptr::null_mut()),
                vtable: Fixed::new(vtable),
                state: Futex64::new(State::IDLE.0),
            }
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

    /// Returns the item's vtable.
    #[inline]
    pub(crate) fn vtable(&self) -> &'static VTable {
        self.vtable.get()
    }

    /// Returns the state.
    #[inline]
    pub fn load(&self) -> State {
        // Acquire pairs with `step`: the loader sees everything before the transition that wrote
        // this state.
        State(self.state.word().load(Ordering::Acquire))
    }

    pub(crate) fn key(&self) -> Key {
        self.state.key()
    }

    /// Applies one transition. Returns `false` if the word has changed since `from` was read.
    ///
    /// Every transition acquires and releases: a run sees all writes of the enqueuer, a second run
    /// those of the first, and a flusher those of the run that it waited for.
    #[inline]
    pub fn step(&self, from: State, to: State) -> bool {
        // ORDER(item): publish and consume; both ends are transitions of this word.
        //   enqueue:  data = x;  transition to pending (release)
        //   pop:      transition to running (acquire);  read data
        //   complete: result = y;  transition to idle (release)
        //   flush:    read of idle (acquire, `load`);  read result
        // ORDER(item): the other end of each of these is the next transition.
        // Test: flush_sees_what_the_run_wrote
        let order = if sync::twin::armed("item: relaxed steps") {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        self.state
            .word()
            .compare_exchange_weak(from.0, to.0, order, Ordering::Relaxed)
            .is_ok()
    }

    /// Retries until a transition succeeds or `plan` returns `None`; returns the state before and
    /// after.
    #[inline]
    pub fn update(&self, plan: impl Fn(State) -> Option<State>) -> Option<(State, State)> {
        let mut from = self.load();
        loop {
            let to = plan(from)?;
            if self.step(from, to) {
                return Some((from, to));
            }
            from = self.load();
        }
    }

    /// Pops the item; returns the state before and the decision, which has been applied.
    #[inline]
    pub(crate) fn pop(&self) -> (State, Pop) {
        let mut from = self.load();
        loop {
            let pop = from.pop();
            let (Pop::Run(to) | Pop::Leave(to) | Pop::Discard(to)) = pop;
            if self.step(from, to) {
                return (from, pop);
            }
            from = self.load();
        }
    }

    /// Pops the item to cancel it; otherwise like [`pop`](Self::pop).
    pub(crate) fn pop_to_cancel(&self) -> (State, Pop) {
        let mut from = self.load();
        loop {
            let pop = from.pop_to_cancel();
            let (Pop::Run(to) | Pop::Leave(to) | Pop::Discard(to)) = pop;
            if self.step(from, to) {
                return (from, pop);
            }
            from = self.load();
        }
    }

    /// Decides how to enqueue at `home`. `is_ours` returns `true` if a pwq, which is only compared,
    /// belongs to the same queue; if it returns `false` for such a pwq, the item is moved. A
    /// returned plan with a state has been applied. If `has_place` is set, the item then owns the
    /// caller's capacity permit. `revivable` is given for an item whose link may stay in its list
    /// after a cancel.
    #[inline]
    pub(crate) fn enqueue(
        &self,
        home: &Home,
        is_ours: impl Fn(*const Home) -> bool,
        has_place: bool,
        revivable: Option<&Revivable>,
    ) -> Enqueue {
        let mut from = self.load();
        loop {
            let at = self.home.load(Ordering::Relaxed);
            let here = ptr::eq(at, home);
            let ours = || here || is_ours(at);
            let plan = from.enqueue(here, ours, home.rules, has_place);
            let (to, keeps_place) = match plan {
                Enqueue::Revive(to) => (to, true),
                Enqueue::Push(to) | Enqueue::Claim(to) | Enqueue::Elsewhere(to) => (to, false),
                // If a bulk cancel came in between, this transition queues the item.
                Enqueue::Pending if from.is_left() && revivable.is_some() => (from.revived(), true),
                // Also a transition, so that the coming run sees all writes before this call.
                Enqueue::Pending if !sync::twin::armed("item: pending is no step") => (from, false),
                Enqueue::Pending | Enqueue::Disabled => return plan,
            };
            let is_as_it_was = || self.load() == from;
            if keeps_place && !revivable.is_some_and(|item| item.note(is_as_it_was)) {
                from = self.load();
                continue;
            }
            if self.step(from, to) {
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
    pub(crate) unsafe fn complete(item: NonNull<Head>, ending: Ending) -> Ended {
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
            let colour = list::colour(item);
            if head.step(from, completion.next) {
                return Ended {
                    completion,
                    home,
                    colour,
                    task: task.filter(|_| completion.wake_task),
                };
            }
            from = head.load();
        }
    }
}
