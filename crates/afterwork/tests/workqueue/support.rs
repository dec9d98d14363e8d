//! Shared helpers: machines, gauges, counters of drops, and waits with a limit.

pub use std::any::Any;
pub use std::borrow::Borrow;
pub use std::cell::RefCell;
pub use std::collections::BTreeSet;
pub use std::future::{self, pending, poll_fn, ready};
pub use std::ops::{Deref, Range};
pub use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
pub use std::pin::{Pin, pin};
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
pub use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
pub use std::sync::{Arc, Barrier, Mutex, PoisonError};
pub use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
pub use std::time::{Duration, Instant};
pub use std::{fs, io, mem, thread};

pub use afterwork::mailbox::{self, Mailbox};
pub use afterwork::observe::snapshot_of;
pub use afterwork::params::{Params, ThreadHook, WakeMode};
pub use afterwork::rcu::srcu::Domain;
pub use afterwork::rcu::{self, Rcu};
pub use afterwork::wake::{EventCount, Parker};
pub use afterwork::workqueue::AffinityScope::*;
pub use afterwork::workqueue::{self, *};
pub use topology::Topology;

use crate::children;
pub use crate::dice::Dice;

/// The limit of every wait: over a hundred times the time that any test needs without load.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A delay that no test waits for.
pub const HOUR: Duration = Duration::from_secs(3600);
pub const MS: Duration = Duration::from_millis(1);
/// A delay that tests wait for.
pub const SHORT: Duration = Duration::from_millis(2);

/// Creates a registry on a synthetic machine. Workers of CPUs that do not exist here run anywhere.
pub fn registry(machine: &str) -> Registry {
    tuned(machine, |_| ())
}

pub fn tuned(machine: &str, change: impl FnOnce(&mut Params)) -> Registry {
    let mut params = Params::default();
    change(&mut params);
    registry_with(machine, params)
}

pub fn registry_with(machine: &str, params: Params) -> Registry {
    must_end();
    Registry::new(Topology::synthetic(machine).unwrap(), params).unwrap()
}

pub fn detected() -> Registry {
    must_end();
    Registry::new(Topology::detect().unwrap(), Params::default()).unwrap()
}

/// Shuts down a registry whose queues may still be in the process of being destroyed.
pub fn shut_down(registry: Registry) {
    let mut registry = Some(registry);
    wait_until(|| {
        let outcome = registry.take().unwrap().shutdown();
        registry = outcome.err().map(|still| still.registry);
        registry.is_none()
    });
}

/// Creates a registry without a monitor: only reports from waiting workers bring another worker.
pub fn unwatched(machine: &str) -> Registry {
    tuned(machine, |it| it.watch_tick_us = 3_600_000_000)
}

/// Creates a registry that cannot create threads other than its own.
pub fn threadless(machine: &str) -> Registry {
    let registry = registry(machine);
    registry.refuse_threads(true);
    registry
}

/// Builds one queue, or several that share a registry.
pub trait On: Sized {
    type Built;

    fn on(self, registry: &Registry) -> Self::Built;

    #[track_caller]
    fn on_own(self, registry: Registry) -> (Registry, Self::Built) {
        let built = self.on(&registry);
        (registry, built)
    }

    /// Builds on a registry of its own, with two CPUs in one pool.
    #[track_caller]
    fn alone(self) -> Self::Built {
        self.on(&registry("2 core"))
    }
}

impl On for Builder {
    type Built = Workqueue;

    #[track_caller]
    fn on(self, registry: &Registry) -> Workqueue {
        self.build_in(registry).unwrap()
    }
}

impl<const NR: usize> On for [Builder; NR] {
    type Built = [Workqueue; NR];

    #[track_caller]
    fn on(self, registry: &Registry) -> [Workqueue; NR] {
        self.map(|it| it.on(registry))
    }
}

/// Builds a queue on a registry of its own in a given state.
pub trait In: On<Built = Workqueue> {
    #[track_caller]
    fn paused(self) -> Workqueue {
        let queue = self.alone();
        queue.pause();
        queue
    }

