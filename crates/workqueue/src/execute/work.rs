//! A work item that can be queued repeatedly.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use base::internal::panics::join_error::PanicPayload;
use base::internal::panics::{discard, guarded_in_item};
use base::internal::wake::report;
use item::internal::head::{Dead, Ending, Head, Name, State, Tabled, VTable};
use item::internal::panicked;
use item::internal::revival::Revivable;
use sync::Backoff;
use sync::unmodelled::Arc;

use super::run::{self, current_item, is_current, note_panic};
use super::wait::{self, NeedsOurSeat, must_have_workers, must_not_be_lost, reported};

/// A piece of work that can be queued repeatedly, and whose runs never overlap.
///
/// A `Work` is a handle; clones are handles to the same item. Queueing a pending item has no effect
/// and returns `false`. Queueing a running item makes it run once more after that run. Because runs
/// never overlap, the closure is an `FnMut` and need not be `Sync`.
///
/// # Guarantees
///
/// - Writes made before [`enqueue`](crate::Workqueue::enqueue) are visible to the run. Writes made
///   by a run are visible to the next run and to a thread that has flushed it.
/// - Each call to `enqueue` that returns `true` is followed by exactly one run, unless the item is
///   cancelled before it starts. An item still runs if all its handles are dropped.
///
/// # Cost
///
/// Queueing a tiny item and running it on another CPU takes a few tens of nanoseconds.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{Work, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// let mut nr_runs = 0;
/// let (send, receive) = std::sync::mpsc::channel();
/// let work = Work::new(move || {
///     nr_runs += 1;
///     send.send(nr_runs).unwrap();
/// });
/// assert!(queue.enqueue(&work));
/// work.flush()?;
/// assert!(queue.enqueue(&work));
/// work.flush()?;
/// assert_eq!(receive.iter().take(2).collect::<Vec<_>>(), [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "work_struct")]
pub struct Work {
    item: NonNull<Head>,
}

// SAFETY: the closure is `Send` and its runs never overlap. All other fields are atomic.
unsafe impl Send for Work {}
// SAFETY: as above; a shared handle gives no access to the closure.
unsafe impl Sync for Work {}

/// The state of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Busy {
    /// `true` if the item is queued, and the queued run has not started.
    pub pending: bool,
    /// `true` if the item is running.
    pub executing: bool,
}

/// The error returned by [`Work::flush`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FlushError {
    /// The item flushed itself, and would wait for its own end.
    OwnItem,
    /// The item needs its queue's only seat, but the item that flushed it holds that seat.
    OwnQueue,
    /// The last run that ended panicked.
    Panicked,
}

base::internal::impl_error!(FlushError {
    OwnItem => Other, "a work item cannot wait for its own end";
    OwnQueue => Other, "the work item cannot start before the item that waits for it has ended: their queue has one seat";
    Panicked => Other, "the work item panicked";
});

/// The item behind the handles, in a box of its own. In the slab, adjacent items that are queued on
/// one CPU and run on another would share cache lines, and batches of `afterwork-lab bench
/// workqueue` in the system scope would be a third slower.
#[repr(C)]
struct Reusable<F> {
    queued: Revivable,
    func: UnsafeCell<F>,
}

impl Work {
    /// Creates an item that runs `func`.
    #[doc(alias("INIT_WORK", "DECLARE_WORK"))]
    pub fn new(mut func: impl FnMut() + Send + 'static) -> Self {
        Self::named(Name::of(&func), move |_| func())
    }

