//! Queueing on a queue with a capacity: rejecting, waiting, and reserving a permit.
//!
//! New work is counted: closures, futures, and items queued by [`Workqueue::try_enqueue`] or a
//! [`Permit`]. Each holds a capacity permit (`limit/capacity.rs`) until it starts or is cancelled. If
//! no permit is free, the work is rejected, or the caller waits before it queues. Work that cannot
//! be rejected without loss is not counted, because its number is bounded anyway: items queued by
//! `enqueue`, by timers and by grace periods, woken futures, and the tickets of a scope, whose work
//! is stored on its owner's stack.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use base::internal::{
    admission::Ticket,
    wake::{report, sleeper::on_turn_of_task},
};
use sync::time;

use super::{
    future,
    queue::{Admission, Workqueue},
};
use crate::{
    execute::{
        join::{self, JoinHandle},
        wait::must_not_be_lost,
        work::Work,
    },
    limit::capacity::Capacity,
};

/// The error of queueing work that a queue rejects. Contains the work.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{TrySpawnError, Workqueue};
///
/// let queue = Workqueue::builder("example").capacity(1).build()?;
/// queue.pause();
/// let first = queue.try_spawn(|| 1).unwrap();
/// let Err(TrySpawnError::Full(second)) = queue.try_spawn(|| 2) else {
///     unreachable!("one waits already");
/// };
/// assert_eq!(second(), 2);
/// queue.resume();
/// assert_eq!(first.join()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrySpawnError<F> {
    /// The number of waiting items equals the queue's
    /// [`capacity`](crate::Builder::capacity).
    Full(F),
    /// The queue was destroyed, or is being drained and the caller is not one of its items.
    Closed(F),
}

impl TrySpawnError<()> {
    fn with<F>(self, func: F) -> TrySpawnError<F> {
        match self {
            Self::Full(()) => TrySpawnError::Full(func),
            Self::Closed(()) => TrySpawnError::Closed(func),
        }
    }
}

impl<F> TrySpawnError<F> {
    /// Returns the rejected work.
    pub fn into_inner(self) -> F {
        match self {
            Self::Full(func) | Self::Closed(func) => func,
        }
    }

    /// Returns `true` if a later call may succeed.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    fn message(&self) -> &'static str {
        match self {
            Self::Full(_) => "the workqueue is full",
            Self::Closed(_) => "the workqueue is being drained, or was destroyed",
        }
    }
}

impl<F> fmt::Debug for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl<F> std::error::Error for TrySpawnError<F> {}

/// Drops the rejected work. A full queue becomes [`WouldBlock`](io::ErrorKind::WouldBlock), a
/// closed one [`BrokenPipe`](io::ErrorKind::BrokenPipe).
impl<F> From<TrySpawnError<F>> for io::Error {
    fn from(error: TrySpawnError<F>) -> Self {
        let kind = match &error {
            TrySpawnError::Full(_) => io::ErrorKind::WouldBlock,
            TrySpawnError::Closed(_) => io::ErrorKind::BrokenPipe,
        };
        io::Error::new(kind, error.message())
    }
}

/// A capacity permit for one item; see [`Workqueue::reserve`]. Dropping it releases the capacity.
///
/// A permit counts as a waiting item. On a queue without a capacity it reserves nothing.
#[must_use = "dropping a permit gives its place back"]
pub struct Permit<'a> {
    queue: &'a Workqueue,
    /// `None` if the queue has no capacity.
    capacity: Option<&'a Capacity>,
}

