//! Queueing closures and futures, which run once; queueing on a chosen CPU or NUMA node; and the
//! check that the queue accepts an item.

use std::task::Waker;

use sync::{atomic::Ordering, time};
use topology::CpuId;

use super::{
    future,
    queue::{Admission, COUNTS, Inner, Workqueue},
};
use crate::{
    execute::{
        deadline::AsTicket,
        join::{self, JoinHandle},
        work::Work,
    },
    pools::pwq::Pwq,
};

impl Workqueue {
    /// Queues `func` to run once, and returns a handle that waits for its result.
    ///
    /// If the queue rejects the work, also because it is full (see [`try_spawn`](Self::try_spawn)),
    /// `func` is dropped, and the handle returns an error.
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
        self.spawn_at(self.here(), func)
    }

    /// Queues `func` to run once, unless it has not started by `deadline`. In that case it never
    /// starts, and its handle returns [`JoinError::Expired`](crate::JoinError::Expired).
    ///
    /// It is for work that is useless when it is late, such as a request whose client has given up.
    /// A queue that has fallen behind catches up, because it skips expired items.
    ///
    /// # Guarantees
    ///
    /// - The closure either runs to its end or expires, never both. A run that has started by the
    ///   deadline is not interrupted.
    /// - If the deadline has passed already, it expires at once.
    /// - A thread in [`join`](JoinHandle::join), or a task that awaits the handle, is notified at
    ///   the deadline, even if no worker is free. Without a waiter, a worker counts it (`expired`).
    /// - The thread that finds `func` expired drops it: the caller, a worker or the joiner. If that
    ///   drop panics, the panic is discarded. Until then the item is pending: it counts in
    ///   [`len`](Self::len) and toward the [capacity](crate::Builder::capacity).
    ///
    /// # Cost
    ///
    /// That of [`spawn`](Self::spawn), 40 bytes, two atomic updates of a word that all CPUs share,
    /// and two reads of the clock (35 ns each). A timer is only used if a task awaits the handle.
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
        let Some(has_permit) = self.acquire_permit() else {
            return join::refused(func);
        };
        let home = self.here();
        let (item, handle) = join::joinable_by(start_by, func, home, has_permit);
        home.push(item);
        handle
    }

    #[inline]
    pub(crate) fn spawn_at<T: Send + 'static>(
        &self,
        home: &Pwq,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let Some(has_permit) = self.acquire_permit() else {
            return join::refused(func);
        };
        let (item, handle) = join::joinable(func, home, has_permit);
        home.push(item);
        handle
    }

    /// Queues `func`, which brings a worker to a scope. It holds no capacity permit.
    pub(crate) fn spawn_ticket(&self, func: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        if !self.admits() {
            return join::refused(func);
        }
        let home = self.here();
        let (item, handle) = join::joinable_by(AsTicket, func, home, false);
        home.push(item);
        handle
    }

    /// Acquires a capacity permit if the queue has a capacity. Returns whether the new item holds
    /// one; `None` if it is rejected.
    #[inline]
    pub(super) fn acquire_permit(&self) -> Option<bool> {
        match self.admission() {
            Admission::Open => Some(false),
            Admission::Counted(capacity) if capacity.try_take() => Some(true),
            Admission::Counted(_) => {
                self.inner.note_refused();
                None
            }
            Admission::Closed => None,
        }
    }

    /// Queues `func` to run once, without a handle. Cheaper than [`spawn`](Self::spawn).
    ///
    /// If the queue rejects the work, also because it is full, `func` is dropped, and only counted
    /// as refused. On a queue with a capacity consider [`try_spawn`](Self::try_spawn).
    #[inline]
    #[doc(alias = "async_schedule")]
    pub fn spawn_detached(&self, func: impl FnOnce() + Send + 'static) {
        match self.acquire_permit() {
            None => {}
            Some(false) => {
                let home = self.here();
                home.push(join::detached(func, home.as_home()));
            }
            Some(true) => self.spawn_counted_detached(func),
        }
    }

    /// Queues `func` with a capacity permit. The item gets a handle, which is dropped at once:
    /// without one, its state word, which records the permit, is never read.
    #[cold]
    pub(super) fn spawn_counted_detached(&self, func: impl FnOnce() + Send + 'static) {
        let home = self.here();
        let (item, handle) = join::joinable(func, home, true);
        drop(handle);
        home.push(item);
    }

    /// Queues `future` to be polled by this queue's workers until it is ready, and returns a handle
    /// that waits for its output.
    ///
    /// Its wakers queue it, on the pool of the pod in which they are called. The queue is thus an
    /// executor, within its limits: `max_active` counts polls, not suspended futures, and an
    /// ordered queue polls one future at a time, in the order of the wakes. A poll that blocks
    /// delays a worker; use [`spawn`](Self::spawn) for such work.
    ///
    /// # Guarantees
    ///
    /// - Polls never overlap. A poll follows each wake, and sees the waker's earlier writes.
    /// - After its first poll, a worker drops the future, also if it is
    ///   [cancelled](JoinHandle::cancel) or panics. On a paused or full queue, a cancelled future
    ///   is therefore dropped when its turn comes. Its destructor may block, and counts against
    ///   `max_active` as its polls do. If the future was never polled, the canceller drops it, as
    ///   it drops a closure. A suspended future without a handle and wakers is dropped by the
    ///   thread that drops the last of them.
    /// - It is in flight until it has ended: [`drain`](Self::drain), and dropping the last handle
    ///   of the queue, wait for suspended futures.
    ///
    /// # Cost
    ///
    /// One block of memory, recycled up to 256 bytes like that of `spawn`. A poll that keeps no
    /// waker updates no count. Waking a suspended future costs as much as queueing an item.
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

    /// Queues as [`spawn_async`](Self::spawn_async). If `wants_waker` is set and the future is not
    /// rejected, also returns a waker of it.
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
        let Some(has_permit) = self.acquire_permit() else {
            drop(future);
            return (join::refused(|| unreachable!("it is never queued")), None);
        };
        let home = self.here();
        let (item, handle) = future::task(future, home, self.inner.clone(), has_permit);
        // SAFETY: the handle keeps the item alive, and the item is a future's.
        let waker = wants_waker.then(|| unsafe { future::counted_waker(item) });
        home.push(item);
        (handle, waker)
    }

    /// Queues `work` on the pool of `cpu`'s pod. Returns `false` in the cases of
    /// [`enqueue`](Self::enqueue).
    ///
    /// If the queue may not use the CPU, the item goes to the first pod. In the scope `Cpu` the
    /// item runs on that very CPU; only a [`strict`](crate::Builder::strict) queue
    /// guarantees this.
    ///
    /// Differs from Linux: there an unbound queue ignores the CPU within its node.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue). A joiner that helps runs the item on its own thread.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{AffinityScope, CpuId, Work, Workqueue};
    /// let queue = Workqueue::builder("example").scope(AffinityScope::Cpu).build()?;
    /// let work = Work::new(|| ());
    /// assert!(queue.enqueue_on(CpuId::new(0), &work));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "queue_work_on")]
    #[doc(alias = "schedule_work_on")]
    pub fn enqueue_on(&self, cpu: CpuId, work: &Work) -> bool {
        self.enqueue_at(self.at_cpu(cpu), work)
    }

    /// Queues `work` on a pool of the NUMA node `node`. Returns `false` in the cases of
    /// [`enqueue`](Self::enqueue).
    ///
    /// The item goes to the pool of the current CPU's pod if that pod is in the node, otherwise to
    /// the first pod of the node. If the node is unknown or the queue uses none of its CPUs, the
    /// item goes to the first pod. A pod that spans nodes belongs to each of them.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    #[doc(alias = "queue_work_node")]
    pub fn enqueue_node(&self, node: u32, work: &Work) -> bool {
        let home = self.inner.route_table.at_node(node).in_lane(self.lane);
        self.enqueue_at(home, work)
    }

    /// Queues `func` to run once on the pool of `cpu`'s pod, like [`enqueue_on`](Self::enqueue_on).
    pub fn spawn_on<T: Send + 'static>(
        &self,
        cpu: CpuId,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_at(self.at_cpu(cpu), func)
    }

    /// Queues `func` to run once on a pool of the NUMA node `node`, like
    /// [`enqueue_node`](Self::enqueue_node).
    ///
    /// # Blocking
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{AffinityScope, Workqueue};
    /// let queue = Workqueue::builder("example").scope(AffinityScope::Numa).build()?;
    /// let near_its_memory = queue.spawn_node(0, || vec![0u8; 4096].len());
    /// assert_eq!(near_its_memory.join()?, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("queue_work_node", "async_schedule_node"))]
    pub fn spawn_node<T: Send + 'static>(
        &self,
        node: u32,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_at(self.inner.route_table.at_node(node), func)
    }

    /// Returns the pwq for an item that this thread queues.
    #[inline]
    pub(crate) fn here(&self) -> &Pwq {
        self.inner.route_table.here().in_lane(self.lane)
    }

    fn at_cpu(&self, cpu: CpuId) -> &Pwq {
        self.inner.route_table.at_cpu(cpu).in_lane(self.lane)
    }

    /// Returns `true` if the caller may queue uncounted items; otherwise counts the rejection.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !matches!(self.admission(), Admission::Closed)
    }

    /// Returns whether the caller may queue items, and counts a rejection.
    #[inline]
    pub(crate) fn admission(&self) -> Admission<'_> {
        let closed = &self.inner.closed;
        if closed.word.load(Ordering::Relaxed) == 0 && closed.process.is_this() {
            return Admission::Open;
        }
        self.inner.admission_else()
    }
}

impl Inner {
    /// The slow path of [`Workqueue::admission`]: the queue has a capacity, or is closed to all
    /// callers except its own items.
    #[cold]
    fn admission_else(&self) -> Admission<'_> {
        self.must_be_at_home();
        let is_open = self.closed.word.load(Ordering::Relaxed) & !COUNTS == 0;
        if !is_open && !self.runs_here() {
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
