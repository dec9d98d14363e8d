//! One-shot items: closures that run once, with or without a handle that returns the result.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::internal::panics::join_error::{JoinError, Outcome};
use base::internal::panics::{Foreign, contain, discard, guarded_in_item};
use base::internal::trace;
use item::internal::deferred_drops::DeferredDrops;
use item::internal::head::{
    self, Ending, Expiry, HandleTable, Head, Home, Name, Pop, Popped, Rules, State, Tabled,
    TaskSlot, VTable,
};
use item::internal::memory;
use sync::fork::{self, Process};
use sync::unmodelled::Arc;
use sync::{Mutex, time, twin};

use super::deadline::{AnyTime, StartBy};
use super::run::{self, is_blocking, is_current, note_panic, with_current, with_events};
use super::wait::{self, NeedsOurSeat, must_not_be_lost, reported};
use crate::pools::pwq::Pwq;

/// A handle that waits for the result of a spawned closure or future.
///
/// If the handle is dropped, the item still runs, and its result is dropped. As a future, the
/// handle yields the result of [`join`](Self::join).
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
/// let mut handle = queue.spawn(|| 1 + 1);
/// let sum = loop {
///     if let Some(sum) = handle.try_join() {
///         break sum?;
///     }
/// };
/// assert_eq!(sum, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the handle discards the result; `spawn_detached` is cheaper"]
pub struct JoinHandle<T> {
    item: NonNull<Head>,
    process: Process,
    /// The handle returns a `T` but does not contain one, so moving the handle moves no `T`.
    result: PhantomData<fn() -> T>,
}

// SAFETY: the closure and its result are `Send`, and the item passes each to one thread at a time.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle gives access only to the state, which is atomic.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

// A handle gives no access to data that a panic left inconsistent, because the closure is dropped
// before the handle returns the panic.
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}

#[repr(C)]
struct Joinable<F, T, S> {
    head: Head,
    /// I, except for the parts that only the handle writes.
    start_by: S,
    /// The awaiting task. The handle writes it before it sets the flag that reports a waiting task.
    task: UnsafeCell<Option<Arc<TaskSlot>>>,
    /// `func` until the item runs or is cancelled, `outcome` from then on.
    content: UnsafeCell<Content<F, T>>,
}

union Content<F, T> {
    func: ManuallyDrop<F>,
    outcome: ManuallyDrop<Option<Outcome<T>>>,
}

/// Creates an item that runs `func` and keeps its result. `name` is that of the user's function,
/// which `func` may wrap. `has_permit` is set if the caller holds a capacity permit for the item.
#[inline]
pub(crate) fn joinable<N, F, T, S>(
    name: Name<N>,
    start_by: S,
    func: F,
    home: &Pwq,
    has_permit: bool,
) -> (NonNull<Head>, JoinHandle<T>)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    S: StartBy,
{
    // The item is queued once, so its list position does not matter after a cancel. A joiner must
    // not overtake the other closures of a strand.
    let rules = Rules { help: home.rules.help && !S::IN_STRAND, ordered: false, ..home.rules };
    let item = memory::place(Joinable::<F, T, S> {
        head: Head::new(
            name.vtable::<Joinable<F, T, S>>(),
            State::queued(rules).counted(has_permit),
            home.as_home(),
        ),
        start_by,
        task: UnsafeCell::new(None),
        content: UnsafeCell::new(Content { func: ManuallyDrop::new(func) }),
    })
    .cast();
    // SAFETY: the item's table yields a `T`, and this is its only handle.
    (item, unsafe { JoinHandle::of(item) })
}

/// Drops `work`, and returns a handle to an item that is not queued.
#[cold]
pub(crate) fn refused<W, T: Send + 'static>(work: W, error: JoinError) -> JoinHandle<T> {
    // FOREIGN(refused-drop): a rejected closure or future, on the spawning thread; a panic may
    // unwind into the caller.
    drop(work);
    ended(error)
}

/// Drops `work`, and returns a handle to an item whose deadline passed before it was queued.
#[cold]
pub(crate) fn expired<W, T: Send + 'static>(work: W) -> JoinHandle<T> {
    // FOREIGN(expired-drop): the closure or future, on the spawning thread; a panic is contained.
    contain(|| drop(work));
    ended(JoinError::Expired)
}

