//! Queues with a capacity: which calls are rejected, which wait, and when permits are released.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{
    BuildError, JoinError, JoinHandle, MAX_CAPACITY, Reserve, TaskOptions, TaskSet, TrySpawnError,
    Work, Workqueue,
};

use crate::support::{Census, Count, PATIENCE, alone_on_two, ends, eventually, queue, registry};

/// Builds a paused queue with the given capacity.
fn paused(capacity: usize) -> Workqueue {
    let queue = alone_on_two(queue("full").capacity(capacity));
    queue.pause();
    queue
}

#[derive(Default)]
struct WakeFlag(AtomicUsize);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl WakeFlag {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll<'a>(reserve: &mut Reserve<'a>, waker: &Arc<WakeFlag>) -> Option<TaskOptions<'a>> {
    let waker = Waker::from(waker.clone());
    match Pin::new(reserve).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

#[test]
fn a_capacity_is_checked_when_the_queue_is_built() {
    let registry = registry("2 core");
    for wrong in [0, MAX_CAPACITY + 1, usize::MAX] {
        let error = queue("wrong")
            .capacity(wrong)
            .build_in(&registry)
            .unwrap_err();
        assert!(matches!(error, BuildError::Capacity(it) if it == wrong));
        assert!(error.to_string().contains("capacity"));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
    let largest = queue("largest").capacity(MAX_CAPACITY);
    let largest = largest.build_in(&registry).unwrap();
    let report = largest.report();
    let largest = Some(MAX_CAPACITY);
    assert_eq!((report.capacity, report.nr_free), (largest, largest));
    let open = queue("open").build_in(&registry).unwrap().report();
    assert_eq!((open.capacity, open.nr_free), (None, None));
}

#[test]
fn a_full_queue_gives_the_work_back() {
    let queue = paused(2);
    let lives = Census::default();
    let first = queue.try_spawn(|| 1).unwrap();
    let second = queue.try_spawn(|| 2).unwrap();
    let life = lives.life();
    let full = queue.try_spawn(move || drop(life)).unwrap_err();
    assert!(full.is_full());
    assert_eq!(full.to_string(), "the workqueue is full");
    assert_eq!(lives.alive(), 1);
    full.into_inner()();
    lives.all_dropped(1);
    assert_eq!(
        (
            queue.report().nr_free,
            queue.stats().nr_inactive,
            queue.stats().refused
        ),
        (Some(0), 2, 1)
    );
    queue.resume();
    assert_eq!((first.join().unwrap(), second.join().unwrap()), (1, 2));
    assert_eq!(queue.report().nr_free, Some(2));
}

#[test]
fn spawning_on_a_full_queue_drops_the_work_and_tells() {
    let queue = paused(1);
    let lives = Census::default();
    let first = queue.spawn(|| 1);
    let life = lives.life();
    let refused = queue.spawn(move || drop(life)).join();
    assert!(matches!(refused, Err(JoinError::Full)));
    let life = lives.life();
    queue.spawn_detached(move || drop(life)).unwrap_err();
    let life = lives.life();
    let refused = queue.spawn_async(async move { drop(life) }).join();
    assert!(matches!(refused, Err(JoinError::Full)));
    lives.all_dropped(3);
    assert_eq!(queue.stats().refused, 3);
    queue.resume();
    assert_eq!(first.join().unwrap(), 1);
}

#[test]
fn each_kind_of_item_gives_its_place_back_when_it_starts() {
    ends(|| {
        let queue = alone_on_two(queue("kinds").capacity(3).max_active(1).help(false));
        let count = Count::default();
        for _ in 0..100 {
            queue.pause();
            let inner = count.clone();
            let handle = queue.spawn(move || inner.add());
            let inner = count.clone();
            queue.spawn_detached(move || inner.add()).unwrap();
            let inner = count.clone();
            let future = queue.spawn_async(async move { inner.add() });
            assert_eq!(queue.report().nr_free, Some(0));
            assert!(queue.task().try_reserve().is_none());
            queue.resume();
            handle.join().unwrap();
            future.join().unwrap();
            queue.flush().unwrap();
            assert_eq!(queue.report().nr_free, Some(3));
        }
        assert_eq!(count.get(), 300);
    });
}

#[test]
fn a_reusable_item_gives_its_place_back_at_each_start_and_cancel() {
    let queue = paused(1);
    let count = Count::default();
    let inner = count.clone();
    let work = Work::new(move || inner.add());
    let other = Work::new(|| ());
    for _ in 0..10 {
        assert_eq!(queue.try_enqueue(&work), Ok(true));
        assert_eq!(queue.try_enqueue(&work), Ok(false), "it is pending");
        let full = queue.try_enqueue(&other);
        assert!(full.is_err_and(|error| error.is_full()));
        assert!(work.cancel());
        assert_eq!(queue.report().nr_free, Some(1));
        // Its tombstone is still in the list.
        assert_eq!(queue.try_enqueue(&work), Ok(true));
        assert_eq!(queue.report().nr_free, Some(0));
        queue.resume();
        work.flush().unwrap();
        queue.pause();
        assert_eq!(queue.report().nr_free, Some(1));
    }
    work.disable();
    assert_eq!(queue.try_enqueue(&work), Ok(false), "disabled");
    assert_eq!(queue.report().nr_free, Some(1));
    assert_eq!(count.get(), 10);
    queue.resume();
}

#[test]
fn a_place_moves_with_an_item_from_queue_to_queue() {
    let (one, other) = (paused(1), paused(1));
    let work = Work::new(|| ());
    for _ in 0..10 {
        assert_eq!(one.try_enqueue(&work), Ok(true));
        assert_eq!(
            (one.report().nr_free, other.report().nr_free),
            (Some(0), Some(1))
        );
        work.cancel();
        assert_eq!(other.try_enqueue(&work), Ok(true));
        assert_eq!(
            (one.report().nr_free, other.report().nr_free),
            (Some(1), Some(0))
        );
        work.cancel();
    }
    one.resume();
    other.resume();
}

#[test]
fn a_cancelled_future_frees_its_capacity_at_once() {
    ends(|| {
        let queue = alone_on_two(queue("cancelled").capacity(1));
        queue.pause();
        for _ in 0..10 {
            let mut handle = queue.spawn_async(async {});
            assert_eq!(queue.report().nr_free, Some(0));
            assert!(handle.cancel() && !handle.cancel());
            assert_eq!(queue.report().nr_free, Some(1), "once");
            assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        }
        let mut canceller = afterwork::workqueue::CancelHandle::default();
        let _handle = queue.task().cancel_handle(&mut canceller).spawn(|| ());
        assert_eq!(queue.report().nr_free, Some(0));
        assert!(canceller.cancel() && !canceller.cancel());
        assert_eq!(queue.report().nr_free, Some(1), "once");
        drop(queue.spawn_async(async {}).cancel_on_drop());
        assert_eq!(queue.report().nr_free, Some(1));
        let mut set = TaskSet::new(&queue);
        set.spawn_async(async {});
        set.cancel_all();
        assert_eq!(queue.report().nr_free, Some(1));
        // A waiting thread gets the permit that a cancelled future releases.
        let mut full = queue.spawn_async(async {});
        let waiter = thread::spawn({
            let queue = queue.clone();
            move || {
                queue
                    .task()
                    .wait_for_capacity()
                    .try_spawn(|| 7)
                    .ok()
                    .unwrap()
            }
        });
        assert!(full.cancel());
        let waiter = waiter.join().unwrap();
        assert_eq!(queue.report().nr_free, Some(0));
        queue.resume();
        assert_eq!(waiter.join().unwrap(), 7);
        // A future that was polled holds no capacity.
        queue.flush().unwrap();
        let mut polled = queue.spawn_async(std::future::pending::<()>());
        eventually("it is polled", || queue.report().nr_free == Some(1));
        assert!(polled.cancel());
        assert_eq!(queue.report().nr_free, Some(1));
        assert_eq!(set.results().count(), 1);
    });
}

#[test]
fn a_cancelled_closure_gives_its_place_back() {
    for ordered in [false, true] {
        let builder = queue("cancelled").capacity(1);
        let queue = alone_on_two(if ordered { builder.ordered() } else { builder });
        queue.pause();
        for _ in 0..200 {
            let mut handle = queue.try_spawn(|| ()).unwrap();
            assert!(handle.cancel());
            assert_eq!(queue.report().nr_free, Some(1));
        }
        let dropped = queue.try_spawn(|| ()).unwrap().cancel_on_drop();
        assert_eq!(queue.report().nr_free, Some(0));
        drop(dropped);
        assert_eq!(queue.report().nr_free, Some(1));
        queue.resume();
    }
}

#[test]
fn a_joiner_that_helps_makes_room() {
    let queue = alone_on_two(queue("help").capacity(1).help(true));
    for _ in 0..100 {
        queue.try_spawn(|| ()).unwrap().join().unwrap();
        assert_eq!(queue.report().nr_free, Some(1));
    }
}

#[test]
fn what_is_queued_beside_the_capacity_is_never_refused() {
    let queue = paused(1);
    queue.spawn_detached(|| ()).unwrap();
    let count = Count::default();
    let works: Vec<_> = (0..5)
        .map(|_| {
            let inner = count.clone();
            Work::new(move || inner.add())
        })
        .collect();
    assert!(queue.enqueue(&works[0]));
    assert_eq!(queue.enqueue_all(&works[1..]), 4);
    assert_eq!(
        (queue.report().nr_free, queue.stats().nr_inactive),
        (Some(0), 6)
    );
    queue.resume();
    queue.flush().unwrap();
    assert_eq!(
        (
            count.get(),
            queue.report().nr_free,
            queue.stats().nr_inactive
        ),
        (5, Some(1), 0)
    );
    let mut parts = [0; 8];
    queue.pause();
    queue.spawn_detached(|| ()).unwrap();
    queue.scope(|scope| {
        for part in &mut parts {
            scope.spawn(move || *part = 1);
        }
        queue.resume();
    });
    assert_eq!(parts, [1; 8]);
}

#[test]
fn who_waits_gets_room_in_the_order_of_coming() {
    ends(|| {
        let queue = paused(1);
        queue.spawn_detached(|| ()).unwrap();
        let wakes: Vec<_> = (0..4).map(|_| Arc::new(WakeFlag::default())).collect();
        let mut waits: Vec<_> = wakes.iter().map(|_| queue.task().reserve()).collect();
        for (wait, waker) in waits.iter_mut().zip(&wakes) {
            assert!(poll(wait, waker).is_none());
        }
        queue.resume();
        eventually("the item starts", || wakes[0].rings() == 1);
        // A permit skips a waiter that left, and is passed on by one that leaves with it.
        drop(waits.remove(1));
        assert!(queue.task().try_reserve().is_none(), "nobody overtakes");
        drop(waits.remove(0));
        eventually("the next one is woken", || wakes[2].rings() == 1);
        assert_eq!((wakes[1].rings(), wakes[3].rings()), (0, 0));
        let permit = poll(&mut waits[0], &wakes[2]).expect("it has been granted room");
        assert_eq!(queue.report().nr_free, Some(0));
        drop(permit);
        eventually("the last one is woken", || wakes[3].rings() == 1);
        let permit = poll(&mut waits[1], &wakes[3]).unwrap();
        assert_eq!(permit.spawn(|| 3).join().unwrap(), 3);
        drop(waits);
        assert_eq!(queue.report().nr_free, Some(1));
    });
}

#[test]
fn threads_that_wait_for_room_all_get_it() {
    ends(|| {
        let queue = alone_on_two(queue("crowd").capacity(2));
        let count = Count::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let inner = count.clone();
                        drop(
                            queue
                                .task()
                                .wait_for_capacity()
                                .try_spawn(move || inner.add())
                                .unwrap(),
                        );
                    }
                });
            }
        });
        queue.drain().unwrap();
        assert_eq!((count.get(), queue.report().nr_free), (2000, Some(2)));
    });
}

