//! A workqueue: where users queue items.

use std::{fmt, mem::ManuallyDrop, ptr::NonNull};

use sync::{
    Mutex,
    atomic::{Ordering, fence},
    thread,
    unmodelled::Arc,
};

use super::{
    attrs::{Attrs, Builder},
    future,
    head::{Head, is_seated},
    join::{self, JoinHandle},
    list::set_next,
    pwq::{PanicHandler, Pwq, QueueCore},
    registry::Registry,
    reroute::Plan,
    rescuer::Rescuer,
    routes::Signpost,
    run,
    state::Enqueue,
    stats::{Histogram, QueueStats},
    work::Work,
};
use crate::params::MaxActiveScope;

/// Runs work items on worker pools that it shares with other queues.
///
/// An item is queued on the pool of the caller's pod, the group of CPUs that the queue's affinity scope puts the
/// caller's CPU into. A `Workqueue` is a handle; the queue goes when the last one is dropped.
///
/// # Guarantees
///
/// - Workers take items that one thread queued on one pod in that order. As several workers take at once, and a
///   joiner runs its own, they may start and end in another. An ordered queue keeps the order of queueing.
/// - At most `max_active` threads run items of the queue at once, in the whole process.
/// - A panic in an item reaches its joiner; the worker goes on.
///
/// # Blocking
///
/// Queueing never waits for a worker or for memory of the system's: at most for a short lock, and it may wake a
/// sleeping worker (a system call). It may be done from work items, not from signal handlers.
///
/// Dropping the last handle drains the queue: it waits until all items have run. Inside one of the queue's own
/// items it does not wait; the queue then goes when the last item has ended.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
/// let sums: Vec<_> = (0..4u64).map(|i| queue.spawn(move || (i * 1000..(i + 1) * 1000).sum::<u64>())).collect();
/// let total: u64 = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
/// assert_eq!(total, 3999 * 4000 / 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Workqueue {
    pub(super) inner: Arc<Inner>,
    /// Counts the handles, which keep the registry; futures hold `inner` for longer, and others for a moment.
    lease: ManuallyDrop<Arc<Registry>>,
}

pub(super) struct Inner {
    /// I
    pub(super) core: Arc<QueueCore>,
    /// I
    pub(super) ordered: bool,
    /// Where items go.
    pub(super) signpost: Signpost,
    /// How that came, and what there was before.
    pub(super) plan: Mutex<Plan>,
    rescuer: Mutex<Option<Rescuer>>,
}

/// What a queue is built from, checked.
pub(super) struct Parts {
    pub(super) attrs: Attrs,
    pub(super) max_active: u32,
    pub(super) max_active_scope: MaxActiveScope,
    pub(super) help: Option<bool>,
    pub(super) ordered: bool,
    pub(super) cpu_intensive: bool,
    pub(super) bh: bool,
    pub(super) rescuer: Option<Rescuer>,
    pub(super) on_panic: Option<PanicHandler>,
}

/// Which of the two looks of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    First,
    Second,
}

/// What became of an attempt to queue an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planned {
    /// Its link must be pushed.
    Push,
    /// Its link is where it must be.
    InPlace,
    /// It is not ours to queue.
    Refused,
}

/// Makes `home` the home of an item that the caller has claimed.
fn move_here(work: &Work, home: &Pwq) -> Planned {
    let head = work.head();
    head.home
        .store(std::ptr::from_ref(home).cast_mut(), Ordering::Relaxed);
    head.update(|state| Some(state.publish()));
    Planned::Push
}

impl Workqueue {
    /// Starts to describe a queue called `name`.
    pub fn builder(name: &str) -> Builder {
        Builder::new(name)
    }

    pub(super) fn new(name: &str, mut parts: Parts, registry: &Registry) -> Self {
        let core = Arc::new(QueueCore {
            cpu_intensive: parts.cpu_intensive,
            bh: parts.bh,
            rescuer: parts.rescuer.as_ref().map(Rescuer::phone),
            ..QueueCore::new(name, parts.on_panic.take())
        });
        let (ordered, rescuer) = (parts.ordered, parts.rescuer.take());
        let (plan, routes) = Plan::new(parts, &core, registry.machine());
        let inner = Arc::new(Inner {
            core,
            ordered,
            signpost: Signpost::new(&routes, ordered),
            plan: Mutex::new(plan),
            rescuer: Mutex::new(rescuer),
        });
        registry.machine().add_queue(&inner);
        // The machine may have changed since the plan was drawn.
        inner.follow(registry.machine());
        Self {
            inner,
            lease: ManuallyDrop::new(Arc::new(registry.clone())),
        }
    }

    /// Queues `work` on the pool of this CPU's pod; false when it was pending already, or is
    /// disabled (as it also is while somebody waits in [`Work::cancel_sync`]).
    ///
    /// # Blocking
    ///
    /// See [`Workqueue`]. An item whose cancelled place is still in another queue's list is first taken out of
    /// there, under that pool's lock.
    #[inline]
    pub fn enqueue(&self, work: &Work) -> bool {
        self.enqueue_at(&self.here(), work)
    }