fn ended<T: Send + 'static>(error: JoinError) -> JoinHandle<T> {
    type Ended<T> = Joinable<fn() -> T, T, AnyTime>;
    let vtable = Ended::<T>::VTABLE;
    let item = memory::place(Ended::<T> {
        head: Head::new(vtable, State::ended(), std::ptr::null_mut()),
        start_by: AnyTime,
        task: UnsafeCell::new(None),
        content: UnsafeCell::new(Content { outcome: ManuallyDrop::new(Some(Err(error))) }),
    });
    JoinHandle { item: item.cast(), process: Process::now(), result: PhantomData }
}

/// Creates an item without a handle. Its home must stay valid until the item has run.
#[inline]
pub(crate) fn detached<F: FnOnce() + Send + 'static>(func: F, home: *mut Home) -> NonNull<Head> {
    memory::place(Detached {
        head: Head::new(Detached::<F>::VTABLE, State::IDLE, home),
        func: ManuallyDrop::new(func),
    })
    .cast()
}

impl<F, T, S> Tabled for Joinable<F, T, S>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    S: StartBy,
{
    const VTABLE: &'static VTable = &VTable {
        frees_no_user_data: Self::frees_no_user_data,
        handle: Some(HandleTable {
            take: Self::take,
            cancel: Self::cancel,
            leave: head::orphan,
            slot_at: std::mem::offset_of!(Joinable<F, T, S>, task),
            expiry: if S::IS_LIMITED {
                Some(Expiry {
                    left_ns: |item| Self::start_by(item).left_ns(),
                    expire: Self::expire,
                    // The caller is the handle, the only writer of the mutable parts of `start_by`.
                    wake_then: |item, waker| Self::start_by(item).wake_then(waker),
                })
            } else {
                None
            },
            strand: if S::IN_STRAND { Some(|item| Self::start_by(item).strand()) } else { None },
        }),
        ..VTable::plain(
            // SAFETY: as for `pop_and_run`.
            |item| unsafe { run::pop_by_and_run(item, |state| Self::pop_by(state, State::pop)) },
            |item, deferred_drops| {
                let pop = |state| Self::pop_by(state, State::pop_to_cancel);
                // SAFETY: as for `pop_and_cancel`.
                unsafe { run::pop_and_cancel(item, deferred_drops, Self::skip, pop) }
            },
            Self::call,
            std::any::type_name::<F>,
            Self::free,
        )
    };
}

impl<F, T, S> Joinable<F, T, S>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    S: StartBy,
{
    /// Decides how to pop the item. For a closure of a strand, returns `None` while a canceller has
    /// claimed it. The claim must end before the strand does, because the in-flight count of the
    /// strand keeps the pwq alive.
    fn pop_by(state: State, pop: fn(State) -> Pop) -> Option<Pop> {
        let waits = S::IN_STRAND && state.is_claimed();
        (!waits || twin::armed("strand: pops a claimed closure")).then(|| pop(state))
    }

    fn content(item: NonNull<Head>) -> *mut Content<F, T> {
        // SAFETY: only items of this type have this table.
        unsafe { (*item.as_ptr().cast::<Self>()).content.get() }
    }

    fn start_by<'a>(item: NonNull<Head>) -> &'a S {
        // SAFETY: only items of this type have this table, and the field is never written.
        unsafe { &(*item.as_ptr().cast::<Self>()).start_by }
    }

