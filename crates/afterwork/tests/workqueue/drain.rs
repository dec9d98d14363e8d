//! Drains, `destroy` and `pause`.

use std::{
    pin::Pin,
    sync::mpsc,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use afterwork::workqueue::{DelayedWork, JoinError, RcuWork, Report, Work, block_on};

use crate::support::*;

#[test]
fn a_drain_admits_what_the_queues_own_items_queue_and_refuses_others() {
    ends(|| {
        let queue = alone_on_two(queue("drain"));
        let (plug, hole) = stopper();
        let (chained, count) = (queue.clone(), Count::default());
        let runs = count.clone();
        queue
            .spawn_detached(move || {
                hole.sit();
                let work = counting(&runs);
                assert!(chained.enqueue(&work));
                let inner = runs.clone();
                chained.spawn_detached(move || inner.add()).unwrap();
            })
            .unwrap();
        plug.wait_until_stuck();
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain().unwrap())
        };
        let work = counting(&count);
        eventually("the drain has begun", || {
            let refused = queue.try_spawn(|| ());
            refused.is_err()
        });
        assert!(!queue.enqueue(&work));
        assert_eq!(queue.enqueue_all(&[work.clone(), Work::new(|| ())]), 0);
        assert!(matches!(queue.spawn(|| ()).join(), Err(JoinError::Closed)));
        let refused = queue.spawn_detached(|| unreachable!("refused"));
        assert!(refused.is_err_and(|error| !error.is_full()));
        assert!(queue.stats().refused >= 5);
        plug.release();
        drainer.join().unwrap();
        assert_eq!(count.get(), 2);
        assert!(queue.enqueue(&work), "it is over");
        queue.flush().unwrap();
        assert_eq!(count.get(), 3);
    });
}

#[test]
fn a_refused_closure_is_given_back_or_dropped() {
    let lives = Census::default();
    let queue = alone_on_two(queue("destroyed"));
    queue.destroy().unwrap();
    let life = lives.life();
    let refused = queue.try_spawn(move || drop(life)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the workqueue is being drained, or was destroyed"
    );
    assert_eq!(lives.alive(), 1);
    refused.into_inner()();
    let life = lives.life();
    drop(queue.spawn(move || drop(life)));
    let life = lives.life();
    drop(queue.spawn_detached(move || drop(life)));
    lives.all_dropped(3);
}

#[test]
fn destroy_runs_what_is_queued_and_refuses_from_then_on() {
    let queue = alone_on_two(queue("destroy"));
    let count = Count::default();
    for _ in 0..100 {
        let count = count.clone();
        queue.spawn_detached(move || count.add()).unwrap();
    }
    queue.destroy().unwrap();
    assert_eq!(count.get(), 100);
    let work = counting(&count);
    assert!(!queue.enqueue(&work) && !work.is_busy());
    queue.drain().unwrap();
    assert!(!queue.enqueue(&work), "a drain does not bring it back");
    queue.destroy().unwrap();
}

#[test]
fn destroying_a_queue_from_its_own_item_is_refused_by_name() {
    let queue = alone_on_two(queue("own"));
    let own = queue.clone();
    let error = queue
        .spawn(move || own.destroy())
        .join()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.queue(), "own");
    assert!(queue.enqueue(&Work::new(|| ())));
}

#[test]
fn a_paused_queue_starts_nothing_until_it_is_resumed() {
    let queue = alone_on_two(queue("pause"));
    let (plug, hole) = stopper();
    queue.spawn_detached(move || hole.sit()).unwrap();
    plug.wait_until_stuck();
    assert!(queue.pause());
    assert!(!queue.pause());
    let count = Count::default();
    let work = counting(&count);
    assert!(queue.enqueue(&work));
    plug.release();
    eventually("what ran has ended", || queue.stats().nr_active == 0);
    let flusher = {
        let work = work.clone();
        thread::spawn(move || work.flush())
    };
    eventually("a joiner does not run it either", || is_slept_for(&work));
    assert_eq!(count.get(), 0);
    assert!(queue.resume());
    assert!(!queue.resume());
    assert_eq!(flusher.join().unwrap(), Ok(true));
    assert_eq!(count.get(), 1);
}

#[test]
fn a_limit_changed_while_paused_holds_after_it() {
    let queue = alone_on_two(queue("pause").max_active(8).help(false));
    queue.pause();
    queue.set_max_active(2).unwrap();
    assert_eq!(queue.stats().max_active, 2);
    let gauge = Gauge::default();
    for _ in 0..200 {
        let gauge = gauge.clone();
        queue
            .spawn_detached(move || gauge.within(thread::yield_now))
            .unwrap();
    }
    queue.resume();
    queue.flush().unwrap();
    assert!(gauge.most() <= 2);
}

#[test]
fn pausing_one_queue_leaves_others_of_the_same_pool_alone() {
    let registry = registry("2 core");
    let paused = queue("paused").build_in(&registry).unwrap();
    let other = queue("other").build_in(&registry).unwrap();
    paused.pause();
    let handle = paused.spawn(|| 1);
    assert_eq!(other.spawn(|| 2).join().unwrap(), 2);
    assert!(!handle.is_finished());
    paused.resume();
    assert_eq!(handle.join().unwrap(), 1);
}

