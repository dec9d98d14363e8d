//! Strands: closures that run one after the other, with a state that is passed to each of them.
//!
//! # The protocol
//!
//! A strand is one item that can be queued repeatedly. Its *closures* are one-shot items in a list
//! of the strand, and each run of the item takes closures from that list. `nr` counts closures:
//!
//! ```text
//! spawn: nr += 1;  push the closure
//!        was 0?  set QUEUEING with the addition;  queue the strand's item;  clear QUEUEING
//!        else    wait while QUEUEING is set
//! run:   take and run closures;  none left?  nr -= number taken;  0?  the run ends
//!        a batch has run, and closures are left?  queue the item again;  the run ends
//! ```
//!
//! - **Closures never overlap**, because runs of an item do not, and only a run takes closures. A
//!   run sees the state as the previous run left it.
//! - **No closure is lost.** While `nr` is positive, the strand's item is pending or running, or a
//!   spawn is about to queue it: the spawn that finds `nr` at 0. Only the run that brings `nr` down
//!   to 0 is not followed by another run. A closure is counted before it is pushed, so a run can
//!   find fewer closures than are counted. It then waits for the push, which takes a few
//!   instructions without user code. Twin `strand: forgets a late push`.
//! - **After its spawn, a closure is in flight**: a flush by any thread waits for it. No flush can
//!   find the item before it is queued, so each other spawn waits until the spawn that found 0 has
//!   queued it. `QUEUEING` is set for a few steps without user code, so that no thread can wait for
//!   itself. Twins `strand: returns before it is queued`, `strand: relaxed count`.
//! - **The list is owned by the run**, except for its injector. A bulk cancel that removes the
//!   pending item from its pool owns a run, too (`State::pop_to_cancel`), and cancels the closures
//!   in it. If the canceller finds the item running and queued again, it leaves the item to that
//!   run, at the end of which the item is cancelled (`pools/cut.rs`, case 2). If it removed the
//!   item as it removes an ordinary one, the closures would wait forever: twin `strand: is unqueued
//!   while it runs`. A canceller cannot reach the closures of a running strand, so each closure
//!   records the number of bulk cancels at its spawn. It is cancelled instead of run if the number
//!   has changed. Twin `strand: starts what was cancelled`. The run of a canceller leaves closures
//!   with the current number, and queues the item again. Models have too few colors to reach this
//!   case. Test: `closures_that_are_spawned_after_a_bulk_cancel_run`.
//! - **Flushes.** A pending closure is not counted in flight; the item is, from the end of the
//!   closure's spawn until the closure has run. When a run queues the item again, the new count is
//!   younger than the remaining closures, and a flush that began in the meantime does not wait for
//!   it. So the run first queues the item, lets the pool adopt it, and then checks the color of its
//!   own count. If that color is still open, the new count has the same color, and the run ends.
//!   Otherwise the run executes all remaining closures before it ends; later closures are younger
//!   than the new count. Twins `strand: ends during a flush`, `strand: leaves its count to a later
//!   color`.
//! - **A single closure is cancelled** by its handle, as any one-shot item is: the canceller claims
//!   it, and its link stays in the list. A run that finds it claimed waits for the end of the
//!   claim, which takes a few instructions without user code, because the strand's count keeps
//!   alive the pwq that the canceller reads. Twin `strand: pops a claimed closure`.
//!
//! A joiner does not help, because that would change the order.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use base::internal::wake::lane::Lane;
use item::internal::deferred_drops::DeferredDrops;
use item::internal::head::{Ending, Head, Name, OfStrand, Popped, State, VTable};
use item::internal::list::{self, Color, Injector, List};
use item::internal::revival::Revivable;
use sync::atomic::{AtomicUsize, Ordering};
use sync::unmodelled::Arc;
use sync::{Backoff, twin};

use super::admission::{TrySpawnError, admitted};
use super::queue::{Inner, Workqueue};
use super::task::rejected;
use crate::execute::deadline::StartBy;
use crate::execute::join::{self, JoinHandle};
use crate::execute::run;
use crate::execute::work::Work;
use crate::pools::pwq::Pwq;

/// The number of closures that a run takes before it queues the strand behind other items. The
/// value is a guess: the requeue costs about 0.1 µs, which is 3 ns for each closure. With a larger
/// number, one strand delays other items for longer.
const MAX_BATCH: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// The bit of `Base::nr` that is set while a spawn queues the strand's item.
const QUEUEING: usize = 1;
const ONE: usize = 2;