    /// Creates an item that passes its own handle to `func`, so that it can queue itself again.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let again = queue.clone();
    /// let mut nr_left = 3;
    /// let work = Work::with_handle(move |this| {
    ///     nr_left -= 1;
    ///     if nr_left > 0 {
    ///         again.enqueue(this);
    ///     }
    /// });
    /// queue.enqueue(&work);
    /// while work.is_busy() {
    ///     work.flush()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_handle<F: FnMut(&Work) + Send + 'static>(func: F) -> Self {
        Self::named(Name::of(&func), func)
    }

    /// Creates an item that runs `func`, which may wrap the user's function called `name`.
    pub(crate) fn named<N, F>(name: Name<N>, func: F) -> Self
    where
        F: FnMut(&Work) + Send + 'static,
    {
        let vtable = name.vtable::<Reusable<F>>();
        let item = Box::new(Reusable {
            queued: Revivable::new(Head::new(vtable, State::IDLE, ptr::null_mut())),
            func: UnsafeCell::new(func),
        });
        Self { item: NonNull::from(Box::leak(item)).cast() }
    }

    /// Creates an item that belongs to `owner`: a run calls `func` with the owner, or does nothing
    /// if the owner has been dropped. The item does not keep the owner alive.
    ///
    /// If the last other reference to the owner is dropped during a run, the run drops the owner.
    ///
    /// # Examples
    ///
    /// The struct holds its item in a cell, because the item is created after the struct is in its
    /// `Arc`:
    ///
    /// ```
    /// use std::sync::{Arc, OnceLock, atomic::{AtomicU32, Ordering}};
    /// use afterwork::workqueue::{Work, Workqueue};
    ///
    /// #[derive(Default)]
    /// struct Cache {
    ///     nr_saves: AtomicU32,
    ///     save: OnceLock<Work>,
    /// }
    ///
    /// impl Cache {
    ///     fn save(&self) {
    ///         self.nr_saves.fetch_add(1, Ordering::Relaxed);
    ///     }
    ///
    ///     fn save_soon(self: &Arc<Self>, queue: &Workqueue) {
    ///         queue.enqueue(self.save.get_or_init(|| Work::for_weak(self, Self::save)));
    ///     }
    /// }
    ///
    /// let queue = Workqueue::builder("disk").build()?;
    /// let cache = Arc::new(Cache::default());
    /// cache.save_soon(&queue);
    /// queue.flush()?;
    /// assert_eq!(cache.nr_saves.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("new_cyclic", "container_of", "WeakWork"))]
    pub fn for_weak<T: Send + Sync + 'static>(
        owner: &Arc<T>,
        func: impl FnMut(&T) + Send + 'static,
    ) -> Self {
        let name = Name::of(&func);
        let mut func = with_owner(owner, func);
        Self::named(name, move |_| func())
    }

    /// Returns `true` if the item is queued and has not started.
    ///
    /// # Blocking
    ///
    /// Never blocks. The result may be outdated when the caller uses it.
    #[doc(alias = "work_pending")]
    pub fn is_pending(&self) -> bool {
        self.busy().pending
    }

    /// Returns `true` if the item is queued or running.
    pub fn is_busy(&self) -> bool {
        !self.head().load().is_idle()
    }

    /// Returns whether the item is pending and whether it is executing, both at the same moment.
    ///
    /// # Blocking
    ///
    /// Never blocks. The result may be outdated when the caller uses it.
    #[doc(alias = "work_busy")]
    pub fn busy(&self) -> Busy {
        let state = self.head().load();
        Busy { pending: state.is_pending() || state.is_claimed(), executing: state.is_running() }
    }

    /// Waits until all runs of the item that were queued before this call have ended.
    ///
    /// Returns `true` if the item was queued or running. The call does not wait for later runs. If
    /// the item has not started and its queue lets joiners help, it runs on this thread.
    ///
    /// A concurrent cancel also ends the wait, so `true` does not prove that the item has run. It
    /// may be a cancel of this item, such as [`disable_sync`](Self::disable_sync), or of all items
    /// of the queue, such as the time limit of a [`shutdown`](crate::Workqueue::shutdown).
    ///
    /// # Blocking
    ///
    /// Blocks until these runs have ended or are cancelled. If the item has not started and its
    /// queue is paused, the call waits for a [`resume`](crate::Workqueue::resume). If another work
    /// item calls this, its pool may start a worker.
    ///
    /// # Errors
    ///
    /// - [`FlushError::OwnItem`] from inside the item's own run.
    /// - [`FlushError::OwnQueue`] from inside another item of a queue with one seat (as every
    ///   ordered queue has), if this item waits on that queue and joiners do not help. The item
    ///   stays queued.
    /// - [`FlushError::Panicked`] if the last completed run panicked, even before this call.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait inside an item of a bottom-half queue, or in a child of `fork` for
    /// an item of the parent.
    #[doc(alias = "flush_work")]
    pub fn flush(&self) -> Result<bool, FlushError> {
        let head = self.head();
        let is_busy = !head.load().is_idle();
        if is_busy && is_current(self.item) {
            return Err(reported(FlushError::OwnItem));
        }
        must_not_be_lost(is_busy && self.is_lost());
        let helped = !is_busy
            || wait::help_or_refuse(self.item)
                .map_err(|NeedsOurSeat| reported(FlushError::OwnQueue))?;
        if !helped {
            wait::before_waiting_for(head);
            wait::until_completed(head, head.load().last_completion_seq(), None);
        }
        if head.load().has_panicked() { Err(FlushError::Panicked) } else { Ok(is_busy) }
    }

    /// Takes and returns the payload of the last run that panicked. Returns `None` if no run has
    /// panicked since the last call.
    ///
    /// The payload is kept until it is taken, another run panics, or the item is freed. Never
    /// blocks; the item itself may call this.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{FlushError, Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|| panic!("disk {} is missing", 3));
    /// queue.enqueue(&work);
    /// assert_eq!(work.flush(), Err(FlushError::Panicked));
    /// let payload = work.last_panic().expect("it panicked");
    /// assert_eq!(payload.text(), Some("disk 3 is missing"));
    /// assert!(work.last_panic().is_none(), "it was taken");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn last_panic(&self) -> Option<PanicPayload> {
        panicked::take(self.item.addr().get()).map(PanicPayload::new)
    }

    /// Cancels the item if it is pending. Returns `true` if the item was cancelled.
    ///
    /// # Blocking
    ///
    /// Blocks only briefly. If the queue is ordered, this searches the item's list under the pool
    /// lock (a millisecond in a list of 100,000; a spawned closure has no such cost). In other
    /// queues, cancelled items are removed from time to time. If another thread is queueing or
    /// cancelling the item, or is about to run it, the call waits for the end of that operation.
    #[doc(alias = "cancel_work")]
    pub fn cancel(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let mut backoff = Backoff::new();
        loop {
            if run::cancel(self.item) {
                return true;
            }
            // An item that another thread has claimed counts as pending. Try again until the claim
            // has ended, because the item may still be pending then.
            let state = self.head().load();
            let missed = state.is_claimed() || state.is_pending();
            if !missed || sync::twin::armed("cancel: overlooks a claim") {
                return false;
            }
            backoff.pause();
        }
    }

    /// Cancels the item, and waits until it is not running. Returns `true` if it was pending.
    ///
    /// On return the item is idle, and only a later `enqueue` can change that. During the wait all
    /// enqueues are rejected, including those by the item itself.
    ///
    /// # Blocking
    ///
    /// Blocks until the current run has ended, except inside the item's own run.
    ///
    /// # Panics
    ///
    /// Panics as [`disable`](Self::disable) does, and inside another item of a bottom-half queue.
    /// The item is then unchanged.
    #[doc(alias = "cancel_work_sync")]
    pub fn cancel_sync(&self) -> bool {
        let was_pending = self.disable_sync();
        self.enable();
        was_pending
    }

    /// Cancels the item, and rejects enqueues until [`enable`](Self::enable) has been called for
    /// each `disable`. Returns `true` if the item was pending.
    ///
    /// On return the item cannot be pending, but may be running. An item may disable itself.
    ///
    /// Blocks as [`cancel`](Self::cancel) does. Panics if it has been disabled 65535 times.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|| ());
    /// work.disable();
    /// work.disable();
    /// assert!(!work.enable());
    /// assert!(!queue.enqueue(&work));
    /// assert!(work.enable());
    /// assert!(queue.enqueue(&work));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "disable_work")]
    pub fn disable(&self) -> bool {
        let disabled = |state| Some(State::disable(state).expect("disabled 65535 times"));
        self.head().update(disabled);
        self.cancel()
    }

    /// Disables the item, and waits until it is not running. Returns `true` if it was pending.
    ///
    /// Blocks and panics as [`cancel_sync`](Self::cancel_sync) does.
    #[doc(alias = "disable_work_sync")]
    pub fn disable_sync(&self) -> bool {
        self.must_be_free_to_wait();
        let was_pending = self.disable();
        self.wait_for_run();
        was_pending
    }

    /// Checks, before the item is disabled, that this thread may wait for it, because a later panic
    /// would leave the item disabled. Panics inside another item of a bottom-half queue, and in a
    /// child of `fork` in which the item's run never ends.
    pub(crate) fn must_be_free_to_wait(&self) {
        if !is_current(self.item) {
            report::must_be_free_to_sleep();
            if self.head().load().is_running() {
                must_not_be_lost(self.is_lost());
                must_have_workers();
            }
        }
    }

    pub(crate) fn wait_for_run(&self) {
        let head = self.head();
        // The item can no longer be queued, so there is at most one run to wait for.
        let state = head.load();
        if state.is_running() && !is_current(self.item) {
            wait::until_completed(head, state.completion_seq() + 1, None);
        }
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.head().load().disable_depth() > 0
    }

    /// Reverts one [`disable`](Self::disable). Returns `true` if the item can be queued again.
    /// Never blocks. Panics if the item is not disabled.
    #[doc(alias = "enable_work")]
    pub fn enable(&self) -> bool {
        let enabled = |state| Some(State::enable(state).expect("enabled more often than disabled"));
        let enabled = self.head().update(enabled);
        enabled.is_some_and(|(_, now)| now.disable_depth() == 0)
    }

    /// Returns an uncounted handle to an item that begins with a [`Revivable`].
    ///
    /// # Safety
    ///
    /// 1. The caller keeps the item alive for as long as it uses the handle.
    pub(crate) unsafe fn lent(item: NonNull<Head>) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { item })
    }

    pub(crate) fn head(&self) -> &Head {
        // SAFETY: a handle keeps the item alive.
        unsafe { self.item.as_ref() }
    }

    #[inline]
    pub(crate) fn revivable(&self) -> &Revivable {
        // SAFETY: a `Work` keeps its `Reusable` alive, which begins with this field.
        unsafe { self.item.cast().as_ref() }
    }

    pub(crate) fn item(&self) -> NonNull<Head> {
        self.item
    }

    /// Drops the handle without running user code. Returns the item if the caller must free it.
    pub(crate) fn leave(self) -> Option<Dead> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the handle belongs to the item, and is not used again.
        unsafe { this.revivable().handles.leave(this.item) }
    }

    /// Returns `true` in a child of `fork` if the item was queued or in use in the parent.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        let owner = &self.revivable().owner;
        owner.is_lost(|| {
            let state = self.head().load();
            state.is_idle() && !state.has_link()
        })
    }
}

