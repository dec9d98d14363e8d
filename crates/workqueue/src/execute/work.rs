//! A work item that can be queued again and again.

use std::{
    cell::UnsafeCell,
    fmt,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};

use base::internal::{
    panics::{discard, guarded_in_item, join_error::PanicPayload},
    wake::report,
};
use sync::Patience;

use super::{
    current::{current_item, is_current},
    dependency::{self, NeedsOurSeat, reported},
    run::{self, note_panic},
    wait::{self, must_have_workers, must_not_be_lost},
};
use crate::item::{
    handles::{Dead, Handles},
    head::{Head, VTable},
    panicked,
    revival::Revivable,
    state::{Ending, State},
};

/// Defers the same piece of work as often as it is queued, and never runs it twice at once.
///
/// A `Work` is a handle; clones are handles of the same item. Queueing it while it is pending does nothing
/// and says so; queueing it while it runs makes it run once more, after that run. Because runs never overlap
/// the closure is an `FnMut` and needs no `Sync`.
///
/// # Guarantees
///
/// - What the enqueuer wrote before [`enqueue`](crate::Workqueue::enqueue) is visible to the run; what a run
///   wrote is visible to the next run and to whoever flushed it.
/// - Each call of `enqueue` that returned true is followed by exactly one run, unless the item is cancelled
///   before it starts. An item whose handles are all gone still runs.
///
/// # Cost
///
/// Queueing a tiny item and running it on another CPU takes some tens of nanoseconds; see docs/workqueue.md.
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

// SAFETY: the item's closure is `Send`, its runs never overlap, and everything else of it is atomic.
unsafe impl Send for Work {}
// SAFETY: as above; a shared handle gives no access to the closure.
unsafe impl Sync for Work {}

/// What an item is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Busy {
    /// It is queued, and that run has not started.
    pub pending: bool,
    /// It runs.
    pub executing: bool,
}

/// The error of [`Work::flush`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FlushError {
    /// The item flushed itself: it would wait for its own end.
    OwnItem,
    /// The item cannot start before the item that flushed it has ended, because that item has the
    /// only seat of their queue.
    OwnQueue,
    /// The run that was waited for panicked.
    Panicked,
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnItem => "a work item cannot wait for its own end",
            Self::OwnQueue => {
                "the work item cannot start before the item that waits for it has ended: their queue has one seat"
            }
            Self::Panicked => "the work item panicked",
        })
    }
}

impl std::error::Error for FlushError {}

/// The item behind the handles.
///
/// In a box of its own and not in the slab: reusable items that stand side by side are queued on one CPU and run on
/// another, and each would drag its neighbour's line along. Batches of `afterwork-lab bench workqueue` in
/// the system scope are a third slower then.
#[repr(C)]
struct Reusable<F> {
    queued: Revivable,
    func: UnsafeCell<F>,
}

impl Work {
    /// Makes an item that runs `func`.
    #[doc(alias = "INIT_WORK")]
    #[doc(alias = "DECLARE_WORK")]
    pub fn new(mut func: impl FnMut() + Send + 'static) -> Self {
        Self::with_handle(move |_| func())
    }

