//! Queues one piece of work with options.

use std::mem;

use base::internal::wake::lane::Lane;
use item::internal::head::Name;
use sync::atomic::Ordering;
use sync::time;
use topology::CpuId;

use super::admission::{Permit, TrySpawnError, admitted};
use super::end::WeakQueue;
use super::expiry::StartBefore;
use super::future::{self, CancelHandle};
use super::queue::Workqueue;
use super::spawn;
use crate::execute::deadline::{AnyTime, StartBy};
use crate::execute::join::{self, JoinHandle};
use crate::execute::wait::must_not_be_lost;
use crate::execute::work::Work;
use crate::pools::pwq::Pwq;

/// Options for one piece of work, which the last call of a chain queues; created by
/// [`Workqueue::task`].
///
/// All options can be combined. [`deadline`](Self::deadline),
/// [`hard_deadline`](Self::hard_deadline), [`cancel_handle`](Self::cancel_handle) and the options
/// that wait for capacity apply to closures and futures; a reusable item is cancelled by its own
/// handle, and waits for capacity in [`try_enqueue`](Self::try_enqueue).
///
/// Options may hold a capacity permit: see [`reserve`](Self::reserve).
///
/// # Examples
///
/// ```
/// # use afterwork::workqueue::{CancelHandle, CpuId, Workqueue};
/// use std::time::{Duration, Instant};
///
/// let queue = Workqueue::builder("example").capacity(10).build()?;
/// let soon = Instant::now() + Duration::from_secs(60);
/// let mut cancel = CancelHandle::default();
/// let sum = queue.task().on_cpu(CpuId::new(0)).deadline(soon).cancel_handle(&mut cancel);
/// let sum = sum.wait_for_capacity().spawn(|| 1 + 1);
/// assert_eq!(sum.join()?, 2);
/// assert!(!cancel.cancel(), "it has ended");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the last call queues the work"]
pub struct TaskOptions<'a> {
    pub(super) queue: &'a Workqueue,
    /// The CPU, or `None` for that of the caller.
    cpu: Option<CpuId>,
    lane: Lane,
    deadline: Option<time::Instant>,
    /// Set if running work is cancelled at the deadline.
    is_hard: bool,
    entry: Entry<'a>,
    cancel: Option<&'a mut CancelHandle>,
}

enum Entry<'a> {
    Try,
    /// Waits, at most until this time.
    Wait(Option<time::Instant>),
    Permit(Permit<'a>),
}

impl Workqueue {
    /// Returns options with which one piece of work can be queued.
    ///
    /// # Cost
    ///
    /// An option that is not used costs nothing. Without options, `queue.task().spawn(f)` and
    /// [`queue.spawn(f)`](Self::spawn) do the same.
    pub fn task(&self) -> TaskOptions<'_> {
        TaskOptions {
            queue: self,
            cpu: None,
            lane: self.lane,
            deadline: None,
            is_hard: false,
            entry: Entry::Try,
            cancel: None,
        }
    }
}

/// # Options
impl<'a> TaskOptions<'a> {
    /// Queues the work on the pool of `cpu`'s pod.
    ///
    /// If the queue may not use the CPU, the item is queued on the first pod. With the affinity
    /// `Cpu` the item normally runs on that CPU; only a [`strict`](crate::Builder::strict) queue
    /// guarantees it. A joiner that helps runs it on its own thread.
    ///
    /// Differs from Linux: there an unbound queue ignores the CPU within its node.
    #[doc(alias("queue_work_on", "schedule_work_on"))]
    pub fn on_cpu(self, cpu: CpuId) -> Self {
        Self { cpu: Some(cpu), ..self }
    }

    /// Queues the work on a pool of the NUMA node `node`: that of the current CPU's pod if the pod
    /// is in the node, otherwise that of the node's first pod. A pod may belong to several nodes.
    ///
    /// If the node is unknown or the queue uses none of its CPUs, the work is queued on the first
    /// pod.
    #[doc(alias("queue_work_node", "async_schedule_node"))]
    pub fn on_node(self, node: u32) -> Self {
        let cpu = self.queue.inner.route_table.routes().cpu_in(node);
        self.on_cpu(cpu)
    }

