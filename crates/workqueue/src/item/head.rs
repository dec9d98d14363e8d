//! The part that every work item has: its link, its home, its state and what to call.

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

/// What an item knows of the link by which it is queued, and the first part of that link: see `Pwq::of`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// I: the link's place in the pool's table.
    pub(crate) slot: usize,
    /// I: in which lane of the queue they wait.
    pub(crate) lane: Lane,
    /// I: what the items are told to let happen to them.
    pub(crate) rules: Rules,
}

/// The first part of every item, except a raw one, whose layout is prescribed by C.
///
/// A step of the state may let another thread free the item, so all fields are cells.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Head {
    /// The next item of the list that holds this one, and this one's colour; belongs to that list.
    pub(crate) next: AtomicPtr<Head>,
    /// Where it is queued, or was last; written by the enqueuer that claimed it while it was unlinked.
    pub(crate) home: AtomicPtr<Home>,
    /// I
    vtable: Fixed<&'static VTable>,
    /// A: see `state.rs`.
    pub(crate) state: Futex64,
}

/// What an item does.
#[derive(Debug)]
pub struct VTable {
    /// Takes the item, which the caller just took off a list, and runs it if it is to be run.
    pub(crate) run: unsafe fn(NonNull<Head>) -> Popped,
    /// Takes the item, which the caller just took off a list, and cancels it if it is pending: it has `Ran` then. What is still to
    /// be done goes to the remains.
    pub(crate) cancel: unsafe fn(NonNull<Head>, &mut Remains) -> Popped,
    /// Runs an item whose state says that the caller runs it.
    pub(crate) call: unsafe fn(NonNull<Head>) -> Ending,
    /// Returns the type of its function.
    pub(crate) name: fn() -> &'static str,
    /// Frees the item.
    pub(crate) free: unsafe fn(NonNull<Head>),
    /// Returns `true` if freeing the item, which nobody has any more, drops nothing of users'.
    pub(crate) is_husk: unsafe fn(NonNull<Head>) -> bool,
    /// Returns `true` if the item, which waits in a list, has begun: it is a future that was polled before.
    pub(crate) has_begun: unsafe fn(NonNull<Head>) -> bool,
    /// Pushes a future that was woken while it was polled.
    pub(crate) push: Option<unsafe fn(NonNull<Head>)>,
    /// It is a [`Work`](crate::Work)'s.
    pub(crate) is_work: bool,
    /// Of an item with a [`JoinHandle`](crate::JoinHandle).
    pub(crate) handle: Option<HandleTable>,
}

impl VTable {
    /// Makes the table of an item without a handle, that is no future.
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

/// What a join handle must be able to do without knowing the closure's type.
#[derive(Debug)]
pub(crate) struct HandleTable {
    /// Moves the outcome into the `Option<Outcome<T>>` that it points at.
    pub(crate) take: unsafe fn(NonNull<Head>, *mut ()),
    /// Keeps the item's code from running. Returns `true` if it will not run any more.
    pub(crate) cancel: unsafe fn(NonNull<Head>) -> bool,
    /// Lets go of the item for its handle.
    pub(crate) leave: unsafe fn(NonNull<Head>),
    /// Where in the item its [`TaskSlot`] is: the offset of an `UnsafeCell<Option<Arc<TaskSlot>>>`, in bytes.
    pub(crate) slot_at: usize,
    /// Of an item with a deadline.
    pub(crate) expiry: Option<Expiry>,
}

impl HandleTable {
    /// Returns the place of the item's task slot. The handle writes it, before it sets the flag that a task waits.
    ///
    /// # Safety
    ///
    /// 1. The table is the item's, and the item is not freed while the place is used.
    pub(crate) unsafe fn slot(&self, item: NonNull<Head>) -> *mut Option<Arc<TaskSlot>> {
        // SAFETY: (1): the offset is that of a field of the item's type.
        unsafe { item.as_ptr().cast::<u8>().add(self.slot_at).cast() }
    }

    /// Returns the slot in which the async task that polled the handle left its waker.
    ///
    /// # Safety
    ///
    /// 1. As [`slot`](Self::slot), and the flag that a task waits is set.
    pub(crate) unsafe fn awaited_slot(&self, item: NonNull<Head>) -> Arc<TaskSlot> {
        // SAFETY: (1): the flag was set after the slot was written, and the slot is not written again.
        let slot = unsafe { &*self.slot(item) };
        slot.clone().expect("written before the flag")
    }
}

/// What a join handle must be able to do with an item that is to start by a deadline.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// Returns the deadline by the clock.
    pub(crate) at_ns: unsafe fn(NonNull<Head>) -> u64,
    /// Lets the item, whose deadline is over, expire. Returns `true` if it had not started, and will not.
    pub(crate) expire: unsafe fn(NonNull<Head>) -> bool,
    /// Has the waker, and no earlier one, fired at the deadline; false where that is over. The handle alone.
    pub(crate) wake_then: unsafe fn(NonNull<Head>, &Waker) -> bool,
}

