//! Queueing on a queue with a capacity: what is refused, who waits for room, and a place that is had in advance.
//!
//! What is new is counted: closures and futures, and items that [`Workqueue::try_enqueue`] or a [`Permit`] queues. It has a
//! place (`limit/room.rs`) until it starts or is cancelled, and where there is none it is refused, or waits before it is
//! queued. Beside the capacity is what cannot be refused without a loss, and bounds itself: what `enqueue` queues, what timers
//! and grace periods queue, a future that is woken, and the tickets of a scope, whose work lies on its owner's stack.

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
    limit::room::Room,
};

/// The error of queueing what a queue does not take. Gives it back.
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
    /// As many items wait as the queue's [`capacity`](crate::Builder::capacity) lets.
    Full(F),
    /// The queue is being drained by somebody else, or was destroyed.
    Closed(F),
}

impl TrySpawnError<()> {
    /// Gives back what was to be queued.
    fn with<F>(self, func: F) -> TrySpawnError<F> {
        match self {
            Self::Full(()) => TrySpawnError::Full(func),
            Self::Closed(()) => TrySpawnError::Closed(func),
        }
    }
}

impl<F> TrySpawnError<F> {
    /// Returns what was to be queued.
    pub fn into_inner(self) -> F {
        match self {
            Self::Full(func) | Self::Closed(func) => func,
        }
    }

    /// Returns `true` if there may be room later.
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

/// Drops what was to be queued. A full queue is [`WouldBlock`](io::ErrorKind::WouldBlock), a closed one
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe).
impl<F> From<TrySpawnError<F>> for io::Error {
    fn from(error: TrySpawnError<F>) -> Self {
        let kind = match &error {
            TrySpawnError::Full(_) => io::ErrorKind::WouldBlock,
            TrySpawnError::Closed(_) => io::ErrorKind::BrokenPipe,
        };
        io::Error::new(kind, error.message())
    }
}

/// A place in a queue, kept for one item; see [`Workqueue::reserve`]. Dropping it gives the place back.
///
/// A place that is kept counts as an item that waits. On a queue without a capacity it stands for nothing.
#[must_use = "dropping a permit gives its place back"]
pub struct Permit<'a> {
    queue: &'a Workqueue,
    /// None without a capacity.
    room: Option<&'a Room>,
}

impl<'a> Permit<'a> {
    /// Queues `func` in the place, as [`Workqueue::spawn`] does.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`] with `func`, if the queue takes none any more.
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

    /// Queues `func` in the place, as [`Workqueue::spawn_before`] does: with a deadline in the past it expires here, and the place is
    /// given back.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`] with `func`, if the queue takes none any more.
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

    /// Queues `future` in the place, as [`Workqueue::spawn_async`] does. The place is free again when it is first polled.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`] with `future`, if the queue takes none any more.
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

    /// Queues `work` in the place; `false` when it was pending already, or is disabled, and then the place is given back.
    ///
    /// # Errors
    ///
    /// [`TrySpawnError::Closed`], if the queue takes none any more.
    ///
    /// # Panics
    ///
    /// As [`Workqueue::enqueue`] does in a child of `fork`.
    pub fn enqueue(self, work: &Work) -> Result<bool, TrySpawnError<()>> {
        if !self.queue.admits() {
            return Err(TrySpawnError::Closed(()));
        }
        must_not_be_lost(work.is_lost());
        let home = self.queue.here();
        let has_place = self.room.is_some();
        let is_queued = self.queue.inner.plan_and_push(work, home, has_place);
        if is_queued {
            self.use_up();
        }
        Ok(is_queued)
    }

    /// Returns `true` if there was a place, which is the item's from now on.
    fn use_up(mut self) -> bool {
        self.room.take().is_some()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(room) = self.room {
            room.give_back(1);
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
    /// `None` before the first poll that found no room, and after the end.
    ticket: Option<Ticket>,
}

impl<'a> Future for Reserve<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<'a>> {
        let queue = self.queue;
        queue.inner.must_be_at_home();
        let Some(room) = &queue.inner.core.room else {
            return Poll::Ready(Permit { queue, room: None });
        };
        if !room.poll(&mut self.ticket, || on_turn_of_task(context)) {
            return Poll::Pending;
        }
        let room = Some(room);
        Poll::Ready(Permit { queue, room })
    }
}

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        if let Some(room) = &self.queue.inner.core.room {
            room.leave(self.ticket);
        }
    }
}

impl fmt::Debug for Reserve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reserve").field(&self.queue.name()).finish()
    }
}

