//! A work item that is a member of the caller's structure.

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::{fmt, mem};

use base::internal::panics::{die, guarded_in_item};
use base::internal::trace;
use base::internal::wake::report;
// This `of_c` also checks that the function leaves all read-side sections that it has begun.
use rcu::internal::of_c;
use sync::Backoff;
use topology::CpuId;
use workqueue::internal::{self, Ending, Head, Origin, Place, Popped, Start, State, VTable};
use workqueue::{Busy, Workqueue};

use crate::runs::{Name, Run, Shard};

/// The function of an item, called with the item's address. It may free the item and must not
/// unwind.
pub type WorkFn = unsafe extern "C-unwind" fn(*mut RawWork);

/// The value that distinguishes an initialized item from other memory. Its low half spells "work",
/// and it is never an address in user space.
const MAGIC: u64 = 0xf770_726b_776f_726b;

/// The maximum number of nested runs on a helping thread, which use its stack. The value is a
/// guess.
const MAX_HELP: u32 = 4;

/// A work item in the caller's memory. It corresponds to the kernel's `struct work_struct`.
///
/// All functions take the item's address. Any thread may call them while the item exists. If the
/// address is not that of a valid item, they return [`Misuse::Uninitialized`],
/// [`Misuse::Misaligned`] or [`Misuse::NoFunction`]. A function that does not document it never
/// blocks.
///
/// The function has the same offset as in the kernel's structure, because C structures overlay an
/// item and rely on that offset. `Head` follows the function; otherwise it would have fields on
/// both sides of it.
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

// SAFETY: `func` may be called on any thread, by (1) of `new`; the other fields are atomics, or
// cells that are not written after initialization.
unsafe impl Send for RawWork {}
// SAFETY: as above.
unsafe impl Sync for RawWork {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The caller has claimed the item and must end the claim. The item is in no list.
    Ours,
    /// The item's timer holds the claim.
    Timers,
    Idle,
}

/// The ways in which a caller can misuse a raw item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misuse {
    /// The item was never initialized, or its memory was overwritten.
    Uninitialized,
    /// The address is not a multiple of 8.
    Misaligned,
    /// The item has no function to call.
    NoFunction,
    /// The item waits for its own run to end.
    OwnItem,
    /// The item cannot start until the item that waits for it has ended, because that item holds
    /// their queue's only seat.
    OwnQueue,
    /// The item is already disabled 65535 times.
    DisabledTooOften,
    /// The item is not disabled.
    NotDisabled,
}

base::internal::impl_error!(Misuse {
    Uninitialized => InvalidInput, "the work item is not initialized";
    Misaligned => InvalidInput, "the work item is not aligned to 8 bytes";
    NoFunction => InvalidInput, "the work item has no function";
    OwnItem => Deadlock, "the work item waits for its own end";
    OwnQueue => Deadlock, "the work item cannot start before the item that waits for it has ended: their queue has one seat";
    DisabledTooOften => InvalidInput, "the work item was disabled 65535 times already";
    NotDisabled => InvalidInput, "the work item is enabled and was not disabled";
});

/// The fields after the first two apply to items with handles, which raw items never have.
const VTABLE: &VTable = &VTable::plain(
    // SAFETY: the conditions are those of `pop_and`.
    |item| unsafe { pop_and(item, true) },
    // SAFETY: as above. An item that waits for a run to end is handed to that run.
    |item, _| unsafe { pop_and(item, false) },
    |_| Ending::Returned,
    || "raw work item",
    |_| (),
);

impl RawWork {
    /// Creates an item that calls `func`. Move it to its final place before the first use.
    ///
    /// # Safety
    ///
    /// 1. `func` may be called with the item's address, on any thread, once for each time the item
    ///    is queued.
    #[cfg(not(any(loom, shuttle)))]
    pub const unsafe fn new(func: WorkFn) -> Self {
        Self {
            unused: UnsafeCell::new([0; 2]),
            magic: Cell::new(MAGIC),
            func: Cell::new(Some(func)),
            head: Head::unqueued(VTABLE),
        }
    }

    /// The same as the function above, for models, in which constants cannot contain atomics.
    ///
    /// # Safety
    ///
    /// 1. The same as the function above.
    #[cfg(any(loom, shuttle))]
    pub unsafe fn new(func: WorkFn) -> Self {
        Self {
            unused: UnsafeCell::new([0; 2]),
            magic: Cell::new(MAGIC),
            func: Cell::new(Some(func)),
            head: Head::unqueued(VTABLE),
        }
    }