    unsafe fn call(item: NonNull<Head>) -> Ending {
        let content = Self::content(item);
        // SAFETY: the caller runs the item for the first and only time, so the content is the
        // closure, and only we access it.
        let func = ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*content).func) });
        let start_by = Self::start_by(item);
        let mut outcome = if start_by.is_over() && !twin::armed("deadline: starts after it") {
            // SAFETY: the caller runs the item.
            unsafe { run::note_expired() };
            // FOREIGN(expired-drop): a closure whose deadline has passed, on the thread that would
            // have run it; a panic is contained.
            contain(|| drop(func));
            Err(JoinError::Expired)
        } else if start_by.is_cancelled() {
            // FOREIGN(cancel-drop): a closure whose strand was running during a bulk cancel, on the
            // thread that would have run the closure; a panic is contained.
            contain(|| drop(func));
            Err(JoinError::Cancelled)
        } else {
            // FOREIGN(item-run): a closure, on a worker, rescuer or joiner, in its run; a panic is
            // contained.
            guarded_in_item(func).map_err(JoinError::panicked)
        };
        let mut panicked = false;
        if let Err(JoinError::Panicked(payload)) = &mut outcome {
            panicked = true;
            // SAFETY: the caller runs the item.
            unsafe {
                let head = item.as_ref();
                let is_unseen = head.load().is_orphan();
                note_panic(is_unseen.then(|| ((head.vtable().name)(), payload.as_any())));
            }
        }
        let outcome = ManuallyDrop::new(Some(outcome));
        // SAFETY: no thread reads the content before the run has ended.
        unsafe { (&raw mut (*content).outcome).write(outcome) };
        if panicked { Ending::Panicked } else { Ending::Returned }
    }

    /// Moves the closure out without calling it.
    unsafe fn skip(item: NonNull<Head>, deferred_drops: &mut DeferredDrops) {
        // SAFETY: the caller runs the item, which has not run before.
        deferred_drops.defer_drop(unsafe { Self::set_failed(item, JoinError::Cancelled) });
        deferred_drops.nr_more -= isize::from(S::IS_TICKET);
    }

    /// Stores `error` as the outcome, and returns the closure.
    ///
    /// # Safety
    ///
    /// 1. The closure has not been called, and only the caller accesses the content.
    unsafe fn set_failed(item: NonNull<Head>, error: JoinError) -> F {
        let content = Self::content(item);
        // SAFETY: (1).
        let func = ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*content).func) });
        let outcome = ManuallyDrop::new(Some(Err(error)));
        // SAFETY: (1).
        unsafe { (&raw mut (*content).outcome).write(outcome) };
        func
    }

    /// If the item has not started, cancels it and drops its closure.
    unsafe fn cancel(item: NonNull<Head>) -> bool {
        if !run::cancel(item) {
            if !S::IS_TICKET {
                // SAFETY: the caller is the handle.
                unsafe { item.as_ref() }.cancel_started();
            }
            return false;
        }
        // SAFETY: the only handle has cancelled the item, so no other thread accesses the content.
        let func = unsafe { Self::set_failed(item, JoinError::Cancelled) };
        // FOREIGN(cancel-drop): the closure, on the cancelling thread; a panic may unwind into the
        // caller, because the content is already an outcome.
        drop(func);
        true
    }

    /// If the item has not started, expires it and drops its closure. Its deadline has passed.
    unsafe fn expire(item: NonNull<Head>) -> bool {
        if !run::expire(item) {
            return false;
        }
        // SAFETY: as in `cancel`.
        let func = unsafe { Self::set_failed(item, JoinError::Expired) };
        // FOREIGN(expired-drop): the closure, on the joining thread; a panic is contained.
        contain(|| drop(func));
        true
    }

    unsafe fn take(item: NonNull<Head>, into: *mut ()) {
        // SAFETY: the run has ended, so the content is an outcome. The caller is the only handle.
        let outcome = unsafe { &mut (*Self::content(item)).outcome };
        // SAFETY: the caller passes a pointer to an `Option<Outcome<T>>`.
        unsafe { *into.cast::<Option<Outcome<T>>>() = outcome.take() };
    }

    unsafe fn frees_no_user_data(item: NonNull<Head>) -> bool {
        // SAFETY: the item has ended and its handle is dropped, so the content is an outcome, and
        // only the caller accesses the item.
        let outcome = unsafe { &*(*Self::content(item)).outcome };
        // SAFETY: as above.
        let slot = unsafe { &*(*item.as_ptr().cast::<Self>()).task.get() };
        let is_scheduled =
            matches!(outcome, None | Some(Err(JoinError::Cancelled | JoinError::Expired)));
        slot.is_none() && is_scheduled
    }

    unsafe fn free(item: NonNull<Head>) {
        // SAFETY: the item has ended, and no handle or list refers to it, so only we access it.
        unsafe {
            item.as_ref().unwatch();
            std::ptr::drop_in_place(&raw mut (*item.as_ptr().cast::<Self>()).task);
            std::ptr::drop_in_place(&raw mut (*item.as_ptr().cast::<Self>()).start_by);
            // This is the last drop of user data. If it unwinds, the block leaks.
            ManuallyDrop::drop(&mut (*Self::content(item)).outcome);
            std::ptr::drop_in_place(item.as_ptr());
            memory::release(item.cast::<Self>());
        }
    }
}

