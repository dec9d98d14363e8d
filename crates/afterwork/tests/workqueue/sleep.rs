//! Sleeps, timeouts and intervals of tasks, and threads that block on futures.

use std::{
    future::{Future, pending, poll_fn, ready},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{
    DelayedWork, Elapsed, JoinError, MissedTickBehavior, Registry, Sleep, ZeroPeriod, block_on,
    interval, sleep, sleep_until, timeout, timeout_at,
};

use crate::support::*;

/// A duration that no test waits for.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

/// A waker that calls a closure.
struct Does<F>(F);

impl<F: Fn() + Send + Sync> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn does(func: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Does(func)))
}

fn sender_waker(send: &Sender<&'static str>, what: &'static str) -> Waker {
    let send = send.clone();
    does(move || send.send(what).unwrap())
}

fn poll(sleep: &mut Sleep, waker: &Waker) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

/// Returns a sleep that registered `waker` and has not ended, as some may on a busy machine.
fn sleeping(registry: &Registry, span: Duration, waker: &Waker) -> Sleep {
    let mut sleeps = (0..1000).map(|_| registry.sleep(span));
    let pending =
        sleeps.find_map(|mut slept| poll(&mut slept, waker).is_pending().then_some(slept));
    pending.expect("one of a thousand has not ended when it is polled")
}

#[test]
fn a_sleep_ends_when_its_time_has_come_and_not_before() {
    let queue = alone_on_two(queue("sleep"));
    for span in [SHORT, 5 * SHORT, 25 * SHORT] {
        let start = Instant::now();
        block_on(sleep(span));
        assert!(start.elapsed() >= span);
        let start = Instant::now();
        let task = queue.spawn_async(async move { sleep_until(start + span).await });
        task.join().unwrap();
        assert!(start.elapsed() >= span);
    }
}

#[test]
fn a_moment_that_is_over_is_ready_at_once_and_a_far_one_does_not_overflow() {
    let registry = registry("2 core");
    let now = Instant::now();
    for mut over in [
        registry.sleep(Duration::ZERO),
        registry.sleep_until(now - SHORT),
        registry.sleep_until(now),
    ] {
        assert!(poll(&mut over, Waker::noop()).is_ready());
        assert!(over.is_elapsed() && poll(&mut over, Waker::noop()).is_ready());
    }
    for mut far in [registry.sleep(Duration::MAX), registry.sleep(LONG)] {
        assert!(poll(&mut far, Waker::noop()).is_pending());
        assert!(!far.is_elapsed());
    }
    // All sleeps have ended, so nothing uses the registry.
    shut_down(registry);
}

#[test]
fn many_sleeps_end_each_at_its_time() {
    let queue = alone_on_two(queue("sleep"));
    let tasks: Vec<_> = (0..500)
        .map(|i| {
            let until = Instant::now() + Duration::from_micros(1 + 97 * i % 20_000);
            queue.spawn_async(async move {
                sleep_until(until).await;
                Instant::now() >= until
            })
        })
        .collect();
    assert!(tasks.into_iter().all(|task| task.join().unwrap()));
}

#[test]
fn a_waker_whose_clone_outlasts_the_sleep_is_dropped_under_no_lock() {
    static FIRED: Mutex<Option<Receiver<&str>>> = Mutex::new(None);
    static SLOW: RawWakerVTable = RawWakerVTable::new(
        |data| {
            let fired = FIRED.lock().unwrap().take().unwrap();
            assert_eq!(fired.recv_timeout(PATIENCE), Ok("first"));
            RawWaker::new(data, &COMMON)
        },
        |_| (),
        |_| (),
        |_| (),
    );
    static COMMON: RawWakerVTable =
        RawWakerVTable::new(|data| RawWaker::new(data, &COMMON), |_| (), |_| (), |_| ());
    let registry = registry("2 core");
    let (send, receive) = mpsc::channel();
    *FIRED.lock().unwrap() = Some(receive);
    let mut slept = sleeping(&registry, 25 * SHORT, &sender_waker(&send, "first"));
    // SAFETY: the tables' functions use no data.
    let slow = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &SLOW)) };
    // A debug build asserts that no lock is held where the clone is dropped.
    assert!(poll(&mut slept, &slow).is_ready());
}

#[test]
fn the_waker_of_the_last_poll_is_fired_and_those_before_it_are_not() {
    let registry = registry("2 core");
    let (send, receive) = mpsc::channel();
    let mut slept = registry.sleep(250 * SHORT);
    for waker in [sender_waker(&send, "first"), sender_waker(&send, "last")] {
        assert!(poll(&mut slept, &waker).is_pending());
        // The second poll uses the same waker.
        assert!(poll(&mut slept, &waker).is_pending());
    }
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("last"));
    assert!(poll(&mut slept, Waker::noop()).is_ready());
    drop(send);
    assert!(receive.recv_timeout(PATIENCE).is_err(), "another was fired");
}

