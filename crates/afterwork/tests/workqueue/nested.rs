//! Items that wait for items, and items that hold the only seat that the awaited one needs.

use crate::support::*;

fn fib(queue: &Workqueue, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let left = queue.spawn_own(move |own| fib(own, n - 1));
    let right = queue.spawn_own(move |own| fib(own, n - 2));
    left.join().unwrap() + right.join().unwrap()
}

#[test]
fn nested_items_end_under_any_limit_without_outer_joiner() {
    for max in [1, 2, 3] {
        let queue = queue("fib").max_active(max).alone();
        assert_eq!(queue.in_worker(|own| fib(own, 11)), 89);
        queue.drain().unwrap();
    }
}

#[test]
fn a_limit_of_one_holds_for_threads_while_items_nest() {
    let queue = queue("nest").max_active(1).alone();
    let inner = |own: &Workqueue| own.stats().nr_active;
    assert_eq!(queue.spawn_own(move |own| own.spawn_own(inner).join().unwrap()).join().unwrap(), 1);
    assert_eq!(queue.drained().nr_active, 0);
}

#[test]
fn nested_items_of_two_queues_in_turn_end() {
    /// Returns the depth that the calls reached.
    fn dive(here: &Workqueue, there: &Workqueue, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        let (a, b) = (here.clone(), there.clone());
        let joiner = thread::current().id();
        let inner = there.spawn(move || {
            // If a worker runs the item, it has no seat for the inner items.
            let helped = thread::current().id() == joiner;
            1 + if helped { dive(&b, &a, depth - 1) } else { 0 }
        });
        inner.join().unwrap()
    }
    let registry = registry("2 core");
    let [first, second] = ["first", "second"].map(|it| queue(it).max_active(1).on(&registry));
    while dive(&first, &second, 40) < 40 {}
    first.drain().unwrap();
    second.drain().unwrap();
}

#[test]
fn nested_items_end_without_help_while_there_are_seats() {
    for scope in [System, Cpu] {
        let queue = queue("fib").help(false).affinity(scope).max_active(512).alone();
        assert_eq!(queue.spawn_own(|own| fib(own, 8)).join().unwrap(), 21);
        assert_eq!(queue.stats().helped, 0);
    }
    // The monitor does not run, so only reports from joiners can start more workers.
    let queue = queue("report").help(false).on(&unwatched("1 core"));
    assert_eq!(queue.spawn_own(|own| fib(own, 6)).join().unwrap(), 8);
}

pub fn descend(queue: &Workqueue, depth: usize) -> usize {
    if depth == 0 {
        return 0;
    }
    queue.spawn_own(move |own| descend(own, depth - 1)).join().unwrap() + 1
}

#[test]
fn a_deep_chain_of_joins_ends() {
    assert_eq!(descend(&queue("deep").alone(), 300), 300);
    assert_eq!(descend(&queue("deep").help(false).alone(), 60), 60);
    for max in [1, 2, 16] {
        assert_eq!(descend(&queue("deep").max_active(max).alone(), 10_000), 10_000);
    }
}

/// Joins items nested `depth` deep, every seventh of which panics. Returns the number of nested
/// items above the outermost panic.
fn descend_and_panic(queue: &Workqueue, depth: usize) -> usize {
    if depth == 0 {
        panic!("as documented");
    }
    let deeper = queue.spawn_own(move |own| {
        let nr_good = descend_and_panic(own, depth - 1);
        assert!(!depth.is_multiple_of(7), "as documented");
        nr_good + 1
    });
    deeper.join().unwrap_or(0)
}

#[test]
fn deep_joins_end_though_items_panic_and_threads_fail() {
    for max in [1, 3] {
        let (registry, queue) = queue("deep").max_active(max).on_own(registry("2 core"));
        for refuse in [false, true] {
            registry.refuse_threads(refuse);
            // The last 6 items are outside the outermost panic.
            assert_eq!(descend_and_panic(&queue, 1000), 1000 % 7);
        }
        assert_eq!(queue.drained().nr_active, 0);
    }
}

