//! Queues with a capacity: calls that are rejected, calls that wait, and the release of permits.

use crate::support::*;

fn paused(capacity: usize) -> Workqueue {
    queue("full").capacity(capacity).paused()
}

/// Builds a paused queue with the given capacity that lives as long as the process.
fn leaked(capacity: usize) -> &'static Workqueue {
    Box::leak(Box::new(paused(capacity)))
}

#[test]
fn a_capacity_is_checked_when_the_queue_is_built() {
    let registry = registry("2 core");
    for wrong in [0, MAX_CAPACITY + 1, usize::MAX] {
        let refused = queue("wrong").capacity(wrong).build_in(&registry);
        let error = refused.unwrap_err();
        assert!(matches!(error, BuildError::Capacity(it) if it == wrong));
        assert!(error.to_string().contains("capacity"));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
    let sizes = |queue: Workqueue| (queue.report().capacity, free(&queue));
    let largest = queue("largest").capacity(MAX_CAPACITY).on(&registry);
    assert_eq!(sizes(largest), (Some(MAX_CAPACITY), Some(MAX_CAPACITY)));
    assert_eq!(sizes(queue("open").on(&registry)), (None, None));
    // A queue without a capacity grants every permit.
    let queue = self::queue("open").alone();
    assert_eq!(queue.task().wait_for_capacity().try_spawn(|| 1).unwrap().join().unwrap(), 1);
    assert_eq!(queue.try_enqueue(&Work::new(|| ())), Ok(true));
    assert!(poll(&mut queue.task().reserve(), Waker::noop()).is_some());
    assert!(queue.task().try_reserve().is_some());
}

#[test]
fn full_queue_returns_the_work() {
    let (queue, lives) = (paused(2), Census::default());
    let first = queue.try_spawn(|| 1).unwrap();
    let second = queue.try_spawn(|| 2).unwrap();
    let full = queue.try_spawn(lives.closure()).unwrap_err();
    assert!(full.is_full());
    assert_eq!(full.to_string(), "the workqueue is full");
    assert_eq!(lives.alive(), 1);
    full.into_inner()();
    lives.all_dropped(1);
    assert_eq!((free(&queue), waiting(&queue)), (Some(0), 2));
    assert_eq!(queue.stats().refused, 1);
    queue.resume();
    assert_eq!((first.join().unwrap(), second.join().unwrap()), (1, 2));
    assert_eq!(free(&queue), Some(2));
    // Each kind of work is returned. The error may be shared even if the closure may not.
    queue.pause();
    assert_eq!(queue.task().spawn_detached_all([|| (), || ()]), 2);
    let future = queue.task().try_spawn_async(async { 2 }).unwrap_err();
    assert!(future.is_full());
    let future = future.into_inner();
    queue.spawn_detached(|| ()).unwrap_err().into_inner()();
    let mut cancel = CancelHandle::default();
    let options = queue.task().deadline(Instant::now() + HOUR).cancel_handle(&mut cancel);
    assert_eq!(options.try_spawn(|| 3).unwrap_err().into_inner()(), 3);
    assert!(cancel.is_finished(), "it has no item");
    let not_sync = std::cell::Cell::new(1);
    let full = queue.try_spawn(move || not_sync.get()).unwrap_err();
    assert_eq!(format!("{full:?}"), "TrySpawnError { reason: Full, .. }");
    let _: Box<dyn std::error::Error + Send + Sync> = full.into();
    queue.resume();
    assert_eq!(queue.task().wait_for_capacity().spawn_async(future).join().unwrap(), 2);
}

#[test]
fn spawning_on_a_full_queue_drops_the_work_with_an_error() {
    let (queue, lives) = (paused(1), Census::default());
    let first = queue.spawn(|| 1);
    let [joined, detached, future] = [(); 3].map(|()| lives.life());
    assert!(is_refused(queue.spawn(move || drop(joined)).join()));
    assert!(queue.spawn_detached(move || drop(detached)).is_err());
    assert!(is_refused(queue.spawn_async(async move { drop(future) }).join()));
    lives.all_dropped(3);
    assert_eq!(queue.stats().refused, 3);
    queue.resume();
    assert_eq!(first.join().unwrap(), 1);
}

#[test]
fn each_kind_of_item_releases_its_permit_when_it_starts() {
    let queue = queue("kinds").capacity(3).max_active(1).help(false).alone();
    let count = Count::default();
    for _ in 0..100 {
        queue.pause();
        let handle = queue.spawn(count.adder());
        queue.detach(count.adder());
        let future = queue.spawn_async(async move { count.add() });
        assert_eq!(free(&queue), Some(0));
        assert!(queue.task().try_reserve().is_none());
        queue.resume();
        handle.join().unwrap();
        future.join().unwrap();
        queue.flush().unwrap();
        assert_eq!(free(&queue), Some(3));
    }
    assert_eq!(count.get(), 300);
}

#[test]
fn a_reusable_item_releases_its_permit_at_start_and_cancel() {
    let queue = paused(1);
    let ((work, count), other) = (counted(), Work::new(|| ()));
    for _ in 0..10 {
        assert_eq!(queue.try_enqueue(&work), Ok(true));
        assert_eq!(queue.try_enqueue(&work), Ok(false), "it is pending");
        assert!(queue.try_enqueue(&other).is_err_and(|error| error.is_full()));
        assert!(work.cancel());
        assert_eq!(free(&queue), Some(1));
        // The tombstone of the item is still in the list.
        assert_eq!(queue.try_enqueue(&work), Ok(true));
        assert_eq!(free(&queue), Some(0));
        queue.resume();
        work.flush().unwrap();
        queue.pause();
        assert_eq!(free(&queue), Some(1));
    }
    work.disable();
    assert!(queue.try_enqueue(&work).unwrap_err().is_disabled());
    assert_eq!(free(&queue), Some(1));
    assert_eq!(count.get(), 10);
    // A permit moves with an item from queue to queue.
    let (one, other) = (paused(1), paused(1));
    let work = Work::new(|| ());
    for _ in 0..10 {
        for (to, from) in [(&one, &other), (&other, &one)] {
            assert_eq!(to.try_enqueue(&work), Ok(true));
            assert_eq!((free(to), free(from)), (Some(0), Some(1)));
            work.cancel();
        }
    }
    one.resume();
    other.resume();
}

#[test]
fn an_item_that_is_cancelled_or_helped_releases_its_permit_once() {
    let spawns: [fn(TaskOptions<'_>) -> JoinHandle<()>; 2] =
        [|task| task.spawn(|| ()), |task| task.spawn_async(async {})];
    for spawn in spawns {
        for builder in [queue("cancelled"), queue("cancelled").ordered()] {
            let queue = builder.capacity(1).paused();
            for _ in 0..100 {
                let mut handle = spawn(queue.task());
                assert_eq!(free(&queue), Some(0));
                assert!(handle.cancel() && !handle.cancel());
                assert_eq!(free(&queue), Some(1));
                assert!(is_cancelled(handle.join()));
            }
            drop(spawn(queue.task()).cancel_on_drop());
            assert_eq!(free(&queue), Some(1));
            let (_handle, canceller) = cancellable(&queue, spawn);
            assert!(canceller.cancel() && !canceller.cancel());
            assert_eq!(free(&queue), Some(1));
            let mut set = TaskSet::new(&queue);
            set.add(spawn(queue.task()));
            set.cancel_all();
            assert_eq!(free(&queue), Some(1));
            // A waiting thread gets the permit that a cancelled item releases.
            let mut full = spawn(queue.task());
            let waits = beside(&queue, |queue| queue.task().wait_for_capacity().try_spawn(|| 7));
            assert!(full.cancel());
            let waiter = waits.join().unwrap().ok().unwrap();
            assert_eq!(free(&queue), Some(0));
            queue.resume();
            assert_eq!(waiter.join().unwrap(), 7);
            assert_eq!(set.results().count(), 1);
        }
    }
    let queue = queue("help").capacity(1).help(true).alone();
    for _ in 0..100 {
        queue.try_spawn(|| ()).unwrap().join().unwrap();
        assert_eq!(free(&queue), Some(1));
    }
    // A future that was polled holds no permit.
    let mut polled = pending_in(&queue);
    wait_until(|| free(&queue) == Some(1));
    assert!(polled.cancel());
    assert_eq!(free(&queue), Some(1));
}

#[test]
fn items_outside_the_capacity_are_never_rejected() {
    let queue = paused(1);
    queue.detach(|| ());
    let count = Count::default();
    let works: Vec<_> = (0..5).map(|_| counting(count)).collect();
    assert!(queue.enqueue(&works[0]));
    assert_eq!(queue.task().enqueue_all(&works[1..]), 4);
    assert_eq!((free(&queue), waiting(&queue)), (Some(0), 6));
    queue.resume();
    queue.flush().unwrap();
    assert_eq!((count.get(), free(&queue), waiting(&queue)), (5, Some(1), 0));
    let mut parts = [0; 8];
    queue.pause();
    queue.detach(|| ());
    queue.scope(|scope| {
        parts.iter_mut().for_each(|part| scope.spawn(move || *part = 1));
        queue.resume();
    });
    assert_eq!(parts, [1; 8]);
}

#[test]
fn waiters_get_permits_in_the_order_of_arrival() {
    let queue = paused(1);
    queue.detach(|| ());
    let wakes: Vec<_> = (0..4).map(|_| counting_waker()).collect();
    let rings = |i: usize| wakes[i].1.get();
    let wait = |(waker, _): &(Waker, Count)| polled(queue.task().reserve(), waker);
    let mut waits: Vec<_> = wakes.iter().map(wait).collect();
    queue.resume();
    wait_until(|| rings(0) == 1);
    // A permit skips a waiter that has left. A waiter that leaves with a permit passes it on.
    drop(waits.remove(1));
    assert!(queue.task().try_reserve().is_none(), "no other caller overtakes");
    drop(waits.remove(0));
    wait_until(|| rings(2) == 1);
    assert_eq!([1, 3].map(rings), [0, 0]);
    let permit = poll(&mut waits[0], &wakes[2].0).expect("it has a permit");
    assert_eq!(free(&queue), Some(0));
    drop(permit);
    wait_until(|| rings(3) == 1);
    assert_eq!(poll(&mut waits[1], &wakes[3].0).unwrap().spawn(|| 3).join().unwrap(), 3);
    drop(waits);
    assert_eq!(free(&queue), Some(1));
    // A wait ends with its timeout.
    let queue = paused(1);
    queue.detach(|| ());
    let spawn = |timeout| {
        let waits = queue.task().wait_for_capacity_until(Instant::now() + timeout);
        waits.try_spawn(|| 7)
    };
    for timeout in [Duration::ZERO, MS] {
        assert_eq!(spawn(timeout).unwrap_err().into_inner()(), 7);
    }
    queue.resume();
    assert_eq!(spawn(PATIENCE).unwrap().join().unwrap(), 7);
    queue.flush().unwrap();
    assert_eq!(free(&queue), Some(1));
}

#[test]
fn an_item_does_not_wait_for_a_permit_of_its_own_queue() {
    let queue = queue("own").capacity(1).max_active(1).alone();
    let outcome = queue.spawn_own(|own| {
        let first = own.task().wait_for_capacity().try_spawn(|| ()).is_ok();
        (first, is_full(own.task().wait_for_capacity().try_spawn(|| ())))
    });
    assert_eq!(outcome.join().unwrap(), (true, true));
    // A task may wait.
    queue.flush().unwrap();
    let own = queue.clone();
    let task = queue.spawn_async(async move {
        let mut handles = Vec::new();
        for part in 0..50 {
            handles.push(own.task().reserve().await.spawn(move || part));
        }
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.unwrap();
        }
        sum
    });
    assert_eq!(task.join().unwrap(), 49 * 50 / 2);
}

#[test]
fn a_permit_queues_every_kind_and_is_released_if_unused() {
    let queue = queue("permits").capacity(1).alone();
    let reserve = || queue.task().try_reserve().unwrap();
    drop(reserve());
    // Options that hold the only permit need no other one.
    let again = reserve().try_reserve().unwrap();
    let again = poll(&mut again.reserve(), Waker::noop()).unwrap();
    assert!(queue.task().try_reserve().is_none());
    drop(again);
    assert_eq!(reserve().spawn(|| 1).join().unwrap(), 1);
    wait_until(|| free(&queue) == Some(1));
    assert_eq!(reserve().spawn_async(async { 2 }).join().unwrap(), 2);
    let work = Work::new(|| ());
    assert!(reserve().enqueue(&work));
    work.flush().unwrap();
    work.disable();
    assert!(!reserve().enqueue(&work));
    assert_eq!(free(&queue), Some(1));
    let permit = reserve();
    queue.shutdown(Duration::MAX).unwrap();
    assert!(is_closed(permit.try_spawn(|| ())));
    assert_eq!(free(&queue), Some(1));
}

#[test]
fn drain_keeps_the_capacity_and_rejects_waiters() {
    let queue = paused(1);
    let (go, may_go) = mpsc::channel::<()>();
    let item = queue.spawn_own(move |own| {
        may_go.recv().unwrap();
        // The same bound applies to items that are queued by the queue's own items.
        drop(own.try_spawn(|| ()).unwrap());
        assert!(own.try_spawn(|| ()).unwrap_err().is_full());
    });
    let waiter = beside(&queue, |it| it.task().wait_for_capacity().try_spawn(|| ()).map(drop));
    let mut task = polled(queue.task().reserve(), Waker::noop());
    let drainer = drain_begun(&queue);
    queue.resume();
    // The first waiter gets the permit of the started item, and releases it to the second.
    let mut is_refused = false;
    wait_until(|| {
        if !is_refused && let Some(permit) = poll(&mut task, Waker::noop()) {
            is_refused = is_closed(permit.try_spawn(|| ()));
        }
        is_refused && waiter.is_finished()
    });
    go.send(()).unwrap();
    item.join().unwrap();
    assert!(is_closed(waiter.join().unwrap()));
    drainer.join().unwrap();
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The future of a task, until the task is woken.
type Held = Arc<Mutex<Option<Task>>>;

/// Polls `task`, which then waits. The thread that wakes the task passes its future to `act`.
fn held(task: Task, act: fn(Task)) -> Held {
    let held = Held::default();
    let woken = held.clone();
    let task = polled(task, &waker(move || end(&woken, act)));
    *held.lock().unwrap() = Some(task);
    held
}

fn end(held: &Held, act: fn(Task)) {
    let task = held.lock().unwrap().take();
    task.into_iter().for_each(act);
}

fn complete(mut task: Task) {
    assert!(poll_with(&mut task, Waker::noop()).is_ready());
}

/// Returns a full, paused queue, its item, and a receiver. A task in the wait queue sends to it
/// after dropping its handle to the queue.
fn full_with_a_task_that_drops_its_wait() -> (Workqueue, JoinHandle<u32>, Receiver<()>) {
    let queue = paused(1);
    let item = queue.try_spawn(|| 7).unwrap();
    let (send, gone) = mpsc::channel();
    let theirs = queue.clone();
    let task = async move {
        drop(theirs.task().reserve().await);
        drop(theirs);
        send.send(()).unwrap();
    };
    held(Box::pin(task), complete);
    (queue, item, gone)
}

#[test]
fn the_waker_of_a_permit_may_drop_the_last_handle() {
    let (queue, item, gone) = full_with_a_task_that_drops_its_wait();
    // `resume` starts the item. The task is notified before this handle is dropped.
    let resumed = queue.clone();
    drop(queue);
    resumed.resume();
    resumed.close_in_background();
    gone.recv().unwrap();
    assert_eq!(item.join().unwrap(), 7);

    let (queue, mut item, gone) = full_with_a_task_that_drops_its_wait();
    drop(queue);
    assert!(item.cancel());
    gone.recv().unwrap();

    let (queue, item, gone) = full_with_a_task_that_drops_its_wait();
    queue.shutdown_background();
    gone.recv().unwrap();
    assert!(is_cancelled(item.join()));
}

#[test]
fn the_waker_of_a_permit_may_queue_the_same_item_or_panic() {
    let queue = paused(1);
    let work = Work::new(|| ());
    assert_eq!(queue.try_enqueue(&work), Ok(true));
    let (theirs, again) = (queue.clone(), work.clone());
    let task = async move {
        let permit = theirs.task().reserve().await;
        assert!(!again.cancel());
        assert!(permit.enqueue(&again));
    };
    held(Box::pin(task), complete);
    assert!(work.cancel());
    wait_until(|| work.is_pending());
    assert_eq!(queue.cancel_all(), 1);
    // A panic of the waker does not reach the thread that releases.
    let mut handle = queue.spawn(|| ());
    let mut reserve = polled(queue.task().reserve(), &waker(|| panic!("in a waker")));
    assert!(handle.cancel());
    drop(poll(&mut reserve, Waker::noop()).expect("granted"));
}

/// Returns a full, paused queue, its item, and 100,000 waiting tasks. When a task is woken, its
/// future is dropped, as by an executor that has ended.
fn full_with_orphans() -> (&'static Workqueue, JoinHandle<u32>, Vec<Held>) {
    let queue = leaked(1);
    let item = queue.try_spawn(|| 7).unwrap();
    let orphan = |_| held(Box::pin(async { drop(queue.task().reserve().await) }), drop);
    (queue, item, (0..100_000).map(orphan).collect())
}

#[test]
fn tasks_that_end_when_they_are_woken_pass_their_permit() {
    let (queue, item, orphans) = full_with_orphans();
    // The stack is small, because the permit must not be passed on recursively.
    let small = thread::Builder::new().stack_size(64 << 10);
    let cancels = small.spawn(move || drop(item.cancel_on_drop())).unwrap();
    cancels.join().unwrap();
    // Reapers call the wakers.
    wait_until(|| orphans.iter().all(|it| it.lock().unwrap().is_none()));
    wait_until(|| free(queue) == Some(1));
    // This would take minutes if each waiter that leaves walked past all earlier waiters.
    let (queue, item, orphans) = full_with_orphans();
    orphans.iter().rev().for_each(|it| end(it, drop));
    assert_eq!(free(queue), Some(0));
    queue.resume();
    assert_eq!(item.join().unwrap(), 7);
}

/// Two tasks wait for capacity. The waker of the first one calls `act`, and then waits for that of
/// the second. `release` releases capacity.
fn wakers_meet(
    queue: &'static Workqueue,
    act: impl FnOnce() + Send + 'static,
    release: impl FnOnce(),
) {
    let ((woken, waits), (send, receive)) = (mpsc::channel(), mpsc::channel());
    let first = waker_once(move || {
        act();
        send.send(waits.recv_timeout(PATIENCE)).unwrap();
    });
    let second = waker_once(move || woken.send(()).unwrap());
    let _both = [first, second].map(|waker| polled(queue.task().reserve(), &waker));
    release();
    assert_eq!(receive.recv().unwrap(), Ok(()), "hangs");
}

#[test]
fn wakers_that_get_capacity_may_wait_for_each_other() {
    let queue = leaked(2);
    let [first, second] = [(); 2].map(|()| queue.task().try_reserve().unwrap());
    // The first waker releases the permit that lets the second one in, on the same thread.
    wakers_meet(queue, move || drop(second), move || drop(first));
    let _handles = [(); 2].map(|()| queue.try_spawn(|| ()).unwrap());
    wakers_meet(queue, || (), || assert_eq!(queue.cancel_all(), 2));
    queue.resume();
    // A waker may also wait for the item that released the capacity.
    let queue = leaked(1);
    let ((run, runs), (send, receive)) = (mpsc::channel(), mpsc::channel());
    drop(queue.try_spawn(move || run.send(()).unwrap()).unwrap());
    let waker = waker_once(move || send.send(runs.recv_timeout(PATIENCE)).unwrap());
    let _task = polled(queue.task().reserve(), &waker);
    queue.resume();
    assert_eq!(receive.recv().unwrap(), Ok(()), "hangs");
    // A waker may also wait for a thread that gets capacity.
    let queue = leaked(2);
    let [first, second] = [(); 2].map(|()| queue.task().try_reserve().unwrap());
    let ((came, waits), (woken, is_woken)) = (mpsc::channel(), mpsc::channel());
    // The waker releases a permit, and then waits for the thread that gets it.
    let waker = waker_once(move || {
        drop(second);
        woken.send(waits.recv_timeout(PATIENCE).is_ok()).unwrap();
    });
    let _task = polled(queue.task().reserve(), &waker);
    let waits = thread::spawn(move || {
        drop(queue.task().wait_for_capacity().try_spawn(|| ()).unwrap());
        came.send(()).unwrap();
    });
    // After this sleep the thread is in the wait queue. If it is late, it finds a free permit.
    thread::sleep(50 * MS);
    drop(first);
    assert!(is_woken.recv().unwrap(), "the thread was not woken");
    waits.join().unwrap();
}
