//! Periodic work.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use afterwork::workqueue::{MissedTickBehavior, Periodic, Workqueue, ZeroPeriod};

use crate::support::*;

const PERIOD: Duration = Duration::from_millis(2);
/// A period that no test waits for.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn it_runs_again_and_again_by_its_grid_and_never_early() {
    let queue = alone_on_two(queue("every"));
    let start = Instant::now();
    let (send, receive) = mpsc::channel();
    let ticks = queue
        .every(PERIOD, move || send.send(Instant::now()).unwrap())
        .unwrap();
    for nth in 1..20 {
        let came = receive.recv_timeout(PATIENCE).unwrap();
        assert!(came - start >= nth * PERIOD, "the {nth}th");
    }
    drop(ticks);
}

#[test]
fn a_period_of_no_length_is_refused_and_a_long_one_does_not_overflow() {
    let queue = alone_on_two(queue("every"));
    assert_eq!(queue.every(Duration::ZERO, || ()).unwrap_err(), ZeroPeriod);
    drop(queue.every(Duration::MAX, || ()).unwrap());
}

#[test]
fn runs_that_take_longer_than_a_period_miss_ticks_and_never_overlap() {
    let queue = alone_on_two(queue("every"));
    for behavior in [
        MissedTickBehavior::Burst,
        MissedTickBehavior::Delay,
        MissedTickBehavior::Skip,
    ] {
        let (gauge, count) = (Gauge::default(), Count::default());
        let (inside, runs) = (gauge.clone(), count.clone());
        let ticks = queue
            .every(PERIOD, move || {
                inside.within(|| std::thread::sleep(2 * PERIOD));
                runs.add();
            })
            .unwrap()
            .with_missed_ticks(behavior);
        eventually("it ran", || count.get() >= 5);
        ticks.cancel_sync();
        assert_eq!(gauge.most(), 1);
    }
}

#[test]
fn in_a_burst_all_missed_ticks_come() {
    let queue = alone_on_two(queue("every").max_active(1));
    let plug = plug_into(&queue);
    let start = Instant::now();
    let count = Count::default();
    let runs = count.clone();
    let ticks = queue
        .every(PERIOD, move || runs.add())
        .unwrap()
        .with_missed_ticks(MissedTickBehavior::Burst);
    std::thread::sleep(50 * PERIOD);
    plug.release();
    // The number of ticks equals the number of periods, although no tick could start at first.
    eventually("they have caught up", || {
        count.get() as u128 >= start.elapsed().as_nanos() / PERIOD.as_nanos() - 1
    });
    ticks.cancel_sync();
}

#[test]
fn to_drop_it_ends_it_and_a_run_that_has_started_goes_on() {
    let queue = alone_on_two(queue("every"));
    let (plug, hole) = stopper();
    let count = Count::default();
    let runs = count.clone();
    let ticks = queue
        .every(PERIOD, move || {
            hole.sit();
            runs.add();
        })
        .unwrap();
    plug.wait_until_stuck();
    drop(ticks);
    assert_eq!(count.get(), 0);
    plug.release();
    queue.drain().unwrap();
    std::thread::sleep(5 * PERIOD);
    assert_eq!(count.get(), 1);
}

#[test]
fn what_it_owns_goes_when_it_is_cancelled_and_a_cancel_can_wait_for_the_run() {
    let queue = alone_on_two(queue("every"));
    let census = Census::default();
    for _ in 0..20 {
        let life = census.life();
        let (gauge, count) = (Gauge::default(), Count::default());
        let (inside, runs) = (gauge.clone(), count.clone());
        let ticks = queue
            .every(Duration::from_micros(70), move || {
                let _life = &life;
                inside.within(|| runs.add());
            })
            .unwrap();
        eventually("it runs", || count.get() > 0);
        ticks.cancel_sync();
        let then = count.get();
        queue.drain().unwrap();
        assert_eq!(count.get(), then);
    }
    census.all_dropped(20);
}

#[test]
fn it_may_be_dropped_inside_its_own_run() {
    let queue = alone_on_two(queue("every"));
    let own = Arc::new(Mutex::new(None::<Periodic>));
    let (inside, count) = (own.clone(), Count::default());
    let runs = count.clone();
    let mut place = own.lock().unwrap();
    let ticks = queue.every(PERIOD, move || {
        runs.add();
        drop(inside.lock().unwrap().take());
    });
    *place = Some(ticks.unwrap());
    drop(place);
    eventually("it ran", || count.get() == 1);
    queue.drain().unwrap();
    std::thread::sleep(5 * PERIOD);
    assert_eq!(count.get(), 1);
}

#[test]
fn it_does_not_keep_its_queue_and_goes_with_it() {
    let registry = registry("2 core");
    let queue = queue("every").build_in(&registry).unwrap();
    let census = Census::default();
    let (life, count) = (census.life(), Count::default());
    let runs = count.clone();
    let ticks = queue
        .every(PERIOD, move || {
            let _life = &life;
            runs.add();
        })
        .unwrap();
    eventually("it runs", || count.get() > 0);
    drop(queue);
    let then = count.get();
    std::thread::sleep(5 * PERIOD);
    assert_eq!(count.get(), then);
    drop(ticks);
    census.all_dropped(1);
    shut_down(registry);
}