/// Runs closures one after the other, and passes a state to each; created by [`Workqueue::strand`].
///
/// A strand is for state that has one user at a time and no thread of its own: a connection, a
/// session, an account, an actor. It replaces a mutex around the state, but a closure that waits
/// for its turn blocks no thread. A program can have hundreds of thousands of strands.
///
/// A `Strand` is a handle; clones are handles to the same strand. It is also a handle to its queue.
///
/// # Guarantees
///
/// - Closures start in the order in which they were spawned, and never overlap. Each sees the
///   writes of the previous one, and those that its spawner made before the spawn.
/// - If all handles are dropped, the closures still run. The thread that runs the last closure then
///   drops the state. If the strand is idle, the thread that drops the last handle drops the state.
/// - A panic in a closure is reported to its joiner, or to the queue's handler, like a panic in any
///   item of the queue. The strand continues with the next closure, and with the state as it is.
/// - After 32 closures, a strand yields to the other items of its queue. If a flush waits for its
///   closures, the strand first runs all that remain.
///
/// Other operations treat a strand as follows:
///
/// - `max_active`, [`pause`](Workqueue::pause), the urgent lane and shares apply to the strand as
///   to one item.
/// - [Capacity](crate::Builder::capacity) counts each closure that waits.
/// - Statistics, and wait and run times, count each run of the strand as one item, regardless of
///   the number of its closures.
/// - [`flush`](Workqueue::flush) and [`drain`](Workqueue::drain) wait for the closures.
/// - [`JoinHandle::cancel`] cancels a closure that has not started. The memory of its item is freed
///   when the closure would have run.
/// - [`cancel_all`](Workqueue::cancel_all) cancels and counts the waiting closures. If the strand
///   is running, they are not counted, and are cancelled after the running closure has ended.
/// - A queue that is full, being drained or destroyed rejects closures, except those from its own
///   items.
/// - A closure that joins a later closure of its strand gets
///   [`JoinError::OwnQueue`](crate::JoinError::OwnQueue).
/// - Two closures of different strands that join each other's later closures deadlock.
///
/// # Cost
///
/// A strand has no name, thread, list entry or statistics. It is one allocation of about 130 bytes
/// plus the state. Creating and dropping it takes about 0.1 µs. A closure costs as much as one of
/// [`Workqueue::spawn`], or less if the strand is busy. A joiner never runs it.
///
/// # Panics
///
/// Panics if called in a child of `fork`; see [`Workqueue`].
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("accounts").build()?;
/// let account = queue.strand(100);
/// account.spawn_detached(|balance| *balance -= 30).unwrap();
/// let balance = account.spawn(|balance| *balance);
/// assert_eq!(balance.join()?, 70);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handle does not convert to that of a subtype or supertype of its state, which closures may
/// replace:
///
/// ```compile_fail,E0308
/// # use afterwork::workqueue::Strand;
/// type Any = for<'a> fn(&'a str);
/// fn narrowed(strand: Strand<Any>) -> Strand<fn(&'static str)> {
///     strand
/// }
/// ```
#[doc(alias("SerialExecutor", "actor", "serial queue", "ordered"))]
pub struct Strand<S> {
    item: NonNull<Head>,
    queue: Workqueue,
    /// The handle is invariant in `S`, because closures write the state.
    state: PhantomData<fn(S) -> S>,
}

// SAFETY: the state is `Send`, and is passed from one run to the next. Everything else is atomic.
unsafe impl<S: Send> Send for Strand<S> {}
// SAFETY: as above; a shared handle gives no access to the state.
unsafe impl<S: Send> Sync for Strand<S> {}

#[repr(C)]
struct Base {
    queued: Revivable,
    /// I: keeps the queue's memory valid.
    queue: Arc<Inner>,
    /// I
    lane: Lane,
    /// A: closures that no run has taken.
    pushed: Injector,
    /// A: [`ONE`] times the number of closures that runs have not subtracted, with [`QUEUEING`].
    nr: AtomicUsize,
    own: UnsafeCell<Own>,
}

struct Own {
    taken: List,
    /// The number of closures that have been taken from the list and not yet subtracted from `nr`.
    nr_done: usize,
}

#[repr(C)]
struct Item<S> {
    base: Base,
    /// The state. Only the run and the thread that frees the item access it.
    state: UnsafeCell<S>,
}

struct Lent<S>(*mut S);

// SAFETY: the state is `Send`, and the thread that runs the closure owns it.
unsafe impl<S: Send> Send for Lent<S> {}

