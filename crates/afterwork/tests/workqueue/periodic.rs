//! Periodic work.

use crate::support::*;

const PERIOD: Duration = SHORT;

#[test]
fn zero_period_is_rejected_and_a_long_one_does_not_overflow() {
    let queue = queue("every").alone();
    assert_eq!(queue.every(Duration::ZERO, || ()).unwrap_err(), ZeroPeriod);
    drop(queue.every(Duration::MAX, || ()).unwrap());
}

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
    let (count, own) = (Count::default(), Shared::new(Mutex::new(None::<Periodic>)));
    let mut place = own.lock().unwrap();
    let ticks = queue.every(PERIOD, move || {
        count.add();
        drop(own.lock().unwrap().take());
    });
    *place = Some(ticks.unwrap());
    drop(place);
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
fn panicking_run_is_reported_and_the_next_one_starts() {
    let count = Count::default();
    let queue = queue("every").on_panic(move |_| count.add()).alone();
    let _ticks = queue.every(PERIOD, || panic!("on purpose"));
    wait_until(|| count.get() >= 3);
}

#[test]
fn a_drain_does_not_wait_for_periodic_work() {
    let queue = queue("every").alone();
    let (early, late) = (Count::default(), Count::default());
    let long = queue.every(HOUR, || ()).unwrap();
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
fn a_paused_queue_runs_periodic_work_after_its_resume() {
    let (queue, count) = (queue("every").paused(), Count::default());
    let _ticks = queue.every(PERIOD, count.adder()).unwrap();
    wait_until(|| waiting(&queue) == 1);
    assert_eq!(count.get(), 0);
    queue.resume();
    wait_until(|| count.get() > 2);
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
    let mut nr_cancelled = Vec::new();
    wait_until(|| {
        nr_cancelled.append(&mut log.take());
        !nr_cancelled.is_empty()
    });
    let_others_tick(&queue);
    nr_cancelled.append(&mut log.take());
    assert_eq!(nr_cancelled, [Some(0)]);
    drop(ticks);
}
