//! A work item that is part of its user's structure.

use std::{
    cell::{Cell, UnsafeCell},
    fmt, mem,
    ptr::NonNull,
};

use base::internal::{
    panics::{die, guarded_in_item},
    trace,
    wake::report,
};
use sync::Patience;
use topology::CpuId;

use workqueue::{
    Busy, Workqueue,
    internal::{self, Ending, Head, Origin, Place, Popped, Start, State, VTable},
};

// Also checks that the function leaves the section in which it was called.
use rcu::internal::of_c;

use crate::runs::{Name, Run, Shard};

/// What an item calls: with its own address, on a worker. It may free the item, and must not unwind.
pub type WorkFn = unsafe extern "C-unwind" fn(*mut RawWork);

/// Tells an item that was laid out from any other memory: "work" four times over, and never an address of user space.
const MAGIC: u64 = 0xf770_726b_776f_726b;

/// How many runs a thread may be in that helps: each of them is on its stack. A guess.
const MAX_HELP: u32 = 4;

/// A work item in its user's memory: the kernel's `struct work_struct`.
///
/// All functions take its address. Each of them may be called by any thread at any time, as long as the item is there.
///
/// The function has the same offset as in the kernel's structure, because C structures overlay an
/// item and rely on that offset. `Head`, which would otherwise have fields on both sides of that
/// offset, follows the function.
#[repr(C, align(8))]
pub struct RawWork {
    /// Not used by the library, because C may overlay other members here.
    unused: UnsafeCell<[usize; 2]>,
    /// I: `MAGIC`
    magic: Cell<u64>,
    /// I
    func: Cell<Option<WorkFn>>,
    head: Head,
}

// SAFETY: what it calls is told to be called on any thread, by (1) of `init`; else it is atomics, and cells that are fixed.
unsafe impl Send for RawWork {}
// SAFETY: as above.
unsafe impl Sync for RawWork {}

/// Who has an item that is to be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The caller, who ends the claim; it is in no list.
    Ours,
    /// Its timer.
    Timers,
    /// Nobody: it is not pending.
    Idle,
}

/// What a caller of a raw item did that he must not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misuse {
    /// The item was never laid out, or its memory has been written over.
    Uninitialised,
    /// The item's address is not one that an item may have.
    Misaligned,
    /// The item has no function to call.
    NoFunction,
    /// The item waits for its own end.
    OwnItem,
    /// The item cannot start before the item that waits for it has ended, because that item has the
    /// only seat of their queue.
    OwnQueue,
    /// It was disabled 65535 times already.
    DisabledTooOften,
    /// It was enabled and is not disabled.
    NotDisabled,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uninitialised => "the work item is not initialised",
            Self::Misaligned => "the work item is not aligned to 8 bytes",
            Self::NoFunction => "the work item has no function",
            Self::OwnItem => "the work item waits for its own end",
            Self::OwnQueue => {
                "the work item cannot start before the item that waits for it has ended: their queue has one seat"
            }
            Self::DisabledTooOften => "the work item was disabled 65535 times already",
            Self::NotDisabled => "the work item is enabled and was not disabled",
        })
    }
}

impl std::error::Error for Misuse {}

/// What follows the first is for items with handles, which these never have.
const VTABLE: &VTable = &VTable::plain(
    // SAFETY: as of `pop_and`.
    |item| unsafe { pop_and(item, true) },
    // SAFETY: as above. Behind a run it is left to that, whose end finds it cancelled.
    |item, _| unsafe { pop_and(item, false) },
    |_| Ending::Returned,
    || "raw work item",
    |_| (),
);

impl RawWork {
    /// Makes an item that calls `func`, which is to be put where it stays.
    ///
    /// # Safety
    ///
    /// 1. `func` may be called with the item's address on any thread, whenever the item was queued.
    #[cfg(not(any(loom, shuttle)))]
    pub const unsafe fn new(func: WorkFn) -> Self {
        Self {
            unused: UnsafeCell::new([0; 2]),
            magic: Cell::new(MAGIC),
            func: Cell::new(Some(func)),
            head: Head::unqueued(VTABLE),
        }
    }