#[test]
fn a_sleep_that_is_dropped_drops_its_waker_and_fires_none() {
    let registry = registry("2 core");
    let census = Census::default();
    let life = census.life();
    let mut slept = registry.sleep(LONG);
    let waker = does(move || {
        let _ = &life;
    });
    assert!(poll(&mut slept, &waker).is_pending());
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
fn a_sleep_is_reset_to_another_moment() {
    let registry = registry("2 core");
    let mut slept = registry.sleep(LONG);
    assert!(poll(&mut slept, Waker::noop()).is_pending());
    slept.reset(Instant::now() + SHORT);
    block_on(&mut slept);
    assert!(slept.is_elapsed());
    slept.reset(Instant::now() + LONG);
    assert!(!slept.is_elapsed() && poll(&mut slept, Waker::noop()).is_pending());
}

#[test]
fn a_sleep_keeps_its_registry() {
    let registry = registry("2 core");
    let slept = registry.sleep(SHORT);
    let still = registry.shutdown().unwrap_err();
    assert_eq!(still.nr_users, 1);
    block_on(slept);
    still.registry.shutdown().unwrap();
}

#[test]
fn a_waker_that_panics_or_waits_or_ends_things_holds_up_no_timer() {
    let registry = registry("2 core");
    let (plug, hole) = stopper();
    let hole = std::sync::Mutex::new(hole);
    let fired = Count::default();
    let own = queue("own").build_in(&registry).unwrap();
    let own = std::sync::Mutex::new(Some(own));
    let again = fired.clone();
    let wakers = [
        does(|| panic!("on purpose")),
        does(move || hole.lock().unwrap().sit()),
        does(move || drop(own.lock().unwrap().take())),
        does(move || again.add()),
    ];
    let asleep = |waker| sleeping(&registry, SHORT, waker);
    let _sleeps: Vec<_> = wakers.iter().map(asleep).collect();
    plug.wait_until_stuck();
    eventually("the last is fired", || fired.get() == 1);
    // One waker blocks its thread, and the manager still fires timers.
    let queue = queue("later").build_in(&registry).unwrap();
    let (send, receive) = mpsc::channel();
    let timed = DelayedWork::new(move || send.send(()).unwrap());
    assert!(queue.enqueue_after(&timed, SHORT));
    receive.recv_timeout(PATIENCE).unwrap();
    let inside = registry.clone();
    let task = queue.spawn_async(async move { inside.sleep(SHORT).await });
    task.join().unwrap();
    plug.release();
}

#[test]
fn sleeps_of_our_own_tasks_need_no_thread_but_the_registry_s() {
    let registry = registry("2 core");
    let queue = queue("sleep").build_in(&registry).unwrap();
    queue.spawn(|| ()).join().unwrap();
    let inside = registry.clone();
    registry.refuse_threads(true);
    block_on(registry.sleep(SHORT));
    let task = queue.spawn_async(async move { inside.sleep(SHORT).await });
    block_on(task).unwrap();
    // The fallback reaper wakes wakers that are not the library's own.
    let (send, receive) = mpsc::channel();
    let _slept = sleeping(&registry, SHORT, &sender_waker(&send, "late"));
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("late"));
    registry.refuse_threads(false);
}

#[test]
fn a_hundred_thousand_sleeps_are_cheap_and_leave_nothing() {
    let registry = registry("2 core");
    leaves_less_than(4096, "a hundred thousand sleeps", || {
        let mut sleeps: Vec<_> = (0..100_000).map(|_| registry.sleep(LONG)).collect();
        for slept in &mut sleeps {
            assert!(poll(slept, Waker::noop()).is_pending());
        }
        drop(sleeps);
        // Memory that is freed later counts too.
        for _ in 0..2000 {
            let mut slept = registry.sleep(LONG);
            assert!(poll(&mut slept, Waker::noop()).is_pending());
        }
    });
}

