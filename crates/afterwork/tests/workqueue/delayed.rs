//! Delayed items, and periodic work.

use crate::support::*;

fn counting(count: Count) -> DelayedWork {
    DelayedWork::new(count.adder())
}

fn counted() -> (DelayedWork, Count) {
    let count = Count::default();
    (counting(count), count)
}

#[test]
fn delayed_item_runs_when_due_and_not_earlier() {
    let queue = queue("delay").alone();
    let (send, receive) = mpsc::channel();
    let work = DelayedWork::new(move || send.send(Instant::now()).unwrap());
    for delay in [SHORT, 5 * SHORT, 25 * SHORT] {
        let start = Instant::now();
        assert!(queue.enqueue_after(&work, delay));
        let came = receive.recv_timeout(PATIENCE).unwrap();
        assert!(came - start >= delay, "{:?} of {delay:?}", came - start);
        work.flush().unwrap();
    }
}

#[test]
fn a_delay_of_zero_queues_at_once() {
    let queue = queue("delay").max_active(1).alone();
    let (plug, (work, count)) = (plug_into(&queue), counted());
    assert!(queue.enqueue_after(&work, Duration::ZERO));
    assert!(work.is_pending());
    assert!(!queue.enqueue_after(&work, Duration::ZERO));
    assert_eq!(plug.release_and_count(&queue, count), 1);
}

#[test]
fn an_item_whose_timer_runs_is_pending_and_not_queued_again() {
    let queue = queue("delay").alone();
    let work = DelayedWork::new(|| unreachable!("cancelled"));
    assert!(!work.is_pending());
    assert!(queue.enqueue_after(&work, HOUR));
    assert!(work.is_pending() && !work.busy().executing, "{work:?}");
    for delay in [Duration::ZERO, SHORT, HOUR] {
        assert!(!queue.enqueue_after(&work, delay));
    }
    assert!(work.cancel());
    assert!(!work.is_pending() && !work.cancel(), "{work:?}");
    assert_eq!(queue.drained().panicked, 0);
}

#[test]
fn many_timers_run_each_item_once() {
    let (queue, count) = (queue("delay").alone(), Count::default());
    let works: Vec<_> = (0..500).map(|_| counting(count)).collect();
    for (i, work) in works.iter().enumerate() {
        assert!(queue.enqueue_after(work, Duration::from_micros(1 + 97 * i as u64 % 20_000)));
    }
    wait_until(|| count.get() == 500);
    wait_until(|| works.iter().all(|work| !work.is_pending()));
    assert_eq!(count.after_drain(&queue), 500);
}

#[test]
fn mod_delayed_replaces_the_time_earlier_and_later() {
    let (queue, (work, count)) = (queue("mod").alone(), counted());
    assert_eq!(queue.reschedule(&work, HOUR), Ok(true), "it was not pending");
    assert_eq!(queue.reschedule(&work, SHORT), Ok(false));
    wait_until(|| count.get() == 1);
    work.flush().unwrap();
    // On a loaded machine, the item may run before its time is replaced.
    let nr_runs = loop {
        let nr_runs = count.get();
        assert!(queue.enqueue_after(&work, 50 * SHORT));
        if queue.reschedule(&work, HOUR) == Ok(false) {
            break nr_runs;
        }
        work.cancel_sync();
    };
    let (later, _) = counted();
    assert!(queue.enqueue_after(&later, 50 * SHORT));
    wait_until(|| !later.is_pending());
    assert_eq!(count.after_drain(&queue), nr_runs, "not at the time that was replaced");
    assert_eq!(queue.reschedule(&work, Duration::ZERO), Ok(false));
    wait_until(|| count.get() == nr_runs + 1);
}

#[test]
fn mod_delayed_takes_a_queued_item_back_into_the_timer() {
    for queue in ordered_and_narrow() {
        let (plug, (work, count)) = (plug_into(&queue), counted());
        assert!(queue.enqueue_after(&work, Duration::ZERO));
        assert_eq!(queue.reschedule(&work, HOUR), Ok(false));
        assert_eq!(plug.release_and_count(&queue, count), 0);
        assert!(work.cancel());
    }
}

#[test]
fn flush_queues_an_item_at_once_whose_timer_runs() {
    let (queue, (work, count)) = (queue("flush").alone(), counted());
    assert_eq!(work.flush(), Ok(false));
    assert!(queue.enqueue_after(&work, HOUR));
    assert_eq!(work.flush(), Ok(true));
    assert_eq!(count.get(), 1);
    assert!(!work.is_pending());
}