    /// Starts the work before ordinary items of the queue, as a handle returned by
    /// [`urgent`](Workqueue::urgent) does.
    ///
    /// This has no effect on an ordered queue, because its items start in the order of queueing.
    #[doc(alias("priority", "queue_front"))]
    pub fn urgent(mut self) -> Self {
        if !self.queue.inner.ordered {
            self.queue.inner.open_lanes();
            self.lane = Lane::Urgent;
        }
        self
    }

    /// Starts the work by `deadline` or never. If it does not start, its handle returns
    /// [`JoinError::Expired`](crate::JoinError::Expired).
    ///
    /// The clock is that of the queue's registry. If a test [pauses](crate::Registry::for_tests)
    /// it, compute the deadline from [`Registry::now`](crate::Registry::now).
    ///
    /// Use a deadline for work that is useless when it is late, such as a request whose client has
    /// given up. A queue that has fallen behind catches up, because it skips expired items.
    ///
    /// # Guarantees
    ///
    /// - A closure either runs to its end or expires, never both. A run that has started by the
    ///   deadline is not interrupted. A future expires if it has not been polled by the deadline.
    /// - If the deadline has passed already, the work expires at once, even if the queue is full.
    /// - A thread in [`join`](JoinHandle::join), or a task that awaits the handle, is notified at
    ///   the deadline, even if no worker is free. Without a waiter, a worker that pops the item
    ///   counts the expiry (`expired`).
    /// - The thread that finds the work expired drops it: the caller, a worker or the joiner. A
    ///   panic in the drop is discarded. Until then the item is pending, and counts toward the
    ///   [capacity](crate::Builder::capacity).
    ///
    /// # Cost
    ///
    /// The item takes 40 more bytes. It costs two atomic updates to a word that all CPUs share, and
    /// two reads of the clock (35 ns each). A timer is used only if a task awaits the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{JoinError, Workqueue};
    /// use std::time::{Duration, Instant};
    ///
    /// let queue = Workqueue::builder("requests").capacity(1).build()?;
    /// queue.pause();
    /// let soon = || Instant::now() + Duration::from_millis(1);
    /// let first = queue.task().deadline(soon()).try_spawn(|| "answer")?;
    /// let busy = queue.task().deadline(soon()).try_spawn(|| "answer");
    /// assert!(busy.is_err_and(|error| error.is_full()), "503");
    /// assert!(matches!(first.join(), Err(JoinError::Expired)), "504");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("expiration", "start_deadline"))]
    pub fn deadline(self, deadline: time::Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Starts the work by `deadline` or never, as [`deadline`](Self::deadline) does, and cancels it
    /// at `deadline` if it is still running.
    ///
    /// This cancels the item's token: [`is_cancelled`](crate::is_cancelled) returns `true` in the
    /// item, and all waits for the item's [token](crate::CancellationToken::current) end. The item
    /// continues until it returns, and its handle returns the result. A
    /// [`timeout`](crate::timeout()) drops a future instead.
    ///
    /// # Cost
    ///
    /// The same as [`deadline`](Self::deadline), plus a token and a timer.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{self, JoinError, Workqueue};
    /// use std::time::{Duration, Instant};
    ///
    /// let queue = Workqueue::builder("requests").build()?;
    /// let soon = Instant::now() + Duration::from_millis(50);
    /// let search = queue.task().hard_deadline(soon).spawn(|| {
    ///     let mut nr_steps = 0_u64;
    ///     while !workqueue::is_cancelled() {
    ///         nr_steps += 1; // one step of a long search
    ///     }
    ///     nr_steps
    /// });
    /// match search.join() {
    ///     Ok(nr_steps) => println!("the best result after {nr_steps} steps"),
    ///     Err(JoinError::Expired) => println!("no worker was free"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hard_deadline(self, deadline: time::Instant) -> Self {
        Self { is_hard: true, ..self.deadline(deadline) }
    }