    /// As above, in a model, whose atomics are not made by constants.
    ///
    /// # Safety
    ///
    /// 1. As above.
    #[cfg(any(loom, shuttle))]
    pub unsafe fn new(func: WorkFn) -> Self {
        Self {
            unused: UnsafeCell::new([0; 2]),
            magic: Cell::new(MAGIC),
            func: Cell::new(Some(func)),
            head: Head::unqueued(VTABLE),
        }
    }

    /// Returns what `this` points at, once it is known to be an item.
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub(super) unsafe fn known<'a>(this: NonNull<Self>) -> Result<&'a Self, Misuse> {
        // What an address has below that is a link's own.
        if !this.is_aligned() {
            return Err(Misuse::Misaligned);
        }
        // SAFETY: (1), and it is aligned.
        let magic = unsafe { *(&raw const (*this.as_ptr()).magic).cast::<u64>() };
        if magic != MAGIC {
            return Err(Misuse::Uninitialised);
        }
        // SAFETY: as above, and it was laid out.
        if unsafe { (*this.as_ptr()).func.get() }.is_none() {
            return Err(Misuse::NoFunction);
        }
        // In a model by `new`.
        #[cfg(not(any(loom, shuttle)))]
        // SAFETY: it was laid out: by `new`, or with zeroes in the place of its table.
        unsafe {
            Head::adopt(&raw const (*this.as_ptr()).head, VTABLE)
        };
        // SAFETY: as above, and now all of it is what it has to be.
        Ok(unsafe { this.as_ref() })
    }

    /// Returns the head of an item, with the provenance of `this`.
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size.
    #[inline]
    pub(super) unsafe fn head_of(this: NonNull<Self>) -> NonNull<Head> {
        // SAFETY: (1).
        unsafe { this.byte_add(mem::offset_of!(Self, head)) }.cast()
    }

    /// Returns the address of the item that contains `head`, with its provenance. The item may have
    /// been freed.
    #[inline]
    fn of_head(head: NonNull<Head>) -> *mut Self {
        let offset = mem::offset_of!(Self, head);
        head.as_ptr().wrapping_byte_sub(offset).cast()
    }

    fn item(&self) -> NonNull<Head> {
        // SAFETY: an item.
        unsafe { Self::head_of(NonNull::from(self)) }
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn name(&self) -> Name {
        Name::of(self, self.func.get())
    }

    /// Queues the item on the pool of this CPU's pod, or of `cpu`'s; false when it is pending already, or is disabled, or
    /// the queue is being drained by somebody else.
    ///
    /// # Blocking
    ///
    /// As [`Workqueue::enqueue`](workqueue::Workqueue::enqueue). No memory is allocated.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], and [`Misuse::NoFunction`].
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    /// 2. The item stays where it is until its function is called, or it is cancelled, or flushed.
    #[inline]
    pub unsafe fn queue(
        this: NonNull<Self>,
        queue: &Workqueue,
        cpu: Option<CpuId>,
    ) -> Result<bool, Misuse> {
        // SAFETY: (1), (2).
        unsafe {
            Self::queue_by(this, queue, || match cpu {
                None => Place::here(queue),
                Some(cpu) => Place::at_cpu(queue, cpu),
            })
        }
    }

    /// Queues the item as [`queue`](Self::queue), on a pool of a NUMA node; see
    /// [`Workqueue::enqueue_node`](workqueue::Workqueue::enqueue_node).
    ///
    /// # Blocking
    ///
    /// As [`queue`](Self::queue).
    ///
    /// # Errors
    ///
    /// As of [`queue`](Self::queue).
    ///
    /// # Safety
    ///
    /// 1. And (2): as of [`queue`](Self::queue).
    pub unsafe fn queue_node(
        this: NonNull<Self>,
        queue: &Workqueue,
        node: u32,
    ) -> Result<bool, Misuse> {
        // SAFETY: (1), (2).
        unsafe { Self::queue_by(this, queue, || Place::at_node(queue, node)) }
    }

    /// # Safety
    ///
    /// 1. And (2): as of [`queue`](Self::queue).
    #[inline]
    unsafe fn queue_by<'a>(
        this: NonNull<Self>,
        queue: &'a Workqueue,
        home: impl FnOnce() -> Place<'a>,
    ) -> Result<bool, Misuse> {
        // What its function gets: it leads on to what is around the item, where a reference does not.
        // SAFETY: (1).
        let item = unsafe { Self::head_of(this) };
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        if !internal::admits(queue) {
            return Ok(false);
        }
        let home = home();
        let is_ours = home.enqueue(&this.head);
        if is_ours {
            home.push(item);
        }
        Ok(is_ours)
    }

