//! Bulk cancels, drains with a timeout, asynchronous drains, and queues that end in the background.

use crate::spawn_async::Door;
use crate::support::*;

/// Counts a run of an item, and blocks in the first one.
fn blocks_once(hole: &Hole, count: Count) {
    count.add();
    if count.get() == 1 {
        hole.sit();
    }
}

/// This would take minutes if `cancel_all` walked the list for each item.
#[test]
fn cancel_all_cancels_all_items_and_releases_their_permits() {
    const NR: usize = 200_000;
    for builder in [queue("all"), queue("all").ordered()] {
        let (lives, count) = (Census::default(), Count::default());
        let queue = builder.capacity(2 * NR + 3).paused();
        let spawn = |_| {
            queue.detach(lives.closure());
            queue.spawn(lives.closure())
        };
        let handles: Vec<_> = (0..NR).map(spawn).collect();
        let (with_permit, works) = (counting(count), [(); 50].map(|()| counting(count)));
        assert_eq!(queue.try_enqueue(&with_permit), Ok(true));
        assert_eq!(queue.task().enqueue_all(&works), 50);
        let future = queue.spawn_async(lives.future());
        drop(queue.spawn(|| unreachable!("it has no joiner, and it is cancelled")));
        assert!(is_full(queue.try_spawn(|| ())));
        assert_eq!((free(&queue), waiting(&queue)), (Some(0), 2 * NR + 53));
        assert_eq!(queue.cancel_all(), 2 * NR + 53);
        assert_eq!((free(&queue), waiting(&queue)), (Some(2 * NR + 3), 0));
        assert_eq!((lives.alive(), lives.dropped()), (0, 2 * NR + 1));
        assert!(!with_permit.is_busy() && works.iter().all(|work| !work.is_busy()));
        assert!(handles.into_iter().all(|it| is_cancelled(it.join())));
        assert!(is_cancelled(future.join()));
        assert_eq!(queue.cancel_all(), 0);
        // The queue and its items can be used again.
        assert_eq!(queue.task().enqueue_all(&works), 50);
        queue.resume_and_drain();
        assert_eq!(count.get(), 50);
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    }
}

#[test]
fn cancel_all_wakes_waiters_at_once() {
    let queue = queue("shutdown").paused();
    let work = Work::new(|| ());
    queue.enqueue(&work);
    let (joined, awaited) = (queue.spawn(|| ()), queue.spawn(|| ()));
    let other = self::queue("waits").alone();
    let awaited = other.spawn_async(awaited);
    thread::scope(|scope| {
        scope.spawn(|| assert!(work.flush().unwrap()));
        scope.spawn(|| assert!(is_cancelled(joined.join())));
        wait_until(|| is_slept_for(&work));
        assert_eq!(queue.cancel_all(), 3);
    });
    assert!(is_cancelled(awaited.join().unwrap()));
}

#[test]
fn timer_that_recalls_an_item_wakes_tasks_unlocked() {
    let queue = queue("timer").help(false).affinity(Cpu).alone();
    for by_flush in [true, false] {
        let count = Count::default();
        let [first, second] = [0, 1].map(|cpu| on_cpu(&queue, cpu));
        // It runs in one pool. The other one, which a drain checks first, hands it off.
        let (work, plug) = stuck(|hole| {
            let work = DelayedWork::new(move || blocks_once(&hole, count));
            assert!(second.enqueue_after(&work, Duration::ZERO));
            work
        });
        assert!(first.enqueue_after(&work, Duration::ZERO));
        wait_until(|| is_handed_off(&work));
        assert!(work.cancel());
        let delay = if by_flush { HOUR } else { 10 * MS };
        assert!(on_cpu(&queue, 1).enqueue_after(&work, delay));
        // The waker reads the item's state, which takes the lock of its timer.
        let (asked, wakes) = (work.clone(), Count::default());
        let waker = waker(move || {
            let _ = asked.is_pending();
            wakes.add();
        });
        let _drain = polled(queue.drain_async(), &waker);
        if !is_handed_off(&work) {
            // The timer fired before the drain began.
            plug.release();
            continue;
        }
        thread::scope(|scope| {
            if by_flush {
                scope.spawn(|| work.flush().unwrap());
            }
            wait_until(|| wakes.get() > 0);
            plug.release();
        });
        wait_until(|| count.get() == 2);
    }
}

