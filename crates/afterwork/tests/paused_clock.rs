//! A program's own tests, with a clock that only they advance. None of them waits for real time.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwork::workqueue::{
    Backoff, CancellationToken, DelayedWork, Elapsed, JoinError, MissedTickBehavior, RateLimit,
    Registry, TestRegistry, Workqueue, is_cancelled, shutdown_in_order_async,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn registry_and_queues<const N: usize>() -> (TestRegistry, [Workqueue; N]) {
    let registry = Registry::for_tests().unwrap();
    let queues = [(); N].map(|()| Workqueue::builder("tested").build_in(&registry).unwrap());
    (registry, queues)
}

/// Saves a document a minute after its last change.
struct SaveSoon {
    queue: Workqueue,
    save: DelayedWork,
    nr_saves: Arc<AtomicU32>,
}

impl SaveSoon {
    fn new(registry: &Registry) -> Self {
        let nr_saves = Arc::new(AtomicU32::new(0));
        let saves = nr_saves.clone();
        Self {
            queue: Workqueue::builder("save").build_in(registry).unwrap(),
            save: DelayedWork::new(move || _ = saves.fetch_add(1, Ordering::Relaxed)),
            nr_saves,
        }
    }

    fn changed(&self) {
        self.queue.reschedule(&self.save, 60 * SECOND).unwrap();
    }

    fn nr_saves(&self) -> u32 {
        self.nr_saves.load(Ordering::Relaxed)
    }
}

#[test]
fn changes_within_a_minute_are_saved_once() {
    let mut registry = Registry::for_tests().unwrap();
    let document = SaveSoon::new(&registry);
    for _ in 0..3 {
        document.changed();
        registry.advance(59 * SECOND);
    }
    assert_eq!(document.nr_saves(), 0);
    registry.advance(SECOND);
    assert_eq!(document.nr_saves(), 1);
}

/// Events with the times at which they happened, in milliseconds.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(u128, &'static str)>>>);

#[test]
fn timers_of_all_kinds_fire_in_order_and_exactly_in_time() {
    let (mut registry, [queue]) = registry_and_queues();
    let log = Log::default();
    let start = registry.now();
    let noted = |what| {
        let (log, registry) = (log.clone(), registry.clone());
        move || {
            let since = registry.now().duration_since(start).as_millis();
            log.0.lock().unwrap().push((since, what));
        }
    };
    let delayed = DelayedWork::new(noted("delayed"));
    queue.enqueue_after(&delayed, 30 * MS);
    let _ticks = queue.every(20 * MS, noted("tick")).unwrap();
    let (inside, ticked) = (registry.clone(), noted("interval"));
    drop(queue.spawn_async(async move {
        let mut ticks = inside.interval(25 * MS).unwrap();
        for _ in 0..3 {
            ticks.tick().await;
            ticked();
        }
    }));
    let (inside, slept) = (registry.clone(), noted("slept"));
    drop(queue.spawn_async(async move {
        for span in [10, 15] {
            inside.sleep(span * MS).await;
            slept();
        }
    }));
    registry.advance(50 * MS);
    let expected = [
        (0, "interval"),
        (10, "slept"),
        (20, "tick"),
        (25, "interval"),
        (25, "slept"),
        (30, "delayed"),
        (40, "tick"),
        (50, "interval"),
    ];
    assert_eq!(*log.0.lock().unwrap(), expected);
}

#[test]
fn a_timeout_ends_a_future_at_its_time_and_not_before() {
    let (mut registry, [queue]) = registry_and_queues();
    let task = queue.spawn_async(registry.timeout(YEAR, pending::<()>()));
    registry.advance(YEAR - Duration::from_nanos(1));
    assert!(!task.is_finished());
    registry.advance(Duration::from_nanos(1));
    assert_eq!(task.join().unwrap(), Err(Elapsed));
}