    /// Makes the item pending, to be queued by [`queue_held`](Self::queue_held) when something has come; false when it is pending
    /// already, or disabled, or `queue` refuses it. Until then no cancel gets it, and no flush waits for it.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As of [`queue`](Self::queue).
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read, and stays until [`queue_held`](Self::queue_held) is called,
    ///    once.
    #[cfg(not(any(loom, shuttle)))]
    pub unsafe fn hold(this: NonNull<Self>, queue: &Workqueue) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        Ok(internal::admits(queue) && this.head.update(State::arm).is_some())
    }

    /// Queues an item that is held, unless it was disabled meanwhile.
    ///
    /// # Blocking
    ///
    /// As [`queue`](Self::queue).
    ///
    /// # Safety
    ///
    /// 1. [`hold`](Self::hold) said true, and this is called once for that.
    /// 2. As of [`queue`](Self::queue).
    #[cfg(not(any(loom, shuttle)))]
    pub unsafe fn queue_held(this: NonNull<Self>, queue: &Workqueue) -> bool {
        // SAFETY: (1).
        let item = unsafe { Self::head_of(this) };
        // SAFETY: (1).
        let this = unsafe { this.as_ref() };
        let home = Place::here(queue);
        let is_queued = Cell::new(false);
        home.set_home(&this.head);
        this.end_claim(|state| {
            is_queued.set(state.disable_depth() == 0);
            if is_queued.get() {
                home.fire(state)
            } else {
                state.disarm()
            }
        });
        if is_queued.get() {
            home.push(item);
        }
        is_queued.get()
    }

    /// Waits until the item is idle as far as it was queued when this was called; returns `true` if there was anything to
    /// wait for.
    ///
    /// # Blocking
    ///
    /// Until then. If nobody has come for the item yet, and its queue lets joiners help, it is run here and now. An armed
    /// timer is not waited for.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], [`Misuse::NoFunction`], and
    /// [`Misuse::OwnItem`] from inside the item's own run. [`Misuse::OwnQueue`] from inside another
    /// item of a queue with one seat (as every ordered queue has), if this item waits there; the
    /// item stays queued.
    ///
    /// # Panics
    ///
    /// Inside an item of a bottom-half queue, and in a child of `fork` without workers.
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn flush(this: NonNull<Self>) -> Result<bool, Misuse> {
        let work = this;
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        let is_pending =
            |state: State| (state.is_pending() || state.is_claimed()) && !state.is_armed();
        let name = this.name();
        let is_queued = is_pending(this.head.load());
        let shard = name.shard();
        if !is_queued && !shard.runs(name) {
            return Ok(false);
        }
        if name.is_current() {
            return Err(Misuse::OwnItem);
        }
        report::must_be_free_to_sleep();
        internal::must_have_workers();
        if is_queued {
            if internal::depth() < MAX_HELP && help(work, shard) {
                return Ok(true);
            }
            if internal::needs_our_seat(&this.head) {
                return Err(Misuse::OwnQueue);
            }
            internal::before_waiting_for(&this.head);
        }
        Ok(shard.wait(name, || {
            let state = if sync::twin::armed("raw: a waiter makes no step") {
                this.head.load()
            } else {
                // Which changes nothing, and tells a start that comes after it.
                this.head.update(Some)?.0
            };
            is_pending(state).then(|| state.completion_seq())
        }))
    }

    /// Takes the item out of the queue if it has not started; returns `true` if it did. One whose timer is armed stays so.
    ///
    /// # Blocking
    ///
    /// Never for long: the item is cut out of its list under the pool lock, looking at all items before it.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], and [`Misuse::NoFunction`].
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn cancel(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        Ok(unsafe { Self::known(this) }?.take_back())
    }

    fn take_back(&self) -> bool {
        let claimed = self.claim() == Claim::Ours;
        if claimed {
            self.end_claim(State::disarm);
        }
        claimed
    }

    /// Claims the item, if it is pending, and gets its link out of wherever that is.
    pub(super) fn claim(&self) -> Claim {
        let mut patience = Patience::new();
        loop {
            if self.head.update(State::claim_pending).is_some() {
                // While nobody else can queue it.
                trace::forget(self.item().as_ptr().addr());
                // SAFETY: claimed above, and the caller keeps the item.
                unsafe { internal::cut_out(self.item()) };
                return Claim::Ours;
            }
            let state = self.head.load();
            if state.is_armed() {
                return Claim::Timers;
            }
            if !state.is_pending() && !state.is_claimed() {
                return Claim::Idle;
            }
            // Somebody is in the middle of a step.
            patience.pause();
        }
    }

    /// Ends a claim by the step `plan`, after which the item is not pending.
    pub(super) fn end_claim(&self, plan: impl Fn(State) -> State) {
        let name = self.name();
        name.shard().release(&self.head, name, plan);
    }

    /// Takes the item out of the queue, and waits until it does not run; returns `true` if it was pending. Queueing is
    /// refused meanwhile.
    ///
    /// # Blocking
    ///
    /// Until a run that has started has ended. From inside the item's own run it does not wait.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], [`Misuse::NoFunction`], and [`Misuse::DisabledTooOften`].
    ///
    /// # Panics
    ///
    /// As of [`flush`](Self::flush).
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn cancel_sync(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let was_pending = unsafe { Self::disable_sync(this) }?;
        // SAFETY: (1).
        unsafe { Self::enable(this) }?;
        Ok(was_pending)
    }

    /// Refuses queueing until as many [`enable`](Self::enable)s have come, and cancels; returns `true` if it was pending.
    ///
    /// # Blocking
    ///
    /// As [`cancel`](Self::cancel).
    ///
    /// # Errors
    ///
    /// As of [`cancel_sync`](Self::cancel_sync).
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn disable(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        this.refuse()?;
        Ok(this.take_back())
    }

    pub(super) fn refuse(&self) -> Result<(), Misuse> {
        let disabled = self.head.update(State::disable);
        disabled.map(|_| ()).ok_or(Misuse::DisabledTooOften)
    }

    /// As [`disable`](Self::disable), and waits until the item does not run.
    ///
    /// # Blocking
    ///
    /// As [`cancel_sync`](Self::cancel_sync).
    ///
    /// # Errors
    ///
    /// As of [`cancel_sync`](Self::cancel_sync).
    ///
    /// # Panics
    ///
    /// As of [`flush`](Self::flush).
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn disable_sync(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        this.must_be_free_to_wait();
        this.refuse()?;
        let was_pending = this.take_back();
        this.wait_for_run();
        Ok(was_pending)
    }

    /// Before the item is disabled to be waited for: what panics later would leave it so.
    pub(super) fn must_be_free_to_wait(&self) {
        let name = self.name();
        if !name.is_current() {
            report::must_be_free_to_sleep();
            if name.shard().runs(name) {
                internal::must_have_workers();
            }
        }
    }

    /// Waits until the item, which is disabled, does not run.
    pub(super) fn wait_for_run(&self) {
        let name = self.name();
        if !name.is_current() {
            name.shard().wait(name, || None);
        }
    }

    /// Takes one [`disable`](Self::disable) back; returns `true` if the item may be queued again.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], [`Misuse::NoFunction`], and [`Misuse::NotDisabled`].
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn enable(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        let enabled = this.head.update(State::enable).ok_or(Misuse::NotDisabled)?;
        Ok(enabled.1.disable_depth() == 0)
    }

    /// Returns whether the item is pending, its timer included, and whether it executes: neither only of one that was idle.
    ///
    /// # Blocking
    ///
    /// For a short lock. The answer may be old when it arrives.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], and [`Misuse::NoFunction`].
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read.
    pub unsafe fn busy(this: NonNull<Self>) -> Result<Busy, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        let name = this.name();
        let mut state = this.head.load();
        loop {
            let executing = name.shard().runs(name);
            let now = this.head.load();
            // Else it may have been pending before the one look and have run before the other, or the other way round.
            if now == state {
                let mut busy = Busy::default();
                busy.pending = state.is_pending() || state.is_claimed();
                busy.executing = executing;
                return Ok(busy);
            }
            state = now;
        }
    }
}