#[test]
fn a_wait_for_room_ends_with_its_time() {
    let queue = paused(1);
    queue.spawn_detached(|| ()).unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        let waits = queue.task().wait_for_room_until(Instant::now() + timeout);
        let full = waits.try_spawn(|| 7).unwrap_err();
        assert_eq!(full.into_inner()(), 7);
    }
    queue.resume();
    let late = queue.task().wait_for_room_until(Instant::now() + PATIENCE);
    let late = late.try_spawn(|| 7).unwrap();
    assert_eq!(late.join().unwrap(), 7);
    queue.flush().unwrap();
    assert_eq!(queue.report().nr_free, Some(1));
}

#[test]
fn an_item_does_not_wait_for_room_in_its_own_queue() {
    ends(|| {
        let queue = alone_on_two(queue("own").capacity(1).max_active(1));
        let inner = queue.clone();
        let outcome = queue.spawn(move || {
            let first = inner.task().wait_for_capacity().try_spawn(|| ()).is_ok();
            let second = inner.task().wait_for_capacity().try_spawn(|| ());
            (first, second.is_err_and(|error| error.is_full()))
        });
        assert_eq!(outcome.join().unwrap(), (true, true));
    });
}

#[test]
fn a_task_of_a_full_queue_may_wait_for_its_room() {
    ends(|| {
        let queue = alone_on_two(queue("task").capacity(1).max_active(1));
        let inner = queue.clone();
        let task = queue.spawn_async(async move {
            let mut handles = Vec::new();
            for part in 0..50 {
                handles.push(inner.task().reserve().await.spawn(move || part));
            }
            let mut sum = 0;
            for handle in handles {
                sum += handle.await.unwrap();
            }
            sum
        });
        assert_eq!(task.join().unwrap(), 49 * 50 / 2);
    });
}