#[test]
fn a_shutdown_of_several_queues_ends_exactly_at_its_limit() {
    let (mut registry, [first, second, caller]) = registry_and_queues();
    drop(first.spawn_async(registry.sleep(9 * SECOND)));
    drop(second.spawn_async(registry.sleep(YEAR)));
    let queues = [first.clone(), second.clone()];
    let left = caller.spawn_async(async move {
        let [first, second] = &queues;
        let left = shutdown_in_order_async(&[first, second], 10 * SECOND).await;
        left.unwrap().len()
    });
    registry.advance(10 * SECOND - Duration::from_nanos(1));
    let ends_early = left.is_finished();
    registry.advance(Duration::from_nanos(1));
    let ends_in_time = left.is_finished();
    // Ends the items, because dropping the queues waits for them.
    registry.advance(YEAR);
    assert_eq!((ends_early, ends_in_time), (false, true));
    assert_eq!(left.join().unwrap(), 1);
}

#[test]
fn a_rate_limit_of_centuries_is_still_a_limit() {
    let registry = Registry::for_tests().unwrap();
    for (period, burst) in [(YEAR, 1000), (300 * YEAR, 3), (Duration::MAX, 2)] {
        let limit = registry.rate_limit(period, burst);
        let nr_turns = (0..5000).filter(|_| limit.try_acquire()).count();
        assert!((1..=burst as usize).contains(&nr_turns), "{nr_turns} of {burst}");
    }
}

#[test]
fn an_item_that_has_not_started_by_its_deadline_expires() {
    let (mut registry, [queue, other]) = registry_and_queues();
    let deadline = registry.now() + SECOND;
    let in_time = queue.task().deadline(deadline).spawn(|| 7);
    assert_eq!(in_time.join().unwrap(), 7);
    queue.pause();
    let mut late = queue.task().deadline(deadline).spawn(|| 7);
    let awaits = other.spawn_async(queue.task().deadline(deadline).spawn(|| 7));
    registry.advance(SECOND - MS);
    assert!(late.try_join().is_none(), "the queue is paused");
    registry.advance(MS);
    assert!(matches!(late.join(), Err(JoinError::Expired)));
    assert!(matches!(awaits.join().unwrap(), Err(JoinError::Expired)));
    queue.resume();
    let never = queue.task().deadline(deadline).spawn(|| 7);
    assert!(matches!(never.join(), Err(JoinError::Expired)));
}

#[test]
fn missed_ticks_follow_the_rule() {
    for (missed, count) in [(MissedTickBehavior::Burst, 5), (MissedTickBehavior::Skip, 1)] {
        let mut registry = Registry::for_tests().unwrap();
        let mut ticks = registry.interval(SECOND).unwrap();
        ticks.set_missed_tick_behavior(missed);
        registry.advance(4 * SECOND);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let is_ready = |_: &i32| ticks.poll_tick(&mut context).is_ready();
        assert_eq!((0..8).take_while(is_ready).count(), count);
    }
}

#[test]
fn the_registry_is_idle_when_all_that_can_run_has_run() {
    fn spawn_below(queue: &Workqueue, nr_runs: &Arc<AtomicU32>, depth: u32) {
        let (inside, runs) = (queue.clone(), nr_runs.clone());
        let item = move || {
            runs.fetch_add(1, Ordering::Relaxed);
            if depth > 0 {
                spawn_below(&inside, &runs, depth - 1);
                spawn_below(&inside, &runs, depth - 1);
            }
        };
        queue.spawn_detached(item).unwrap();
    }
    let (registry, [queue, paused]) = registry_and_queues();
    let nr_runs = Arc::new(AtomicU32::new(0));
    paused.pause();
    spawn_below(&paused, &nr_runs, 0);
    spawn_below(&queue, &nr_runs, 9);
    registry.run_until_idle();
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1023);
    paused.resume();
    registry.run_until_idle();
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1024);
}

/// Because of the cancelled enqueue, a reaper fires the timer. The registry waits for the reaper.
#[test]
fn an_item_that_a_reaper_fires_is_not_late() {
    let (mut registry, [paused]) = registry_and_queues();
    let document = SaveSoon::new(&registry);
    paused.pause();
    paused.reschedule(&document.save, Duration::ZERO).unwrap();
    assert!(document.save.cancel());
    document.changed();
    registry.advance(60 * SECOND);
    assert_eq!(document.nr_saves(), 1);
    paused.resume();
}

