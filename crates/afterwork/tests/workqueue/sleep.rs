//! Sleeps, timeouts and intervals of tasks, and threads that block on futures.

use crate::support::*;

fn sender_waker(send: &Sender<&'static str>, name: &'static str) -> Waker {
    let send = send.clone();
    waker(move || send.send(name).unwrap())
}

fn is_pending(sleep: &mut Sleep, waker: &Waker) -> bool {
    poll_with(sleep, waker).is_pending()
}

/// Returns a sleep that registered `waker` and has not ended. On a busy machine, some sleeps end
/// before they are polled.
fn sleeping(registry: &Registry, span: Duration, waker: &Waker) -> Sleep {
    let mut sleeps = (0..1000).map(|_| registry.sleep(span));
    let pending = sleeps.find_map(|mut slept| is_pending(&mut slept, waker).then_some(slept));
    pending.expect("one of a thousand has not ended when it is polled")
}

#[test]
fn a_past_moment_is_ready_and_a_far_one_does_not_overflow() {
    let registry = registry("2 core");
    let now = Instant::now();
    for mut over in [
        registry.sleep(Duration::ZERO),
        registry.sleep_until(now - SHORT),
        registry.sleep_until(now),
    ] {
        assert!(!is_pending(&mut over, Waker::noop()));
        assert!(over.is_elapsed() && !is_pending(&mut over, Waker::noop()));
    }
    for far in [Duration::MAX, HOUR] {
        assert!(!polled(registry.sleep(far), Waker::noop()).is_elapsed());
    }
    // All sleeps have ended, so no thread uses the registry.
    shut_down(registry);
}

#[test]
fn a_waker_cloned_past_the_sleep_is_dropped_unlocked() {
    let registry = registry("2 core");
    let (send, receive) = mpsc::channel();
    let mut slept = sleeping(&registry, 25 * SHORT, &sender_waker(&send, "first"));
    let fired = Mutex::new(receive);
    let waits = move || assert_eq!(fired.lock().unwrap().recv_timeout(PATIENCE), Ok("first"));
    let slow = hooked_waker(waits, || ());
    // A debug build asserts that no lock is held where the clone is dropped.
    assert!(!is_pending(&mut slept, &slow));
}

#[test]
fn a_sleep_fires_the_waker_of_the_last_poll_only() {
    let registry = registry("2 core");
    let (send, receive) = mpsc::channel();
    let mut slept = registry.sleep(250 * SHORT);
    for waker in [sender_waker(&send, "first"), sender_waker(&send, "last")] {
        assert!(is_pending(&mut slept, &waker));
        // The second poll uses the same waker.
        assert!(is_pending(&mut slept, &waker));
    }
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("last"));
    assert!(!is_pending(&mut slept, Waker::noop()));
    drop(send);
    assert!(receive.recv_timeout(PATIENCE).is_err(), "another was fired");
}

#[test]
fn a_dropped_sleep_drops_its_waker_and_fires_none() {
    let (registry, census) = (registry("2 core"), Census::default());
    let life = census.life();
    let waker = waker(move || _ = &life);
    let slept = polled(registry.sleep(HOUR), &waker);
    drop(waker);
    assert_eq!(census.alive(), 1);
    drop(slept);
    census.all_dropped(1);
    // Another sleep now uses its slot.
    let (send, receive) = mpsc::channel();
    let first = sleeping(&registry, SHORT, &sender_waker(&send, "first"));
    drop(first);
    let _second = sleeping(&registry, SHORT, &sender_waker(&send, "second"));
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("second"));
}

#[test]
fn a_sleep_keeps_its_registry_and_can_be_reset() {
    let registry = registry("2 core");
    let mut slept = polled(registry.sleep(HOUR), Waker::noop());
    slept.reset(Instant::now() + SHORT);
    block_on(&mut slept);
    assert!(slept.is_elapsed());
    slept.reset(Instant::now() + HOUR);
    assert!(!slept.is_elapsed() && is_pending(&mut slept, Waker::noop()));
    let still = registry.shutdown().unwrap_err();
    assert_eq!(still.nr_users, 1);
    slept.reset(Instant::now() + SHORT);
    block_on(slept);
    still.registry.shutdown().unwrap();
}

#[test]
fn a_waker_that_panics_or_waits_delays_no_timer() {
    let registry = registry("2 core");
    let (plug, hole) = stopper();
    let (hole, fired) = (Mutex::new(hole), Count::default());
    let own = queue("own").on(&registry);
    let wakers = [
        waker(|| panic!("on purpose")),
        waker(move || hole.lock().unwrap().sit()),
        waker_once(move || drop(own)),
        waker(fired.adder()),
    ];
    let _sleeps = wakers.each_ref().map(|it| sleeping(&registry, SHORT, it));
    plug.wait_until_stuck();
    wait_until(|| fired.get() == 1);
    // One waker blocks its thread, and the manager still fires timers.
    let queue = queue("later").on(&registry);
    let timed = DelayedWork::new(fired.adder());
    assert!(queue.enqueue_after(&timed, SHORT));
    wait_until(|| fired.get() == 2);
    let inside = registry.clone();
    queue.spawn_async(async move { inside.sleep(SHORT).await }).join().unwrap();
    plug.release();
}