impl<T> JoinHandle<T> {
    /// # Safety
    ///
    /// 1. `item` has a [`HandleTable`] whose outcome is a `T`.
    /// 2. The caller creates its only handle.
    pub(crate) unsafe fn of(item: NonNull<Head>) -> Self {
        Self { item, process: Process::now(), result: PhantomData }
    }

    /// Waits for the closure to end, and returns its result.
    ///
    /// If the closure has not started and its queue lets joiners help, it runs on this thread, or,
    /// if very many joins are nested, on a new thread.
    ///
    /// # Blocking
    ///
    /// Blocks until the closure has ended. If a work item calls this, its pool may start another
    /// worker.
    ///
    /// # Errors
    ///
    /// - [`JoinError::Panicked`] with the payload if the closure panicked.
    /// - [`JoinError::Cancelled`] or [`JoinError::Expired`] if it did not run.
    /// - [`JoinError::Full`] or [`JoinError::Closed`] if the queue rejected it.
    /// - [`JoinError::OwnItem`] from inside the closure itself.
    /// - [`JoinError::OwnQueue`] if the joined item cannot start before the item that calls this
    ///   has ended, and joiners cannot help. The joined item stays queued, and its result is
    ///   dropped.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait inside an item of a bottom-half queue, or in a child of `fork` for
    /// an item of the parent.
    pub fn join(self) -> Result<T, JoinError> {
        let is_finished = self.is_finished();
        must_not_be_lost(!is_finished && self.is_lost());
        if !is_finished && !self.help_or_refuse()? {
            wait::before_waiting_for(self.head());
            self.wait_until_expired(u64::MAX);
            wait::until_completed(self.head(), 1, None);
        }
        self.take()
    }