/// Returns a closure that calls `func` with `owner` while the owner exists.
pub(crate) fn with_owner<T: Send + Sync + 'static>(
    owner: &Arc<T>,
    mut func: impl FnMut(&T) + Send + 'static,
) -> impl FnMut() + Send + 'static {
    let owner = Arc::downgrade(owner);
    move || {
        if let Some(owner) = owner.upgrade() {
            func(&owner);
        }
    }
}

/// Returns a handle to the [`Work`] that this thread is running. Returns `None` outside of a run,
/// and in a spawned closure or future.
///
/// If runs are nested, as when an item flushes another one, this is the item of the innermost run.
/// Corresponds to the kernel's `current_work`. Never blocks.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{self, Work, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// fn log(line: &str) {
///     let inside = workqueue::current_work().is_some();
///     println!("{line} (in an item: {inside})");
///     # assert_eq!(inside, line == "inside");
/// }
/// let work = Work::new(|| log("inside"));
/// queue.enqueue(&work);
/// work.flush()?;
/// log("outside");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn current_work() -> Option<Work> {
    let item = current_item()?;
    // SAFETY: the item of a run is alive until the run ends, and is forgotten before it is freed.
    let is_work = unsafe { item.as_ref() }.vtable().is_work;
    // The inner handle is lent by the run and is not counted. The clone is counted.
    is_work.then(|| Work::clone(&ManuallyDrop::new(Work { item })))
}