    /// Checks that `this` points to an initialized item, and returns the item.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
    pub(super) unsafe fn known<'a>(this: NonNull<Self>) -> Result<&'a Self, Misuse> {
        // The low bits of an item's address are used by list links.
        if !this.is_aligned() {
            return Err(Misuse::Misaligned);
        }
        // SAFETY: (1), and it is aligned.
        let magic = unsafe { *(&raw const (*this.as_ptr()).magic).cast::<u64>() };
        if magic != MAGIC {
            return Err(Misuse::Uninitialized);
        }
        // SAFETY: as above, and the item was initialized.
        if unsafe { (*this.as_ptr()).func.get() }.is_none() {
            return Err(Misuse::NoFunction);
        }
        // In a model, `new` has done this.
        #[cfg(not(any(loom, shuttle)))]
        // SAFETY: the item was initialized, by `new` or with zeros instead of its vtable.
        unsafe {
            Head::adopt(&raw const (*this.as_ptr()).head, VTABLE)
        };
        // SAFETY: as above, and all fields are now valid.
        Ok(unsafe { this.as_ref() })
    }

    /// Returns the head of an item, with the provenance of `this`.
    ///
    /// # Safety
    ///
    /// 1. `this` points to memory that is large enough for an item.
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
        // SAFETY: `self` is an item.
        unsafe { Self::head_of(NonNull::from(self)) }
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn name(&self) -> Name {
        Name::of(self, self.func.get())
    }

    /// Queues the item on the worker pool of the current CPU's pod, or of `cpu`'s pod. Returns
    /// `false` if the item is disabled or already pending. Also returns `false` if the queue is
    /// being drained or was destroyed, unless the caller is one of its own items.
    ///
    /// # Blocking
    ///
    /// The same as [`Workqueue::enqueue`](workqueue::Workqueue::enqueue). Allocates no memory.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
    /// 2. The item stays in place until its function is called, or it is cancelled or flushed.
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