#[test]
fn a_panic_climbs_through_nested_joins() {
    let queue = queue("climb").alone();
    let outer = queue.spawn_own(|own| {
        let Err(error) = own.spawn(|| panic!("deep down")).join();
        error.resume_unwind();
    });
    let error = outer.join().unwrap_err();
    assert!(matches!(error, JoinError::Panicked(_)));
    assert_eq!(error.to_string(), "the work item panicked: deep down");
    assert_eq!(queue.drained().panicked, 2);
}

#[test]
fn an_item_may_flush_and_cancel_items_of_other_queues() {
    let [outer, inner] = ["outer", "inner"].map(queue).on(&registry("2 core"));
    let count = Count::default();
    let handles = [(); 50].map(|()| {
        let (inner, work) = (inner.clone(), counting(count));
        outer.spawn(move || {
            inner.enqueue(&work);
            work.flush().unwrap();
            inner.enqueue(&work);
            inner.flush().unwrap();
            inner.enqueue(&work);
            work.cancel_sync();
            assert!(!work.is_busy());
        })
    });
    handles.into_iter().for_each(|it| it.join().unwrap());
    assert!(count.get() >= 100);
}

#[test]
fn thread_locals_of_a_deep_join_are_dropped_outside_all_items() {
    fn dive(queue: &Workqueue, depth: u32, bottom: Box<dyn FnOnce() + Send>) {
        let deeper = queue.spawn_own(move |own| match depth {
            0 => bottom(),
            _ => dive(own, depth - 1, bottom),
        });
        deeper.join().unwrap();
    }
    // No other worker replaces the blocked one, so joiners help at every level.
    let [other, queue] = ["other", "deep"].map(queue).on(&unwatched("1 core"));
    let plug = plug_into(&other);
    let (send, drained) = mpsc::channel();
    let (may_go, theirs) = (Count::default(), queue.clone());
    let at_exit = at_drop(move || {
        wait_until(|| may_go.get() > 0);
        send.send(theirs.drain()).unwrap();
    });
    dive(&queue, 200, Box::new(|| drop_at_exit(at_exit)));
    plug.release();
    may_go.add();
    assert_eq!(drained.recv_timeout(PATIENCE / 2), Ok(Ok(())));
}

/// Builds queues with one seat, so that their items cannot wait for later ones.
fn queues_of_one_seat() -> [Workqueue; 2] {
    [queue("ordered").ordered(), one_seat("one")].map(On::alone)
}

fn is_an_error<T>(result: Result<T, JoinError>) -> bool {
    matches!(result, Err(JoinError::OwnQueue))
}

#[test]
fn joining_a_later_item_of_a_queue_with_one_seat_is_an_error() {
    for queue in queues_of_one_seat() {
        let log = Log::default();
        assert!(queue.in_worker(move |own| {
            let refused = is_an_error(own.spawn(log.note("later")).join());
            log.push("waiter");
            refused
        }));
        queue.drain().unwrap();
        assert_eq!(log.take(), ["waiter", "later"], "the item stays queued");
        assert!(queue.in_worker(|own| {
            let joined = own.spawn(|| ()).join_timeout(Duration::MAX);
            joined.is_some_and(is_an_error)
        }));
        assert!(queue.in_worker(|own| {
            let later = own.spawn(|| ());
            block_on(async move {
                sleep(MS).await;
                is_an_error(later.await)
            })
        }));
        // The item with a deadline can end.
        let deadline = Instant::now() + 5 * MS;
        let ended = queue.in_worker(move |own| own.task().deadline(deadline).spawn(|| ()).join());
        assert!(has_expired(ended));
    }
    // A higher limit lets items wait again.
    let queue = one_seat("one").alone();
    assert!(queue.in_worker(|own| is_an_error(own.spawn(|| ()).join())));
    queue.set_max_active(2).unwrap();
    assert!(queue.in_worker(|own| own.spawn(|| ()).join().is_ok()));
}