impl fmt::Debug for RawWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawWork").field(&self.head.load()).finish()
    }
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(mem::offset_of!(RawWork, func) == 24 && size_of::<RawWork>() == 64);

/// Takes an item that the caller just took off a list, and runs it if it is to be run; without its function, it is cancelled
/// by that.
///
/// # Safety
///
/// 1. `item` is linked, and the caller alone holds its link.
unsafe fn pop_and(item: NonNull<Head>, calls: bool) -> Popped {
    let work = RawWork::of_head(item);
    // SAFETY: (1): a linked item is alive, and one with our table is a `RawWork`.
    let (func, home) = unsafe {
        // Before the step: after it the item may be queued elsewhere, and has another home.
        let home = Origin::of(&(*work).head);
        ((*work).func.get(), home)
    };
    let name = Name::of(work, func);
    let shard = name.shard();
    let mut run = Run::new(name);
    let run = &raw mut run;
    // SAFETY: (1); `run` is on this stack, and ended below.
    let (start, left) = unsafe { shard.begin(item, run) };
    if start != Start::Run {
        put_back_left(left);
        return Popped::Left;
    }
    let func = func.filter(|_| calls);
    // SAFETY: begun above; our caller keeps the link's count until we are back.
    unsafe { carry_out(item, func, home, (shard, run), false, || ()) };
    Popped::Ran
}