#[test]
fn dropping_the_last_handle_of_a_paused_queue_resumes_it() {
    ends(|| {
        let queue = alone_on_two(queue("pause"));
        queue.pause();
        let (send, receive) = mpsc::channel();
        queue
            .spawn_detached(move || send.send(()).unwrap())
            .unwrap();
        drop(queue);
        receive.try_recv().expect("it has run");
    });
}

#[test]
fn a_drain_that_goes_round_and_round_is_reported_with_the_item_that_keeps_coming() {
    ends(|| {
        let registry = registry("2 core");
        let (send, reports) = mpsc::channel();
        registry.on_report(move |report| {
            let _ = send.send(report.clone());
        });
        let queue = queue("busy").help(false).build_in(&registry).unwrap();
        let stop = Count::default();
        // With six items, one is always in flight, and no scan misses all of them.
        for _ in 0..6 {
            let (again, stop) = (queue.clone(), stop.clone());
            queue.enqueue(&Work::with_handle(move |this| {
                if stop.get() == 0 {
                    again.enqueue(this);
                }
            }));
        }
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain().unwrap())
        };
        let reported = reports.iter().filter_map(|report| match report {
            Report::LongDrain {
                queue,
                rounds,
                item,
            } => Some((queue, rounds, item)),
            _ => None,
        });
        let rounds = [10].into_iter().chain((100..=1000).step_by(100));
        let mut named = 0;
        for (expected, (queue, rounds, item)) in rounds.zip(reported) {
            assert_eq!((queue.as_str(), rounds), ("busy", expected));
            if let Some(item) = item {
                named += 1;
                assert!(item.func.contains("a_drain_that_goes_round"), "{item}");
            }
            if expected >= 200 && named > 0 {
                break;
            }
        }
        stop.add();
        drainer.join().unwrap();
        assert!(named > 0, "one of all looks finds an item");
    });
}

#[test]
fn a_drain_that_items_hold_up_for_some_rounds_is_not_reported() {
    ends(|| {
        let registry = registry("2 core");
        let (send, reports) = mpsc::channel();
        registry.on_report(move |report| {
            let _ = send.send(report.clone());
        });
        let queue = queue("chain").help(false).build_in(&registry).unwrap();
        let again = queue.clone();
        let mut nr_left = 9;
        queue.enqueue(&Work::with_handle(move |this| {
            nr_left -= 1;
            if nr_left > 0 {
                again.enqueue(this);
            }
        }));
        queue.drain().unwrap();
        assert!(reports.try_recv().is_err());
    });
}

#[test]
fn what_waits_for_its_time_is_cancelled_as_its_queue_is_destroyed() {
    ends(|| {
        let (going, other) = (alone_on_two(queue("going")), alone_on_two(queue("other")));
        let (runs, lives) = (Count::default(), Census::default());
        let (ran, life) = (runs.clone(), lives.life());
        let kept = DelayedWork::new(move || {
            let _ = &life;
            ran.add();
        });
        assert!(going.enqueue_after(&kept, Duration::from_secs(3600)));
        let (left, life) = (lives.life(), lives.life());
        let gone = DelayedWork::new(move || {
            let _ = &left;
        });
        assert!(going.enqueue_after(&gone, Duration::from_secs(3600)));
        let awaits = RcuWork::new(move || {
            let _ = &life;
        });
        assert!(going.task().enqueue_rcu(&awaits));
        drop(gone);
        going.destroy().unwrap();
        assert!(!kept.is_pending());
        assert_eq!(kept.flush(), Ok(false));
        assert!(!kept.cancel());
        assert!(other.enqueue_after(&kept, Duration::ZERO));
        // A worker may have run the item before.
        kept.flush().unwrap();
        assert_eq!(runs.get(), 1);
        assert!(!going.enqueue_after(&kept, Duration::ZERO));
        drop((kept, awaits));
        lives.all_dropped(3);
    });
}

#[test]
fn nothing_is_armed_for_a_queue_after_it_was_destroyed_beside_that() {
    ends(|| {
        for _ in 0..200 {
            let queue = alone_on_two(queue("beside"));
            let works: [DelayedWork; 8] = std::array::from_fn(|_| DelayedWork::new(|| ()));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let arm = |work| queue.enqueue_after(work, Duration::from_secs(3600));
                    works.iter().for_each(|work| _ = arm(work));
                });
                queue.destroy().unwrap();
            });
            assert!(!works.iter().any(DelayedWork::is_pending));
        }
    });
}

/// Takes a second if each wait costs the same, and minutes if each wait examines all others.
#[test]
fn very_many_tasks_await_a_drain() {
    ends(|| {
        let queue = alone_on_two(queue("many"));
        queue.pause();
        let handle = queue.spawn(|| ());
        let mut context = Context::from_waker(Waker::noop());
        let mut drains: Vec<_> = (0..200_000).map(|_| queue.drain_async()).collect();
        for _ in 0..2 {
            for drain in &mut drains {
                assert!(Pin::new(drain).poll(&mut context).is_pending());
            }
        }
        // Each of the remaining tasks is woken and finds the queue drained.
        drains.truncate(20_000);
        queue.resume();
        handle.join().unwrap();
        drains
            .into_iter()
            .for_each(|drain| block_on(drain).unwrap());
    });
}