#[test]
fn a_join_of_a_future_of_a_queue_with_one_seat_is_an_error() {
    for queue in queues_of_one_seat() {
        // There is one future that was not polled, one that waits, and one that was cancelled while
        // it waited.
        let [mut waiting, mut cancelled] = [(); 2].map(|()| pending_in(&queue));
        queue.spawn(|| ()).join().unwrap();
        let (errors, waiting) = queue.in_worker(move |own| {
            let fresh = own.spawn_async(async {}).join();
            assert!(cancelled.cancel());
            let waiting = waiting.join_timeout(Duration::MAX);
            ([is_an_error(fresh), is_an_error(cancelled.join())], waiting)
        });
        assert_eq!(errors, [true, true]);
        assert!(waiting.is_some_and(is_an_error));
        // The waiting future no longer has a handle, and is dropped.
        queue.drain().unwrap();
        // A future may await such an item.
        let own = queue.clone();
        let handle = queue.spawn_async(async move { own.spawn(|| 7).await });
        assert_eq!(handle.join().unwrap().unwrap(), 7);
    }
}

#[test]
fn a_flush_of_a_later_item_of_a_queue_with_one_seat_is_an_error() {
    for queue in queues_of_one_seat() {
        let (first, late) = (Work::new(|| ()), DelayedWork::new(|| ()));
        let (inner, timed) = (first.clone(), late.clone());
        let errors = queue.in_worker(move |own| {
            assert_eq!((own.enqueue(&inner), own.enqueue_after(&timed, HOUR)), (true, true));
            [inner.flush(), timed.flush()]
        });
        assert_eq!(errors, [Err(FlushError::OwnQueue); 2]);
        // The items stay queued.
        queue.drain().unwrap();
        assert!(!first.is_busy() && !late.is_pending(), "{first:?} {late:?}");
    }
}

#[test]
fn item_queued_behind_its_run_elsewhere_is_rejected() {
    for one in queues_of_one_seat() {
        let elsewhere = queue("elsewhere").alone();
        let (work, plug) = stuck_in(&elsewhere);
        let again = work.clone();
        let refused = one.in_worker(move |own| (own.enqueue(&again), again.flush()));
        assert_eq!(refused, (true, Err(FlushError::OwnQueue)));
        plug.release();
        plug.wait_until_stuck();
        plug.release();
        work.flush().unwrap();
    }
}

#[test]
fn a_set_returns_errors_for_items_that_need_its_waiters_seat() {
    for one in queues_of_one_seat() {
        let other = queue("other").alone();
        let mut results = one.in_worker(move |own| {
            let mut set = TaskSet::new(own);
            set.spawn(|| 1);
            set.add(other.spawn(|| 2));
            set.spawn_async(async { 3 });
            let results: Vec<_> = set.results().collect();
            assert!(set.is_empty());
            results
        });
        let first = results.remove(0);
        assert!(matches!(first, Ok(2)), "that item can end: {first:?}");
        assert_eq!(results.into_iter().filter(|it| it.is_err()).count(), 2);
    }
}

#[test]
fn helper_inside_another_queue_records_its_seats() {
    /// Joins items of `helps` recursively, and finally one of `own`.
    fn dive(own: &Workqueue, helps: &Workqueue, depth: u64) -> bool {
        if depth == 0 {
            return is_an_error(own.spawn(|| ()).join());
        }
        let (a, b) = (own.clone(), helps.clone());
        helps.spawn(move || dive(&a, &b, depth - 1)).join().unwrap()
    }
    // A depth of 300 needs several stacks.
    for depth in [1, 300] {
        for queue in queues_of_one_seat() {
            // The only worker is in `occupied`, so joiners run the items of `helps`.
            let [occupied, helps] = ["occupied", "helps"].map(self::queue).on(&unwatched("1 core"));
            let (plug, helping) = (plug_into(&occupied), helps.clone());
            assert!(queue.in_worker(move |own| dive(own, &helping, depth)));
            assert_eq!(helps.stats().helped, depth);
            plug.release();
        }
    }
}