/// Queues an item while it runs, lets a worker hand it off to that run, and cancels all items.
/// Calls `before` before the handoff, and `after` after the cancel. Returns the number of runs.
fn runs_when_all_is_cancelled(
    before: fn(&Workqueue, &Work),
    after: fn(&Workqueue, &Work),
) -> usize {
    let (queue, count) = (queue("anew").alone(), Count::default());
    let (work, plug) = stuck_with(&queue, move |hole| blocks_once(hole, count));
    queue.pause();
    assert!(queue.enqueue(&work));
    before(&queue, &work);
    queue.resume();
    wait_until(|| is_handed_off(&work));
    queue.cancel_all();
    after(&queue, &work);
    plug.release_and_drain(&queue);
    count.get()
}

#[test]
fn cancel_all_decides_about_each_enqueue_behind_a_run() {
    let anew = |queue: &Workqueue, work: &Work| {
        assert!(work.cancel());
        assert!(queue.enqueue(work));
        let state = format!("{work:?}");
        assert!(state.contains("revived"), "its list entry is kept: {state}");
    };
    assert_eq!(runs_when_all_is_cancelled(anew, |_, _| ()), 1);
    let once_more = |queue: &Workqueue, work: &Work| {
        assert!(!queue.enqueue(work), "the run has not ended");
    };
    assert_eq!(runs_when_all_is_cancelled(|_, _| (), once_more), 2);
    let queue = self::queue("again").alone();
    let (work, plug, [count, _]) = stuck_counting(&queue);
    // A worker pops the item and hands it off to the running thread. Then it is cancelled twice.
    queue.enqueue(&work);
    wait_until(|| is_handed_off(&work));
    assert!(work.cancel());
    queue.cancel_all();
    assert!(queue.enqueue(&work));
    plug.release();
    plug.wait_until_stuck();
    assert_eq!(plug.release_and_count(&queue, count), 2);
}

#[test]
fn cancel_all_keeps_the_order_of_later_items() {
    for queue in ordered_and_narrow() {
        let (plug, log) = (plug_into(&queue), Log::default());
        let work = Work::new(log.note(99));
        let spawn = |i| queue.spawn(log.note(i));
        queue.enqueue(&work);
        let cancelled: Vec<_> = (0..10).map(spawn).collect();
        assert_eq!(queue.cancel_all(), 11);
        let later: Vec<_> = (10..20).map(spawn).collect();
        queue.enqueue(&work);
        // A joiner could run a later item of the narrow queue first.
        plug.release_and_drain(&queue);
        assert!(cancelled.into_iter().all(|it| is_cancelled(it.join())));
        later.into_iter().for_each(|it| it.join().unwrap());
        let expected: Vec<_> = (10..20).chain([99]).collect();
        assert_eq!(log.take(), expected, "{}", queue.name());
    }
}

#[test]
fn cancel_all_spares_other_queues_of_the_pool() {
    let (registry, count) = (registry("1 core"), Count::default());
    let [first, second] = ["first", "second"].map(|name| queue(name).on(&registry));
    first.pause();
    second.pause();
    for _ in 0..100 {
        second.detach(count.adder());
        first.detach(|| unreachable!("cancelled"));
    }
    assert_eq!(first.cancel_all(), 100);
    first.resume();
    second.resume_and_drain();
    assert_eq!(count.get(), 100);
}