    /// Queues `work` at `home`, a link of this queue.
    #[inline]
    pub(super) fn enqueue_at(&self, home: &Pwq, work: &Work) -> bool {
        let planned = self.plan(work, home);
        if planned == Planned::Push {
            home.push(work.item());
        }
        planned != Planned::Refused
    }

    /// Takes back one [`Work::disable`], and queues `work` if that was the last one; says whether it was queued.
    ///
    /// # Panics
    ///
    /// When the item is not disabled.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Work, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|| ());
    /// work.disable();
    /// assert!(!queue.enqueue(&work));
    /// assert!(queue.enable_and_queue(&work));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable_and_queue(&self, work: &Work) -> bool {
        work.enable() && self.enqueue(work)
    }

    /// Queues each of `works` that is not pending, in their order, and returns how many that were.
    ///
    /// The items go to one pool as one chain: for tiny items about twice as fast as one by one.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Work, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let works: Vec<_> = (0..100).map(|i| Work::new(move || drop(i))).collect();
    /// assert_eq!(queue.enqueue_all(&works), 100);
    /// queue.drain()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_all(&self, works: &[Work]) -> usize {
        let home = self.here();
        let mut nr_queued = 0;
        let mut chain: Option<(NonNull<Head>, NonNull<Head>)> = None;
        for work in works {
            let planned = self.plan(work, &home);
            nr_queued += usize::from(planned != Planned::Refused);
            if planned == Planned::Push {
                let item = work.item();
                chain = Some(match chain {
                    None => (item, item),
                    Some((newest, oldest)) => {
                        set_next(item, newest.as_ptr());
                        (item, oldest)
                    }
                });
            }
        }
        if let Some((newest, oldest)) = chain {
            home.probe.note(oldest);
            home.pool.push_chain(newest, oldest);
        }
        nr_queued
    }

    /// Claims `work` for this queue; says whether its link is still to be pushed to `home`.
    #[inline]
    fn plan(&self, work: &Work, home: &Pwq) -> Planned {
        match work
            .head()
            .enqueue(home, |link| self.inner.signpost.routes().has(link))
        {
            Enqueue::Push(_) => Planned::Push,
            Enqueue::Revive(_) => Planned::InPlace,
            Enqueue::Claim(_) => move_here(work, home),
            Enqueue::Elsewhere(_) => {
                run::cut_out(work.item());
                move_here(work, home)
            }
            Enqueue::Pending | Enqueue::Disabled => Planned::Refused,
        }
    }

    /// Queues `func` to run once, and returns a handle to wait for what it returns.
    ///
    /// # Cost
    ///
    /// No allocation in the long run: the item's memory is recycled between the threads. A closure, with its
    /// result, of up to 16 bytes takes a cache line; above 208 bytes it is boxed.
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
        let home = self.here();
        let (item, handle) = join::joinable(func, &home);
        home.push(item);
        handle
    }

    /// Queues `func` to run once; nobody can wait for it or cancel it. Cheaper than [`spawn`](Self::spawn).
    #[inline]
    pub fn spawn_detached(&self, func: impl FnOnce() + Send + 'static) {
        let home = self.here();
        home.push(join::detached(func, &home));
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
    /// - It is dropped by a worker, also when it is [cancelled](JoinHandle::cancel), and when it panics. But a future
    ///   that waits while its handle and all its wakers are gone is dropped by whoever drops the last of them.
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
        let home = self.here();
        let (item, handle) = future::task(future, &home, self.inner.clone());
        home.push(item);
        handle
    }

    /// Waits until nothing of this queue is queued or running, and no future of it waits.
    ///
    /// Producers that go on queueing hold it up.
    ///
    /// # Blocking
    ///
    /// Until then. From inside one of the queue's own items it would wait for ever: see
    /// [`DrainError`].
    ///
    /// # Errors
    ///
    /// [`DrainError`] from inside an item of this queue.
    pub fn drain(&self) -> Result<(), DrainError> {
        if self.inner.runs_here() {
            return Err(DrainError);
        }
        self.inner.drain();
        Ok(())
    }

    /// Changes how many threads run items of this queue at once.
    ///
    /// More start at once; if fewer are allowed, those that run finish what they have in hand.
    ///
    /// # Errors
    ///
    /// [`BuildError::MaxActive`](super::BuildError::MaxActive) outside 1 to 512;
    /// [`BuildError::OrderedMaxActive`](super::BuildError::OrderedMaxActive) for an ordered queue.
    pub fn set_max_active(&self, max_active: u32) -> Result<(), super::BuildError> {
        if self.inner.ordered && max_active != 1 {
            return Err(super::BuildError::OrderedMaxActive(max_active));
        }
        if !(1..=super::MAX_ACTIVE).contains(&max_active) {
            return Err(super::BuildError::MaxActive(max_active));
        }
        let seekers = self.inner.plan.lock().set_max_active(max_active);
        for seeker in seekers {
            seeker.pool.take_seat(seeker.slot);
        }
        Ok(())
    }

    /// Returns the registry whose pools it uses.
    pub(super) fn registry(&self) -> &Registry {
        &self.lease
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.core.name
    }

    /// Returns what the queue has counted.
    ///
    /// # Blocking
    ///
    /// Takes the lock of each of its pools for a moment.
    pub fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    /// Returns how long items waited until a worker took them, of the sampled ones.
    ///
    /// Of [`Params::wait_sample`](crate::params::Params::wait_sample) items of a pool at most one is sampled. Those that
    /// a joiner ran or that were cancelled are not among them.
    pub fn wait_times(&self) -> Histogram {
        self.inner.core.wait.read()
    }
}