    /// Builds a queue one of whose seats is in use until the plug is released.
    #[track_caller]
    fn plugged(self) -> (Workqueue, Plug) {
        self.plugged_on(&registry("2 core"))
    }

    #[track_caller]
    fn plugged_on(self, registry: &Registry) -> (Workqueue, Plug) {
        let queue = self.on(registry);
        let plug = plug_into(&queue);
        (queue, plug)
    }
}

impl In for Builder {}

/// Uses queues that reject nothing.
pub trait Use: Borrow<Workqueue> {
    #[track_caller]
    fn detach(&self, func: impl FnOnce() + Send + 'static) {
        self.borrow().spawn_detached(func).unwrap();
    }

    /// Spawns a closure that gets a handle to the queue.
    fn spawn_own<T, F>(&self, func: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&Workqueue) -> T + Send + 'static,
    {
        let own = self.borrow().clone();
        self.borrow().spawn(move || func(&own))
    }

    /// Runs `func` on a worker, never on a helper, and returns its result.
    #[track_caller]
    fn in_worker<T, F>(&self, func: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(&Workqueue) -> T + Send + 'static,
    {
        let own = self.borrow().clone();
        let (send, receive) = mpsc::channel();
        self.detach(move || {
            let result = func(&own);
            // When the caller has the result, its handle may be the last one.
            drop(own);
            let _ = send.send(result);
        });
        receive.recv_timeout(PATIENCE).expect("the item ended without a value")
    }

    #[track_caller]
    fn drained(&self) -> QueueStats {
        self.borrow().drain().unwrap();
        self.borrow().stats()
    }

    #[track_caller]
    fn resume_and_drain(&self) {
        self.borrow().resume();
        self.borrow().drain().unwrap();
    }
}

impl Use for Workqueue {}

/// Checks that `wait` panics in an item of a bottom-half queue.
#[track_caller]
pub fn is_rejected_in<T>(bh: &Workqueue, shared: &T, wait: impl FnOnce(&T) + Send + 'static)
where
    T: Clone + Send + 'static,
{
    let shared = shared.clone();
    let outcome = bh.spawn(move || wait(&shared)).join();
    assert!(matches!(outcome, Err(JoinError::Panicked(_))), "{outcome:?}");
}

pub fn on_cpu(queue: &Workqueue, cpu: u32) -> TaskOptions<'_> {
    queue.task().on_cpu(CpuId::new(cpu))
}

/// Queues work with `spawn`, and returns its handle together with one that can only cancel.
pub fn cancellable<T>(
    queue: &Workqueue,
    spawn: impl FnOnce(TaskOptions<'_>) -> JoinHandle<T>,
) -> (JoinHandle<T>, CancelHandle) {
    let mut canceller = CancelHandle::default();
    let handle = spawn(queue.task().cancel_handle(&mut canceller));
    (handle, canceller)
}

/// Calls `attempt` with later and later deadlines until its item starts in time. Returns the item's
/// result.
pub fn before_deadline<T>(attempt: impl Fn(Instant) -> Result<T, JoinError>) -> T {
    let outcome = (0..).find_map(|shift| match attempt(Instant::now() + MS * (1 << shift)) {
        Err(JoinError::Expired) => None,
        outcome => Some(outcome),
    });
    outcome.expect("a deadline is long enough").unwrap()
}

pub fn free(queue: &Workqueue) -> Option<usize> {
    queue.report().free_capacity
}

pub fn waiting(queue: &Workqueue) -> usize {
    queue.stats().nr_inactive
}

/// Begins to drain the queue on another thread, while an item of the queue blocks.
pub fn drain_begun(queue: &Workqueue) -> thread::JoinHandle<()> {
    let drainer = beside(queue, |queue| queue.drain().unwrap());
    wait_until(|| queue.try_spawn(|| ()).is_err());
    drainer
}

pub fn queue(name: &str) -> Builder {
    must_end();
    Workqueue::builder(name)
}

/// If the calling thread lives for too long, prints the name of the test and ends the process.
pub fn must_end() {
    thread_local!(static LIFE: Option<Sender<()>> = watched());
    fn watched() -> Option<Sender<()>> {
        let name = thread::current().name()?.to_owned();
        let (life, ended) = mpsc::channel();
        // `in_own_process` ends a child that hangs.
        let is_alone = children::mode().is_some() || !name.contains("::");
        (!is_alone).then(|| {
            thread::spawn(move || {
                if ended.recv_timeout(3 * PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    // The harness captures what `eprintln` prints.
                    let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("{name} hangs\n"));
                    std::process::abort();
                }
            });
            life
        })
    }
    LIFE.with(|_| ());
}

/// Waits until `condition` holds. Use this only for conditions without an event.
#[track_caller]
pub fn wait_until(condition: impl FnMut() -> bool) {
    assert!(holds_within(PATIENCE, condition), "it never held");
}

pub fn holds_within(span: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + span;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs the test's `body` in its own process, without the threads of other tests.
pub fn in_own_process(body: impl FnOnce()) {
    if children::mode().is_some() {
        return body();
    }
    let thread = thread::current();
    let test = thread.name().unwrap();
    let mut command = children::this_test(test, "alone");
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut status = None;
    // A test may take minutes on a loaded machine.
    let ended = holds_within(10 * PATIENCE, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        let _ = child.kill();
    }
    assert!(status.is_some_and(|status| status.success()), "{test} alone: {status:?}");
}

/// Keeps a thread inside an item until it is released or dropped.
pub struct Plug {
    entered: Receiver<()>,
    release: Sender<()>,
}

pub struct Hole {
    entered: Sender<()>,
    release: Receiver<()>,
}

pub fn stopper() -> (Plug, Hole) {
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    (Plug { entered, release }, Hole { entered: enter, release: released })
}

impl Plug {
    pub fn wait_until_stuck(&self) {
        self.entered.recv_timeout(PATIENCE).expect("no thread arrived");
    }

    pub fn release(&self) {
        self.release.send(()).unwrap();
    }

    pub fn release_and_drain(&self, queue: &Workqueue) {
        self.release();
        queue.drain().unwrap();
    }

    pub fn release_and_join<T>(&self, thread: thread::JoinHandle<T>) -> T {
        self.release();
        thread.join().unwrap()
    }

    pub fn release_and_count(&self, queue: &Workqueue, count: Count) -> usize {
        self.release();
        count.after_drain(queue)
    }
}

impl Hole {
    /// Notifies the plug and blocks until it is released, without a report to the pool.
    pub fn sit(&self) {
        self.entered.send(()).unwrap();
        let _ = self.release.recv();
    }
}

/// Calls `start`, which passes the hole to an item, and waits until that item blocks.
pub fn stuck<T>(start: impl FnOnce(Hole) -> T) -> (T, Plug) {
    let (plug, hole) = stopper();
    let started = start(hole);
    plug.wait_until_stuck();
    (started, plug)
}

/// Occupies one seat of `queue` until the plug is released.
pub fn plug_into(queue: &Workqueue) -> Plug {
    stuck(|hole| queue.detach(move || hole.sit())).1
}

/// Occupies one seat with an item that has the given options.
pub fn plug_as(task: TaskOptions<'_>) -> Plug {
    stuck(|hole| task.spawn_detached(move || hole.sit()).unwrap()).1
}

/// Blocks an item that owns a handle to its queue. The item drops the handle when the plug is
/// released.
pub fn plug_of_owner(queue: &Workqueue) -> Plug {
    let own = queue.clone();
    let ends = |hole: Hole| {
        queue.detach(move || {
            hole.sit();
            drop(own);
        });
    };
    stuck(ends).1
}

/// Arms an item without handles for an hour. The item owns the value.
pub fn arm_for_an_hour(queue: &Workqueue, owned: impl Send + 'static) {
    let work = DelayedWork::new(owning(owned));
    assert!(queue.enqueue_after(&work, HOUR));
}

pub fn stuck_with(queue: &Workqueue, mut body: impl FnMut(&Hole) + Send + 'static) -> (Work, Plug) {
    stuck(|hole| {
        let work = Work::new(move || body(&hole));
        assert!(queue.enqueue(&work));
        work
    })
}

/// Starts an item that blocks in each run until the plug is released.
pub fn stuck_in(queue: &Workqueue) -> (Work, Plug) {
    stuck_with(queue, Hole::sit)
}

/// Starts an item that blocks in each run until the plug is released. Counts the runs that have
/// begun, and those after the plug.
pub fn stuck_counting(queue: &Workqueue) -> (Work, Plug, [Count; 2]) {
    let [begun, ended] = [(); 2].map(|()| Count::default());
    let (work, plug) = stuck_with(queue, move |hole| {
        begun.add();
        hole.sit();
        ended.add();
    });
    (work, plug, [begun, ended])
}

/// Spawns a future that is never ready. Returns when it has been polled.
pub fn pending_in(queue: &Workqueue) -> JoinHandle<()> {
    let polled = Count::default();
    let handle = queue.spawn_async(async move {
        polled.add();
        pending().await
    });
    wait_until(|| polled.get() == 1);
    handle
}

pub fn beside<S: Clone + Send + 'static, T: Send + 'static>(
    shared: &S,
    body: impl FnOnce(S) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let shared = shared.clone();
    thread::spawn(move || body(shared))
}

/// Makes the only worker of a pool take one batch: an item that blocks, and items that `rest`
/// queues. Both queues use that pool.
pub fn take_a_batch(queue: &Workqueue, other: &Workqueue, rest: impl FnOnce(&Workqueue)) -> Plug {
    let (_, plug) = stuck(|hole| {
        queue.pause();
        queue.detach(move || hole.sit());
        rest(queue);
        // The first run on a new thread takes long. The later runs show the worker that items are
        // short.
        (0..64).for_each(|_| other.detach(|| ()));
        // When this item runs, the worker has already set the items of the paused queue aside.
        other.spawn(|| ()).join().unwrap();
        queue.resume();
    });
    plug
}

/// Checks that a joiner runs no item of `queue` while an item of `full` holds the only seat.
pub fn joiner_waits_for_a_seat(full: &Workqueue, queue: &Workqueue) {
    let (plug, (work, count)) = (plug_into(full), counted());
    queue.enqueue(&work);
    let flusher = flush_begun(&work);
    assert_eq!((count.get(), queue.stats().helped), (0, 0));
    plug.release_and_join(flusher).unwrap();
    assert_eq!(count.get(), 1);
}

/// Starts a flush on another thread, and returns when the flush sleeps.
pub fn flush_begun(work: &Work) -> thread::JoinHandle<Result<bool, FlushError>> {
    let flusher = beside(work, |work| work.flush());
    wait_until(|| is_slept_for(work));
    flusher
}

/// Creates an item that calls `body` in its first run. Its later runs do nothing.
pub fn in_first_run(body: impl FnOnce(&Work) + Send + 'static) -> Work {
    let mut body = Some(body);
    Work::with_handle(move |this| body.take().into_iter().for_each(|body| body(this)))
}

/// Creates an item that queues itself again while `stop` is zero.
pub fn restless(queue: &Workqueue, stop: Count) -> Work {
    let again = queue.clone();
    Work::with_handle(move |this| {
        if stop.get() == 0 {
            again.enqueue(this);
        }
    })
}

/// Returns a builder of a queue with one seat, whose joiners do not help.
pub fn one_seat(name: &str) -> Builder {
    queue(name).max_active(1).help(false)
}

pub fn ordered_and_narrow() -> [Workqueue; 2] {
    [queue("ordered").ordered(), queue("narrow").max_active(1)].map(On::alone)
}

/// Queues `count` items, each of which ends when all are running.
pub fn meet_in(queue: &Workqueue, count: usize) {
    let all = Shared::new(Barrier::new(count));
    (0..count).for_each(|_| queue.detach(move || _ = all.wait()));
}

/// Runs `count` items, each of which ends when all are running.
pub fn run_at_once(queue: &Workqueue, count: usize) {
    meet_in(queue, count);
    queue.drain().unwrap();
}

pub fn reports(registry: &Registry) -> Receiver<Report> {
    let (send, reports) = mpsc::channel();
    registry.on_report(move |report| _ = send.send(report.clone()));
    reports
}

pub struct AtDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        self.0.take().unwrap()();
    }
}

