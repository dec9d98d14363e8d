//! Delayed items.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::DelayedWork;

use crate::support::*;

/// A delay that no test waits for.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

fn counting(count: &Count) -> DelayedWork {
    let count = count.clone();
    DelayedWork::new(move || count.add())
}

#[test]
fn a_delayed_item_runs_when_its_time_has_come_and_not_before() {
    let queue = alone_on_two(queue("delay"));
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
    let queue = alone_on_two(queue("delay").max_active(1));
    let plug = plug_into(&queue);
    let count = Count::default();
    let work = counting(&count);
    assert!(queue.enqueue_after(&work, Duration::ZERO));
    assert!(work.is_pending());
    assert!(!queue.enqueue_after(&work, Duration::ZERO));
    plug.release();
    queue.drain().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn an_item_whose_timer_runs_is_pending_and_not_queued_again() {
    let queue = alone_on_two(queue("delay"));
    let count = Count::default();
    let work = counting(&count);
    assert!(!work.is_pending());
    assert!(queue.enqueue_after(&work, LONG));
    assert!(work.is_pending() && !work.busy().executing);
    for delay in [Duration::ZERO, SHORT, LONG] {
        assert!(!queue.enqueue_after(&work, delay));
    }
    assert!(work.cancel());
    assert!(!work.is_pending() && !work.cancel());
    queue.drain().unwrap();
    assert_eq!(count.get(), 0);
}

#[test]
fn many_timers_run_each_item_once() {
    let queue = alone_on_two(queue("delay"));
    let count = Count::default();
    let works: Vec<_> = (0..500).map(|_| counting(&count)).collect();
    for (i, work) in works.iter().enumerate() {
        assert!(queue.enqueue_after(work, Duration::from_micros(1 + 97 * i as u64 % 20_000)));
    }
    eventually("all have run", || count.get() == 500);
    eventually("none is pending", || {
        works.iter().all(|work| !work.is_pending())
    });
    queue.drain().unwrap();
    assert_eq!(count.get(), 500);
}

#[test]
fn mod_delayed_replaces_the_time_earlier_and_later() {
    let queue = alone_on_two(queue("mod"));
    let count = Count::default();
    let work = counting(&count);
    assert!(!queue.reschedule(&work, LONG), "it was not pending");
    assert!(queue.reschedule(&work, SHORT));
    eventually("it has run", || count.get() == 1);
    work.flush().unwrap();
    assert!(queue.enqueue_after(&work, 250 * SHORT));
    assert!(queue.reschedule(&work, LONG));
    thread::sleep(260 * SHORT);
    assert_eq!(count.get(), 1, "not at the time that was replaced");
    assert!(queue.reschedule(&work, Duration::ZERO));
    eventually("it has run", || count.get() == 2);
}

#[test]
fn mod_delayed_takes_a_queued_item_back_into_the_timer() {
    for ordered in [false, true] {
        let builder = queue("mod").max_active(1);
        let queue = alone_on_two(if ordered { builder.ordered() } else { builder });
        let plug = plug_into(&queue);
        let count = Count::default();
        let work = counting(&count);
        assert!(queue.enqueue_after(&work, Duration::ZERO));
        assert!(queue.reschedule(&work, LONG));
        plug.release();
        queue.drain().unwrap();
        assert_eq!(count.get(), 0);
        assert!(work.cancel());
    }
}

#[test]
fn flush_queues_an_item_at_once_whose_timer_runs() {
    let queue = alone_on_two(queue("flush"));
    let count = Count::default();
    let work = counting(&count);
    assert_eq!(work.flush(), Ok(false));
    assert!(queue.enqueue_after(&work, LONG));
    ends(move || {
        assert_eq!(work.flush(), Ok(true));
        assert_eq!(count.get(), 1);
        assert!(!work.is_pending());
    });
}

#[test]
fn cancel_sync_waits_for_the_run_and_stops_an_item_that_queues_itself_with_a_delay() {
    ends(|| {
        let queue = alone_on_two(queue("sync"));
        let (again, count) = (queue.clone(), Count::default());
        let runs = count.clone();
        let work = DelayedWork::with_handle(move |this| {
            runs.add();
            again.enqueue_after(this, Duration::from_micros(100));
        });
        assert!(queue.enqueue_after(&work, SHORT));
        eventually("it goes round", || count.get() > 5);
        work.cancel_sync();
        assert!(!work.is_pending() && !work.busy().executing);
        let before = count.get();
        queue.drain().unwrap();
        assert_eq!(count.get(), before);
    });
}

#[test]
fn a_disabled_item_is_taken_out_of_its_timer_and_not_put_back() {
    let queue = alone_on_two(queue("disable"));
    let count = Count::default();
    let work = counting(&count);
    assert!(queue.enqueue_after(&work, LONG));
    assert!(work.disable());
    assert!(!work.is_pending());
    for delay in [Duration::ZERO, SHORT] {
        assert!(!queue.enqueue_after(&work, delay));
        assert!(!queue.reschedule(&work, delay));
    }
    assert!(work.enable());
    assert!(queue.enqueue_after(&work, SHORT));
    eventually("it has run", || count.get() == 1);
}

#[test]
fn items_with_slack_come_late_by_no_more_and_never_early() {
    let queue = alone_on_two(queue("slack"));
    let (send, receive) = mpsc::channel();
    let start = Instant::now();
    for i in 0..50u32 {
        let send = send.clone();
        let delay = Duration::from_micros(1000 + u64::from(i) * 100);
        let work = DelayedWork::new(move || send.send((delay, Instant::now())).unwrap());
        let work = work.with_slack(Duration::from_millis(8));
        assert!(queue.enqueue_after(&work, delay));
    }
    for _ in 0..50 {
        let (delay, came) = receive.recv_timeout(PATIENCE).unwrap();
        assert!(came - start >= delay);
    }
}

#[test]
fn an_item_without_handles_is_still_queued_when_its_time_comes() {
    let lives = Census::default();
    let queue = alone_on_two(queue("orphan"));
    let (send, receive) = mpsc::channel();
    let life = lives.life();
    let work = DelayedWork::new(move || {
        let _held = &life;
        send.send(()).unwrap();
    });
    assert!(queue.enqueue_after(&work, SHORT));
    drop(work);
    receive.recv_timeout(PATIENCE).unwrap();
    lives.all_dropped(1);
}

#[test]
fn a_queue_that_goes_takes_its_timers_with_it() {
    let lives = Census::default();
    let registry = registry("2 core");
    let queue = queue("gone").build_in(&registry).unwrap();
    let (count, life) = (Count::default(), lives.life());
    let runs = count.clone();
    let work = DelayedWork::new(move || {
        let _held = &life;
        runs.add();
    });
    assert!(queue.enqueue_after(&work, 5 * SHORT));
    drop(queue);
    drop(work);
    lives.all_dropped(1);
    assert_eq!(count.get(), 0);
    registry.shutdown().unwrap();
}

#[test]
fn a_registry_that_goes_takes_its_timers_with_it() {
    let lives = Census::default();
    let registry = registry("2 core");
    let queue = queue("gone").build_in(&registry).unwrap();
    let life = lives.life();
    let work = DelayedWork::new(move || {
        let _held = &life;
    });
    assert!(queue.enqueue_after(&work, LONG));
    drop(work);
    drop(queue);
    registry.shutdown().unwrap();
    lives.all_dropped(1);
}

#[test]
fn timers_are_changed_by_many_threads_and_no_enqueue_is_lost_or_doubled() {
    ends(|| {
        let queue = alone_on_two(queue("storm"));
        let count = Count::default();
        let works: Vec<_> = (0..4).map(|_| counting(&count)).collect();
        let (nr_queued, nr_cancelled) = (Count::default(), Count::default());
        threads(4, |i| {
            for step in 0..400 {
                let work = &works[(i + step) % works.len()];
                let delay = Duration::from_micros((step as u64 * 37) % 300);
                if step % 3 == 0 && work.cancel() {
                    nr_cancelled.add();
                } else if queue.enqueue_after(work, delay) {
                    nr_queued.add();
                }
            }
        });
        eventually("no timer runs", || {
            works.iter().all(|work| !work.is_pending())
        });
        queue.drain().unwrap();
        assert_eq!(count.get() + nr_cancelled.get(), nr_queued.get());
    });
}

#[test]
fn a_flush_while_the_queue_is_drained_loses_no_item() {
    ends(|| {
        let queue = alone_on_two(queue("drained").max_active(2));
        let (plug, count) = (plug_into(&queue), Count::default());
        let runs = count.clone();
        let work = DelayedWork::new(move || runs.add());
        assert!(queue.enqueue_after(&work, Duration::from_secs(3600)));
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain().unwrap())
        };
        eventually("the drain has begun", || queue.try_spawn(|| ()).is_err());
        assert_eq!(work.flush(), Ok(true));
        assert_eq!(count.get(), 1);
        plug.release();
        drainer.join().unwrap();
    });
}