    /// Waits at most `timeout` for the closure to end. Returns its result, or `None` if it has not.
    ///
    /// The closure is never run on this thread, because that could exceed `timeout`.
    ///
    /// Blocks, fails and panics as [`join`](Self::join) does, for at most `timeout`. Returns
    /// [`JoinError::Taken`] if the result has already been returned.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// queue.pause();
    /// let mut handle = queue.spawn(|| 7);
    /// assert!(handle.join_timeout(Duration::from_millis(1)).is_none(), "nothing starts");
    /// queue.resume();
    /// assert_eq!(handle.join_timeout(Duration::MAX).unwrap()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join_timeout(&mut self, timeout: Duration) -> Option<Result<T, JoinError>> {
        if !self.is_finished() {
            must_not_be_lost(self.is_lost());
            if let Some(error) = self.refusal(self.head().load().lets_help()) {
                return Some(Err(reported(error)));
            }
            wait::before_waiting_for(self.head());
            let end_ns = time::ns_after(timeout);
            self.wait_until_expired(end_ns);
            let left = Duration::from_nanos(end_ns.saturating_sub(time::now_ns()));
            if !wait::until_completed(self.head(), 1, Some(left)) {
                return None;
            }
        }
        Some(self.take())
    }

    /// Runs the item on this thread, if possible. Returns `true` if the item has run.
    fn help_or_refuse(&self) -> Result<bool, JoinError> {
        if is_current(self.item) {
            return Err(reported(JoinError::OwnItem));
        }
        if self.table().expiry.is_some() {
            return Ok(run::help(self.item));
        }
        wait::help_or_refuse(self.item).map_err(|NeedsOurSeat| reported(JoinError::OwnQueue))
    }

    /// Returns the error to report if a wait without help for this unfinished item would never end,
    /// unless another thread may help.
    fn refusal(&self, may_be_helped: bool) -> Option<JoinError> {
        if is_current(self.item) {
            return Some(JoinError::OwnItem);
        }
        // An item with a deadline ends at the deadline.
        let ends = may_be_helped || self.table().expiry.is_some();
        (!ends && wait::needs_our_seat(self.item)).then_some(JoinError::OwnQueue)
    }

    /// Returns the error to report if a task that polls for the item's end would never see it. This
    /// can happen in `block_on`, where the polling thread stays inside its own item.
    pub(crate) fn refusal_of_a_poll(&self) -> Option<JoinError> {
        is_blocking().then(|| self.refusal(false)).flatten()
    }

    /// Returns a handle that works like this one, but cancels the item when the handle is dropped.
    pub fn cancel_on_drop(self) -> CancelOnDrop<T> {
        CancelOnDrop { handle: Some(self) }
    }

    /// Returns the closure's result if the closure has ended. If the deadline has passed and the
    /// item has not started, this call expires the item. The errors are those of
    /// [`join_timeout`](Self::join_timeout). Never waits for the item.
    pub fn try_join(&mut self) -> Option<Result<T, JoinError>> {
        self.has_ended().then(|| self.take())
    }

    /// Returns `true` if the closure has ended or been cancelled.
    pub fn is_finished(&self) -> bool {
        self.head().load().has_reached(1)
    }

    /// Cancels the item. Returns `true` if it will no longer run.
    ///
    /// A closure that has not started is removed from the queue and dropped on this thread, and so
    /// is a future that has never been polled. A closure that has started continues, and
    /// [`is_cancelled`](crate::is_cancelled) returns `true` in it. In this case, and if the item
    /// has ended, `cancel` returns `false`. If a future has been polled and has not ended, a worker
    /// of its queue drops it instead of polling it again, and `cancel` returns `true`. A poll in
    /// progress may still complete the future; [`join`](Self::join) then returns its result.
    ///
    /// If the drop panics, the panic is propagated to the caller, and the item is still cancelled.
    ///
    /// # Blocking
    ///
    /// Blocks only briefly: from time to time, it removes cancelled items from a list under the
    /// pool lock.
    pub fn cancel(&mut self) -> bool {
        if self.is_lost() {
            return false;
        }
        // SAFETY: the table belongs to the item, and we are its only handle.
        unsafe { (self.table().cancel)(self.item) }
    }

    /// Returns `true` if the item has ended. Expires it if it has not started by its deadline.
    fn has_ended(&mut self) -> bool {
        let expiry = self.table().expiry.as_ref();
        let expires = |it: &Expiry| self.left_ns(it) == 0 && self.expire(it);
        self.is_finished() || !self.is_lost() && expiry.is_some_and(expires)
    }

    fn left_ns(&self, expiry: &Expiry) -> u64 {
        // SAFETY: the table belongs to the item.
        unsafe { (expiry.left_ns)(self.item) }
    }

    /// Expires the item, whose deadline has passed. Returns `true` if it had not started.
    fn expire(&self, expiry: &Expiry) -> bool {
        // SAFETY: the table belongs to the item, and we are its only handle.
        unsafe { (expiry.expire)(self.item) }
    }

    /// Registers `waker`, which replaces any earlier one. It is fired at the item's deadline, and
    /// when the item ends without being cancelled. Returns `false` if the item has ended.
    pub(crate) fn await_end(&mut self, waker: &Waker) -> bool {
        let expiry = self.table().expiry.as_ref();
        // After the deadline, the item has started or ended, and needs no wake-up at the deadline.
        let expiry = expiry.filter(|it| self.left_ns(it) > 0);
        if self.has_ended() || !self.leave_waker(waker) {
            return false;
        }
        let Some(expiry) = expiry else { return true };
        // SAFETY: the table belongs to the item, and we are its only handle, borrowed by `&mut`.
        let is_scheduled = unsafe { (expiry.wake_then)(self.item, waker) };
        // If `is_scheduled` is `false`, the deadline has just passed.
        is_scheduled || !self.expire(expiry)
    }

    /// Registers `waker` as [`await_end`](Self::await_end) does, but not for the deadline.
    fn leave_waker(&mut self, waker: &Waker) -> bool {
        must_not_be_lost(self.is_lost());
        // SAFETY: our handle keeps the item alive, and only the slot's address is taken.
        let place = unsafe { self.table().slot(self.item) };
        // SAFETY: only the handle, which is borrowed by `&mut` here, writes the slot.
        if unsafe { (*place).is_none() } {
            // SAFETY: no thread reads the slot before the flag is set, and this write, the only
            // one, comes before that.
            unsafe { place.write(Some(Arc::new(Mutex::new(None)))) };
        }
        // SAFETY: from here on the slot is only read.
        let slot = unsafe { &*place }.as_ref().expect("written above");
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, with no lock
        // held; it may unwind into the caller of the poll.
        let waker = Foreign::new(waker.clone());
        let before = slot.lock().replace(waker);
        // The replaced waker is dropped after the unlock, because it may own a user's future.
        drop(before);
        // Either this transition finds that the run has ended, or the end of the run finds the
        // flag. If the end reads the slot before we replace the waker, the end precedes this
        // transition, which then finds the end.
        let waits = self.head().update(|state| (!state.has_reached(1)).then(|| state.await_task()));
        waits.is_some()
    }

    /// If the item has a deadline, waits until the item has ended, the deadline has passed, or the
    /// clock has reached `end_ns`. Expires the item if the deadline has passed.
    fn wait_until_expired(&self, end_ns: u64) {
        let Some(expiry) = &self.table().expiry else {
            return;
        };
        loop {
            let left_ns = self.left_ns(expiry);
            if left_ns == 0 {
                // If the item has started, it does not expire, and our caller waits for its end.
                self.expire(expiry);
                return;
            }
            let left_ns = left_ns.min(end_ns.saturating_sub(time::now_ns()));
            let left = Duration::from_nanos(left_ns);
            if wait::until_completed(self.head(), 1, Some(left)) || left_ns == 0 {
                return;
            }
        }
    }

    /// Expires an item, as its joiner does at the deadline. Returns `true` if it had not started.
    #[cfg(any(loom, shuttle))]
    pub fn expire_now(&mut self) -> bool {
        self.expire(self.table().expiry.as_ref().expect("it has a deadline"))
    }

    fn take(&self) -> Result<T, JoinError> {
        let mut outcome: Option<Outcome<T>> = None;
        // SAFETY: the caller has seen the end of the run, and `T` is the item's result type.
        unsafe { (self.table().take)(self.item, (&raw mut outcome).cast()) };
        outcome.unwrap_or(Err(JoinError::Taken))
    }

    /// Returns `true` if the item belongs to the parent process, so that no worker runs it here.
    fn is_lost(&self) -> bool {
        fork::is_child() && !self.process.is_this()
    }

    fn head(&self) -> &Head {
        // SAFETY: the handle keeps the item alive.
        unsafe { self.item.as_ref() }
    }

    fn table(&self) -> &'static HandleTable {
        let table = self.head().vtable().handle.as_ref();
        table.expect("an item with a handle has a table for it")
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// Never runs the closure itself, so that it cannot block the executor. Once a poll has
    /// returned the result, further polls return [`JoinError::Taken`].
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.await_end(context.waker()) {
            return Poll::Ready(self.take());
        }
        match self.refusal_of_a_poll() {
            Some(error) => Poll::Ready(Err(reported(error))),
            None => Poll::Pending,
        }
    }
}

