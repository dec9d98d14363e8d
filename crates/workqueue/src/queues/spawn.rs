//! Queues closures and futures, which run once, if the queue admits them; many of them in chains.

use std::ptr::NonNull;

use base::internal::panics::contain;
use item::internal::deferred_drops::DeferredDrops;
use item::internal::head::{Head, Name};
use item::internal::list::set_fresh_next;
use limit::internal::capacity::Capacity;
use sync::atomic::Ordering;

use super::admission::{TrySpawnError, admitted};
use super::queue::{COUNTS, GROUP_DRAINS, Inner, Workqueue};
use super::task::{TaskOptions, rejected};
use crate::execute::deadline::AnyTime;
use crate::execute::join::{self, JoinHandle};
use crate::pools::pwq::Pwq;

pub(crate) enum Admission<'a> {
    Open,
    /// The queue accepts the item if there is free capacity.
    Counted(&'a Capacity),
    /// The queue rejects the item, and has counted the rejection.
    Closed,
}

/// The maximum length of a chain, equal to the size of a worker's batch. The value is a guess: with
/// longer chains the workers start later.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Closures that are pushed together. If the iterator panics, dropping this value pushes them.
struct Gathered<'a> {
    options: TaskOptions<'a>,
    items: [NonNull<Head>; CHAIN],
    len: usize,
    nr_queued: usize,
}

impl Workqueue {
    /// Queues `func` to run once, and returns a handle that waits for its result.
    ///
    /// If the queue rejects the work, `func` is dropped, and the handle returns the error. To keep
    /// `func`, use [`try_spawn`](Self::try_spawn). Never waits for a worker: see [`Workqueue`].
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

    /// Queues `func` as [`spawn`](Self::spawn) does, or returns it in the error: if the queue's
    /// [capacity](crate::Builder::capacity) is used up, if the queue was destroyed, or if it is
    /// being drained and the caller is not one of its items. All rejections are counted (`refused`
    /// of [`QueueStats`](crate::QueueStats)).
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

    /// Queues `func` to run once, without a handle. This is cheaper than [`spawn`](Self::spawn),
    /// and blocks as it does. The errors are those of [`try_spawn`](Self::try_spawn).
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
    ///   [cancelled](JoinHandle::cancel) or panics. On a paused or full queue, that happens when
    ///   its turn comes. Its destructor may block, and counts against `max_active` as its polls do.
    ///   If the future was never polled, the canceller drops it, as it drops a closure. A suspended
    ///   future is dropped by the thread that drops the last of its handle and its wakers.
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

    /// Acquires a capacity permit if the queue has a capacity. Returns `true` if it did.
    #[inline]
    pub(super) fn try_permit(&self) -> Result<bool, TrySpawnError> {
        match self.admission() {
            Admission::Open => Ok(false),
            Admission::Counted(capacity) if capacity.try_take() => Ok(true),
            Admission::Counted(_) => {
                self.inner.note_refused();
                Err(TrySpawnError::FULL)
            }
            Admission::Closed => Err(TrySpawnError::CLOSED),
        }
    }

    /// Returns `true` if the caller may queue uncounted items; otherwise counts the rejection.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !matches!(self.admission(), Admission::Closed)
    }

    /// Checks whether the caller may queue items, and counts a rejection.
    #[inline]
    pub(crate) fn admission(&self) -> Admission<'_> {
        let closed = &self.inner.closed;
        if closed.word.load(Ordering::Relaxed) == 0 && closed.process.is_this() {
            return Admission::Open;
        }
        self.inner.admission_else()
    }

    #[inline]
    pub(crate) fn here(&self) -> &Pwq {
        self.inner.route_table.routes().here().in_lane(self.lane)
    }
}

impl Inner {
    /// The slow path of [`Workqueue::admission`], if the queue is closed or has a capacity.
    #[cold]
    fn admission_else(&self) -> Admission<'_> {
        self.must_be_at_home();
        let accepts = match self.closed.word.load(Ordering::Relaxed) & !COUNTS {
            0 => true,
            GROUP_DRAINS => self.group.as_ref().is_some_and(|group| group.runs_here()),
            _ => self.runs_here(),
        };
        if !accepts {
            self.note_refused();
            return Admission::Closed;
        }
        match &self.core.capacity {
            Some(capacity) => Admission::Counted(capacity),
            None => Admission::Open,
        }
    }

    pub(crate) fn note_refused(&self) {
        self.core.nr_refused.fetch_add(1, Ordering::Relaxed);
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

pub(super) fn spawn_detached_all<F>(
    options: TaskOptions<'_>,
    funcs: impl IntoIterator<Item = F>,
) -> usize
where
    F: FnOnce() + Send + 'static,
{
    let mut gathered =
        Gathered { options, items: [NonNull::dangling(); CHAIN], len: 0, nr_queued: 0 };
    for func in funcs {
        match gathered.options.queue.try_permit() {
            // FOREIGN(refused-drop): a rejected closure, on the caller; it may unwind.
            Err(_) => drop(func),
            Ok(false) => gathered.add(join::detached(func, std::ptr::null_mut())),
            Ok(true) => {
                gathered.push();
                gathered.options.home().push_detached(func, true);
                gathered.nr_queued += 1;
            }
        }
    }
    gathered.push();
    gathered.nr_queued
}

impl Gathered<'_> {
    #[inline]
    fn add(&mut self, item: NonNull<Head>) {
        self.items[self.len] = item;
        self.len += 1;
        if self.len == CHAIN {
            self.push();
        }
    }

    fn push(&mut self) {
        let items = &self.items[..std::mem::take(&mut self.len)];
        let (Some(&oldest), Some(&newest)) = (items.first(), items.last()) else {
            return;
        };
        // The iterator may have taken a long time, or may have closed the queue.
        if !self.options.queue.admits() {
            return refuse(self.options.queue, items);
        }
        self.nr_queued += items.len();
        let home = self.options.home();
        let mut older = std::ptr::null_mut();
        for &item in items {
            // SAFETY: the item was just created, and no other thread knows it.
            let head = unsafe { item.as_ref() };
            head.home.store(home.as_home(), Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { home.emit_queued(item) };
            set_fresh_next(item, older);
            older = item.as_ptr();
        }
        home.pool.push_chain(newest, oldest);
    }
}

/// Drops closures that were admitted before the queue was closed.
#[cold]
fn refuse(queue: &Workqueue, items: &[NonNull<Head>]) {
    let mut deferred_drops = DeferredDrops::default();
    for (at, &item) in items.iter().enumerate() {
        if at > 0 {
            // The caller's check already counted the first one.
            queue.inner.note_refused();
        }
        // SAFETY: the item was just created, and no other thread knows it.
        unsafe { (item.as_ref().vtable().cancel)(item, &mut deferred_drops) };
    }
    for func in deferred_drops.dropped {
        // FOREIGN(refused-drop): each rejected closure, on the calling thread; a panic is
        // contained.
        contain(|| drop(func));
    }
}

// If the iterator forked, the closures in the child belong to the parent.
sync::on_drop!(Gathered<'_>, it => if it.options.queue.inner.is_at_home() {
    it.push();
});