impl<'a> Permit<'a> {
    /// Queues `func` with this permit, as [`Workqueue::spawn`] does.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`] with `func`, if the queue is closed.
    pub fn spawn<T, F>(self, func: F) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if !self.queue.admits() {
            return Err(TrySpawnError::Closed(func));
        }
        let home = self.queue.here();
        let (item, handle) = join::joinable(func, home, self.use_up());
        home.push(item);
        Ok(handle)
    }

    /// Queues `func` with this permit, as [`Workqueue::spawn_before`] does. If the deadline has
    /// passed, `func` expires at once and the permit is released.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`] with `func`, if the queue is closed.
    pub fn spawn_before<T, F>(
        self,
        deadline: time::Instant,
        func: F,
    ) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let queue = self.queue;
        if !queue.admits() {
            return Err(TrySpawnError::Closed(func));
        }
        let Some(start_by) = queue.start_before(deadline) else {
            return Ok(join::expired(func));
        };
        let home = queue.here();
        let (item, handle) = join::joinable_by(start_by, func, home, self.use_up());
        home.push(item);
        Ok(handle)
    }

    /// Queues `future` with this permit, as [`Workqueue::spawn_async`] does. The permit is released
    /// when the future is first polled.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`] with `future`, if the queue is closed.
    pub fn spawn_async<F>(self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if !self.queue.admits() {
            return Err(TrySpawnError::Closed(future));
        }
        let home = self.queue.here();
        let inner = self.queue.inner.clone();
        let (item, handle) = future::task(future, home, inner, self.use_up());
        home.push(item);
        Ok(handle)
    }

    /// Queues `work` with this permit. Returns `false` and releases the permit if the item is
    /// already pending or is disabled.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`], if the queue is closed.
    ///
    /// # Panics
    ///
    /// In a child of `fork`, as [`Workqueue::enqueue`].
    pub fn enqueue(self, work: &Work) -> Result<bool, TrySpawnError<()>> {
        if !self.queue.admits() {
            return Err(TrySpawnError::Closed(()));
        }
        must_not_be_lost(work.is_lost());
        let home = self.queue.here();
        let has_permit = self.capacity.is_some();
        let is_queued = self.queue.inner.plan_and_push(work, home, has_permit);
        if is_queued {
            self.use_up();
        }
        Ok(is_queued)
    }

    /// Returns `true` if there was a permit, which belongs to the item from now on.
    fn use_up(mut self) -> bool {
        self.capacity.take().is_some()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(capacity) = self.capacity {
            capacity.release(1);
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.queue.name()).finish()
    }
}

/// The future of [`Workqueue::reserve`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Reserve<'a> {
    queue: &'a Workqueue,
    /// The waiter ID; `None` while the future does not wait for capacity.
    ticket: Option<Ticket>,
}

impl<'a> Future for Reserve<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<'a>> {
        let queue = self.queue;
        queue.inner.must_be_at_home();
        let Some(capacity) = &queue.inner.core.capacity else {
            return Poll::Ready(Permit {
                queue,
                capacity: None,
            });
        };
        if !capacity.poll(&mut self.ticket, || on_turn_of_task(context)) {
            return Poll::Pending;
        }
        let capacity = Some(capacity);
        Poll::Ready(Permit { queue, capacity })
    }
}

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        if let Some(capacity) = &self.queue.inner.core.capacity {
            capacity.leave(self.ticket);
        }
    }
}

impl fmt::Debug for Reserve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reserve").field(&self.queue.name()).finish()
    }
}