#[test]
fn a_permit_queues_all_kinds_and_gives_back_what_it_does_not_use() {
    let queue = alone_on_two(queue("permits").capacity(1));
    drop(queue.task().try_reserve().unwrap());
    let permit = queue.task().try_reserve().unwrap();
    assert_eq!(permit.spawn(|| 1).join().unwrap(), 1);
    eventually("it has started", || queue.report().nr_free == Some(1));
    let future = queue.task().try_reserve().unwrap().spawn_async(async { 2 });
    assert_eq!(future.join().unwrap(), 2);
    let work = Work::new(|| ());
    let permit = queue.task().try_reserve().unwrap();
    assert_eq!(permit.try_enqueue(&work), Ok(true));
    work.flush().unwrap();
    work.disable();
    assert!(!queue.task().try_reserve().unwrap().enqueue(&work));
    assert_eq!(queue.report().nr_free, Some(1));
    let permit = queue.task().try_reserve().unwrap();
    queue.destroy().unwrap();
    assert!(permit.try_spawn(|| ()).is_err_and(|error| !error.is_full()));
    assert_eq!(queue.report().nr_free, Some(1));
}

#[test]
fn a_queue_without_a_capacity_always_has_room() {
    let queue = alone_on_two(queue("open"));
    assert_eq!(
        queue
            .task()
            .wait_for_capacity()
            .try_spawn(|| 1)
            .unwrap()
            .join()
            .unwrap(),
        1
    );
    assert_eq!(queue.try_enqueue(&Work::new(|| ())), Ok(true));
    assert!(poll(&mut queue.task().reserve(), &Arc::default()).is_some());
    assert!(queue.task().try_reserve().is_some());
}