impl<F: FnMut(&Work) + Send + 'static> Tabled for Reusable<F> {
    const VTABLE: &'static VTable = &VTable {
        is_work: true,
        ..VTable::plain(
            run::pop_and_run,
            // SAFETY: as for `pop_and_cancel`; the closure stays for the next run.
            |item, deferred_drops| unsafe {
                run::pop_and_cancel(
                    item,
                    deferred_drops,
                    |_, _| (),
                    |state| Some(state.pop_to_cancel()),
                )
            },
            Self::call,
            std::any::type_name::<F>,
            Self::free,
        )
    };
}

impl<F: FnMut(&Work) + Send + 'static> Reusable<F> {
    unsafe fn call(item: NonNull<Head>) -> Ending {
        let this = item.as_ptr().cast::<Self>();
        let handle = ManuallyDrop::new(Work { item });
        // FOREIGN(item-run): a closure, on a worker, rescuer or flusher, inside its run; a panic is
        // contained.
        let outcome = guarded_in_item(|| {
            // SAFETY: the caller runs the item, and runs never overlap: no other reference exists.
            let func = unsafe { &mut *(*this).func.get() };
            func(&handle);
        });
        match outcome {
            Ok(()) => Ending::Returned,
            Err(payload) => {
                // SAFETY: the caller runs the item.
                unsafe { note_panic(Some(((handle.head().vtable().name)(), &*payload))) };
                panicked::keep(item.addr().get(), payload);
                Ending::Panicked
            }
        }
    }

    unsafe fn free(item: NonNull<Head>) {
        if let Some(payload) = panicked::take(item.addr().get()) {
            // FOREIGN(item-free): the payload of a panic that was not taken; a panic is contained.
            discard(payload);
        }
        // SAFETY: `with_handle` leaked the item from a box, and no other thread uses it.
        drop(unsafe { Box::from_raw(item.as_ptr().cast::<Self>()) });
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        self.revivable().handles.add(self.head());
        Self { item: self.item }
    }
}

sync::on_drop!(Work, it => {
    // SAFETY: the dropped handle belongs to the item.
    drop(unsafe { it.revivable().handles.leave(it.item) });
});

base::internal::impl_debug!(Work, it => state: it.head().load());