impl<S> Lent<S> {
    /// # Safety
    ///
    /// 1. The caller is a closure of the strand.
    unsafe fn get(&mut self) -> &mut S {
        // SAFETY: (1): the run of the strand, which owns the state, calls the closure.
        unsafe { &mut *self.0 }
    }
}

impl StartBy for OfStrand {
    const IS_LIMITED: bool = false;
    const IN_STRAND: bool = true;

    fn strand(&self) -> OfStrand {
        *self
    }

    fn is_cancelled(&self) -> bool {
        // SAFETY: called in the run of the closure, whose pwq is alive.
        let core = unsafe { &(*run::current_home()).core };
        // Relaxed suffices, because the spawner's push makes the number that it read visible.
        core.nr_cancels.load(Ordering::Relaxed) != self.nr_cancels
            && !twin::armed("strand: starts what was cancelled")
    }
}

impl Workqueue {
    /// Creates a strand with the state `state`, whose closures run on this queue. Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("sessions").build()?;
    /// let log = queue.strand(Vec::new());
    /// for line in ["one", "two", "three"] {
    ///     log.spawn_detached(move |lines| lines.push(line)).unwrap();
    /// }
    /// let lines = log.spawn(|lines| lines.join(" ")).join()?;
    /// assert_eq!(lines, "one two three");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn strand<S: Send + 'static>(&self, state: S) -> Strand<S> {
        let head = Head::new(Item::<S>::VTABLE, State::IDLE, ptr::null_mut());
        let item = Box::new(Item {
            base: Base {
                queued: Revivable::new(head),
                queue: self.inner.clone(),
                lane: self.lane,
                pushed: Injector::new(false),
                nr: AtomicUsize::new(0),
                own: UnsafeCell::new(Own { taken: List::default(), nr_done: 0 }),
            },
            state: UnsafeCell::new(state),
        });
        Strand {
            item: NonNull::from(Box::leak(item)).cast(),
            queue: self.clone(),
            state: PhantomData,
        }
    }
}

impl<S: Send + 'static> Strand<S> {
    /// Queues `func` to run once, after earlier closures, and returns a handle that waits for its
    /// result. If the queue rejects `func`, it is dropped, and the handle returns the error. Blocks
    /// as [`Workqueue::enqueue`] does. A closure of the strand may call it, too.
    pub fn spawn<T, F>(&self, func: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut S) -> T + Send + 'static,
    {
        self.try_push(func, |handle| handle).unwrap_or_else(rejected)
    }

    /// Queues `func` as [`spawn`](Self::spawn) does, without a handle. If the queue is full or
    /// closed, the error contains `func`.
    pub fn spawn_detached<F>(&self, func: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce(&mut S) + Send + 'static,
    {
        self.try_push(func, drop)
    }

    /// Passes `func`'s handle to `keep`, and then pushes `func`, as `TaskOptions::try_push` does.
    fn try_push<T, F, K>(
        &self,
        func: F,
        keep: impl FnOnce(JoinHandle<T>) -> K,
    ) -> Result<K, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce(&mut S) -> T + Send + 'static,
    {
        let has_permit = admitted!(self.queue.try_permit(), func);
        // SAFETY: the handle keeps the item alive; the reference lasts only for this expression.
        let state = unsafe { (*self.item.cast::<Item<S>>().as_ptr()).state.get() };
        let mut state = Lent(state);
        let name = Name::of(&func);
        // SAFETY: this closure is called only by the strand's run.
        let func = move || func(unsafe { state.get() });
        let of_strand = OfStrand {
            item: self.item.as_ptr(),
            nr_cancels: self.queue.inner.core.nr_cancels.load(Ordering::Relaxed),
        };
        let home = self.queue.here();
        let (item, handle) = join::joinable(name, of_strand, func, home, has_permit);
        let kept = keep(handle);
        let base = self.base();
        if base.nr.load(Ordering::Relaxed) < ONE {
            // Subscribers may spawn on this strand, so they are called before the item is queued.
            // SAFETY: the handle keeps the strand's item alive.
            unsafe { home.emit_queued(self.item) };
        }
        // SAFETY: the item is new, and is pushed once.
        unsafe {
            home.emit_queued(item);
            base.push(self.item, item, home);
        }
        Ok(kept)
    }
}

impl<S> Strand<S> {
    /// Returns the number of closures that were spawned and have not run. Until the strand is idle
    /// again, the result can also include closures that have run. Never blocks.
    pub fn backlog(&self) -> usize {
        self.base().nr.load(Ordering::Relaxed) / ONE
    }