    /// Makes an item that runs `func` with a handle of the item itself, so that it can queue itself again.
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
        let item = Box::new(Reusable {
            queued: Revivable::new(Head::new(
                Reusable::<F>::VTABLE,
                State::IDLE,
                ptr::null_mut(),
            )),
            func: UnsafeCell::new(func),
        });
        Self {
            item: NonNull::from(Box::leak(item)).cast(),
        }
    }

    /// Returns `true` if the item is queued and has not started.
    ///
    /// # Blocking
    ///
    /// Never. The answer may be old when it arrives.
    #[doc(alias = "work_pending")]
    pub fn is_pending(&self) -> bool {
        let state = self.head().load();
        state.is_pending() || state.is_claimed()
    }

    /// Returns `true` if the item is queued or running.
    pub fn is_busy(&self) -> bool {
        !self.head().load().is_idle()
    }

    /// Returns whether the item is pending, and whether it is executing, both at one moment.
    ///
    /// # Blocking
    ///
    /// Never. The answer may be old when it arrives.
    #[doc(alias = "work_busy")]
    pub fn busy(&self) -> Busy {
        let state = self.head().load();
        Busy {
            pending: state.is_pending() || state.is_claimed(),
            executing: state.is_running(),
        }
    }

    /// Waits until the item is idle as far as it was queued when this was called.
    ///
    /// Returns whether there was anything to wait for, unless the last run that ended panicked, also if that was before
    /// this was called. Runs that are queued later are not waited for. If the item
    /// has not started and its queue lets joiners help, it is run here and now.
    ///
    /// # Blocking
    ///
    /// Until the run has ended. Called from another work item of a pool it lets the pool get another worker.
    ///
    /// # Errors
    ///
    /// [`FlushError::OwnItem`] from inside the item's own run. [`FlushError::OwnQueue`] from inside
    /// another item of a queue with one seat (as every ordered queue has), if this item waits there
    /// and joiners do not help; the item stays queued. [`FlushError::Panicked`] if the last run
    /// that ended panicked.
    ///
    /// # Panics
    ///
    /// In an item of a bottom-half queue, where it would wait; and in a child of `fork`, for what its parent queued.
    #[doc(alias = "flush_work")]
    pub fn flush(&self) -> Result<bool, FlushError> {
        let head = self.head();
        let is_busy = !head.load().is_idle();
        if is_busy && is_current(self.item) {
            return Err(reported(FlushError::OwnItem));
        }
        must_not_be_lost(is_busy && self.is_lost());
        let helped = !is_busy
            || dependency::help_or_refuse(self.item)
                .map_err(|NeedsOurSeat| reported(FlushError::OwnQueue))?;
        if !helped {
            dependency::before_waiting_for(head);
            wait::until_turn(head, head.load().last_turn());
        }
        if head.load().has_panicked() {
            Err(FlushError::Panicked)
        } else {
            Ok(is_busy)
        }
    }

    /// Returns what the last run that panicked did so with, to the first who asks; `None` if none did since.
    ///
    /// It is kept until then, until another run panics, or until the item goes.
    ///
    /// # Blocking
    ///
    /// Never. It may be asked from anywhere, also from the item.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{FlushError, Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|| panic!("disk {} is gone", 3));
    /// queue.enqueue(&work);
    /// assert_eq!(work.flush(), Err(FlushError::Panicked));
    /// let payload = work.last_panic().expect("it panicked");
    /// assert_eq!(payload.text(), Some("disk 3 is gone"));
    /// assert!(work.last_panic().is_none(), "it was given away");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn last_panic(&self) -> Option<PanicPayload> {
        panicked::take(self.item.addr().get()).map(PanicPayload::new)
    }

    /// Takes the item out of the queue if it has not started; returns `true` if it did.
    ///
    /// # Blocking
    ///
    /// Never for long: an item of an ordered queue is cut out of its line under the pool lock, which looks at all before it (a
    /// millisecond in a line of 100,000; a closure costs nothing like that), every so often what was cancelled in another queue is,
    /// and an item that somebody is just queueing, cancelling, or about to run is waited for that far.
    #[doc(alias = "cancel_work")]
    pub fn cancel(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let mut patience = Patience::new();
        loop {
            if run::cancel(self.item) {
                return true;
            }
            // Others took it for pending while it was claimed, and the claim may have ended since.
            let state = self.head().load();
            let missed = state.is_claimed() || state.is_pending();
            if !missed || sync::twin::armed("cancel: overlooks a claim") {
                return false;
            }
            patience.pause();
        }
    }

    /// Takes the item out of the queue and waits until it does not run; returns `true` if it was pending.
    ///
    /// On return the item is idle, and only an `enqueue` that comes later can change that: while this waits,
    /// queueing is refused, also by the item itself.
    ///
    /// # Blocking
    ///
    /// Until a run that has started has ended. From inside the item's own run it does not wait.
    ///
    /// # Panics
    ///
    /// As [`disable`](Self::disable), and inside another item, of a bottom-half queue. Nothing is changed then.
    #[doc(alias = "cancel_work_sync")]
    pub fn cancel_sync(&self) -> bool {
        let was_pending = self.disable_sync();
        self.enable();
        was_pending
    }

    /// Refuses queueing until as many [`enable`](Self::enable)s have come, and cancels; returns `true` if it was pending.
    ///
    /// On return the item is not pending and does not become so; it may be running. An item may disable itself.
    ///
    /// # Blocking
    ///
    /// As [`cancel`](Self::cancel).
    ///
    /// # Panics
    ///
    /// When it has been disabled 65535 times already.
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

    /// Disables the item and waits until it does not run; returns `true` if it was pending.
    ///
    /// # Blocking
    ///
    /// Until a run that has started has ended. From inside the item's own run it does not wait.
    ///
    /// # Panics
    ///
    /// As [`disable`](Self::disable), and inside another item, of a bottom-half queue. Nothing is changed then.
    #[doc(alias = "disable_work_sync")]
    pub fn disable_sync(&self) -> bool {
        self.must_be_free_to_wait();
        let was_pending = self.disable();
        self.wait_for_run();
        was_pending
    }

    /// Before the item is disabled to be waited for: what panics later would leave it so.
    ///
    /// # Panics
    ///
    /// Inside another item, of a bottom-half queue; and in a child of `fork` in which the item would run for ever.
    pub(crate) fn must_be_free_to_wait(&self) {
        if !is_current(self.item) {
            report::must_be_free_to_sleep();
            if self.head().load().is_running() {
                must_not_be_lost(self.is_lost());
                must_have_workers();
            }
        }
    }

    /// Waits until an item that is disabled does not run.
    pub(crate) fn wait_for_run(&self) {
        let head = self.head();
        // Nobody can queue it any more, so there is one run to wait for at most.
        let state = head.load();
        if state.is_running() && !is_current(self.item) {
            wait::until_turn(head, state.completion_seq() + 1);
        }
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.head().load().disable_depth() > 0
    }

    /// Takes one [`disable`](Self::disable) back; returns `true` if the item may be queued again.
    ///
    /// # Panics
    ///
    /// When the item is not disabled.
    #[doc(alias = "enable_work")]
    pub fn enable(&self) -> bool {
        let enabled = |state| Some(State::enable(state).expect("enabled more often than disabled"));
        let enabled = self.head().update(enabled);
        enabled.is_some_and(|(_, now)| now.disable_depth() == 0)
    }

    pub(crate) fn head(&self) -> &Head {
        // SAFETY: a handle keeps the item alive.
        unsafe { self.item.as_ref() }
    }

    #[inline]
    pub(crate) fn revivable(&self) -> &Revivable {
        // SAFETY: every item behind a `Work` is a `Reusable`, which begins with this; the handle keeps it alive.
        unsafe { self.item.cast().as_ref() }
    }

    pub(crate) fn item(&self) -> NonNull<Head> {
        self.item
    }

    /// Lets go of the handle where no code of users may run; returns the item if it is to be freed by that.
    pub(crate) fn leave(self) -> Option<Dead> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the handle is one of the item's, and is not used again.
        unsafe { this.handles().leave(this.item) }
    }

    fn handles(&self) -> &Handles {
        &self.revivable().handles
    }

    /// Returns `true` in a child of `fork` whose parent had it queued, or was at it.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        let owner = &self.revivable().owner;
        owner.is_lost(|| {
            let state = self.head().load();
            state.is_idle() && !state.has_link()
        })
    }
}