#[test]
fn a_drain_takes_room_as_it_is_and_refuses_who_waits() {
    ends(|| {
        let queue = paused(1);
        let (go, may_go) = mpsc::channel::<()>();
        let inner = queue.clone();
        queue
            .spawn_detached(move || {
                may_go.recv().unwrap();
                // Items that the queue's own items queue have the same bound.
                drop(inner.try_spawn(|| ()).unwrap());
                assert!(inner.try_spawn(|| ()).unwrap_err().is_full());
            })
            .unwrap();
        let waiter = {
            let queue = queue.clone();
            thread::spawn(move || queue.task().wait_for_capacity().try_spawn(|| ()).map(drop))
        };
        let mut task = pin!(queue.task().reserve());
        let waker = Arc::new(WakeFlag::default());
        assert!(poll(&mut task, &waker).is_none());
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain().unwrap())
        };
        eventually("the drain has begun", || {
            queue.try_spawn(|| ()).is_err_and(|error| !error.is_full())
        });
        queue.resume();
        // The first waiter gets the permit of the started item, and releases it to the second.
        let mut is_notified = false;
        eventually("the task and the thread are told", || {
            if !is_notified && let Some(permit) = poll(&mut task, &waker) {
                is_notified = permit.try_spawn(|| ()).is_err_and(|error| !error.is_full());
            }
            is_notified && waiter.is_finished()
        });
        go.send(()).unwrap();
        assert!(waiter.join().unwrap().is_err_and(|error| !error.is_full()));
        drainer.join().unwrap();
    });
}

