//! Queues work on a queue with a capacity: rejects work, waits for capacity, and reserves permits.
//!
//! New work is counted: closures, futures, and items queued by [`Workqueue::try_enqueue`]. Each
//! holds a capacity permit (`limit/src/capacity.rs`) until it starts or is cancelled. If no permit
//! is free, the work is rejected, or the caller waits before it queues. Work that cannot be
//! rejected without loss is not counted, because its amount is bounded anyway: items queued by
//! `enqueue`, by timers and by grace periods; woken futures; and the tickets of a scope.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::{fmt, io};

use base::internal::admission::Ticket;
use base::internal::panics::join_error::JoinError;
use base::internal::wake::report;
use base::internal::wake::sleeper::on_turn_of_task;
use limit::internal::capacity::Capacity;
use sync::time;

use super::queue::{Inner, Workqueue};
use super::spawn::Admission;
use super::task::TaskOptions;

/// The error returned if a queue rejects work. Contains the work.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").capacity(1).build()?;
/// queue.pause();
/// let first = queue.try_spawn(|| 1)?;
/// let error = queue.try_spawn(|| 2).unwrap_err();
/// assert!(error.is_full(), "one waits already");
/// assert_eq!(error.into_inner()(), 2);
/// queue.resume();
/// assert_eq!(first.join()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(PartialEq, Eq)]
pub struct TrySpawnError<F = ()> {
    reason: Reason,
    work: F,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    Full,
    Closed,
    Disabled,
}

base::internal::impl_error!(Reason {
    Full => WouldBlock, "the workqueue is full";
    Closed => BrokenPipe, "the workqueue is being drained, or is shut down";
    Disabled => Other, "the work item is disabled";
});

// SAFETY: no function or trait of the error accesses the work by a shared reference.
unsafe impl<F> Sync for TrySpawnError<F> {}

impl TrySpawnError {
    pub(super) const FULL: Self = Self { reason: Reason::Full, work: () };
    pub(super) const CLOSED: Self = Self { reason: Reason::Closed, work: () };
    pub(super) const DISABLED: Self = Self { reason: Reason::Disabled, work: () };

    pub(super) fn with<F>(self, work: F) -> TrySpawnError<F> {
        TrySpawnError { reason: self.reason, work }
    }
}

/// Evaluates to the value in `$entry`. If `$entry` is an error, returns the error from the calling
/// function, together with `$work`. `$work` is moved only in this case.
macro_rules! admitted {
    ($entry:expr, $work:ident) => {
        match $entry {
            Ok(has_permit) => has_permit,
            Err(error) => return Err(error.with($work)),
        }
    };
}
pub(super) use admitted;

impl<F> TrySpawnError<F> {
    /// Returns the rejected work.
    pub fn into_inner(self) -> F {
        self.work
    }

    /// Returns `true` if the number of waiting items equals the queue's
    /// [`capacity`](crate::Builder::capacity), so that a later call may succeed.
    pub fn is_full(&self) -> bool {
        self.reason == Reason::Full
    }

    /// Returns `true` if the queue was destroyed, or is being drained and the caller is not one of
    /// its items.
    pub fn is_closed(&self) -> bool {
        self.reason == Reason::Closed
    }

    /// Returns `true` if the item is disabled, for example because a thread is in
    /// [`Work::cancel_sync`](crate::Work::cancel_sync). Closures and futures are never disabled.
    pub fn is_disabled(&self) -> bool {
        self.reason == Reason::Disabled
    }

    pub(super) fn into_parts(self) -> (F, JoinError) {
        let error = if self.is_full() { JoinError::Full } else { JoinError::Closed };
        (self.work, error)
    }
}

base::internal::impl_debug!(TrySpawnError[F], it => reason: it.reason);

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<F> std::error::Error for TrySpawnError<F> {}

/// Drops the rejected work. A full queue becomes [`WouldBlock`](io::ErrorKind::WouldBlock), a
/// closed one [`BrokenPipe`](io::ErrorKind::BrokenPipe), and a disabled item
/// [`Other`](io::ErrorKind::Other).
impl<F> From<TrySpawnError<F>> for io::Error {
    fn from(error: TrySpawnError<F>) -> Self {
        let kind = Self::from(error.reason).kind();
        Self::new(kind, error.to_string())
    }
}

/// A capacity permit for one item. Dropping it releases the permit. `None` without a capacity.
pub(super) struct Permit<'a>(Option<&'a Capacity>);