    /// Queues the item as [`queue`](Self::queue) does, on a pool of a NUMA node; see
    /// [`TaskOptions::on_node`](workqueue::TaskOptions::on_node).
    ///
    /// Blocks and fails as [`queue`](Self::queue) does.
    ///
    /// # Safety
    ///
    /// 1. The same as (1) of [`queue`](Self::queue).
    /// 2. The same as (2) of [`queue`](Self::queue).
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
    /// 1. The same as (1) of [`queue`](Self::queue).
    /// 2. The same as (2) of [`queue`](Self::queue).
    #[inline]
    unsafe fn queue_by<'a>(
        this: NonNull<Self>,
        queue: &'a Workqueue,
        home: impl FnOnce() -> Place<'a>,
    ) -> Result<bool, Misuse> {
        // The provenance of `this` covers the surrounding structure; that of a reference would not.
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

    /// Makes the item pending, so that [`queue_held`](Self::queue_held) can queue it after an
    /// event. Returns `false` if [`queue`](Self::queue) would. Until it is queued, the item cannot
    /// be cancelled, and a flush does not wait for it.
    ///
    /// Fails as [`queue`](Self::queue) does.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item and stays in place
    ///    until [`queue_held`](Self::queue_held) is called.
    #[cfg(not(any(loom, shuttle)))]
    pub unsafe fn hold(this: NonNull<Self>, queue: &Workqueue) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        Ok(internal::admits(queue) && this.head.update(State::arm).is_some())
    }

    /// Queues an item that [`hold`](Self::hold) made pending, unless it was disabled in the
    /// meantime. Returns `true` if it was queued.
    ///
    /// # Blocking
    ///
    /// The same as [`queue`](Self::queue).
    ///
    /// # Safety
    ///
    /// 1. [`hold`](Self::hold) returned `true`, and this function is called once for that call.
    /// 2. The same as [`queue`](Self::queue).
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
            if is_queued.get() { home.fire(state) } else { state.disarm() }
        });
        if is_queued.get() {
            home.push(item);
        }
        is_queued.get()
    }

    /// Waits until every enqueue before this call has led to a run or has been cancelled. Returns
    /// `true` if there was a run to wait for.
    ///
    /// # Blocking
    ///
    /// Blocks until the run has ended. If its queue allows helping, the caller runs the item itself
    /// unless a worker has taken it. Does not wait for an armed timer.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse::OwnItem`] inside the item's own run, and [`Misuse::OwnQueue`] if the
    /// caller is another item of the queue on which this item is waiting, and that queue has one
    /// seat, as every ordered queue does. The item then stays queued.
    ///
    /// # Panics
    ///
    /// Panics if called inside an item of a bottom-half queue, or in a child of `fork` without
    /// workers.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
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
            if internal::needs_our_seat(NonNull::from(&this.head)) {
                return Err(Misuse::OwnQueue);
            }
            internal::before_waiting_for(&this.head);
        }
        Ok(shard.wait(name, || {
            let state = if sync::twin::armed("raw: a waiter makes no transition") {
                this.head.load()
            } else {
                // This changes nothing, but a later start acquires it and then finds the waiter.
                this.head.update(Some)?.0
            };
            is_pending(state).then(|| state.completion_seq())
        }))
    }

    /// Removes the item from the queue if it has not started. Returns `true` if it was removed. An
    /// armed timer stays armed.
    ///
    /// # Blocking
    ///
    /// Blocks only briefly: the pool lock is held for a walk over the items before it.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
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

    /// Claims the item if it is pending, and removes it from its list, local batch or run.
    pub(super) fn claim(&self) -> Claim {
        let mut backoff = Backoff::new();
        loop {
            if self.head.update(State::claim_pending).is_some() {
                // No other thread can queue the item now.
                trace::forget(self.item().as_ptr().addr());
                // SAFETY: we claimed the item above, and the caller keeps it alive.
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
            // Another thread is between two transitions.
            backoff.pause();
        }
    }

    /// Ends the caller's claim with the transition `plan`.
    pub(super) fn end_claim(&self, plan: impl Fn(State) -> State) {
        let name = self.name();
        name.shard().release(&self.head, name, plan);
    }

    /// Removes the item from the queue and waits until it is not running. Returns `true` if it was
    /// pending. The item is disabled until this returns.
    ///
    /// # Blocking
    ///
    /// Blocks until a run that has started ends. Inside the item's own run, it does not wait.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse::DisabledTooOften`] if it is disabled 65535 times.
    ///
    /// # Panics
    ///
    /// Panics as [`flush`](Self::flush) does.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
    pub unsafe fn cancel_sync(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let was_pending = unsafe { Self::disable_sync(this) }?;
        // SAFETY: (1).
        unsafe { Self::enable(this) }?;
        Ok(was_pending)
    }

    /// Cancels the item and disables it. Each call must be matched by a call to
    /// [`enable`](Self::enable) before the item can be queued again. Returns `true` if the item was
    /// pending.
    ///
    /// Blocks as [`cancel`](Self::cancel) does, and fails as [`cancel_sync`](Self::cancel_sync)
    /// does.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
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

    /// Disables the item as [`disable`](Self::disable) does, and waits until it is not running.
    ///
    /// Blocks, fails and panics as [`cancel_sync`](Self::cancel_sync) does.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
    pub unsafe fn disable_sync(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        this.must_be_free_to_wait();
        this.refuse()?;
        let was_pending = this.take_back();
        this.wait_for_run();
        Ok(was_pending)
    }

    /// Panics if the caller must not wait. Call this before the item is disabled, because a later
    /// panic would leave it disabled.
    pub(super) fn must_be_free_to_wait(&self) {
        let name = self.name();
        if !name.is_current() {
            report::must_be_free_to_sleep();
            if name.shard().runs(name) {
                internal::must_have_workers();
            }
        }
    }

    /// Waits until the item, which is disabled, is not running.
    pub(super) fn wait_for_run(&self) {
        let name = self.name();
        if !name.is_current() {
            name.shard().wait(name, || None);
        }
    }

    /// Undoes one [`disable`](Self::disable). Returns `true` if the item can be queued again.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse::NotDisabled`] if it is not disabled.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
    pub unsafe fn enable(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        let enabled = this.head.update(State::enable).ok_or(Misuse::NotDisabled)?;
        Ok(enabled.1.disable_depth() == 0)
    }

    /// Returns whether the item is pending, which includes an armed timer, and whether it is
    /// executing. Both are `false` only if the item was idle at some moment during the call.
    ///
    /// # Blocking
    ///
    /// Acquires a lock for a short time. The result may be outdated when it is returned.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable memory that is large enough for an item.
    pub unsafe fn busy(this: NonNull<Self>) -> Result<Busy, Misuse> {
        // SAFETY: (1).
        let this = unsafe { Self::known(this) }?;
        let name = this.name();
        let mut state = this.head.load();
        loop {
            let executing = name.shard().runs(name);
            let now = this.head.load();
            // If the state has changed, the item may have moved from pending to executing, or back,
            // between the two reads.
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

/// Starts an item that was just removed from a list, and runs it unless it is claimed or already
/// executing. Without `calls`, the run does not call the function, which cancels the item.
///
/// # Safety
///
/// 1. `item` is linked, and only the caller holds its list link.
unsafe fn pop_and(item: NonNull<Head>, calls: bool) -> Popped {
    let work = RawWork::of_head(item);
    // SAFETY: (1): a linked item is alive, and an item with this vtable is a `RawWork`.
    let (func, home) = unsafe {
        // Read this before the transition: after it, another thread can queue the item elsewhere
        // and write another home pwq.
        let home = Origin::of(&(*work).head);
        ((*work).func.get(), home)
    };
    let name = Name::of(work, func);
    let shard = name.shard();
    let mut run = Run::new(name);
    let run = &raw mut run;
    // SAFETY: (1); `run` is on this stack, and is ended below.
    let (start, left) = unsafe { shard.begin(item, run) };
    if start != Start::Run {
        put_back_left(left);
        return Popped::Left;
    }
    let func = func.filter(|_| calls);
    // SAFETY: the run was begun above, and the caller holds the item's in-flight count until this
    // function returns.
    unsafe { carry_out(item, func, home, (shard, run), false, || ()) };
    Popped::Ran
}

/// Calls the item's function, which may free the item, and then `before_end`, before any other
/// thread can see that the run has ended.
///
/// # Safety
///
/// 1. `run` has begun on this thread, in `shard`, for `item`, whose function is `func`.
/// 2. `home` stays alive until `before_end` is called.
unsafe fn carry_out(
    item: NonNull<Head>,
    func: Option<WorkFn>,
    home: Origin,
    (shard, run): (&Shard, *mut Run),
    helps: bool,
    before_end: impl FnOnce(),
) {
    // From here on, the item may be freed. Its address is used, but its memory is not accessed.
    let call = || {
        // FOREIGN(raw-item-run): a C function, on a worker, a rescuer or a joiner; unwinding out of
        // it ends the process.
        let outcome = guarded_in_item(|| {
            if let Some(func) = func {
                let run = || {
                    // SAFETY: (1) of `RawWork::new` allows this call.
                    unsafe { func(RawWork::of_head(item)) };
                };
                of_c("function of a work item", func as usize, run);
            }
        });
        if outcome.is_err() {
            // This is reached only in a model, where panics unwind.
            die("the function of a work item unwound");
        }
    };
    // SAFETY: (2), and `before_end` clears the home pwq before it is released.
    unsafe { home.run(item, VTABLE, helps, call, before_end) };
    // SAFETY: (1).
    put_back_left(unsafe { shard.end(run) });
}

fn put_back_left(left: Option<NonNull<Head>>) {
    if let Some(left) = left {
        // SAFETY: the item is linked again and counted in flight.
        unsafe { internal::put_back(left) };
    }
}

/// Runs a pending item, which the caller keeps alive, on this thread, if its queue allows helping
/// and has a free seat, and no worker has taken the item. Returns `true` if it ran.
fn help(this: NonNull<RawWork>, shard: &Shard) -> bool {
    // SAFETY: `this` is an item.
    let item = unsafe { RawWork::head_of(this) };
    // SAFETY: the caller keeps the item alive.
    let (name, func) = unsafe { (this.as_ref().name(), this.as_ref().func.get()) };
    let run = |home: Origin, before_end: &mut dyn FnMut()| {
        let mut run = Run::new(name);
        let run = &raw mut run;
        // SAFETY: `internal::help` has claimed and unlinked the item, so it stays in place until
        // its function is called. `run` is on this stack, and `carry_out` ends it. The home pwq
        // stays until `before_end` is called.
        unsafe {
            shard.begin_claimed(item.as_ref(), run);
            carry_out(item, func, home, (shard, run), true, before_end);
        }
    };
    // SAFETY: the caller keeps the item alive, and `run` starts and ends a run of it.
    unsafe { internal::help(item, || !shard.runs(name), run) }
}