#[test]
fn cancel_sync_stops_an_item_that_rearms_itself() {
    let queue = queue("sync").alone();
    let (again, count) = (queue.clone(), Count::default());
    let work = DelayedWork::with_handle(move |this| {
        count.add();
        again.enqueue_after(this, Duration::from_micros(100));
    });
    assert!(queue.enqueue_after(&work, SHORT));
    wait_until(|| count.get() > 5);
    work.cancel_sync();
    assert!(!work.is_pending() && !work.busy().executing, "{work:?}");
    let before = count.get();
    assert_eq!(count.after_drain(&queue), before);
}

#[test]
fn disabling_removes_an_item_from_its_timer_for_good() {
    let (queue, (work, count)) = (queue("disable").alone(), counted());
    assert!(queue.enqueue_after(&work, HOUR));
    assert!(work.disable());
    assert!(!work.is_pending());
    for delay in [Duration::ZERO, SHORT] {
        assert!(!queue.enqueue_after(&work, delay));
        assert!(queue.reschedule(&work, delay).unwrap_err().is_disabled());
    }
    assert!(work.enable());
    assert!(queue.enqueue_after(&work, SHORT));
    wait_until(|| count.get() == 1);
}

#[test]
fn items_with_slack_are_late_by_at_most_that_and_never_early() {
    let (queue, late_by) = (queue("slack").alone(), Log::default());
    let start = Instant::now();
    for i in 0..50 {
        let delay = Duration::from_micros(1000 + i * 100);
        let work = DelayedWork::new(move || late_by.push(start.elapsed().checked_sub(delay)));
        assert!(queue.enqueue_after(&work.with_slack(8 * MS), delay));
    }
    let mut seen = Vec::new();
    wait_until(|| {
        seen.append(&mut late_by.take());
        seen.len() == 50
    });
    assert!(seen.iter().all(Option::is_some), "one was early");
}

#[test]
fn item_without_handles_is_queued_when_due() {
    let (queue, lives, count) = (queue("orphan").alone(), Census::default(), Count::default());
    let work = DelayedWork::new(keeping(lives.life(), count.adder()));
    assert!(queue.enqueue_after(&work, SHORT));
    drop(work);
    lives.all_dropped(1);
    assert_eq!(count.get(), 1);
}

#[test]
fn destroyed_queue_removes_its_timers() {
    let (registry, lives, count) = (registry("2 core"), Census::default(), Count::default());
    let queue = queue("gone").on(&registry);
    let work = DelayedWork::new(keeping(lives.life(), count.adder()));
    assert!(queue.enqueue_after(&work, HOUR));
    drop((queue, work));
    lives.all_dropped(1);
    assert_eq!(count.get(), 0);
    registry.shutdown().unwrap();
}

#[test]
fn many_threads_change_timers_and_lose_no_enqueue() {
    let (queue, count) = (queue("storm").alone(), Count::default());
    let works: Vec<_> = (0..4).map(|_| counting(count)).collect();
    let nr_due = changed_by_threads(&works, |step, work| {
        let delay = Duration::from_micros((step as u64 * 37) % 300);
        match step % 3 == 0 && work.cancel() {
            true => -1,
            false => queue.enqueue_after(work, delay).into(),
        }
    });
    wait_until(|| works.iter().all(|work| !work.is_pending()));
    assert_eq!(count.after_drain(&queue) as i64, nr_due);
}

#[test]
fn a_rejected_change_is_an_error_and_leaves_the_timer_armed() {
    let queue = queue("drained").alone();
    let (plug, (work, count)) = (plug_into(&queue), counted());
    let (idle, (flushed, nr_flushed)) = (counting(count), counted());
    assert_eq!([&work, &flushed].map(|work| queue.enqueue_after(work, HOUR)), [true; 2]);
    let drainer = drain_begun(&queue);
    assert_eq!((flushed.flush(), nr_flushed.get()), (Ok(true), 1));
    let nr_refused = queue.stats().refused;
    for delay in [Duration::ZERO, SHORT] {
        let refused = queue.reschedule(&work, delay).unwrap_err();
        assert!(refused.is_closed() && !refused.is_full() && !refused.is_disabled(), "{refused}");
        assert!(work.is_pending(), "it keeps its time");
        assert!(queue.reschedule(&idle, delay).is_err() && !idle.is_pending(), "{idle:?}");
    }
    assert_eq!(queue.stats().refused, nr_refused + 4);
    plug.release_and_join(drainer);
    assert_eq!(queue.reschedule(&work, Duration::ZERO), Ok(false));
    wait_until(|| count.get() == 1);
    queue.shutdown(Duration::MAX).unwrap();
    assert!(queue.reschedule(&work, SHORT).unwrap_err().is_closed());
    assert!(!work.is_pending());
}