#[test]
fn what_waits_is_told_of_a_queue_without_a_limit() {
    let queue = alone_on_two(queue("waits"));
    queue.pause();
    assert_eq!(queue.stats().nr_inactive, 0);
    let handles: Vec<_> = (0..50).map(|_| queue.spawn(|| ())).collect();
    assert_eq!(queue.stats().nr_inactive, 50);
    let mut rest = handles.into_iter();
    assert!(rest.next().unwrap().cancel());
    assert_eq!(queue.stats().nr_inactive, 49);
    queue.resume();
    rest.for_each(|handle| handle.join().unwrap());
    queue.drain().unwrap();
    assert_eq!(queue.stats().nr_inactive, 0);
}

#[test]
fn a_refusal_becomes_an_io_error() {
    fn kind<F>(error: TrySpawnError<F>) -> io::ErrorKind {
        io::Error::from(error).kind()
    }
    let queue = paused(1);
    let item = queue.spawn(|| ());
    let full = queue.try_spawn(|| ()).unwrap_err();
    assert_eq!(format!("{full:?}"), "TrySpawnError { is_full: true, .. }");
    assert_eq!(kind(full), io::ErrorKind::WouldBlock);
    // The error may be shared even if the closure may not.
    let not_sync = std::cell::Cell::new(1);
    let full = queue.try_spawn(move || not_sync.get()).unwrap_err();
    let full: Box<dyn std::error::Error + Send + Sync> = full.into();
    assert_eq!(full.to_string(), "the workqueue is full");
    queue.destroy().unwrap();
    item.join().unwrap();
    assert_eq!(
        kind(queue.try_spawn(|| ()).unwrap_err()),
        io::ErrorKind::BrokenPipe
    );
}

#[test]
fn a_waker_that_panics_spares_who_makes_room() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let queue = paused(1);
    let mut handle = queue.spawn(|| ());
    let mut reserve = queue.task().reserve();
    let waker = Waker::from(Arc::new(Panics));
    let polled = Pin::new(&mut reserve).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert!(handle.cancel());
    let permit = poll(&mut reserve, &Arc::default()).expect("granted");
    drop(permit);
    queue.resume();
}

/// A task that is polled by its waker, on the thread that wakes it.
struct OnTheSpot(Mutex<Option<Task>>);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OnTheSpot {
    /// Polls `task`, now and at each wake-up.
    fn begin(task: impl Future<Output = ()> + Send + 'static) {
        Arc::new(Self(Mutex::new(Some(Box::pin(task))))).wake();
    }
}

impl Wake for OnTheSpot {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut task = self.0.lock().unwrap();
        let poll = |it: &mut Task| it.as_mut().poll(&mut Context::from_waker(&waker));
        if task.as_mut().is_some_and(|it| poll(it).is_ready()) {
            *task = None;
        }
    }
}

/// Returns a full, paused queue, its item, and a receiver. A task in the wait queue sends to it
/// after dropping its handle of the queue.
fn full_with_a_task_that_lets_go() -> (Workqueue, JoinHandle<u32>, mpsc::Receiver<()>) {
    let queue = paused(1);
    let item = queue.try_spawn(|| 7).unwrap();
    let (send, gone) = mpsc::channel();
    let theirs = queue.clone();
    OnTheSpot::begin(async move {
        drop(theirs.task().reserve().await);
        drop(theirs);
        send.send(()).unwrap();
    });
    (queue, item, gone)
}