#[test]
fn a_future_is_ready_in_time_or_the_time_is_over() {
    let registry = registry("2 core");
    assert_eq!(block_on(timeout(LONG, ready(7))), Ok(7));
    assert_eq!(block_on(timeout(Duration::MAX, ready(7))), Ok(7));
    // A future that is ready never times out.
    assert_eq!(block_on(timeout(Duration::ZERO, ready(7))), Ok(7));
    assert_eq!(
        block_on(timeout_at(Instant::now() - SHORT, ready(7))),
        Ok(7)
    );
    assert_eq!(block_on(timeout(SHORT, pending::<()>())), Err(Elapsed));
    let late = registry.timeout(SHORT, async { sleep(LONG).await });
    let error: std::io::Error = block_on(late).unwrap_err().into();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_future_that_was_too_late_is_dropped_with_its_timeout() {
    let census = Census::default();
    let life = census.life();
    let mut late = Box::pin(timeout(SHORT, async move {
        let _life = life;
        pending::<()>().await;
    }));
    assert!(block_on(late.as_mut()).is_err());
    assert_eq!(census.alive(), 1);
    drop(late);
    census.all_dropped(1);
}

#[test]
fn an_interval_that_is_behind_yields_between_two_ticks() {
    for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Skip] {
        ends(move || {
            let queue = alone_on_two(queue("one").max_active(1));
            // The interval is behind from its second tick on.
            let mut canceller = afterwork::workqueue::CancelHandle::default();
            let handle = queue
                .task()
                .cancel_handle(&mut canceller)
                .spawn_async(async move {
                    let mut ticks = interval(Duration::from_nanos(1)).unwrap();
                    ticks.set_missed_tick_behavior(missed);
                    loop {
                        ticks.tick().await;
                    }
                });
            for number in 0..100 {
                let other = queue.spawn_async(async move { number });
                assert_eq!(other.join().unwrap(), number);
            }
            assert!(canceller.cancel());
            assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        });
    }
}

#[test]
fn an_interval_that_is_behind_loses_no_tick_by_yielding() {
    let mut ticks = interval(Duration::from_nanos(1)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut is_ready = || ticks.poll_tick(&mut context).is_ready();
    assert!(is_ready(), "the first tick is at once");
    // After that a thousand ticks are due.
    thread::sleep(Duration::from_millis(1));
    let mut yielded = false;
    for _ in 0..100 {
        let ready = is_ready();
        assert!(ready || !yielded, "it yielded twice in a row");
        yielded = !ready;
    }
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
}

/// Returns the number of ticks that are ready after three and a half periods without a poll.
fn at_once_after_a_while(behavior: MissedTickBehavior) -> usize {
    let period = 100 * SHORT;
    let mut ticks = interval(period).unwrap();
    ticks.set_missed_tick_behavior(behavior);
    thread::sleep(3 * period + period / 2);
    let mut context = Context::from_waker(Waker::noop());
    let mut nr_ready = 0;
    while ticks.poll_tick(&mut context).is_ready() {
        nr_ready += 1;
    }
    nr_ready
}

#[test]
fn ticks_that_were_missed_come_at_once_or_never() {
    // On a busy machine, a thread that oversleeps may miss more ticks.
    assert!(at_once_after_a_while(MissedTickBehavior::Burst) >= 4);
    assert!(at_once_after_a_while(MissedTickBehavior::Delay) >= 1);
    assert!(at_once_after_a_while(MissedTickBehavior::Skip) >= 1);
}

#[test]
fn block_on_sleeps_between_polls_and_wakes_whoever_wakes_it() {
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
}

#[test]
fn block_on_waits_for_anything_inside_an_item_and_nests() {
    let queue = alone_on_two(queue("outer").max_active(1));
    let other = alone_on_two(crate::support::queue("inner"));
    let task = queue.spawn(move || {
        block_on(async {
            let inner = other.spawn(|| block_on(async { block_on(sleep(SHORT)) }));
            inner.await.unwrap();
            7
        })
    });
    assert_eq!(task.join().unwrap(), 7);
}

#[test]
fn block_on_is_refused_in_a_bottom_half_before_the_first_poll() {
    let queue = alone_on_two(queue("bh").bh());
    let task = queue.spawn(|| {
        let mut polled = false;
        let future = poll_fn(|_| {
            polled = true;
            Poll::Ready(())
        });
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(future)));
        (refused.is_err(), polled)
    });
    assert_eq!(task.join().unwrap(), (true, false));
}

#[test]
fn a_panic_of_a_poll_leaves_block_on_and_the_next_one_works() {
    let caught = std::panic::catch_unwind(|| block_on(async { panic!("on purpose") }));
    assert!(caught.is_err());
    assert_eq!(block_on(async { 7 }), 7);
}

/// These types may be sent, moved after a poll, and used after a panic.
#[test]
fn the_types_may_go_where_tokio_s_go() {
    fn goes<T: Send + Sync + Unpin>() {}
    goes::<Sleep>();
    goes::<afterwork::workqueue::Interval>();
    goes::<afterwork::workqueue::Timeout<std::future::Ready<()>>>();
    goes::<afterwork::workqueue::TaskSet<std::cell::Cell<u8>>>();
    goes::<afterwork::workqueue::CancelHandle>();
    goes::<afterwork::workqueue::Periodic>();
}

#[test]
fn the_registry_of_the_process_wakes_who_names_none() {
    assert!(Registry::global().is_ok());
    let mut slept = pin!(sleep(SHORT));
    block_on(slept.as_mut());
    assert!(slept.is_elapsed());
}