    /// Sets `handle` to a handle that cancels the work, independently of its [`JoinHandle`].
    ///
    /// A closure with such a handle is run only by workers, never by its joiner.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{CancelHandle, JoinError, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let mut cancel = CancelHandle::default();
    /// let never = std::future::pending::<()>();
    /// let handle = queue.task().cancel_handle(&mut cancel).spawn_async(never);
    /// std::thread::spawn(move || cancel.cancel());
    /// assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("abort_handle", "spawn_abortable"))]
    pub fn cancel_handle(mut self, handle: &'a mut CancelHandle) -> Self {
        *handle = CancelHandle::default();
        self.cancel = Some(handle);
        self
    }

    /// Waits for free capacity instead of rejecting the work.
    ///
    /// Waiting threads and tasks get free capacity in order of arrival. A queue without a
    /// [capacity](crate::Builder::capacity) never makes the caller wait.
    ///
    /// # Blocking
    ///
    /// The call that queues blocks until, for each earlier waiter and for the caller, an item has
    /// started or been cancelled. In a work item of another queue, the pool may start another
    /// worker. Items of two full queues that wait for free capacity in each other's queue deadlock.
    /// Inside an item of this queue the call does not wait, because the items that would free
    /// capacity may wait for the calling item. If a drain begins during the wait, the work is
    /// rejected when the caller is admitted.
    ///
    /// # Panics
    ///
    /// The call that queues panics inside an item of a bottom-half queue, which must not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").capacity(2).build()?;
    /// for part in 0..100 {
    ///     queue.task().wait_for_capacity().spawn_detached(move || drop(part))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for_capacity(self) -> Self {
        Self { entry: Entry::Wait(None), ..self }
    }

    /// Waits for free capacity as [`wait_for_capacity`](Self::wait_for_capacity) does, at most
    /// until `deadline`. After that the work is rejected, as if the queue were full.
    pub fn wait_for_capacity_until(self, deadline: time::Instant) -> Self {
        Self { entry: Entry::Wait(Some(deadline)), ..self }
    }

    pub(super) fn has_permit(&self) -> bool {
        matches!(self.entry, Entry::Permit(_))
    }

    pub(super) fn with_permit(self, permit: Permit<'a>) -> Self {
        Self { entry: Entry::Permit(permit), ..self }
    }
}

/// # Queueing
impl<'a> TaskOptions<'a> {
    /// Queues `func` as [`Workqueue::spawn`] does.
    pub fn spawn<T, F>(self, func: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.try_spawn(func).unwrap_or_else(rejected)
    }