#[test]
fn a_waker_that_is_told_of_room_may_drop_the_last_handle() {
    ends(|| {
        let (queue, item, gone) = full_with_a_task_that_lets_go();
        // Here the item starts. The task is notified before this handle is dropped.
        let resumed = queue.clone();
        drop(queue);
        resumed.resume();
        resumed.close_in_background();
        gone.recv().unwrap();
        assert_eq!(item.join().unwrap(), 7);
    });
    ends(|| {
        let (queue, mut item, gone) = full_with_a_task_that_lets_go();
        drop(queue);
        assert!(item.cancel());
        gone.recv().unwrap();
    });
    ends(|| {
        let (queue, item, gone) = full_with_a_task_that_lets_go();
        queue.shutdown_background();
        gone.recv().unwrap();
        assert!(matches!(item.join(), Err(JoinError::Cancelled)));
    });
}

#[test]
fn a_waker_that_is_told_of_room_may_queue_the_very_item_again() {
    ends(|| {
        let queue = paused(1);
        let work = Work::new(|| ());
        assert_eq!(queue.try_enqueue(&work), Ok(true));
        let (theirs, again) = (queue.clone(), work.clone());
        OnTheSpot::begin(async move {
            let permit = theirs.task().reserve().await;
            assert!(!again.cancel());
            assert!(permit.enqueue(&again));
        });
        assert!(work.cancel());
        eventually("it is queued again", || work.is_pending());
        assert_eq!(queue.cancel_all(), 1);
    });
}

/// A task that drops its future when it is woken, like a task of an executor that has ended.
struct Orphan(Mutex<Option<Task>>);

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {
        let task = self.0.lock().unwrap().take();
        drop(task);
    }
}

/// Returns a full, paused queue, its item, and `nr_orphans` waiting tasks that end when woken.
fn full_with_orphans(nr_orphans: usize) -> (&'static Workqueue, JoinHandle<u32>, Vec<Arc<Orphan>>) {
    let queue: &'static Workqueue = Box::leak(Box::new(paused(1)));
    let item = queue.try_spawn(|| 7).unwrap();
    let orphan = |_| {
        let orphan = Arc::new(Orphan(Mutex::default()));
        let mut task: Task = Box::pin(async { drop(queue.task().reserve().await) });
        let waker = Waker::from(orphan.clone());
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        *orphan.0.lock().unwrap() = Some(task);
        orphan
    };
    let orphans = (0..nr_orphans).map(orphan).collect();
    (queue, item, orphans)
}

#[test]
fn a_place_goes_along_a_line_of_tasks_that_go_as_they_are_woken() {
    ends(|| {
        // More than a stack has space for: the permit must not be passed on recursively.
        let (queue, item, orphans) = full_with_orphans(20_000);
        drop(item.cancel_on_drop());
        let has_gone = |it: &Arc<Orphan>| it.0.lock().unwrap().is_none();
        eventually("the last one goes", || has_gone(&orphans[19_999]));
        assert!(orphans.iter().all(has_gone));
        eventually("its room is free", || queue.report().nr_free == Some(1));
        queue.resume();
    });
}

#[test]
fn who_came_last_leaves_the_line_as_soon_as_who_came_first() {
    ends(|| {
        // This took minutes when each waiter that left walked past all earlier waiters.
        let (queue, item, orphans) = full_with_orphans(100_000);
        orphans.iter().rev().for_each(|it| it.clone().wake());
        assert_eq!(queue.report().nr_free, Some(0));
        queue.resume();
        assert_eq!(item.join().unwrap(), 7);
    });
}

/// A task whose waker releases a permit and then waits for the thread that gets it.
struct Impatient {
    gives: Mutex<Option<TaskOptions<'static>>>,
    waits: Mutex<mpsc::Receiver<()>>,
    notifier: mpsc::Sender<bool>,
}

impl Wake for Impatient {
    fn wake(self: Arc<Self>) {
        drop(self.gives.lock().unwrap().take());
        let came = self.waits.lock().unwrap().recv_timeout(PATIENCE);
        self.notifier.send(came.is_ok()).unwrap();
    }
}

