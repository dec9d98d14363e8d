//! Queueing closures and futures, which run once.

use std::task::Waker;

use sync::time;

use super::{
    future,
    queue::{Admission, Workqueue},
};
use crate::{
    execute::{
        deadline::AsTicket,
        join::{self, JoinHandle},
    },
    pools::pwq::Pwq,
};

impl Workqueue {
    /// Queues `func` to run once, and returns a handle to wait for what it returns.
    ///
    /// Where the queue takes none, also for want of room (see [`try_spawn`](Self::try_spawn)), `func` is dropped, and the
    /// handle says so.
    ///
    /// # Cost
    ///
    /// No allocation in the long run: the item's memory is recycled between the threads. A closure, with its
    /// result, of up to 16 bytes takes a cache line; above 208 bytes it is boxed. The memory of a burst goes back to the
    /// system a second or two after its last item has gone, as long as there is a registry.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let handle = queue.spawn(|| "done");
    /// assert_eq!(handle.join()?, "done");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn spawn<T: Send + 'static>(
        &self,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_at(self.here(), func)
    }

    /// Queues `func` to run once, unless it has not started by `deadline`: then it never starts, and its handle says
    /// [`JoinError::Expired`](crate::JoinError::Expired).
    ///
    /// For work that nobody wants any more when it comes late: a request whose client has given up. A queue that has fallen
    /// behind catches up by that, for it passes over what has expired.
    ///
    /// # Guarantees
    ///
    /// - It either runs to its end, or expires; never both. One that has started by then is let run on.
    /// - With a deadline in the past it expires here.
    /// - Who waits in [`join`](JoinHandle::join), and a task that awaits the handle, is told when the deadline comes, also if no
    ///   worker does. Where nobody waits, it is counted (`expired`) when a worker comes to the item.
    /// - `func` is dropped by who finds it expired: the caller, a worker or the joiner. What its drop panics with is lost. Until
    ///   then the item waits: it counts in [`len`](Self::len), and has its place of the [capacity](crate::Builder::capacity).
    ///
    /// # Cost
    ///
    /// That of [`spawn`](Self::spawn), 40 bytes, two steps of a word that all CPUs share, and a look at the clock (35 ns) here and at
    /// the start. A timer only where a task awaits it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{JoinError, Workqueue};
    /// use std::time::{Duration, Instant};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let in_time = queue.spawn_before(Instant::now() + Duration::from_secs(60), || 1);
    /// assert_eq!(in_time.join()?, 1);
    ///
    /// queue.pause();
    /// let late = queue.spawn_before(Instant::now() + Duration::from_millis(1), || 2);
    /// assert!(matches!(late.join(), Err(JoinError::Expired)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("expiration", "start_deadline"))]
    pub fn spawn_before<T: Send + 'static>(
        &self,
        deadline: time::Instant,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let Some(start_by) = self.start_before(deadline) else {
            return join::expired(func);
        };
        let Some(has_place) = self.place() else {
            return join::refused(func);
        };
        let home = self.here();
        let (item, handle) = join::joinable_by(start_by, func, home, has_place);
        home.push(item);
        handle
    }

    /// Queues `func` to run once at `home`, a link of this queue.
    #[inline]
    pub(crate) fn spawn_at<T: Send + 'static>(
        &self,
        home: &Pwq,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let Some(has_place) = self.place() else {
            return join::refused(func);
        };
        let (item, handle) = join::joinable(func, home, has_place);
        home.push(item);
        handle
    }

    /// Queues `func`, which brings a worker to a scope. It does not count toward the queue's
    /// capacity.
    pub(crate) fn spawn_ticket(&self, func: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        if !self.admits() {
            return join::refused(func);
        }
        let home = self.here();
        let (item, handle) = join::joinable_by(AsTicket, func, home, false);
        home.push(item);
        handle
    }

    /// Returns whether an item that is queued now gets a place of the queue's capacity; `None` if it is refused.
    #[inline]
    pub(super) fn place(&self) -> Option<bool> {
        match self.admission() {
            Admission::Open => Some(false),
            Admission::Counted(room) if room.try_take() => Some(true),
            Admission::Counted(_) => {
                self.inner.note_refused();
                None
            }
            Admission::Closed => None,
        }
    }

    /// Queues `func` to run once; nobody can wait for it or cancel it. Cheaper than [`spawn`](Self::spawn).
    ///
    /// Where the queue takes none, also for want of room (see [`try_spawn`](Self::try_spawn)), `func` is dropped, and only
    /// counted as refused: on a queue with a capacity mind what [`try_spawn`](Self::try_spawn) says.
    #[inline]
    #[doc(alias = "async_schedule")]
    pub fn spawn_detached(&self, func: impl FnOnce() + Send + 'static) {
        match self.place() {
            None => {}
            Some(false) => {
                let home = self.here();
                home.push(join::detached(func, home.as_home()));
            }
            Some(true) => self.spawn_counted_detached(func),
        }
    }

    /// The word of an item without a handle is never looked at, so one that is counted has a handle, which goes before it runs.
    #[cold]
    pub(super) fn spawn_counted_detached(&self, func: impl FnOnce() + Send + 'static) {
        let home = self.here();
        let (item, handle) = join::joinable(func, home, true);
        drop(handle);
        home.push(item);
    }

    /// Queues `future` to be polled by this queue's workers until it is ready, and returns a handle to wait for that.
    ///
    /// Its wakers queue it, on the pool of the pod that they are called in; so the queue is an executor, within its
    /// limits: `max_active` counts polls, not futures that wait, and an ordered queue polls one future at a time, in
    /// the order of the wakes. A poll that blocks holds up a worker: see [`spawn`](Self::spawn) for such work.
    ///
    /// # Guarantees
    ///
    /// - It is never polled twice at once, and each wake is followed by a poll, which sees what was written before it.
    /// - Once it was polled, it is dropped by a worker, also when it is [cancelled](JoinHandle::cancel), and when it panics. So
    ///   one that is cancelled on a paused or full queue is dropped when its turn comes: what it drops may wait, and counts
    ///   against `max_active` as its polls do. The canceller drops a future that was never polled, as it drops a
    ///   closure. A future that waits while its handle and all its wakers are gone is dropped by the thread that
    ///   drops the last of them.
    /// - It is in flight until it has ended: [`drain`](Self::drain), and dropping the last handle of the queue, wait
    ///   for futures that wait.
    ///
    /// # Cost
    ///
    /// One block of memory, recycled up to 256 bytes as that of `spawn`. A poll that keeps no waker counts nothing; to
    /// wake a future that waits is to queue an item.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let blocking = queue.clone();
    /// let sum = queue.spawn_async(async move {
    ///     let parts = [1, 2].map(|part| blocking.spawn(move || part));
    ///     let mut sum = 0;
    ///     for part in parts {
    ///         sum += part.await.unwrap();
    ///     }
    ///     sum
    /// });
    /// assert_eq!(sum.join()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_async<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_future(future, false).0
    }

    /// As [`spawn_async`](Self::spawn_async); returns a waker of the future, too, if that `wants_waker` and is not refused.
    #[inline]
    pub(crate) fn spawn_future<F>(
        &self,
        future: F,
        wants_waker: bool,
    ) -> (JoinHandle<F::Output>, Option<Waker>)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Some(has_place) = self.place() else {
            drop(future);
            return (join::refused(|| unreachable!("it is never queued")), None);
        };
        let home = self.here();
        let (item, handle) = future::task(future, home, self.inner.clone(), has_place);
        // SAFETY: the handle keeps the item, which is a future's.
        let waker = wants_waker.then(|| unsafe { future::counted_waker(item) });
        home.push(item);
        (handle, waker)
    }
}
