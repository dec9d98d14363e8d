//! Items that wait for later items of a queue whose only seat they hold.

use crate::support::*;

fn queues() -> [Workqueue; 2] {
    [queue("ordered").ordered(), one_seat("one")].map(On::alone)
}

fn is_an_error<T>(result: Result<T, JoinError>) -> bool {
    matches!(result, Err(JoinError::OwnQueue))
}

#[test]
fn joining_a_later_item_of_a_queue_with_one_seat_is_an_error() {
    for queue in queues() {
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
    for queue in queues() {
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
    for queue in queues() {
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
    for one in queues() {
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
    for one in queues() {
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

/// Builds a queue whose only worker is occupied by the plug, so that joiners run its items.
fn without_workers() -> (Workqueue, Plug) {
    let [occupied, helps] = ["occupied", "helps"].map(queue).on(&unwatched("1 core"));
    let plug = plug_into(&occupied);
    occupied.close_in_background();
    (helps, plug)
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
        for queue in queues() {
            let (helps, plug) = without_workers();
            let helping = helps.clone();
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
    for queue in queues() {
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
    for queue in queues() {
        let (give, item) = mpsc::channel::<JoinHandle<()>>();
        let (joined, receive) = mpsc::channel();
        let (_, plug) = stuck(|hole| {
            queue.spawn_own(move |own| {
                hole.sit();
                give.send(own.spawn(|| ())).unwrap();
            })
        });
        let waker = waker_once(move || joined.send(item.recv().unwrap().join()).unwrap());
        let mut drain = pin!(queue.drain_async());
        assert!(poll_with(&mut drain, &waker).is_pending());
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
    let mut drain = pin!(drained.drain_async());
    assert!(poll_with(&mut drain, &waker).is_pending());
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
    let mut drain = pin!(drained.drain_async());
    assert!(poll_with(&mut drain, &waker).is_pending());
    drop(waker);
    plug.release();
    wait_until(|| ended.get() == 1);
}