#[test]
fn sleeps_of_our_own_tasks_need_no_thread_but_the_registry_s() {
    let (registry, queue) = queue("sleep").on_own(registry("2 core"));
    queue.spawn(|| ()).join().unwrap();
    let inside = registry.clone();
    registry.refuse_threads(true);
    block_on(registry.sleep(SHORT));
    let task = queue.spawn_async(async move { inside.sleep(SHORT).await });
    block_on(task).unwrap();
    // The fallback reaper calls wakers that are not the library's own.
    let (send, receive) = mpsc::channel();
    let _slept = sleeping(&registry, SHORT, &sender_waker(&send, "late"));
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("late"));
    registry.refuse_threads(false);
}

#[test]
fn a_hundred_thousand_sleeps_are_cheap_and_leave_nothing() {
    in_own_process(|| {
        let registry = registry("2 core");
        let sleeps = || polled(registry.sleep(HOUR), Waker::noop());
        retains_less_than(4096, "a hundred thousand sleeps", || {
            drop(Vec::from_iter((0..100_000).map(|_| sleeps())));
            // Memory that is freed later counts too.
            (0..2000).for_each(|_| drop(sleeps()));
        });
    });
}

#[test]
fn future_is_ready_before_the_timeout_or_times_out() {
    let registry = registry("2 core");
    // A future that is ready never times out.
    for span in [HOUR, Duration::MAX, Duration::ZERO] {
        assert_eq!(block_on(timeout(span, ready(7))), Ok(7));
    }
    let over = Instant::now() - SHORT;
    assert_eq!(block_on(timeout_at(over, ready(7))), Ok(7));
    assert_eq!(block_on(timeout(SHORT, pending::<()>())), Err(Elapsed));
    let late = registry.timeout(SHORT, async { sleep(HOUR).await });
    let error: io::Error = block_on(late).unwrap_err().into();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // A late future is dropped with its timeout.
    let census = Census::default();
    let mut late = Box::pin(timeout(SHORT, census.future()));
    assert!(block_on(late.as_mut()).is_err());
    assert_eq!(census.alive(), 1);
    drop(late);
    census.all_dropped(1);
}

#[test]
fn an_interval_ticks_at_once_and_then_by_its_grid() {
    let start = Instant::now();
    let mut ticks = interval(SHORT).unwrap();
    assert_eq!(ticks.period(), SHORT);
    block_on(async {
        for nth in 0..5 {
            ticks.tick().await;
            assert!(start.elapsed() >= nth * SHORT);
        }
    });
    assert_eq!(interval(Duration::ZERO).unwrap_err(), ZeroPeriod);
    assert!(interval(Duration::MAX).is_ok());
    // An interval that is behind yields after some ticks, and loses no tick.
    for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Skip] {
        let mut ticks = interval(Duration::from_nanos(1)).unwrap();
        ticks.set_missed_tick_behavior(missed);
        let (waker, wakes) = counting_waker();
        let mut is_ready = || ticks.poll_tick(&mut Context::from_waker(&waker)).is_ready();
        assert!(is_ready(), "the first tick is at once");
        // After that a thousand ticks are due.
        thread::sleep(MS);
        let mut yielded = false;
        for _ in 0..100 {
            let ready = is_ready();
            assert!(ready || !yielded, "it yielded twice in a row");
            yielded = !ready;
        }
        assert!(wakes.get() > 0, "it wakes its task when it yields");
    }
}

#[test]
fn block_on_sleeps_between_polls_until_its_waker_fires() {
    let mut nr_polls = 0;
    let (send, receive) = mpsc::channel::<Waker>();
    let waking = thread::spawn(move || {
        for waker in receive {
            // A clone may be woken on any thread, and any number of times.
            waker.wake_by_ref();
            waker.wake();
        }
    });
    let got = block_on(poll_fn(|context| {
        nr_polls += 1;
        if nr_polls == 100 {
            return Poll::Ready(7);
        }
        send.send(context.waker().clone()).unwrap();
        Poll::Pending
    }));
    assert_eq!(got, 7);
    drop(send);
    waking.join().unwrap();
    // Inside an item, it waits for anything and nests.
    let [outer, inner] = ["outer", "inner"].map(|name| queue(name).max_active(1).alone());
    let task = outer.spawn(move || {
        block_on(async {
            inner.spawn(|| block_on(async { block_on(sleep(SHORT)) })).await.unwrap();
            7
        })
    });
    assert_eq!(task.join().unwrap(), 7);
}

#[test]
fn block_on_is_rejected_in_a_bottom_half_before_polling() {
    let (queue, nr_polls) = (queue("bh").bh().alone(), Count::default());
    let future = poll_fn(move |_| {
        nr_polls.add();
        Poll::Ready(())
    });
    assert!(queue.spawn(|| block_on(future)).join().is_err());
    assert_eq!(nr_polls.get(), 0);
    // A panic of a poll leaves `block_on`, and the next call works.
    assert!(catch_unwind(|| block_on(async { panic!("on purpose") })).is_err());
    assert_eq!(block_on(async { 7 }), 7);
}

/// These types may be sent, moved after a poll, and used after a panic.
#[test]
fn types_are_send_and_sync_like_those_of_tokio() {
    fn goes<T: Send + Sync + Unpin>() {}
    goes::<(Sleep, Interval, Timeout<future::Ready<()>>)>();
    goes::<(TaskSet<std::cell::Cell<u8>>, CancelHandle, Periodic)>();
}