impl<'a> Permit<'a> {
    pub(super) fn of(queue: &'a Inner, has_permit: bool) -> Self {
        Self(queue.core.capacity.as_deref().filter(|_| has_permit))
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns `true` if there was a permit, which belongs to the item from now on.
    pub(super) fn use_up(mut self) -> bool {
        self.0.take().is_some()
    }
}

sync::on_drop!(Permit<'_>, it => if let Some(capacity) = it.0 {
    capacity.release(1);
});

/// The future returned by [`TaskOptions::reserve`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Reserve<'a> {
    queue: &'a Workqueue,
    /// `None` after the future has completed.
    options: Option<TaskOptions<'a>>,
    /// The waiter ID; `None` while the future does not wait for capacity.
    ticket: Option<Ticket>,
}

impl<'a> Future for Reserve<'a> {
    type Output = TaskOptions<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TaskOptions<'a>> {
        let queue = self.queue;
        queue.inner.must_be_at_home();
        // A wait for another permit may depend on the one that the options already hold.
        if self.options.as_ref().is_some_and(TaskOptions::has_permit) {
            return Poll::Ready(self.options.take().expect("present"));
        }
        let capacity = queue.inner.core.capacity.as_deref();
        if let Some(capacity) = capacity
            && !capacity.poll(&mut self.ticket, || on_turn_of_task(context))
        {
            return Poll::Pending;
        }
        let permit = Permit(capacity);
        let options = self.options.take().expect("polled after it was ready");
        Poll::Ready(options.with_permit(permit))
    }
}

sync::on_drop!(Reserve<'_>, it => if let Some(capacity) = &it.queue.inner.core.capacity {
    capacity.leave(it.ticket);
});

base::internal::impl_debug!(Reserve<'_>, it => queue: it.queue.name());

impl<'a> TaskOptions<'a> {
    /// Waits for capacity for one item, and reserves it: the result holds a *capacity permit*.
    ///
    /// As with [`wait_for_capacity`](Self::wait_for_capacity), waiters get capacity in order of
    /// arrival. A task that waits here occupies no worker and no seat, so it may be a task of this
    /// queue. A permit counts as a waiting item, and dropping the options releases it. Options that
    /// already hold a permit keep it, and do not wait. On a queue without a capacity nothing is
    /// reserved.
    ///
    /// # Guarantees
    ///
    /// The future is cancel-safe: dropping it loses only its position in the wait queue. A future
    /// that has been granted capacity keeps it until it is polled, or passes it on when it is
    /// dropped.
    ///
    /// # Panics
    ///
    /// Panics if polled in a child of `fork` (see [`Workqueue`]), or again after it was ready.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("requests").capacity(64).build()?;
    /// let front = Workqueue::builder("front").build()?;
    /// let answer = front.spawn_async(async move {
    ///     // Rejects no request, and has at most 64 of them waiting.
    ///     let permit = queue.task().reserve().await;
    ///     permit.spawn(|| 6 * 7).await
    /// });
    /// assert_eq!(answer.join()??, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("ready", "poll_ready", "acquire", "Permit"))]
    pub fn reserve(self) -> Reserve<'a> {
        Reserve { queue: self.queue, options: Some(self), ticket: None }
    }

    /// Reserves capacity for one item, or returns `None` if there is none; see
    /// [`reserve`](Self::reserve). Never blocks, and costs one atomic update. Panics in a child of
    /// `fork`.
    pub fn try_reserve(self) -> Option<Self> {
        let inner = &self.queue.inner;
        inner.must_be_at_home();
        if self.has_permit() {
            return Some(self);
        }
        let capacity = inner.core.capacity.as_deref();
        // Dropping a permit releases its capacity, so it is created only after that is acquired.
        let has_permit = capacity.is_none_or(Capacity::try_take);
        has_permit.then(|| self.with_permit(Permit(capacity)))
    }
}

impl Workqueue {
    /// Acquires a capacity permit as [`try_permit`](Self::try_permit) does. If none is free, sleeps
    /// until there is one, or until the time `until`. Items of this queue do not wait.
    pub(super) fn wait_for_place(
        &self,
        until: Option<time::Instant>,
    ) -> Result<bool, TrySpawnError> {
        let capacity = match self.admission() {
            Admission::Counted(capacity) if !self.inner.runs_here() => capacity,
            Admission::Closed => return Err(TrySpawnError::CLOSED),
            _ => return self.try_permit(),
        };
        report::must_be_free_to_sleep();
        if capacity.try_take() {
            return Ok(true);
        }
        let left = until.map(|it| it.saturating_duration_since(time::Instant::now()));
        if !capacity.wait(left) {
            self.inner.note_refused();
            return Err(TrySpawnError::FULL);
        }
        let permit = Permit(Some(capacity));
        if !self.admits() {
            return Err(TrySpawnError::CLOSED);
        }
        Ok(permit.use_up())
    }
}