#[test]
fn a_retry_stops_at_a_permanent_error_without_a_pause() {
    let (mut registry, [queue]) = registry_and_queues();
    let mut errors = ["busy", "denied", "busy"].into_iter();
    let policy = Backoff::new(3, SECOND);
    let attempt = move || std::future::ready(Err::<(), _>(errors.next().unwrap()));
    let task = queue.spawn_async(registry.retry_if(policy, attempt, |error| *error == "busy"));
    registry.run_until_idle();
    assert!(!task.is_finished(), "the first error is transient");
    registry.advance(SECOND);
    assert!(task.is_finished());
    assert_eq!(task.join().unwrap(), Err("denied"));
}

#[test]
fn a_retry_pauses_longer_each_time_and_gives_up() {
    let (mut registry, [queue]) = registry_and_queues();
    let (log, start, clock) = (Log::default(), registry.now(), registry.clone());
    let noted = log.clone();
    let policy = Backoff::new(4, SECOND).longest(3 * SECOND);
    let task = queue.spawn_async(registry.retry(policy, move || {
        let since = clock.now().duration_since(start).as_millis();
        noted.0.lock().unwrap().push((since, "failed"));
        async { Err::<(), _>("busy") }
    }));
    registry.advance(60 * SECOND);
    assert_eq!(task.join().unwrap(), Err("busy"));
    let times: Vec<_> = log.0.lock().unwrap().iter().map(|it| it.0).collect();
    let pauses: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses.len(), 3);
    for (pause, longest) in pauses.into_iter().zip([1000, 2000, 3000]) {
        assert!((longest / 2..=longest).contains(&pause), "{pause} of {longest}");
    }
}

#[test]
fn a_rate_limit_lets_a_burst_pass_and_then_one_a_period() {
    let (mut registry, [queue]) = registry_and_queues();
    let limit = Arc::new(registry.rate_limit(SECOND, 3));
    let nr_passed = Arc::new(AtomicU32::new(0));
    for _ in 0..10 {
        let (limit, passed) = (limit.clone(), nr_passed.clone());
        drop(queue.spawn_async(async move {
            limit.acquire().await;
            passed.fetch_add(1, Ordering::Relaxed);
        }));
    }
    for expected in 3..=10 {
        registry.run_until_idle();
        assert_eq!(nr_passed.load(Ordering::Relaxed), expected);
        assert!(!limit.try_acquire());
        registry.advance(SECOND);
    }
    registry.advance(2 * SECOND);
    let all_pass = (0..3).all(|_| limit.try_acquire());
    assert!(all_pass && !limit.try_acquire());
}

#[test]
fn a_hard_deadline_cancels_a_future_that_still_runs() {
    let (mut registry, [queue, paused]) = registry_and_queues();
    paused.pause();
    let until_cancelled = async {
        let before = is_cancelled();
        CancellationToken::current().cancelled().await;
        (before, is_cancelled())
    };
    let deadline = registry.now() + SECOND;
    let options = |queue| Workqueue::task(queue).hard_deadline(deadline);
    let runs = options(&queue).spawn_async(until_cancelled);
    let ends = options(&queue).spawn_async(async { is_cancelled() });
    let waits = options(&paused).spawn(|| ());
    registry.advance(SECOND - MS);
    assert!(!runs.is_finished());
    registry.advance(MS);
    assert_eq!(runs.join().unwrap(), (false, true));
    assert!(!ends.join().unwrap());
    assert!(matches!(waits.join(), Err(JoinError::Expired)));
}

#[test]
fn a_limit_or_policy_of_zero_panics() {
    let registry = Registry::for_tests().unwrap();
    let cases: [(&str, &dyn Fn()); 3] = [
        ("bursts of 0 turns", &|| drop(registry.rate_limit(SECOND, 0))),
        ("bursts of 0 turns", &|| drop(RateLimit::new(SECOND, 0))),
        ("0 attempts", &|| _ = Backoff::new(0, SECOND)),
    ];
    for (expected, call) in cases {
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        let message = panic.downcast_ref::<&str>().expect("a literal");
        assert!(message.contains(expected), "{message}");
    }
}