pub fn at_drop<F: FnOnce()>(act: F) -> AtDrop<F> {
    AtDrop(Some(act))
}

/// Drops `value` when the calling thread exits.
pub fn drop_at_exit(value: impl Any) {
    thread_local!(static LOCAL: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) });
    LOCAL.set(Some(Box::new(value)));
}

/// Returns a value whose drop panics, unless its thread is panicking.
pub fn bomb() -> AtDrop<fn()> {
    at_drop(|| assert!(thread::panicking(), "in a drop"))
}

/// Returns a waker that calls `act` when it is first woken.
pub fn waker_once(act: impl FnOnce() + Send + 'static) -> Waker {
    let act = Mutex::new(Some(act));
    waker(move || {
        let act = act.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
    })
}

pub fn counting_waker() -> (Waker, Count) {
    let rings = Count::default();
    (waker(rings.adder()), rings)
}

pub fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Calls<F>(F);
    impl<F: Fn() + Send + Sync> Wake for Calls<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Calls(wake)))
}

struct Hooks {
    at_clone: Box<dyn Fn() + Send + Sync>,
    at_drop: Box<dyn Fn() + Send + Sync>,
}

/// Returns a waker that calls `at_clone` when it is cloned, and `at_drop` when a clone drops.
pub fn hooked_waker(
    at_clone: impl Fn() + Send + Sync + 'static,
    at_drop: impl Fn() + Send + Sync + 'static,
) -> Shared<Waker> {
    fn hooks(data: *const ()) -> &'static Hooks {
        // SAFETY: the pointer comes from below, and its hooks live forever.
        unsafe { &*data.cast() }
    }
    static WAKER: RawWakerVTable = RawWakerVTable::new(
        |data| {
            (hooks(data).at_clone)();
            RawWaker::new(data, &WAKER)
        },
        |_| unreachable!("not woken"),
        |_| unreachable!("not woken"),
        |data| (hooks(data).at_drop)(),
    );
    let hooks = Shared::new(Hooks { at_clone: Box::new(at_clone), at_drop: Box::new(at_drop) });
    // SAFETY: the functions read hooks that live forever and may be used by any thread.
    Shared::new(unsafe { Waker::new(std::ptr::from_ref(hooks.0).cast(), &WAKER) })
}