impl Inner {
    /// Says whether this thread is inside an item of this queue.
    pub(super) fn runs_here(&self) -> bool {
        is_seated(&self.core)
    }

    /// Says whether nothing is queued or running; if not, `drained` will tell when that may have changed.
    ///
    /// One look takes the pools in turn, and an item that queues another one, or itself, on a pool that has been
    /// looked at, and ends before its own pool is, would slip through. So nothing may have come between two looks.
    fn is_drained(&self) -> bool {
        loop {
            match (self.look(Look::First), self.look(Look::Second)) {
                (Some(first), Some(second)) if first == second => return true,
                (Some(_), Some(_)) => {}
                _ => return false,
            }
        }
    }

    /// Looks once; returns how many items there have ever been if none was seen, else sees to it that `drained` will
    /// tell.
    fn look(&self, look: Look) -> Option<u64> {
        // Items that their helpers took back from an injector are counted here and by the gate, and nowhere else.
        let nr_helped = self.core.nr_helped.load(Ordering::Relaxed);
        // No short cut: each look that fails asks that pool to tell.
        let (mut nr_busy, mut nr_seen) = (0, nr_helped);
        for pwq in self.plan.lock().links() {
            match pwq.pool.is_drained(pwq.slot) {
                Some(nr_adopted) => nr_seen += nr_adopted,
                None => nr_busy += 1,
            }
        }
        // ORDER(taken-back): publish and consume, other end in `Injector::take_back`.
        //   help: takes a seat;  injector = without the item, Release
        //   here: injector is empty (read by `adopt`);  fence Acquire;  is anybody seated?
        // A helper's item is thus seen in the injector, or the helper on his seat.
        // Test: a_queue_does_not_go_before_its_items_have_run
        // On the second look it also acquires what was seen of the seats on the first one, which is why the twin
        // that looks at them relaxed must do without.
        let relaxed = look == Look::Second && sync::twin::armed("drain: relaxed look at the seats");
        if !sync::twin::armed("drain: no fence") && !relaxed {
            fence(Ordering::Acquire);
        }
        // A helper that has taken its item back from the injector is counted nowhere but here, nor is a seat on its
        // way to a link whose items have been cut out meanwhile.
        let mut idle = true;
        for link in self.plan.lock().links() {
            // Each that is not idle will tell.
            idle &= link.gate.is_idle();
        }
        let idle = idle || sync::twin::armed("drain: forgets the seated");
        (nr_busy == 0 && idle).then_some(nr_seen)
    }

    fn drain(&self) {
        self.core.drained.wait_until(|| self.is_drained());
    }
}

impl Drop for Workqueue {
    fn drop(&mut self) {
        // SAFETY: the field is not used again; `Drop` runs once.
        let lease = unsafe { ManuallyDrop::take(&mut self.lease) };
        if sync::twin::torn_down() {
            return;
        }
        // The last handle is the one that gets the registry out of its `Arc`.
        let Some(registry) = Arc::into_inner(lease) else {
            return;
        };
        if self.inner.runs_here() {
            // Waiting here would wait for ourselves. Should no thread be had, the queue is never freed: its items
            // still point at it.
            let last = ManuallyDrop::new((self.inner.clone(), registry));
            let _ = thread::spawn("aw/reaper", move || {
                let (inner, registry) = ManuallyDrop::into_inner(last);
                inner.destroy(&registry);
            });
        } else {
            self.inner.destroy(&registry);
        }
    }
}

impl Inner {
    /// Waits until all has run, and lets go of the pools.
    fn destroy(self: &Arc<Self>, registry: &Registry) {
        self.drain();
        // Before the links go: it may still look into one.
        let rescuer = self.rescuer.lock().take();
        if let Some(rescuer) = rescuer {
            rescuer.end();
        }
        let machine = registry.machine();
        machine.remove_queue(self);
        let links = self.plan.lock().end();
        for link in links {
            link.pool.remove_link(link.slot);
            machine.release(&link.pool);
        }
    }
}

/// Says that a queue was to be drained from inside one of its own items, which would wait for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainError;

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a work item cannot wait until its own queue is empty")
    }
}

impl std::error::Error for DrainError {}

impl fmt::Debug for Workqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.name())
            .field("nr_active", &self.inner.plan.lock().nr_active())
            .field("ordered", &self.inner.ordered)
            .finish_non_exhaustive()
    }
}