#[test]
fn cancelled_timed_items_can_be_armed_again() {
    let queue = queue("delayed").alone();
    let (count, lives) = (Count::default(), Census::default());
    let work = DelayedWork::new(count.adder());
    assert!(queue.enqueue_after(&work, HOUR));
    arm_for_an_hour(&queue, lives.life());
    assert_eq!(queue.cancel_all(), 2);
    lives.all_dropped(1);
    assert!(!work.is_pending() && !work.cancel());
    assert!(queue.enqueue_after(&work, HOUR));
    assert!(work.flush().unwrap());
    assert_eq!(count.get(), 1);
    // Items that wait for readers can be, too.
    let (queue, count) = (self::queue("rcu").alone(), Count::default());
    let work = RcuWork::new(count.adder());
    let guard = rcu::read();
    assert!(queue.task().enqueue_rcu(&work));
    queue.cancel_all();
    assert!(!work.is_pending());
    assert!(queue.task().enqueue_rcu(&work), "it waits for the same readers again");
    drop(guard);
    work.flush().unwrap();
    rcu::barrier();
    assert_eq!(count.after_drain(&queue), 1);
}

#[test]
fn cancel_all_spares_futures_that_have_been_polled() {
    let queue = queue("futures").alone();
    let (lives, door) = (Census::default(), Door::default());
    let waits = queue.spawn_async(door.clone());
    wait_until(|| nr_left(&queue, Doing::Waits) == 1);
    queue.pause();
    let fresh = queue.spawn_async(lives.future());
    door.open();
    assert_eq!(queue.cancel_all(), 1);
    lives.all_dropped(1);
    assert!(is_cancelled(fresh.join()));
    queue.resume();
    waits.join().unwrap();
}

#[test]
fn destructors_of_cancelled_items_may_do_anything() {
    let (registry, queue) = queue("wild").on_own(registry("2 core"));
    queue.pause();
    let (count, panics) = (Count::default(), bomb());
    let panicked = queue.spawn(move || drop(panics));
    let again = queue.clone();
    let spawns = at_drop(move || {
        assert_eq!(again.cancel_all(), 0);
        again.detach(count.adder());
    });
    queue.detach(move || drop(spawns));
    // The item owns a handle to the queue.
    let own = queue.clone();
    queue.enqueue(&Work::new(move || drop(own.clone())));
    drop(queue.spawn_own(|_| ()));
    assert_eq!(queue.cancel_all(), 4);
    assert!(is_cancelled(panicked.join()));
    queue.resume_and_drain();
    assert_eq!(count.get(), 1);
    // The last item drops the last handle.
    queue.pause();
    drop(queue.spawn_own(|_| ()));
    queue.shutdown_background();
    shut_down(registry);
}

fn nr_left(queue: &Workqueue, doing: Doing) -> usize {
    let busy = still_busy(queue.drain_timeout(Duration::ZERO));
    let left = busy.map_or_else(Vec::new, |it| it.left);
    left.iter().filter(|it| it.doing == doing).map(|it| it.count).sum()
}

#[test]
fn a_drain_that_takes_too_long_names_the_items_left() {
    let (queue, plug) = queue("slow").max_active(1).plugged();
    (0..3).for_each(|_| queue.detach(|| ()));
    let mut waits = queue.spawn_async(pending::<()>());
    let names = |busy: &StillBusy, func| busy.left[0].func.unwrap().contains(func);
    let busy = still_busy(queue.drain_timeout(MS)).unwrap();
    assert_eq!((busy.queue.as_str(), busy.nr_left), ("slow", 5), "{busy}");
    assert_eq!(busy.left[0].doing, Doing::Runs);
    assert!(names(&busy, "plug_into"), "{busy}");
    assert!(queue.try_spawn(|| ()).is_ok(), "it takes items again");
    plug.release();
    wait_until(|| nr_left(&queue, Doing::IsQueued) == 0);
    let busy = still_busy(queue.drain_timeout(MS)).unwrap();
    assert_eq!((busy.nr_left, busy.left.len()), (1, 1));
    assert_eq!(busy.left[0].doing, Doing::Waits, "{busy}");
    assert!(names(&busy, "Pending<()>"), "{busy}");
    waits.cancel();
    queue.drain_timeout(Duration::MAX).unwrap();
}