impl Workqueue {
    /// Queues `func` as [`spawn`](Self::spawn) does, or gives it back.
    ///
    /// # Errors
    ///
    /// With `func`: [`TrySpawnError::Full`] if the queue has a [capacity](crate::Builder::capacity) and no room;
    /// [`TrySpawnError::Closed`] while it is being drained by somebody else, and after it was destroyed. Both are counted
    /// (`refused` of [`QueueStats`](crate::QueueStats)).
    pub fn try_spawn<T, F>(&self, func: F) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let has_place = match self.try_place() {
            Ok(has_place) => has_place,
            Err(refused) => return Err(refused.with(func)),
        };
        let home = self.here();
        let (item, handle) = join::joinable(func, home, has_place);
        home.push(item);
        Ok(handle)
    }

    /// Returns whether an item that is queued now gets a place of the queue's capacity.
    fn try_place(&self) -> Result<bool, TrySpawnError<()>> {
        match self.admission() {
            Admission::Open => Ok(false),
            Admission::Counted(room) if room.try_take() => Ok(true),
            Admission::Counted(_) => {
                self.inner.note_refused();
                Err(TrySpawnError::Full(()))
            }
            Admission::Closed => Err(TrySpawnError::Closed(())),
        }
    }

    /// Queues `func` as [`spawn_before`](Self::spawn_before) does, or gives it back. With a deadline in the past it expires here, also
    /// where there is no room.
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
        let has_place = match self.try_place() {
            Ok(has_place) => has_place,
            Err(refused) => return Err(refused.with(func)),
        };
        let home = self.here();
        let (item, handle) = join::joinable_by(start_by, func, home, has_place);
        home.push(item);
        Ok(handle)
    }

    /// Queues `work` as [`enqueue`](Self::enqueue) does, if there is room.
    ///
    /// `Ok(false)` when it was pending already, for which no room is needed. A disabled one is `Ok(false)` where there is room, else
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
            Admission::Counted(room) => {
                must_not_be_lost(work.is_lost());
                if room.try_take() {
                    let room = Some(room);
                    return Permit { queue: self, room }.enqueue(work);
                }
                // A step, as of `enqueue`: the run that is to come sees what was written before this.
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

    /// Queues `func` as [`spawn`](Self::spawn) does, once there is room.
    ///
    /// Who waits for room gets it in the order of coming, threads and tasks alike. Without a
    /// [capacity](crate::Builder::capacity) there always is.
    ///
    /// # Blocking
    ///
    /// Until an item has started, or was cancelled, for each that came before. Called from a work item of another queue it lets
    /// the pool get another worker meanwhile; items of two full queues that wait for room in each other's wait for ever. Inside
    /// an item of this very queue it does not wait, for the items that make room may wait for this one to end.
    ///
    /// # Panics
    ///
    /// Inside an item of a bottom-half queue, which must not wait; and in a child of `fork` (see [`Workqueue`]). Nothing is
    /// changed then.
    ///
    /// # Errors
    ///
    /// With `func`: [`TrySpawnError::Full`] inside an item of this queue, if there is no room; [`TrySpawnError::Closed`] as of
    /// [`try_spawn`](Self::try_spawn), also if a drain began meanwhile: told when its turn has come.
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
    /// As [`spawn_wait`](Self::spawn_wait), and no longer than `timeout`. Zero does not wait.
    ///
    /// # Panics
    ///
    /// As [`spawn_wait`](Self::spawn_wait).
    ///
    /// # Errors
    ///
    /// As [`spawn_wait`](Self::spawn_wait), and [`TrySpawnError::Full`] with `func` when the time is over.
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
        let room = match self.admission() {
            Admission::Counted(room) if !self.inner.runs_here() => room,
            Admission::Closed => return Err(TrySpawnError::Closed(func)),
            _ => return self.try_spawn(func),
        };
        report::must_be_free_to_sleep();
        if !room.wait(timeout) {
            self.inner.note_refused();
            return Err(TrySpawnError::Full(func));
        }
        let room = Some(room);
        Permit { queue: self, room }.spawn(func)
    }

    /// Waits for room for one item, and keeps it.
    ///
    /// As of [`spawn_wait`](Self::spawn_wait), room is had in the order of coming. A task that waits here holds no worker and
    /// no seat, so it may be one of this very queue's.
    ///
    /// # Guarantees
    ///
    /// Cancel-safe: who drops the future loses his turn and nothing else; if room was on its way to him, it goes to the next in
    /// line. A future that is granted room and not polled again keeps it until it is dropped.
    ///
    /// # Panics
    ///
    /// When polled in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("requests").capacity(64).build()?;
    /// let front = Workqueue::builder("front").build()?;
    /// let answer = front.spawn_async(async move {
    ///     // Sheds no load, and keeps no more than 64 requests.
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

    /// Keeps room for one item, if there is any now; `None` if not. Costs one step of a word.
    ///
    /// # Panics
    ///
    /// In a child of `fork` (see [`Workqueue`]).
    pub fn try_reserve(&self) -> Option<Permit<'_>> {
        self.inner.must_be_at_home();
        let room = self.inner.core.room.as_ref();
        // A permit that is made is a place that is had.
        let has_place = room.is_none_or(Room::try_take);
        has_place.then(|| Permit { queue: self, room })
    }

    /// Returns how many items may wait; `None` without a [capacity](crate::Builder::capacity).
    pub fn capacity(&self) -> Option<usize> {
        self.inner.core.room.as_ref().map(Room::capacity)
    }

    /// Returns for how many more items there is room now; `None` without a [capacity](crate::Builder::capacity).
    ///
    /// # Blocking
    ///
    /// Never. The answer may be old when it arrives.
    pub fn room(&self) -> Option<usize> {
        self.inner.core.room.as_ref().map(Room::nr_free)
    }

    /// Returns how many items wait, for a worker or for `max_active`.
    ///
    /// All that wait are counted, also those beside the [capacity](crate::Builder::capacity): not those that a
    /// worker has taken to run next, nor futures that wait for their wakers. One that its joiner runs counts until a worker has
    /// seen that.
    ///
    /// # Blocking
    ///
    /// Takes the lock of each of its pools for a moment, and counts what producers have just left there. The answer may be old
    /// when it arrives.
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