/// What became of an item that a worker took off its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popped {
    /// It was run.
    Ran,
    /// It was run, is a future, and keeps its in-flight count.
    Kept,
    /// It runs elsewhere; whoever runs it inherits the in-flight count.
    Left,
    /// Nobody wants it run.
    Dropped,
}

impl Popped {
    /// Returns `true` if the in-flight count is the worker's to give back.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Self::Ran | Self::Dropped)
    }

    pub(crate) fn ran(self) -> bool {
        matches!(self, Self::Ran | Self::Kept)
    }
}

/// Where an async task that waits for an item leaves its waker.
pub(crate) type TaskSlot = Mutex<Option<Foreign<Waker>>>;

/// What the end of a run leaves to be done.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) completion: Completion,
    /// Where the item was queued, and in which colour it is counted there.
    pub(crate) home: *mut Home,
    pub(crate) colour: Colour,
    /// Who polled the handle.
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
        /// Makes one that was never queued.
        pub fn unqueued(vtable: &'static VTable) -> Self {
            Self {
                next: AtomicPtr::new(ptr::null_mut()),
                home: AtomicPtr::new(ptr::null_mut()),
                vtable: Fixed::new(vtable),
                state: Futex64::new(State::IDLE.0),
            }
        }
    }

    /// Sees to it that an item which may have been laid out by others does what `vtable` says.
    ///
    /// # Safety
    ///
    /// 1. `head` is alive, and where its table is, there is null or `vtable`.
    #[cfg(not(any(loom, shuttle)))]
    pub unsafe fn adopt(head: *const Head, vtable: &'static VTable) {
        let (null, ours) = (ptr::null_mut(), ptr::from_ref(vtable).cast_mut());
        // SAFETY: (1); a cell, so it may be written, and whoever finds it written only reads it.
        let table = unsafe { &*(&raw const (*head).vtable).cast::<AtomicPtr<VTable>>() };
        if table.load(Ordering::Relaxed).is_null() {
            // A thread that comes second writes nothing: others may be reading it by then.
            let _ = table.compare_exchange(null, ours, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns what it does.
    #[inline]
    pub(crate) fn vtable(&self) -> &'static VTable {
        self.vtable.get()
    }

    /// Returns the state.
    #[inline]
    pub fn load(&self) -> State {
        // Acquire pairs with `step`: the loader sees all that came before the step that made this state.
        State(self.state.word().load(Ordering::Acquire))
    }

    pub(crate) fn key(&self) -> Key {
        self.state.key()
    }

    /// Applies one step. Returns `false` if the word has changed since `from` was read.
    ///
    /// Every step is an acquire and a release: a run sees all that the enqueuer wrote, a second run all of the
    /// first, and a flusher all of the run that it waited for.
    #[inline]
    pub fn step(&self, from: State, to: State) -> bool {
        // ORDER(item): publish and consume; both ends are steps of this word.
        //   enqueue: data = x;  step to pending (release)
        //   pop:     step to running (acquire);  read data
        //   complete: result = y;  step to idle (release)
        //   flush:   read of idle (acquire, `load`);  read result
        // ORDER(item): the other end of each of these is the next step.
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

    /// Applies steps until one holds, or `plan` gives none; returns the state before and after.
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

    /// Takes the item off its list; returns the state before, and the answer, which has been applied.
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

    /// Takes the item off its list to cancel it; the answer has been applied. Returns the state before it, too.
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

    /// Plans an enqueue at `home`; `is_ours` says whether a link, which is only compared, is one of the same queue's.
    /// It may say no to such as is: then the item is moved. A plan that has a state has been applied, and then the item has
    /// the place of the queue's capacity that the caller `has_place` for. An item that keeps its place in a list when it is cancelled
    /// is `revivable`.
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
                // Where all was cancelled meanwhile, this is what queues it.
                Enqueue::Pending if from.is_left() && revivable.is_some() => (from.revived(), true),
                // A step as well: the run that is to come must see what was written before this call.
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

    /// Ends a run and returns what is still to be done; the state has been set, so the item may be gone.
    ///
    /// # Safety
    ///
    /// 1. `item` is running, and the caller runs it.
    #[inline]
    pub(crate) unsafe fn complete(item: NonNull<Head>, ending: Ending) -> Ended {
        // SAFETY: (1): a running item is alive; it is not looked at after the step that ends the run.
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