#[test]
fn item_that_its_joiner_runs_is_never_rejected() {
    let queue = queue("one").max_active(1).alone();
    for _ in 0..200 {
        let (work, count) = counted();
        let (flushed, flusher) = queue.in_worker(move |own| {
            assert!(own.enqueue(&work));
            // Another thread claims the item and then finds no free seat for it.
            let flusher = beside(&work, |work| work.flush());
            (work.flush(), flusher)
        });
        flushed.unwrap();
        flusher.join().unwrap().unwrap();
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn code_that_runs_without_a_seat_waits_for_items() {
    for queue in queues_of_one_seat() {
        queue.pause();
        let (own, log) = (queue.clone(), Log::default());
        let canary = at_drop(move || {
            let handle = own.spawn(|| ());
            log.push(true);
            log.push(handle.join().is_ok());
        });
        let handle = queue.spawn(move || drop(canary));
        let canceller = beside(&queue, |queue| queue.cancel_all());
        wait_until(|| log.take() == [true]);
        queue.resume();
        canceller.join().unwrap();
        assert_eq!(log.take(), [true]);
        assert!(is_cancelled(handle.join()));
    }
}

#[test]
fn the_waker_of_a_drain_may_join_an_item_without_a_seat() {
    for queue in queues_of_one_seat() {
        let (give, item) = mpsc::channel::<JoinHandle<()>>();
        let (joined, receive) = mpsc::channel();
        let (_, plug) = stuck(|hole| {
            queue.spawn_own(move |own| {
                hole.sit();
                give.send(own.spawn(|| ())).unwrap();
            })
        });
        let waker = waker_once(move || joined.send(item.recv().unwrap().join()).unwrap());
        let drain = polled(queue.drain_async(), &waker);
        plug.release();
        // The first item has ended, so the waker fires, while the second item waits.
        receive.recv_timeout(PATIENCE).expect("hangs").unwrap();
        block_on(drain).unwrap();
    }
}

#[test]
fn the_waker_of_a_drain_may_wait_for_an_item_of_its_pool() {
    let [drained, other] = ["drained", "other"].map(queue).on(&registry("1 core"));
    let ended = Count::default();
    // The waker blocks until an item of another queue has run, and does not report this to the
    // library.
    let waker = waker_once(move || {
        other.in_worker(|_| ());
        ended.add();
    });
    let plug = plug_into(&drained);
    let _drain = polled(drained.drain_async(), &waker);
    plug.release();
    wait_until(|| ended.get() == 1);
}

/// The waker of a future waits for a drain, and is the future's last handle. The worker that ends
/// the drain drops the waker, and with it the waker that the future's joiner stored.
#[test]
fn the_drop_of_a_fired_waker_may_wait_for_an_item_of_its_pool() {
    let [home, drained, other] = ["home", "drained", "other"].map(queue).on(&registry("1 core"));
    let ((lend, lent), ended) = (mpsc::channel(), Count::default());
    home.pause();
    let future = poll_fn(move |cx| {
        lend.send(cx.waker().clone()).unwrap();
        Poll::Ready(())
    });
    let mut joiner = home.spawn_async(future);
    // The future ends while its joiner registers.
    let at_clone = move || {
        home.resume();
        home.flush().unwrap();
    };
    let at_drop = move || {
        other.in_worker(|_| ());
        ended.add();
    };
    assert!(poll_with(&mut joiner, &hooked_waker(at_clone, at_drop)).is_ready());
    drop(joiner);
    let waker = lent.recv().unwrap();
    let plug = plug_into(&drained);
    let _drain = polled(drained.drain_async(), &waker);
    drop(waker);
    plug.release();
    wait_until(|| ended.get() == 1);
}
