//! Queues closures and futures, which run once.

use item::internal::head::Name;

use super::{
    admission::{TrySpawnError, admitted},
    queue::Workqueue,
    task::rejected,
};
use crate::{
    execute::{
        deadline::{AnyTime, AsTicket},
        join::{self, JoinHandle},
    },
    pools::pwq::Pwq,
};

impl Workqueue {
    /// Queues `func` to run once, and returns a handle that waits for its result.
    ///
    /// If the queue rejects the work, `func` is dropped, and the handle returns the error. To keep
    /// `func`, use [`try_spawn`](Self::try_spawn).
    ///
    /// # Cost
    ///
    /// In steady state nothing is allocated, because threads recycle the memory of items. A closure
    /// and its result of up to 16 bytes take one cache line; above 208 bytes they are boxed. The
    /// memory of a burst is returned to the system one or two seconds after its last item was
    /// freed, as long as a registry exists.
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
        self.try_spawn(func).unwrap_or_else(rejected)
    }

    /// Queues `func` as [`spawn`](Self::spawn) does, or returns it in the error.
    ///
    /// # Errors
    ///
    /// If the queue's [capacity](crate::Builder::capacity) is used up, if the queue was destroyed,
    /// or if it is being drained and the caller is not one of its items. The error contains `func`.
    /// All rejections are counted (`refused` of [`QueueStats`](crate::QueueStats)).
    #[inline]
    pub fn try_spawn<T, F>(&self, func: F) -> Result<JoinHandle<T>, TrySpawnError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let has_permit = admitted!(self.try_permit(), func);
        let home = self.here();
        let (item, handle) = join::joinable(Name::of(&func), AnyTime, func, home, has_permit);
        home.push(item);
        Ok(handle)
    }

    /// Queues `func`, the ticket of a scope, on an open queue. It holds no capacity permit.
    pub(crate) fn spawn_ticket(&self, func: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let home = self.here();
        let (item, handle) = join::joinable(Name::of(&func), AsTicket, func, home, false);
        home.push(item);
        handle
    }

    /// Queues `func` to run once, without a handle. This is cheaper than [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`try_spawn`](Self::try_spawn).
    #[inline]
    #[doc(alias = "async_schedule")]
    pub fn spawn_detached<F>(&self, func: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let has_permit = admitted!(self.try_permit(), func);
        self.here().push_detached(func, has_permit);
        Ok(())
    }

    /// Queues `future` to be polled by this queue's workers until it is ready, and returns a handle
    /// that waits for its output.
    ///
    /// The future's wakers queue it on the pool of the pod in which they are called. The queue is
    /// therefore an executor, within its limits: `max_active` counts polls, not suspended futures,
    /// and an ordered queue polls one future at a time, in the order of the wakes. A poll that
    /// blocks delays a worker; use [`spawn`](Self::spawn) for such work.
    ///
    /// # Guarantees
    ///
    /// - Polls never overlap. A poll follows each wake, and sees the waker's earlier writes.
    /// - Once the future has been polled, a worker drops it, even if the future is
    ///   [cancelled](JoinHandle::cancel) or panics. On a paused or full queue, a cancelled future
    ///   is therefore dropped when its turn comes. Its destructor may block, and counts against
    ///   `max_active` as its polls do. If the future was never polled, the canceller drops it, as
    ///   it drops a closure. A suspended future that has neither a handle nor wakers left is
    ///   dropped by the thread that dropped the last of them.
    /// - The future is in flight until it has ended: [`drain`](Self::drain), and dropping the last
    ///   handle to the queue, wait for suspended futures.
    ///
    /// # Cost
    ///
    /// A future takes one block of memory. Blocks of up to 256 bytes are recycled like those of
    /// `spawn`. A poll that keeps no waker updates no count. Waking a suspended future costs as
    /// much as queueing an item.
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
        self.task().spawn_async(future)
    }

    /// Returns the pwq for an item that this thread queues.
    #[inline]
    pub(crate) fn here(&self) -> &Pwq {
        self.inner.route_table.here().in_lane(self.lane)
    }
}

impl Pwq {
    /// Queues `func` without a handle. `has_permit` is set if the caller holds a capacity permit.
    #[inline]
    pub(super) fn push_detached(&self, func: impl FnOnce() + Send + 'static, has_permit: bool) {
        if has_permit {
            self.push_counted(func);
        } else {
            self.push(join::detached(func, self.as_home()));
        }
    }

    /// Queues `func` with a capacity permit. The item gets a handle, which is dropped at once: the
    /// state word records the permit, and the state word of an item without a handle is never read.
    #[cold]
    fn push_counted(&self, func: impl FnOnce() + Send + 'static) {
        let (item, handle) = join::joinable(Name::of(&func), AnyTime, func, self, true);
        drop(handle);
        self.push(item);
    }
}