pub fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Option<F::Output> {
    match poll_with(future, waker) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future that is not ready yet, and returns it.
#[track_caller]
pub fn polled<F: Future + Unpin>(mut future: F, waker: &Waker) -> F {
    assert!(poll_with(&mut future, waker).is_pending());
    future
}

/// Returns the report of a drain or shutdown that took too long.
pub fn still_busy(outcome: Result<(), DrainError>) -> Option<StillBusy> {
    match outcome {
        Ok(()) => None,
        Err(DrainError::StillBusy(busy)) => Some(busy),
        Err(error) => panic!("{error}"),
    }
}

pub fn is_cancelled<T>(outcome: Result<T, JoinError>) -> bool {
    matches!(outcome, Err(JoinError::Cancelled))
}

pub fn is_refused<T>(outcome: Result<T, JoinError>) -> bool {
    matches!(outcome, Err(JoinError::Full | JoinError::Closed))
}

pub fn has_expired<T>(outcome: Result<T, JoinError>) -> bool {
    matches!(outcome, Err(JoinError::Expired))
}

pub fn is_full<T, F>(outcome: Result<T, TrySpawnError<F>>) -> bool {
    outcome.is_err_and(|error| error.is_full())
}

pub fn is_closed<T, F>(outcome: Result<T, TrySpawnError<F>>) -> bool {
    outcome.is_err_and(|error| !error.is_full())
}

/// A reference to a value that exists as long as the process, so that each closure may copy it.
pub struct Shared<T: 'static>(&'static T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        Self(Box::leak(Box::new(value)))
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

#[derive(Clone, Copy, Default)]
pub struct Gauge {
    now: Shared<AtomicUsize>,
    most: Shared<AtomicUsize>,
}

impl Gauge {
    pub fn within<T>(self, body: impl FnOnce() -> T) -> T {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let result = body();
        self.now.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub fn most(self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Runs `count` items on a queue, which may be paused. Returns the maximum number of threads that
/// are inside the items.
pub fn concurrency(queue: &Workqueue, count: usize) -> usize {
    let gauge = Gauge::default();
    (0..count).for_each(|_| queue.detach(move || gauge.within(thread::yield_now)));
    queue.resume_and_drain();
    gauge.most()
}

/// The number of items that [`crowd`] queues.
pub const CROWD: u64 = 8 * 240;

/// Queues items from eight threads on all queues in turn, joins some of them, and returns the
/// maximum number of threads inside items.
pub fn crowd(queues: &[Workqueue]) -> usize {
    let gauge = Gauge::default();
    threads(8, |i| {
        pin(i);
        for n in 0..CROWD as usize / 8 {
            let queue = &queues[n % queues.len()];
            let handle = queue.spawn(move || gauge.within(thread::yield_now));
            if n % 4 == 0 {
                handle.join().unwrap();
            }
        }
    });
    queues.iter().for_each(|queue| assert_eq!(queue.drained().nr_active, 0));
    gauge.most()
}

#[derive(Clone, Copy, Default)]
pub struct Census {
    alive: Shared<AtomicI64>,
    dropped: Shared<AtomicUsize>,
}

pub struct Life(Census);

impl Census {
    pub fn life(self) -> Life {
        self.alive.fetch_add(1, Ordering::SeqCst);
        Life(self)
    }

    pub fn closure(self) -> impl FnOnce() + Send + 'static {
        let life = self.life();
        move || drop(life)
    }

    /// Returns a future that owns a life and is never ready.
    pub fn future(self) -> impl Future<Output = ()> + Send + 'static {
        let life = self.life();
        async move {
            let _life = life;
            pending().await
        }
    }

    pub fn alive(self) -> i64 {
        self.alive.load(Ordering::SeqCst)
    }

    pub fn dropped(self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Waits until `count` lives are dropped, and checks that none was dropped twice.
    #[track_caller]
    pub fn all_dropped(self, count: usize) {
        wait_until(|| self.alive() <= 0);
        assert_eq!((self.alive(), self.dropped()), (0, count), "alive, dropped");
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn owning(value: impl Send + 'static) -> impl FnMut() + Send + 'static {
    move || _ = &value
}

pub fn keeping(
    value: impl Send + 'static,
    mut act: impl FnMut() + Send + 'static,
) -> impl FnMut() + Send + 'static {
    move || {
        let _ = &value;
        act();
    }
}

pub type Log<T> = Shared<Mutex<Vec<T>>>;

impl<T: Send + 'static> Log<T> {
    pub fn push(self, value: T) {
        self.lock().unwrap().push(value);
    }

    pub fn note(self, value: T) -> impl Fn() + Send + 'static
    where
        T: Clone,
    {
        move || self.push(value.clone())
    }

    pub fn take(self) -> Vec<T> {
        mem::take(&mut self.lock().unwrap())
    }
}

pub type Count = Shared<AtomicUsize>;

impl Count {
    pub fn adder(self) -> impl Fn() + Send + Sync + 'static {
        move || self.add()
    }

    pub fn spawn(self, nr: usize, queue: &Workqueue) {
        (0..nr).for_each(|_| queue.detach(self.adder()));
    }

    pub fn add(&self) {
        self.fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> usize {
        self.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn after_drain(&self, queue: &Workqueue) -> usize {
        queue.drain().unwrap();
        self.get()
    }
}

/// Uses at least `kib` KiB of stack. Returns the address of the deepest part.
pub fn dig(kib: usize) -> usize {
    let room = std::hint::black_box([1_u8; 1024]);
    let deepest = if kib > 1 { dig(kib - 1) } else { room.as_ptr().addr() };
    std::hint::black_box(&room);
    deepest
}

/// Returns a closure that keeps its CPU busy while `stop` is zero.
pub fn hogging(stop: Count) -> impl FnOnce() + Send + 'static {
    move || {
        while stop.get() == 0 {
            std::hint::spin_loop();
        }
    }
}

pub fn counting(count: Count) -> Work {
    Work::new(count.adder())
}

pub fn counted() -> (Work, Count) {
    let count = Count::default();
    (counting(count), count)
}

/// Returns `true` if a thread sleeps until the item ends a run.
pub fn is_slept_for(work: &Work) -> bool {
    format!("{work:?}").contains("waited")
}

/// Returns `true` if a worker has popped the item and handed it off to the thread that runs it.
pub fn is_handed_off(work: &impl std::fmt::Debug) -> bool {
    format!("{work:?}").contains("handoff")
}

/// Pins this thread to the `i`th CPU that it may use, modulo their number.
pub fn pin(i: usize) {
    let cpus: Vec<CpuId> = sync::cpu::affinity().unwrap().iter().collect();
    let cpu = cpus[i % cpus.len()];
    sync::cpu::set_affinity(None, &[cpu].into_iter().collect()).unwrap();
}

pub fn cpu_here() -> CpuId {
    // SAFETY: the call has no preconditions.
    CpuId::new(unsafe { libc::sched_getcpu() } as u32)
}

pub fn nice_here() -> i8 {
    rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap() as i8
}

pub fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

pub fn threads(count: usize, body: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for i in 0..count {
            let body = &body;
            scope.spawn(move || body(i));
        }
    });
}

/// Lets four threads change items. In each step a thread passes the number of the step and one of
/// the items to `change`, which returns the change of the number of due runs. Returns their sum.
pub fn changed_by_threads<W: Sync>(works: &[W], change: impl Fn(usize, &W) -> i64 + Sync) -> i64 {
    let nr_due = AtomicI64::new(0);
    threads(4, |i| {
        for step in 0..400 {
            let change = change(step, &works[(i + step) % works.len()]);
            nr_due.fetch_add(change, Ordering::Relaxed);
        }
    });
    nr_due.into_inner()
}

pub fn resident_kib() -> usize {
    children::number_in("/proc/self/status", "VmRSS:").unwrap()
}

/// Checks that one of five calls to `act` leaves less than `limit_kib` behind. Memory that is
/// cached once, such as a thread's stack, counts in one call only.
pub fn retains_less_than(limit_kib: usize, what: &str, mut act: impl FnMut()) {
    let grown_kib = (0..5).map(|_| {
        let before = resident_kib();
        act();
        resident_kib().saturating_sub(before)
    });
    let grown_kib: Vec<_> = grown_kib.take_while(|grown| *grown >= limit_kib).collect();
    assert!(grown_kib.len() < 5, "{what}: {grown_kib:?} KiB");
}

pub fn our_threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_string())
        .filter(|name| name.starts_with("aw/"))
        .collect()
}

pub fn nr_threads() -> usize {
    children::number_in("/proc/self/status", "Threads:").unwrap()
}

/// Returns the number that follows `word` in `text`.
pub fn number_after(text: &str, word: &str) -> u32 {
    let (_, rest) = text.split_once(word).expect(word);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|it| it.parse().ok()).expect(word)
}

/// Prints and returns the seed of this run, which `AFTERWORK_SEED` overrides.
pub fn seed() -> u64 {
    let seed = std::env::var("AFTERWORK_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) ^ sync::time::now_ns());
    println!("AFTERWORK_SEED={seed}");
    seed
}