/// Returns a handle of the [`Work`] in whose run this thread is; `None` in none, and in a closure or future.
///
/// Of runs in one another, as when an item flushes another one, the innermost counts. The kernel's `current_work`.
///
/// # Blocking
///
/// Never.
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
    // SAFETY: the item of a run is alive until that has ended, and is forgotten before it may go.
    let is_work = unsafe { item.as_ref() }.vtable().is_work;
    // Lent by the run, and not counted.
    is_work.then(|| Work::clone(&ManuallyDrop::new(Work { item })))
}

impl<F: FnMut(&Work) + Send + 'static> Reusable<F> {
    const VTABLE: &'static VTable = &VTable {
        is_work: true,
        ..VTable::plain(
            run::pop_and_run,
            // SAFETY: as of `pop_and_cancel`; the closure stays for the next time.
            |item, remains| unsafe { run::pop_and_cancel(item, remains, |_, _| ()) },
            Self::call,
            std::any::type_name::<F>,
            Self::free,
        )
    };

    unsafe fn call(item: NonNull<Head>) -> Ending {
        let this = item.as_ptr().cast::<Self>();
        let handle = ManuallyDrop::new(Work { item });
        // FOREIGN(item-run): a closure, on a worker, a rescuer or whoever flushes it, inside its run; contained.
        let outcome = guarded_in_item(|| {
            // SAFETY: the caller runs the item, and runs never overlap, so this is the only reference.
            let func = unsafe { &mut *(*this).func.get() };
            func(&handle);
        });
        match outcome {
            Ok(()) => Ending::Returned,
            Err(payload) => {
                // SAFETY: the caller runs the item.
                unsafe { note_panic(Some((std::any::type_name::<F>(), &*payload))) };
                panicked::keep(item.addr().get(), payload);
                Ending::Panicked
            }
        }
    }

    unsafe fn free(item: NonNull<Head>) {
        if let Some(payload) = panicked::take(item.addr().get()) {
            // FOREIGN(item-free): the payload of a panic that nobody asked for; contained.
            discard(payload);
        }
        // SAFETY: it was leaked from a box by `with_handle`, and the caller knows that nobody is left.
        drop(unsafe { Box::from_raw(item.as_ptr().cast::<Self>()) });
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        self.handles().add(self.head());
        Self { item: self.item }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if sync::twin::torn_down() {
            return;
        }
        // SAFETY: the handle that goes is one of the item's.
        unsafe { self.handles().remove(self.item) };
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.head().load()).finish()
    }
}