#[test]
fn a_change_that_is_refused_says_that_it_took_the_timer_back() {
    ends(|| {
        let queue = alone_on_two(queue("drained"));
        let plug = plug_into(&queue);
        let work = DelayedWork::new(|| unreachable!("refused"));
        assert!(queue.enqueue_after(&work, Duration::from_secs(3600)));
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain().unwrap())
        };
        eventually("the drain has begun", || queue.try_spawn(|| ()).is_err());
        assert!(queue.reschedule(&work, Duration::ZERO));
        assert!(!work.is_pending());
        plug.release();
        drainer.join().unwrap();
    });
}

#[test]
fn delays_of_any_length_are_flushed_changed_and_keep_no_near_one_waiting() {
    let queue = alone_on_two(queue("edges"));
    let count = Count::default();
    let delays = [
        Duration::MAX,
        Duration::from_nanos(u64::MAX),
        Duration::from_secs(1 << 40),
    ];
    for delay in delays {
        for slack in [Duration::ZERO, Duration::MAX, Duration::from_nanos(1)] {
            let work = counting(&count).with_slack(slack);
            assert!(queue.enqueue_after(&work, delay) && !queue.enqueue_after(&work, SHORT));
            assert!(queue.reschedule(&work, delay) && work.is_pending());
            let before = count.get();
            assert_eq!(work.flush(), Ok(true));
            assert_eq!(count.get(), before + 1);
        }
    }
    let works: Vec<_> = (0..64).map(|_| counting(&count)).collect();
    for (bit, work) in works.iter().enumerate() {
        assert!(queue.enqueue_after(work, Duration::from_nanos(1 << bit)));
    }
    // The first 30 delays are at most half a second.
    eventually("the near ones have fired", || {
        works[..30].iter().all(|work| !work.is_pending())
    });
    assert!(works[45..].iter().all(DelayedWork::is_pending));
}