#[test]
fn delays_of_any_length_are_flushed_and_changed() {
    let (queue, count) = (queue("edges").alone(), Count::default());
    let delays = [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(1 << 40)];
    for delay in delays {
        for slack in [Duration::ZERO, Duration::MAX, Duration::from_nanos(1)] {
            let work = counting(count).with_slack(slack);
            assert_eq!([delay, SHORT].map(|it| queue.enqueue_after(&work, it)), [true, false]);
            assert_eq!(queue.reschedule(&work, delay), Ok(false));
            assert!(work.is_pending());
            let before = count.get();
            assert_eq!(work.flush(), Ok(true));
            assert_eq!((count.get(), work.is_pending()), (before + 1, false));
        }
    }
    let works: [_; 64] = std::array::from_fn(|bit| {
        let work = counting(count);
        assert!(queue.enqueue_after(&work, Duration::from_nanos(1 << bit)));
        work
    });
    // The first 30 delays are at most half a second.
    wait_until(|| works[..30].iter().all(|work| !work.is_pending()));
    assert!(works[45..].iter().all(DelayedWork::is_pending));
}

/// The item's cancelled enqueue stays on the list of the paused queue.
#[test]
fn an_item_cancelled_on_a_paused_queue_fires_on_another() {
    let registry = registry("2 core");
    let [paused, other] = ["paused", "other"].map(|name| queue(name).build_in(&registry).unwrap());
    let (work, count) = counted();
    paused.pause();
    assert!(paused.enqueue_after(&work, Duration::ZERO) && work.cancel(), "{work:?}");
    assert!(other.enqueue_after(&work, SHORT));
    wait_until(|| count.get() == 1);
    // Disarming also finds an item that is left to a reaper.
    assert!(paused.enqueue_after(&work, Duration::ZERO) && work.cancel(), "{work:?}");
    assert!(other.enqueue_after(&work, SHORT));
    assert_eq!(other.reschedule(&work, HOUR), Ok(false));
    assert!(work.is_pending() && work.cancel() && !work.is_pending(), "{work:?}");
    paused.resume();
}

const PERIOD: Duration = SHORT;

#[test]
fn runs_longer_than_a_period_miss_ticks_and_never_overlap() {
    use MissedTickBehavior::{Burst, Delay, Skip};
    let queue = queue("every").alone();
    for behavior in [Burst, Delay, Skip] {
        let (gauge, count) = (Gauge::default(), Count::default());
        let ticks = queue.every(PERIOD, move || {
            gauge.within(|| thread::sleep(2 * PERIOD));
            count.add();
        });
        let ticks = ticks.unwrap().with_missed_ticks(behavior);
        wait_until(|| count.get() >= 5);
        ticks.cancel_sync();
        assert_eq!(gauge.most(), 1);
    }
}

#[test]
fn dropping_periodic_work_ends_it_after_the_present_run() {
    let (queue, count) = (queue("every").alone(), Count::default());
    let (ticks, plug) = stuck(|hole| {
        queue.every(PERIOD, move || {
            hole.sit();
            count.add();
        })
    });
    drop(ticks);
    assert_eq!(count.get(), 0);
    plug.release_and_drain(&queue);
    let_others_tick(&queue);
    assert_eq!(count.get(), 1);
    // It may also be dropped inside its own run.
    let (count, (give, own)) = (Count::default(), mpsc::channel::<Periodic>());
    let ticks = queue.every(PERIOD, move || {
        count.add();
        drop(own.recv());
    });
    give.send(ticks.unwrap()).unwrap();
    wait_until(|| count.get() == 1);
    queue.drain().unwrap();
    let_others_tick(&queue);
    assert_eq!(count.get(), 1);
}