impl Workqueue {
    /// Queues `func` as [`spawn`](Self::spawn) does, or returns it in the error.
    ///
    /// # Errors
    ///
    /// With `func`: [`TrySpawnError::Full`] if the queue's
    /// [capacity](crate::Builder::capacity) is used up; [`TrySpawnError::Closed`] if the
    /// queue was destroyed, or is being drained and the caller is not one of its items. Both are
    /// counted (`refused` of [`QueueStats`](crate::QueueStats)).
    pub fn try_spawn<T, F>(&self, func: F) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let has_permit = match self.try_permit() {
            Ok(has_permit) => has_permit,
            Err(refused) => return Err(refused.with(func)),
        };
        let home = self.here();
        let (item, handle) = join::joinable(func, home, has_permit);
        home.push(item);
        Ok(handle)
    }

    /// Returns whether an item that is queued now holds a capacity permit; acquires the permit.
    fn try_permit(&self) -> Result<bool, TrySpawnError<()>> {
        match self.admission() {
            Admission::Open => Ok(false),
            Admission::Counted(capacity) if capacity.try_take() => Ok(true),
            Admission::Counted(_) => {
                self.inner.note_refused();
                Err(TrySpawnError::Full(()))
            }
            Admission::Closed => Err(TrySpawnError::Closed(())),
        }
    }

    /// Queues `func` as [`spawn_before`](Self::spawn_before) does, or returns it in the error. If
    /// the deadline has passed, `func` expires at once, even if the queue is full.
    ///
    /// # Errors
    ///
    /// Those of [`try_spawn`](Self::try_spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{JoinError, TrySpawnError, Workqueue};
    /// use std::time::{Duration, Instant};
    ///
    /// let queue = Workqueue::builder("requests").capacity(1).build()?;
    /// queue.pause();
    /// let soon = || Instant::now() + Duration::from_millis(1);
    /// let first = queue.try_spawn_before(soon(), || "answer").unwrap();
    /// let busy = queue.try_spawn_before(soon(), || "answer");
    /// assert!(matches!(busy, Err(TrySpawnError::Full(_))), "503");
    /// assert!(matches!(first.join(), Err(JoinError::Expired)), "504");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_spawn_before<T, F>(
        &self,
        deadline: time::Instant,
        func: F,
    ) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let Some(start_by) = self.start_before(deadline) else {
            return Ok(join::expired(func));
        };
        let has_permit = match self.try_permit() {
            Ok(has_permit) => has_permit,
            Err(refused) => return Err(refused.with(func)),
        };
        let home = self.here();
        let (item, handle) = join::joinable_by(start_by, func, home, has_permit);
        home.push(item);
        Ok(handle)
    }

    /// Queues `work` as [`enqueue`](Self::enqueue) does, if there is free capacity.
    ///
    /// Returns `Ok(false)` if the item is already pending, even if the queue is full. For a
    /// disabled item it returns `Ok(false)` if there is free capacity, and otherwise
    /// [`Full`](TrySpawnError::Full).
    ///
    /// # Errors
    ///
    /// As [`try_spawn`](Self::try_spawn).
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{TrySpawnError, Work, Workqueue};
    /// let queue = Workqueue::builder("example").capacity(1).build()?;
    /// queue.pause();
    /// let (one, other) = (Work::new(|| ()), Work::new(|| ()));
    /// assert_eq!(queue.try_enqueue(&one), Ok(true));
    /// assert_eq!(queue.try_enqueue(&one), Ok(false));
    /// assert_eq!(queue.try_enqueue(&other), Err(TrySpawnError::Full(())));
    /// one.cancel();
    /// assert_eq!(queue.try_enqueue(&other), Ok(true));
    /// queue.resume();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_enqueue(&self, work: &Work) -> Result<bool, TrySpawnError<()>> {
        match self.admission() {
            Admission::Open => Ok(self.enqueue(work)),
            Admission::Closed => Err(TrySpawnError::Closed(())),
            Admission::Counted(capacity) => {
                must_not_be_lost(work.is_lost());
                if capacity.try_take() {
                    let capacity = Some(capacity);
                    return Permit {
                        queue: self,
                        capacity,
                    }
                    .enqueue(work);
                }
                // Like `enqueue`, this updates the state word, so that the pending run sees the
                // caller's earlier writes.
                let is_pending = work.head().update(|state| {
                    let is_pending = state.is_pending() || state.is_claimed();
                    is_pending.then_some(state)
                });
                if is_pending.is_some() {
                    return Ok(false);
                }
                self.inner.note_refused();
                Err(TrySpawnError::Full(()))
            }
        }
    }

    /// Queues `func` as [`spawn`](Self::spawn) does, once there is free capacity.
    ///
    /// Waiting threads and tasks get free capacity in order of arrival. A queue without a
    /// [capacity](crate::Builder::capacity) never makes the caller wait.
    ///
    /// # Blocking
    ///
    /// It blocks until, for each earlier waiter and for the caller, an item has started or was
    /// cancelled. In a work item of another queue, the pool may start another worker while the
    /// caller blocks. Items of two full queues that wait for free capacity of each other's queue
    /// deadlock. Inside an item of this queue the call does not wait, because the items that would
    /// free capacity may wait for the calling item.
    ///
    /// # Panics
    ///
    /// Inside an item of a bottom-half queue, which must not wait, and in a child of `fork` (see
    /// [`Workqueue`]). Nothing has changed in these cases.
    ///
    /// # Errors
    ///
    /// With `func`: [`TrySpawnError::Full`] inside an item of this queue, if there is no free
    /// capacity; [`TrySpawnError::Closed`] as for [`try_spawn`](Self::try_spawn). If a drain begins
    /// while the caller waits, the error is returned when the caller's turn comes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").capacity(2).build()?;
    /// for part in 0..100 {
    ///     drop(queue.spawn_wait(move || drop(part))?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_wait<T, F>(&self, func: F) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_within(None, func)
    }

    /// Queues `func` as [`spawn_wait`](Self::spawn_wait) does, if there is room within `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`spawn_wait`](Self::spawn_wait), for at most `timeout`. A timeout of zero does not wait.
    ///
    /// # Panics
    ///
    /// As [`spawn_wait`](Self::spawn_wait).
    ///
    /// # Errors
    ///
    /// As [`spawn_wait`](Self::spawn_wait), and [`TrySpawnError::Full`] on a timeout.
    pub fn spawn_wait_timeout<T, F>(
        &self,
        timeout: Duration,
        func: F,
    ) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_within(Some(timeout), func)
    }

    fn spawn_within<T, F>(
        &self,
        timeout: Option<Duration>,
        func: F,
    ) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let capacity = match self.admission() {
            Admission::Counted(capacity) if !self.inner.runs_here() => capacity,
            Admission::Closed => return Err(TrySpawnError::Closed(func)),
            _ => return self.try_spawn(func),
        };
        report::must_be_free_to_sleep();
        if !capacity.wait(timeout) {
            self.inner.note_refused();
            return Err(TrySpawnError::Full(func));
        }
        let capacity = Some(capacity);
        Permit {
            queue: self,
            capacity,
        }
        .spawn(func)
    }

    /// Waits for free capacity for one item, and reserves it.
    ///
    /// As for [`spawn_wait`](Self::spawn_wait), waiters get capacity in order of arrival. A task
    /// that waits here occupies no worker and no seat, so it may be a task of this queue.
    ///
    /// # Guarantees
    ///
    /// The future is cancel-safe: dropping it loses only its position in the wait queue. If
    /// capacity was already granted to it, the drop passes that on to the next waiter. A future
    /// that was granted capacity and is not polled again keeps it until the future is dropped.
    ///
    /// # Panics
    ///
    /// If it is polled in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("requests").capacity(64).build()?;
    /// let front = Workqueue::builder("front").build()?;
    /// let answer = front.spawn_async(async move {
    ///     // Rejects no request, and has at most 64 of them waiting.
    ///     let permit = queue.reserve().await;
    ///     permit.spawn(|| 6 * 7).unwrap().await
    /// });
    /// assert_eq!(answer.join()??, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("ready", "poll_ready", "acquire"))]
    pub fn reserve(&self) -> Reserve<'_> {
        Reserve {
            queue: self,
            ticket: None,
        }
    }

    /// Reserves capacity for one item, or returns `None` if there is none. Costs one atomic update.
    ///
    /// # Panics
    ///
    /// In a child of `fork` (see [`Workqueue`]).
    pub fn try_reserve(&self) -> Option<Permit<'_>> {
        self.inner.must_be_at_home();
        let capacity = self.inner.core.capacity.as_ref();
        // Create the permit only after its capacity was acquired, because its drop releases it.
        let has_permit = capacity.is_none_or(Capacity::try_take);
        has_permit.then(|| Permit {
            queue: self,
            capacity,
        })
    }

    /// Returns the number of items that may wait; `None` without a
    /// [capacity](crate::Builder::capacity).
    pub fn capacity(&self) -> Option<usize> {
        self.inner.core.capacity.as_ref().map(Capacity::capacity)
    }

    /// Returns the free capacity in items; `None` without a
    /// [capacity](crate::Builder::capacity).
    ///
    /// # Blocking
    ///
    /// Never. The result may be outdated when it is returned.
    pub fn room(&self) -> Option<usize> {
        self.inner.core.capacity.as_ref().map(Capacity::nr_free)
    }

    /// Returns the number of items that wait for a worker or for a seat.
    ///
    /// It counts all waiting items, including those outside of the
    /// [capacity](crate::Builder::capacity). It does not count items in a worker's local
    /// batch, nor futures that wait for a wake-up. An item that its joiner runs is counted until a
    /// worker removes its tombstone.
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each of its pools, and counts the items in their injectors. The
    /// result may be outdated when it is returned.
    ///
    /// # Panics
    ///
    /// In a child of `fork` (see [`Workqueue`]).
    #[doc(alias = "workqueue_congested")]
    pub fn len(&self) -> usize {
        self.inner.must_be_at_home();
        self.inner.nr_waiting()
    }

    /// Returns `true` if no item waits: see [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