#[test]
fn what_is_detached_goes_on_until_its_queue_goes() {
    let queue = alone_on_two(queue("every"));
    let census = Census::default();
    let (life, count) = (census.life(), Count::default());
    let runs = count.clone();
    queue
        .every(PERIOD, move || {
            let _life = &life;
            runs.add();
        })
        .unwrap()
        .detach();
    eventually("it runs", || count.get() > 2);
    drop(queue);
    census.all_dropped(1);
}

#[test]
fn a_run_that_panics_is_reported_and_the_next_one_comes() {
    let (send, receive) = mpsc::channel();
    let queue = alone_on_two(queue("every").on_panic(move |_| send.send(()).unwrap()));
    let count = Count::default();
    let runs = count.clone();
    let ticks = queue
        .every(PERIOD, move || {
            runs.add();
            panic!("on purpose");
        })
        .unwrap();
    for _ in 0..3 {
        receive.recv_timeout(PATIENCE).unwrap();
    }
    drop(ticks);
    assert!(count.get() >= 3);
}

#[test]
fn a_drain_does_not_wait_for_it_and_a_destroyed_queue_runs_none() {
    let queue = alone_on_two(queue("every"));
    let count = Count::default();
    let (early, late) = (count.clone(), Count::default());
    let runs = late.clone();
    let long = queue.every(LONG, || ()).unwrap();
    let short = queue.every(PERIOD, move || early.add()).unwrap();
    eventually("it runs", || count.get() > 0);
    queue.drain().unwrap();
    queue.destroy().unwrap();
    let on_destroyed = queue.every(PERIOD, move || runs.add()).unwrap();
    std::thread::sleep(5 * PERIOD);
    let then = count.get();
    std::thread::sleep(5 * PERIOD);
    assert_eq!((count.get(), late.get()), (then, 0));
    drop((long, short, on_destroyed));
}

#[test]
fn a_paused_queue_runs_it_when_it_goes_on() {
    let queue = alone_on_two(queue("every"));
    queue.pause();
    let count = Count::default();
    let runs = count.clone();
    let ticks = queue.every(PERIOD, move || runs.add()).unwrap();
    std::thread::sleep(10 * PERIOD);
    assert_eq!(count.get(), 0);
    queue.resume();
    eventually("it runs", || count.get() > 2);
    drop(ticks);
}

/// Counts the ticks of periodic work whose first run blocks until the plug is released.
fn stuck_in_its_first_tick(queue: &Workqueue) -> (Periodic, Plug, Count) {
    let (plug, hole) = stopper();
    let count = Count::default();
    let runs = count.clone();
    let ticks = queue.every(PERIOD, move || {
        runs.add();
        hole.sit();
    });
    plug.wait_until_stuck();
    (ticks.unwrap(), plug, count)
}

/// Waits until other periodic work has run five times.
fn let_others_tick(queue: &Workqueue) {
    let count = Count::default();
    let runs = count.clone();
    let _ticks = queue.every(PERIOD, move || runs.add()).unwrap();
    eventually("others tick", || count.get() >= 5);
}

#[test]
fn cancel_all_ends_running_periodic_work() {
    ends(|| {
        let queue = alone_on_two(queue("every"));
        let (_ticks, plug, count) = stuck_in_its_first_tick(&queue);
        assert_eq!(queue.cancel_all(), 0, "a running item is not cancelled");
        plug.release();
        queue.drain().unwrap();
        // If it ran again, it would send to a test that has ended.
        drop(plug);
        let_others_tick(&queue);
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn cancel_all_ends_waiting_periodic_work() {
    ends(|| {
        let queue = alone_on_two(queue("every"));
        let count = Count::default();
        let runs = count.clone();
        let ticks = queue.every(LONG, move || runs.add()).unwrap();
        assert_eq!(queue.cancel_all(), 1);
        queue.pause();
        let runs = count.clone();
        let queued = queue.every(PERIOD, move || runs.add()).unwrap();
        eventually("it is queued", || queue.stats().nr_inactive == 1);
        assert_eq!(queue.cancel_all(), 1);
        queue.resume();
        let_others_tick(&queue);
        assert_eq!(count.get(), 0);
        drop((ticks, queued));
    });
}

#[test]
fn a_tick_that_cancels_all_is_the_last() {
    ends(|| {
        let queue = alone_on_two(queue("every"));
        let count = Count::default();
        let (runs, own) = (count.clone(), queue.downgrade());
        let (sender, receiver) = mpsc::channel();
        let ticks = queue.every(PERIOD, move || {
            runs.add();
            sender
                .send(own.upgrade().map(|queue| queue.cancel_all()))
                .ok();
        });
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), Some(0));
        let_others_tick(&queue);
        assert_eq!(count.get(), 1);
        drop(ticks);
    });
}