    fn base(&self) -> &Base {
        // SAFETY: the handle keeps the item alive, and an `Item` begins with its `Base`.
        unsafe { self.item.cast().as_ref() }
    }
}

impl Base {
    /// # Safety
    ///
    /// 1. `closure` is linked, and in no list.
    /// 2. `item` belongs to the strand, and the caller has a handle.
    unsafe fn push(&self, item: NonNull<Head>, closure: NonNull<Head>, home: &Pwq) {
        let mut before = self.nr.load(Ordering::Relaxed);
        let mut backoff = Backoff::new();
        let finds_none = loop {
            let finds_none = before < ONE;
            if before == QUEUEING {
                // The item was queued, and has run, before its spawner cleared the flag.
                backoff.pause();
                before = self.nr.load(Ordering::Relaxed);
                continue;
            }
            let after = before + ONE + if finds_none { QUEUEING } else { 0 };
            // ORDER(strand): other end at the end of this function.
            // Test: a_closure_of_a_strand_is_in_flight_after_its_spawn
            let order = Ordering::Acquire;
            match self.nr.compare_exchange(before, after, order, Ordering::Relaxed) {
                Ok(_) => break finds_none,
                Err(now) => before = now,
            }
        };
        self.pushed.push(closure);
        if !finds_none {
            // ORDER(strand): other end below.
            // Test: a_closure_of_a_strand_is_in_flight_after_its_spawn
            while before & QUEUEING != 0 && !twin::armed("strand: returns before it is queued") {
                backoff.pause();
                before = self.nr.load(Ordering::Acquire);
            }
            return;
        }
        // ORDER(strand): publish and consume, other ends above.
        //   first spawn: push the item into the injector;  clear QUEUEING, Release
        //   others:      read nr, Acquire;  return;  flush: adopt the injector
        // If the flag is cleared first, the flush finds the item. Otherwise the spawn waits.
        // Test: a_closure_of_a_strand_is_in_flight_after_its_spawn
        let order = twin::order("strand: relaxed count", Ordering::Release);
        let end = || _ = self.nr.fetch_sub(QUEUEING, order);
        // SAFETY: (2).
        let work = unsafe { Work::lent(item) };
        self.queue.plan_and_push_then(&work, home, end);
    }
}

/// A run of a strand, which owns the closures that were taken from the strand's list.
struct Run<'a> {
    item: NonNull<Head>,
    base: &'a Base,
}

impl<'a> Run<'a> {
    /// # Safety
    ///
    /// 1. The caller runs `item`, which belongs to a strand, until it drops the result.
    unsafe fn of(item: NonNull<Head>) -> Self {
        // SAFETY: (1): a running item is alive, and an `Item` begins with its `Base`.
        Self { item, base: unsafe { item.cast().as_ref() } }
    }

    fn own(&mut self) -> &mut Own {
        // SAFETY: (1) of `of`: runs do not overlap, and only they access this part.
        unsafe { &mut *self.base.own.get() }
    }

    fn enqueue(&self, home: &Pwq) {
        // SAFETY: (1) of `of`: the item is alive.
        let work = unsafe { Work::lent(self.item) };
        let _ = self.base.queue.plan_and_push(&work, home, false);
    }