/// Calls an item's function, which may free it; `before_end` is called after it and before anybody can see that it ended.
///
/// # Safety
///
/// 1. `run` has been begun on this thread, in `shard`, for `item`, whose function is `func`.
/// 2. `home` stays until `before_end` is called.
unsafe fn carry_out(
    item: NonNull<Head>,
    func: Option<WorkFn>,
    home: Origin,
    (shard, run): (&Shard, *mut Run),
    helps: bool,
    before_end: impl FnOnce(),
) {
    // From here on the item may be gone: it is named and not looked at.
    let call = || {
        // FOREIGN(raw-item-run): a function of C's, on a worker, a rescuer or a joiner; what unwinds ends the process.
        let outcome = guarded_in_item(|| {
            if let Some(func) = func {
                let run = || {
                    // SAFETY: by (1) of `RawWork::new`.
                    unsafe { func(RawWork::of_head(item)) };
                };
                of_c("function of a work item", func as usize, run);
            }
        });
        if outcome.is_err() {
            // Reached only in a model, where panics unwind.
            die("the function of a work item unwound");
        }
    };
    // SAFETY: (2), and `before_end` forgets it where it goes.
    unsafe { home.run(item, VTABLE, helps, call, before_end) };
    // SAFETY: (1).
    put_back_left(unsafe { shard.end(run) });
}

/// Puts an item back that was left to a run, and is linked again.
fn put_back_left(left: Option<NonNull<Head>>) {
    if let Some(left) = left {
        // SAFETY: linked again and counted in flight.
        unsafe { internal::put_back(left) };
    }
}

/// Runs a pending item on the spot, if its queue lets joiners help and has a seat, and nobody has come for it; returns `true`
/// if it did.
///
/// The caller keeps the item at `this` alive; `shard` is the item's shard.
fn help(this: NonNull<RawWork>, shard: &Shard) -> bool {
    // SAFETY: an item.
    let item = unsafe { RawWork::head_of(this) };
    // SAFETY: our caller keeps it.
    let (name, func) = unsafe { (this.as_ref().name(), this.as_ref().func.get()) };
    let run = |home: Origin, before_end: &mut dyn FnMut()| {
        let mut run = Run::new(name);
        let run = &raw mut run;
        // SAFETY: claimed and cut out by `internal::help`, so it is there until its function is called. `run` is on this
        // stack, and ended by `carry_out`; the home is kept until `before_end` is called.
        unsafe {
            shard.begin_claimed(item.as_ref(), run);
            carry_out(item, func, home, (shard, run), true, before_end);
        }
    };
    // SAFETY: our caller keeps the item, and `run` starts and ends a run of it.
    unsafe { internal::help(item, || !shard.runs(name), run) }
}