#[test]
fn timed_drain_rejects_items_until_it_ends() {
    let (queue, plug) = queue("timed").plugged();
    let drains = beside(&queue, |queue| queue.drain_timeout(PATIENCE));
    wait_until(|| queue.try_spawn(|| ()).is_err());
    plug.release();
    drains.join().unwrap().unwrap();
    queue.spawn(|| ()).join().unwrap();
    let error = queue.spawn_own(|own| own.drain_timeout(PATIENCE)).join().unwrap().unwrap_err();
    assert!(matches!(error, DrainError::OwnQueue(_)));
    assert_eq!(error.to_string(), "an item of workqueue \"timed\" cannot wait for its own queue");
    queue.drain_timeout(Duration::ZERO).or_else(|_| queue.drain_timeout(PATIENCE)).unwrap();
    // A drain does not wait for cancelled or expired items.
    let queue = self::queue("shutdown").paused();
    assert!(queue.spawn(|| ()).cancel());
    queue.drain_timeout(PATIENCE).unwrap();
    let expired = queue.task().deadline(Instant::now() + 2 * MS).spawn(|| ());
    assert!(has_expired(expired.join()));
    queue.drain().unwrap();
    block_on(async {
        assert!(queue.spawn(|| ()).cancel());
        queue.drain_async().await.unwrap();
    });
}

#[test]
fn tasks_await_drains_and_are_woken() {
    let [queue, tasks] = ["awaited", "tasks"].map(|name| queue(name).alone());
    for _ in 0..100 {
        let count = Count::default();
        (0..20).for_each(|_| drop(queue.spawn_own(move |own| own.detach(count.adder()))));
        let drains = [(); 3].map(|()| {
            let queue = queue.clone();
            tasks.spawn_async(async move {
                queue.drain_async().await.unwrap();
                count.get()
            })
        });
        assert_eq!(drains.map(|drain| drain.join().unwrap()), [20; 3]);
    }
    assert!(queue.try_spawn(|| ()).is_ok(), "it is over");
    // A task of the queue cannot await its drain.
    let own = queue.clone();
    let task = queue.spawn_async(async move { own.drain_async().await });
    assert_eq!(task.join().unwrap().unwrap_err().queue(), "awaited");
    queue.drain().unwrap();
}

#[test]
fn a_dropped_drain_admits_items_again() {
    let (queue, plug) = queue("dropped").plugged();
    {
        let mut drain = pin!(queue.drain_async());
        assert!(queue.try_spawn(|| ()).is_ok(), "not before the first poll");
        for _ in 0..3 {
            assert!(poll_with(&mut drain, Waker::noop()).is_pending());
        }
        assert!(queue.try_spawn(|| ()).is_err());
        assert!(format!("{drain:?}").contains("is_under_way: true"));
    }
    assert!(queue.try_spawn(|| ()).is_ok());
    plug.release_and_drain(&queue);
    let mut drain = pin!(queue.drain_async());
    for _ in 0..2 {
        assert_eq!(poll_with(&mut drain, Waker::noop()), Poll::Ready(Ok(())));
        assert!(queue.try_spawn(|| ()).unwrap().join().is_ok());
        queue.flush().unwrap();
    }
}

#[test]
fn shutdown_in_the_background_cancels_and_does_not_wait() {
    let registry = registry("2 core");
    let (queue, lives) = (queue("shut").max_active(1).on(&registry), Census::default());
    let plug = plug_into(&queue);
    let queued = queue.spawn(lives.closure());
    let delayed = DelayedWork::new(|| unreachable!("cancelled"));
    queue.enqueue_after(&delayed, HOUR);
    let other = queue.clone();
    queue.shutdown_background();
    assert!(is_cancelled(queued.join()));
    lives.all_dropped(1);
    assert!(other.try_spawn(|| ()).is_err() && !delayed.is_pending());
    assert_eq!(nr_left(&other, Doing::Runs), 1);
    plug.release();
    other.drain_timeout(PATIENCE).unwrap();
    other.shutdown_background();
    shut_down(registry);
    // Closing in the background runs all items instead.
    let (registry, queue) = self::queue("closed").on_own(self::registry("2 core"));
    let (plug, count) = (plug_into(&queue), Count::default());
    count.spawn(100, &queue);
    queue.clone().close_in_background();
    queue.spawn(|| ()).join().unwrap();
    queue.pause();
    queue.close_in_background();
    plug.release();
    shut_down(registry);
    assert_eq!(count.get(), 100);
}