    /// Queues `func` as [`Workqueue::try_spawn`] does, or returns it in the error.
    pub fn try_spawn<T, F>(self, func: F) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.try_push(Name::of(&func), func, |handle| handle)
    }

    /// Passes `func`'s handle to `keep`, and then queues `func`. If `keep` drops the handle, a
    /// panic is reported to the queue's handler.
    pub(super) fn try_push<N, T, F, K>(
        mut self,
        name: Name<N>,
        func: F,
        keep: impl FnOnce(JoinHandle<T>) -> K,
    ) -> Result<K, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let Ok(start_by) = self.start_by() else {
            return Ok(keep(join::expired(func)));
        };
        let has_permit = admitted!(self.admit(), func);
        let Some(end_by) = self.end_by() else {
            return Ok(self.push_closure(name, func, start_by, has_permit, keep));
        };
        let func = move || {
            let _armed = end_by.arm();
            func()
        };
        Ok(self.push_closure(name, func, start_by, has_permit, keep))
    }

    /// Queues `future` as [`Workqueue::spawn_async`] does.
    pub fn spawn_async<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_async(future).unwrap_or_else(rejected)
    }

    /// Queues `future` as [`Workqueue::spawn_async`] does, or returns it in the error if the queue
    /// is full or closed.
    pub fn try_spawn_async<F>(
        mut self,
        future: F,
    ) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Ok(start_by) = self.start_by() else {
            return Ok(join::expired(future));
        };
        let has_permit = admitted!(self.admit(), future);
        let name = Name::of(&future);
        let Some(end_by) = self.end_by() else {
            return Ok(self.push_future(name, future, start_by, has_permit, |handle| handle));
        };
        let future = async move {
            let _armed = end_by.arm();
            future.await
        };
        Ok(self.push_future(name, future, start_by, has_permit, |handle| handle))
    }

    /// Queues `func` as [`Workqueue::spawn_detached`] does, or returns it in the error.
    pub fn spawn_detached<F>(mut self, func: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        if self.deadline.is_some() || self.cancel.is_some() {
            return self.try_push(Name::of(&func), func, drop);
        }
        let has_permit = admitted!(self.admit(), func);
        self.home().push_detached(func, has_permit);
        Ok(())
    }

    /// Queues each of `funcs` to run once, in order, as [`spawn_detached`](Self::spawn_detached)
    /// does, on the options' CPU and in their lane. Returns the number of closures that were queued
    /// and not rejected.
    ///
    /// The closures are pushed in chains of up to 64, with one atomic update to shared memory for
    /// each chain. A closure may therefore still be waiting to be queued when the iterator is asked
    /// for the next one. On return, or if `funcs` panics, all closures that it has returned are
    /// queued. If the queue is closed during the call, the remaining closures are rejected.
    ///
    /// Blocks as [`Workqueue::spawn`] does. On a queue with a [capacity](crate::Builder::capacity)
    /// closures are pushed one by one.
    ///
    /// # Panics
    ///
    /// Panics if `funcs` does, and in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// static SUM: AtomicU64 = AtomicU64::new(0);
    /// let queue = Workqueue::builder("example").build()?;
    /// let add = |number| move || _ = SUM.fetch_add(number, Ordering::Relaxed);
    /// assert_eq!(queue.task().spawn_detached_all((1..=100).map(add)), 100);
    /// queue.drain()?;
    /// assert_eq!(SUM.load(Ordering::Relaxed), 5050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_detached_all<F>(self, funcs: impl IntoIterator<Item = F>) -> usize
    where
        F: FnOnce() + Send + 'static,
    {
        spawn::spawn_detached_all(self, funcs)
    }

    /// Queues `work` as [`Workqueue::enqueue`] does. If the options wait for capacity or hold a
    /// permit, queues it as [`try_enqueue`](Self::try_enqueue) does, with `false` for an error.
    pub fn enqueue(self, work: &Work) -> bool {
        match self.entry {
            Entry::Try => self.queue.enqueue_at(self.home(), work),
            _ => self.try_enqueue(work).unwrap_or(false),
        }
    }

    /// Queues each of `works` that is not pending, in order, as one chain to one pool, and returns
    /// the number queued. For tiny items, this is about twice as fast as queueing them one by one.
    /// Blocks as [`Workqueue::enqueue`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Work, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let works: Vec<_> = (0..100).map(|i| Work::new(move || drop(i))).collect();
    /// assert_eq!(queue.task().enqueue_all(&works), 100);
    /// queue.drain()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_all(self, works: &[Work]) -> usize {
        self.queue.enqueue_all_at(self.home(), works)
    }

    /// Queues `work` as [`Workqueue::try_enqueue`] does, with the same errors.
    pub fn try_enqueue(mut self, work: &Work) -> Result<bool, TrySpawnError> {
        let inner = &self.queue.inner;
        inner.must_be_at_home();
        must_not_be_lost(work.is_lost());
        // Like `enqueue`, this updates the state word, so that the run sees our earlier writes.
        let is_pending = |work: &Work| {
            let pending = work.head().update(|state| {
                let is_pending = state.is_pending() || state.is_claimed();
                is_pending.then_some(state)
            });
            pending.is_some()
        };
        if inner.core.capacity.is_some() && is_pending(work) {
            return Ok(false);
        }
        let permit = Permit::of(inner, self.admit()?);
        let is_queued = inner.plan_and_push(work, self.home(), permit.is_some())?;
        if is_queued {
            permit.use_up();
        }
        Ok(is_queued)
    }

    /// Returns the start deadline. If it has passed, counts the expiry and returns an error.
    fn start_by(&self) -> Result<Option<StartBefore>, ()> {
        let Some(deadline) = self.deadline else {
            return Ok(None);
        };
        let start_by = StartBefore::at(self.queue, deadline);
        if start_by.is_over() {
            self.queue.inner.must_be_at_home();
            self.queue.inner.core.nr_expired.fetch_add(1, Ordering::Relaxed);
            return Err(());
        }
        Ok(Some(start_by))
    }

    fn end_by(&self) -> Option<StartBefore> {
        let deadline = self.deadline.filter(|_| self.is_hard);
        deadline.map(|deadline| StartBefore::at(self.queue, deadline))
    }

    /// Checks that the queue accepts the work. Returns `true` if the work holds a capacity permit.
    fn admit(&mut self) -> Result<bool, TrySpawnError> {
        match mem::replace(&mut self.entry, Entry::Try) {
            Entry::Try => self.queue.try_permit(),
            Entry::Wait(until) => self.queue.wait_for_place(until),
            Entry::Permit(permit) if self.queue.admits() => Ok(permit.use_up()),
            Entry::Permit(_) => Err(TrySpawnError::CLOSED),
        }
    }

    pub(super) fn home(&self) -> &'a Pwq {
        self.queue.inner.home(self.cpu, self.lane)
    }

    /// Returns the queue, the CPU and the lane with which a timer queues an item later.
    pub(crate) fn later(&self) -> (&'a Workqueue, WeakQueue, Option<CpuId>) {
        let weak = WeakQueue::new(&self.queue.inner, self.lane);
        (self.queue, weak, self.cpu)
    }

    fn push_closure<N, T: Send + 'static, K>(
        self,
        name: Name<N>,
        func: impl FnOnce() -> T + Send + 'static,
        start_by: Option<StartBefore>,
        has_permit: bool,
        keep: impl FnOnce(JoinHandle<T>) -> K,
    ) -> K {
        if self.cancel.is_some() {
            return self.push_future(name, async move { func() }, start_by, has_permit, keep);
        }
        let home = self.home();
        let (item, handle) = match start_by {
            Some(start_by) => join::joinable(name, start_by, func, home, has_permit),
            None => join::joinable(name, AnyTime, func, home, has_permit),
        };
        let kept = keep(handle);
        home.push(item);
        kept
    }

    fn push_future<N, F, K>(
        self,
        name: Name<N>,
        future: F,
        start_by: Option<StartBefore>,
        has_permit: bool,
        keep: impl FnOnce(JoinHandle<F::Output>) -> K,
    ) -> K
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (home, queue) = (self.home(), self.queue.inner.clone());
        let (item, handle) = match start_by {
            Some(start_by) => future::task(name, start_by, future, home, queue, has_permit),
            None => future::task(name, AnyTime, future, home, queue, has_permit),
        };
        if let Some(cancel) = self.cancel {
            // SAFETY: the handle keeps the item alive, and the item belongs to a future.
            cancel.waker = Some(unsafe { future::counted_waker(item) });
        }
        let kept = keep(handle);
        home.push(item);
        kept
    }
}

#[cold]
pub(super) fn rejected<F, T: Send + 'static>(error: TrySpawnError<F>) -> JoinHandle<T> {
    let (work, error) = error.into_parts();
    join::refused(work, error)
}

base::internal::impl_debug!(TaskOptions<'_>, it =>
    queue: it.queue.name(), cpu: it.cpu, lane: it.lane, deadline: it.deadline
);