sync::on_drop!(JoinHandle[T], it => {
    // SAFETY: the table belongs to the item, and its handle is not used again.
    unsafe { (it.table().leave)(it.item) };
});

base::internal::impl_debug!(JoinHandle[T], it => state: it.head().load());

/// A handle that waits for an item as a [`JoinHandle`] does, and cancels the item when the handle
/// is dropped; created by [`cancel_on_drop`](JoinHandle::cancel_on_drop).
///
/// A closure that has started continues, and can call [`is_cancelled`](crate::is_cancelled). A
/// worker drops a future that has been polled. An item that has been neither started nor polled is
/// dropped by the thread that drops the handle; see [`JoinHandle::cancel`].
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
/// queue.pause();
/// let (send, receive) = std::sync::mpsc::channel();
/// drop(queue.spawn(move || send.send(7)).cancel_on_drop());
/// queue.resume();
/// // The closure was dropped, and was not called.
/// assert!(receive.recv().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the item"]
pub struct CancelOnDrop<T> {
    /// `None` if dropping this handle no longer cancels the item.
    handle: Option<JoinHandle<T>>,
}

impl<T> CancelOnDrop<T> {
    /// Returns a handle that does not cancel the item when it is dropped.
    pub fn keep(mut self) -> JoinHandle<T> {
        self.handle.take().expect("only the drop takes it")
    }