/// Runs a function periodically that counts its runs and owns a life of `census`.
fn owning_ticks(queue: &Workqueue, period: Duration, census: Census) -> (Periodic, Count) {
    let count = Count::default();
    let ticks = queue.every(period, keeping(census.life(), count.adder()));
    wait_until(|| count.get() > 0);
    (ticks.unwrap(), count)
}

#[test]
fn cancelled_periodic_work_is_dropped_after_its_run() {
    let (queue, census) = (queue("every").alone(), Census::default());
    for _ in 0..20 {
        let (ticks, count) = owning_ticks(&queue, Duration::from_micros(70), census);
        ticks.cancel_sync();
        let before = count.get();
        assert_eq!(count.after_drain(&queue), before);
    }
    census.all_dropped(20);
}

#[test]
fn periodic_work_ends_with_its_queue() {
    let (registry, census) = (registry("2 core"), Census::default());
    let queue = queue("every").on(&registry);
    let (ticks, count) = owning_ticks(&queue, PERIOD, census);
    drop(queue);
    let then = count.get();
    let_others_tick(&self::queue("others").on(&registry));
    assert_eq!(count.get(), then);
    drop(ticks);
    census.all_dropped(1);
    shut_down(registry);
    // Detached work runs until its queue ends.
    let (queue, census) = (self::queue("every").alone(), Census::default());
    let (ticks, count) = owning_ticks(&queue, PERIOD, census);
    ticks.detach();
    let then = count.get();
    wait_until(|| count.get() > then + 1);
    drop(queue);
    census.all_dropped(1);
}

#[test]
fn a_drain_does_not_wait_for_periodic_work() {
    let queue = queue("every").alone();
    let (early, late) = (Count::default(), Count::default());
    let long = queue.every(Duration::MAX, || ()).unwrap();
    let short = queue.every(PERIOD, early.adder()).unwrap();
    wait_until(|| early.get() > 0);
    queue.drain().unwrap();
    queue.shutdown(Duration::MAX).unwrap();
    let on_destroyed = queue.every(PERIOD, late.adder()).unwrap();
    let others = self::queue("others").alone();
    let_others_tick(&others);
    let then = early.get();
    let_others_tick(&others);
    assert_eq!((early.get(), late.get()), (then, 0));
    drop((long, short, on_destroyed));
}

#[test]
fn periodic_work_runs_on_after_a_pause_and_after_a_panic() {
    let count = Count::default();
    let queue = queue("every").on_panic(move |_| count.add()).paused();
    let _ticks = queue.every(PERIOD, || panic!("on purpose"));
    wait_until(|| waiting(&queue) == 1);
    assert_eq!(count.get(), 0);
    queue.resume();
    wait_until(|| count.get() >= 3);
}

/// Waits until other periodic work has run five times.
fn let_others_tick(queue: &Workqueue) {
    let count = Count::default();
    let _ticks = queue.every(PERIOD, count.adder()).unwrap();
    wait_until(|| count.get() >= 5);
}

#[test]
fn cancel_all_ends_running_and_waiting_periodic_work() {
    let (queue, count) = (queue("every").alone(), Count::default());
    let (_ticks, plug) = stuck(|hole| {
        queue.every(PERIOD, move || {
            count.add();
            hole.sit();
        })
    });
    assert_eq!(queue.cancel_all(), 0, "a running item is not cancelled");
    plug.release_and_drain(&queue);
    // If it ran again, it would send to a test that has ended.
    drop(plug);
    let_others_tick(&queue);
    assert_eq!(count.get(), 1);
    let count = Count::default();
    let _ticks = queue.every(HOUR, count.adder()).unwrap();
    assert_eq!(queue.cancel_all(), 1);
    queue.pause();
    let _queued = queue.every(PERIOD, count.adder()).unwrap();
    wait_until(|| waiting(&queue) == 1);
    assert_eq!(queue.cancel_all(), 1);
    queue.resume();
    let_others_tick(&queue);
    assert_eq!(count.get(), 0);
}

#[test]
fn a_tick_that_cancels_all_is_the_last() {
    let (queue, log) = (queue("every").alone(), Log::default());
    let own = WeakWorkqueue::new(&queue);
    let ticks = queue.every(PERIOD, move || {
        log.push(own.upgrade().map(|queue| queue.cancel_all()));
    });
    wait_until(|| !log.lock().unwrap().is_empty());
    let_others_tick(&queue);
    assert_eq!(log.take(), [Some(0)]);
    drop(ticks);
}