    #[inline]
    fn next_home(&self) -> &'a Pwq {
        self.base.queue.route_table.routes().here().in_lane(self.base.lane)
    }

    /// Returns `true` if `closure` was spawned before the last bulk cancel.
    fn is_cancelled(&self, closure: NonNull<Head>) -> bool {
        // SAFETY: a linked item is alive.
        let table = unsafe { closure.as_ref() }.vtable().handle.as_ref();
        let mark = table.and_then(|table| table.strand).expect("a closure of a strand");
        // SAFETY: the table belongs to the closure.
        let mark = unsafe { mark(closure) };
        mark.nr_cancels != self.base.queue.core.nr_cancels.load(Ordering::Relaxed)
    }

    /// Returns the list of the closures that are left; empty if none has been pushed.
    fn taken(&mut self) -> &mut List {
        if self.own().taken.is_empty() {
            self.own().taken = self.base.pushed.take(|_| Color::default());
        }
        &mut self.own().taken
    }

    fn next(&mut self) -> Option<NonNull<Head>> {
        self.taken().first()?;
        self.own().nr_done += 1;
        self.own().taken.pop_front()
    }

    /// Returns `true` if no closure is counted, so that the run must end.
    fn is_idle(&mut self) -> bool {
        let nr_done = std::mem::take(&mut self.own().nr_done);
        // Relaxed suffices, because no data is read on the basis of the count. The list and the
        // item have orderings of their own.
        let before = self.base.nr.fetch_sub(nr_done * ONE, Ordering::Relaxed);
        before / ONE == nr_done || twin::armed("strand: forgets a late push")
    }

    /// Runs the next closure as part of the run from `home`. Returns `false` if there is none.
    fn run_next(&mut self, home: &Pwq) -> bool {
        let Some(closure) = self.next() else {
            return false;
        };
        // SAFETY: a linked item is alive.
        let head = unsafe { closure.as_ref() };
        // The seat that we hold belongs to this pwq. A canceller may read the old or the new home.
        head.home.store(home.as_home(), Ordering::Relaxed);
        // SAFETY: the closure is linked, and we hold its only link.
        unsafe { (head.vtable().run)(closure) };
        true
    }

    fn nr_left(&mut self) -> usize {
        self.base.nr.load(Ordering::Relaxed) / ONE - self.own().nr_done
    }

    fn run(mut self) {
        // SAFETY: (1) of `of`: the pwq of a running item is alive.
        let home = unsafe { &*run::current_home() };
        // Read this before the item is queued again, because that changes the color.
        let color = list::color(self.item);
        let mut nr_run = 0;
        let mut backoff = Backoff::new();
        while nr_run < MAX_BATCH || self.nr_left() == 0 {
            if self.run_next(home) {
                nr_run += 1;
            } else if self.is_idle() {
                return;
            } else {
                // A spawner has counted its closure, and is about to push it.
                backoff.pause();
            }
        }
        let next = self.next_home();
        self.enqueue(next);
        let is_open = || home.pool.is_open(home.slot, color);
        if ptr::eq(next, home) && is_open() || twin::armed("strand: ends during a flush") {
            return;
        }
        let mut nr_left = self.nr_left();
        // The next run subtracts these closures from the count.
        while nr_left > 0 && self.run_next(home) {
            nr_left -= 1;
        }
    }
}

impl<S: Send + 'static> Item<S> {
    const VTABLE: &'static VTable = &VTable::plain(
        run::pop_and_run,
        Self::cancel,
        Self::call,
        std::any::type_name::<Strand<S>>,
        Self::free,
    );

    unsafe fn call(item: NonNull<Head>) -> Ending {
        // SAFETY: the caller runs the item.
        unsafe { Run::of(item) }.run();
        Ending::Returned
    }

    unsafe fn cancel(item: NonNull<Head>, deferred_drops: &mut DeferredDrops) -> Popped {
        let pop = |state: State| {
            let is_left = state.is_running() && !twin::armed("strand: is unqueued while it runs");
            Some(if is_left { state.pop() } else { state.pop_to_cancel() })
        };
        // SAFETY: the contract is that of `pop_and_cancel`.
        unsafe { run::pop_and_cancel(item, deferred_drops, Self::skip, pop) }
    }

    /// Cancels the closures that were spawned before the last bulk cancel, instead of running them.
    unsafe fn skip(item: NonNull<Head>, deferred_drops: &mut DeferredDrops) {
        // SAFETY: the caller runs the item.
        let mut run = unsafe { Run::of(item) };
        // The strand itself does not count as a user item.
        deferred_drops.nr_more -= 1;
        while let Some(first) = run.taken().first()
            && run.is_cancelled(first)
            && let Some(closure) = run.next()
        {
            // SAFETY: the closure is linked, and we hold its only link.
            let popped = unsafe { (closure.as_ref().vtable().cancel)(closure, deferred_drops) };
            deferred_drops.nr_more += isize::from(popped.ran());
        }
        // If closures are left, they are counted.
        if !run.is_idle() {
            run.enqueue(run.next_home());
        }
    }

    unsafe fn free(item: NonNull<Head>) {
        // SAFETY: `strand` leaked the item from a box, and no other thread uses it.
        drop(unsafe { Box::from_raw(item.as_ptr().cast::<Self>()) });
    }
}

impl<S> Clone for Strand<S> {
    fn clone(&self) -> Self {
        let queued = &self.base().queued;
        queued.handles.add(&queued.head);
        Self { item: self.item, queue: self.queue.clone(), state: PhantomData }
    }
}

// The handle is released before the queue is dropped, because that drop waits for the closures.
sync::on_drop!(Strand[S], it => {
    // SAFETY: the handle belongs to the item, and is not used again.
    drop(unsafe { it.base().queued.handles.leave(it.item) });
});

base::internal::impl_debug!(Strand[S], it => queue: it.queue.name(), backlog: it.backlog());