    /// Waits for the item to end, and returns its result. Blocks, fails and panics as
    /// [`JoinHandle::join`] does.
    pub fn join(self) -> Result<T, JoinError> {
        self.keep().join()
    }

    /// Returns `true` if the item has ended or been cancelled.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Future for CancelOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.handle.as_mut().expect("only the drop takes it");
        Pin::new(handle).poll(context)
    }
}

sync::on_drop!(CancelOnDrop[T], it => if let Some(mut handle) = it.handle.take() {
    // FOREIGN(cancel-drop): the closure or future, on the thread that drops this handle; a panic is
    // contained here, because the thread may be unwinding.
    contain(|| {
        handle.cancel();
    });
});

base::internal::impl_debug!(CancelOnDrop[T], it => handle: it.handle);

/// A closure without a handle. Its state is never read.
#[repr(C)]
struct Detached<F> {
    head: Head,
    func: ManuallyDrop<F>,
}

impl<F: FnOnce() + Send + 'static> Detached<F> {
    const VTABLE: &'static VTable =
        &VTable::plain(Self::run, Self::cancel, Self::call, std::any::type_name::<F>, Self::free);

    unsafe fn run(item: NonNull<Head>) -> Popped {
        // SAFETY: the caller holds the item's only list link, so only we access the item.
        let home = unsafe { item.as_ref() }.home.load(sync::atomic::Ordering::Relaxed);
        let home = Pwq::of(home);
        // SAFETY: only we access the item, and this is its only run.
        let call = || unsafe { Self::call(item) };
        // SAFETY: our caller's in-flight count keeps `home` alive.
        let body = || unsafe { with_events(item.as_ptr(), Self::VTABLE, home, false, call) };
        // SAFETY: our caller's in-flight count keeps `home` alive.
        unsafe { with_current(std::ptr::null(), home, body) };
        Popped::Ran
    }

    unsafe fn cancel(item: NonNull<Head>, deferred_drops: &mut DeferredDrops) -> Popped {
        let this = item.as_ptr().cast::<Self>();
        // SAFETY: only we access the item, and the closure is moved out once.
        let func = ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*this).func) });
        trace::forget(item.as_ptr().addr());
        // SAFETY: the closure has been moved out, and no other thread accesses the item.
        unsafe { Self::free(item) };
        deferred_drops.defer_drop(func);
        Popped::Ran
    }

    unsafe fn call(item: NonNull<Head>) -> Ending {
        let this = item.as_ptr().cast::<Self>();
        // SAFETY: the caller holds the item's only list link, and calls this function once.
        let func = ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const (*this).func) });
        // FOREIGN(item-run): as in `Joinable::call`.
        let ending = match guarded_in_item(func) {
            Ok(()) => Ending::Returned,
            Err(payload) => {
                // SAFETY: our caller releases the in-flight count later.
                unsafe { note_panic(Some((std::any::type_name::<F>(), &*payload))) };
                discard(payload);
                Ending::Panicked
            }
        };
        // SAFETY: the closure has been moved out, and no other thread accesses the item.
        unsafe { Self::free(item) };
        ending
    }

    unsafe fn free(item: NonNull<Head>) {
        // SAFETY: no other thread accesses the item, and its closure has been moved out.
        unsafe {
            std::ptr::drop_in_place(item.as_ptr());
            memory::release(item.cast::<Self>());
        }
    }
}