#[test]
fn a_waker_that_is_told_of_room_may_wait_for_a_thread_that_gets_some_by_it() {
    ends(|| {
        let queue: &'static Workqueue = Box::leak(Box::new(paused(2)));
        let [first, second] = [(); 2].map(|()| queue.task().try_reserve().unwrap());
        let ((came, waits), (notifier, is_notified)) = (mpsc::channel(), mpsc::channel());
        let waker = Waker::from(Arc::new(Impatient {
            gives: Mutex::new(Some(second)),
            waits: Mutex::new(waits),
            notifier,
        }));
        let mut task = pin!(queue.task().reserve());
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let waits = thread::spawn(move || {
            drop(queue.task().wait_for_capacity().try_spawn(|| ()).unwrap());
            came.send(()).unwrap();
        });
        // By then the thread is in the wait queue. If it is late, it finds a free permit.
        thread::sleep(Duration::from_millis(50));
        drop(first);
        assert!(is_notified.recv().unwrap(), "the thread was not woken");
        waits.join().unwrap();
        queue.resume();
    });
}

/// Waits for a permit of `queue` as a task whose waker calls `on_wake`. The task stays in the wait
/// queue until the result is dropped.
fn in_line(queue: &'static Workqueue, on_wake: impl FnOnce() + Send + 'static) -> Reserve<'static> {
    struct Once(Mutex<Option<Box<dyn FnOnce() + Send>>>);
    impl Wake for Once {
        fn wake(self: Arc<Self>) {
            let on_wake = self.0.lock().unwrap().take();
            on_wake.expect("woken once")();
        }
    }
    let waker = Waker::from(Arc::new(Once(Mutex::new(Some(Box::new(on_wake))))));
    let mut reserve = queue.task().reserve();
    let polled = Pin::new(&mut reserve).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    reserve
}

#[test]
fn a_waker_that_gets_room_may_wait_for_the_next_one() {
    ends(|| {
        let queue: &'static Workqueue = Box::leak(Box::new(paused(2)));
        let [first, second] = [(); 2].map(|()| queue.task().try_reserve().unwrap());
        let ((woken, waits), (send, receive)) = (mpsc::channel(), mpsc::channel());
        // The first waker releases the permit that lets the second one in, on the same thread.
        let one = in_line(queue, move || {
            drop(second);
            send.send(waits.recv_timeout(PATIENCE)).unwrap();
        });
        let other = in_line(queue, move || woken.send(()).unwrap());
        drop(first);
        assert_eq!(receive.recv().unwrap(), Ok(()), "hangs");
        drop((one, other));
    });
}

#[test]
fn a_waker_that_gets_room_may_wait_for_the_item_that_released_it() {
    ends(|| {
        let queue: &'static Workqueue = Box::leak(Box::new(paused(1)));
        let ((run, runs), (send, receive)) = (mpsc::channel(), mpsc::channel());
        drop(queue.try_spawn(move || run.send(()).unwrap()).unwrap());
        let task = in_line(queue, move || {
            send.send(runs.recv_timeout(PATIENCE)).unwrap();
        });
        queue.resume();
        assert_eq!(receive.recv().unwrap(), Ok(()), "hangs");
        drop(task);
    });
}

#[test]
fn wakers_that_get_room_by_a_bulk_cancel_may_wait_for_each_other() {
    ends(|| {
        let queue: &'static Workqueue = Box::leak(Box::new(paused(2)));
        let handles = [(); 2].map(|()| queue.try_spawn(|| ()).unwrap());
        let ((woken, waits), (send, receive)) = (mpsc::channel(), mpsc::channel());
        let one = in_line(queue, move || {
            send.send(waits.recv_timeout(PATIENCE)).unwrap();
        });
        let other = in_line(queue, move || woken.send(()).unwrap());
        assert_eq!(queue.cancel_all(), 2);
        assert_eq!(receive.recv().unwrap(), Ok(()), "hangs");
        drop((one, other, handles));
        queue.resume();
    });
}
