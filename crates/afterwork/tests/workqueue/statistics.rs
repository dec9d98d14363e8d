//! Statistics and snapshots.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use afterwork::{
    observe::snapshot_of,
    params::Params,
    workqueue::{self, Registry, Work, Workqueue},
};

use crate::support::*;

#[test]
fn started_and_completed_count_the_runs_of_workers() {
    let queue = alone_on_two(queue("count").help(false));
    for _ in 0..100 {
        queue.spawn_detached(|| ()).unwrap();
    }
    let work = Work::new(|| ());
    queue.enqueue(&work);
    queue.drain().unwrap();
    eventually("the last batch is told", || queue.stats().completed == 101);
    assert_eq!(queue.stats().started, 101);
}

#[test]
fn a_worker_got_up_for_one_that_sleeps_is_counted_by_its_queue_and_its_pool() {
    ends(|| {
        let registry = unwatched("1 core");
        let sleeper = queue("sleeper").help(false).build_in(&registry).unwrap();
        let other = queue("other").help(false).build_in(&registry).unwrap();
        let next = other.clone();
        let slept = sleeper.spawn(move || next.spawn(|| ()).join());
        slept.join().unwrap().unwrap();
        assert_eq!(sleeper.stats().cm_wakeups, 1);
        assert_eq!(other.stats().cm_wakeups, 0);
        let pools = registry.pool_stats();
        assert_eq!(pools.iter().map(|pool| pool.cm_wakeups).sum::<u64>(), 1);
    });
}

#[test]
fn a_pool_keeps_what_was_counted_for_queues_that_have_gone() {
    let registry = registry("2 core");
    // Two queues share a pool, and the second one keeps it alive.
    let going = queue("going").help(false).build_in(&registry).unwrap();
    let _stays = queue("staying").build_in(&registry).unwrap();
    for _ in 0..10 {
        going.spawn_detached(|| ()).unwrap();
    }
    drop(going);
    assert_eq!(started_by_pools(&registry), 10);
}

fn started_by_pools(registry: &Registry) -> u64 {
    registry.pool_stats().iter().map(|it| it.started).sum()
}

#[test]
fn a_cancelled_item_counts_neither_as_started_nor_as_completed() {
    let queue = alone_on_two(queue("cancelled").help(false).max_active(1));
    let plug = plug_into(&queue);
    let works: Vec<_> = (0..10).map(|_| Work::new(|| ())).collect();
    for work in &works {
        queue.enqueue(work);
        assert!(work.cancel());
    }
    plug.release();
    queue.drain().unwrap();
    eventually("the last batch is told", || {
        let stats = queue.stats();
        (stats.started, stats.completed) == (1, 1)
    });
}

#[test]
fn cpu_time_is_what_items_used_and_not_what_they_slept() {
    let queue = alone_on_two(queue("time").help(false));
    let burn = || {
        let me = sync::thread::current();
        let from = sync::usage::cpu_ns(me).unwrap();
        while sync::usage::cpu_ns(me).unwrap() < from + 5_000_000 {}
    };
    queue.spawn(burn).join().unwrap();
    queue.drain().unwrap();
    eventually("it is told", || queue.stats().cpu_time_us >= 5_000);
    let before = queue.stats().cpu_time_us;
    let sleeper = queue.spawn(|| std::thread::sleep(std::time::Duration::from_millis(200)));
    sleeper.join().unwrap();
    queue.drain().unwrap();
    eventually("it is told", || queue.stats().completed == 2);
    let slept = queue.stats().cpu_time_us - before;
    assert!(slept < 100_000, "{slept} µs for a sleep of 200 ms");
}

/// Runs items that sleep for a millisecond each. Returns the queue, whose statistics are complete.
fn known_of_slow_items(count: usize) -> Workqueue {
    let queue = alone_on_two(queue("slow").help(false).max_active(1));
    let plug = plug_into(&queue);
    for _ in 0..count {
        queue.spawn_detached(|| std::thread::sleep(MS)).unwrap();
    }
    // The query adopts the injector, so that all items count as queued by now.
    assert!(queue.report().oldest.is_some());
    plug.release();
    queue.drain().unwrap();
    eventually("the last is told", || {
        queue.stats().completed == count as u64 + 1
    });
    queue
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn each_item_of_a_burst_has_its_share_of_what_is_known_of_waits() {
    const COUNT: usize = 200;
    let queue = known_of_slow_items(COUNT);
    let waits = queue.report().wait;
    assert_eq!(waits.count, COUNT as u64 + 1, "{waits:?}");
    // The nth item waits for all earlier ones, so half of them wait for half of the time.
    let half_ns = (COUNT as u64 / 2 - 1) * MS.as_nanos() as u64;
    assert!(waits.quantile_ns(0.5) >= half_ns, "{waits:?}");
    assert!(waits.quantile_ns(1.0) >= 2 * half_ns, "{waits:?}");
    assert!(waits.total_ns >= half_ns * COUNT as u64 / 2, "{waits:?}");
}

#[test]
fn what_a_worker_had_in_hand_and_gave_back_is_counted_once() {
    let queue = alone_on_two(queue("hands").help(false));
    let gate = plug_into(&queue);
    let works: Vec<_> = (0..20)
        .map(|i| Work::new(move || std::thread::sleep(if i == 0 { 20 * MS } else { MS / 100 })))
        .collect();
    assert_eq!(queue.enqueue_all(&works), 20);
    gate.release();
    queue.drain().unwrap();
    eventually("the last is told", || queue.stats().completed == 21);
    let waits = queue.report().wait;
    // The waits of the last batch may not be recorded yet.
    assert!((1..=21).contains(&waits.count), "{waits:?}");
}

#[test]
fn what_is_told_of_waits_and_starts_never_falls() {
    let params = Params {
        wait_sample: 1,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let queue = queue("hands").help(false).max_active(2);
    let queue = queue.build_in(&registry).unwrap();
    // A worker takes a large batch if items are short.
    let works: Vec<_> = (0..200).map(|_| Work::new(|| ())).collect();
    queue.enqueue_all(&works);
    queue.drain().unwrap();
    // Uses the other seat, so that no worker takes the items that the blocked one returns.
    let plug = plug_into(&queue);
    let step = Arc::new(AtomicU32::new(0));
    let (go, may_go) = mpsc::channel::<()>();
    let its = step.clone();
    let first = Work::new(move || {
        its.store(1, Ordering::Release);
        while its.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
        // The worker returns its local batch to the pool.
        let _ = workqueue::blocking(|| may_go.recv());
    });
    let works: Vec<_> = [first].into_iter().chain(works).collect();
    queue.enqueue_all(&works);
    eventually("it runs", || step.load(Ordering::Acquire) == 1);
    let started = || (queue.stats().started, started_by_pools(&registry));
    assert_eq!(started(), (202, 202), "what is in hand has not started");
    let before = queue.report().wait;
    step.store(2, Ordering::Release);
    eventually("the others went back", || queue.stats().nr_inactive == 200);
    let after = queue.report().wait;
    assert_eq!(started(), (202, 202));
    let mut pairs = before.buckets.iter().zip(&after.buckets);
    assert!(
        pairs.all(|(before, after)| before <= after) && before.total_ns <= after.total_ns,
        "{before:?} {after:?}"
    );
    go.send(()).unwrap();
    plug.release();
    queue.drain().unwrap();
}

#[test]
fn items_of_queues_that_take_turns_all_have_their_share() {
    let registry = registry("1 core");
    let queues = ["a", "b"].map(|name| queue(name).help(false).build_in(&registry).unwrap());
    let plugs = queues.each_ref().map(plug_into);
    // The worker alternates between the queues before it records the times of either again.
    for _ in 0..500 {
        for queue in &queues {
            queue.spawn_detached(|| ()).unwrap();
            queue.spawn_detached(|| ()).unwrap();
        }
    }
    plugs.iter().for_each(Plug::release);
    for queue in &queues {
        queue.drain().unwrap();
        eventually("the last is told", || queue.stats().completed == 1001);
        let (waits, runs) = (queue.report().wait, queue.report().run);
        assert_eq!((waits.count, runs.count), (1001, 1001));
    }
}

#[test]
fn a_worker_that_leaves_tells_what_it_has_not_told() {
    let params = Params {
        // A worker records the first item, and no other one until it must.
        wait_sample: 1_000_000,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let queue = queue("left").help(false).build_in(&registry).unwrap();
    for _ in 0..10 {
        queue.spawn(|| ()).join().unwrap();
    }
    queue.drain().unwrap();
    // The queue no longer uses its former pool.
    queue.set_attrs(|attrs| attrs.nice = 1).unwrap();
    let nr_workers = || {
        registry
            .pool_stats()
            .iter()
            .map(|it| it.nr_workers)
            .sum::<usize>()
    };
    eventually("its workers have left", || nr_workers() == 0);
    assert_eq!(
        (queue.report().wait.count, queue.report().run.count),
        (10, 10)
    );
}

#[test]
fn what_joiners_ran_waits_for_nobody_and_has_not_waited() {
    // The monitor does not replace the worker that is busy.
    let registry = unwatched("1 core");
    let hogged = queue("hog").help(false).build_in(&registry).unwrap();
    let queue = queue("helped").build_in(&registry).unwrap();
    let helped_beside = |looks: fn(&Workqueue)| {
        let step = Arc::new(AtomicU32::new(0));
        let its = step.clone();
        hogged
            .spawn_detached(move || {
                its.store(1, Ordering::Release);
                while its.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
            })
            .unwrap();
        eventually("it runs", || step.load(Ordering::Acquire) == 1);
        for _ in 0..50 {
            // The first item cannot be taken out of the injector, because it is not the newest.
            let (first, second) = (queue.spawn(|| ()), queue.spawn(|| ()));
            first.join().unwrap();
            second.join().unwrap();
        }
        looks(&queue);
        step.store(2, Ordering::Release);
        queue.drain().unwrap();
        hogged.drain().unwrap();
    };
    helped_beside(|queue| {
        assert_eq!(
            (queue.stats().nr_inactive, queue.report().oldest),
            (0, None)
        );
    });
    helped_beside(|_| ());
    let stats = queue.stats();
    assert_eq!((stats.helped, stats.started, stats.completed), (200, 0, 0));
    eventually("the worker has told all", || queue.report().wait.count == 0);
}

#[test]
fn what_is_cancelled_beside_somebody_who_asks_does_not_stay_in_the_count() {
    let queue = alone_on_two(queue("asked").max_active(1));
    queue.pause();
    for _ in 0..100 {
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) == 0 {
                    std::hint::black_box(queue.stats().nr_inactive);
                }
            });
            for _ in 0..100 {
                assert!(queue.spawn(|| ()).cancel());
            }
            done.store(1, Ordering::Relaxed);
        });
        let lens: Vec<_> = (0..5).map(|_| queue.stats().nr_inactive).collect();
        assert_eq!(lens, [0; 5]);
    }
    queue.resume();
}

#[test]
fn runs_are_told_by_their_own_time() {
    let queue = known_of_slow_items(20);
    let runs = queue.report().run;
    assert_eq!(runs.count, 21, "{runs:?}");
    assert!(runs.quantile_ns(0.05) >= 1_000_000, "{runs:?}");
    assert!(runs.total_ns >= 20_000_000, "{runs:?}");
}

#[test]
fn a_wait_is_from_queueing_to_taking() {
    let registry = registry("1 core");
    let queue = queue("waits").help(false).max_active(1);
    let queue = queue.build_in(&registry).unwrap();
    let plug = plug_into(&queue);
    let waits = queue.spawn(|| ());
    let from = std::time::Instant::now();
    std::thread::sleep(20 * MS);
    let waited = from.elapsed();
    let oldest = queue.report().oldest.unwrap();
    assert!(oldest >= waited, "{oldest:?}");
    plug.release();
    waits.join().unwrap();
    assert_eq!(queue.report().oldest, None);
    let times = queue.report().wait;
    let waited_ns = waited.as_nanos() as u64;
    assert!(times.quantile_ns(1.0) >= waited_ns, "{times:?}");
}

#[test]
fn the_oldest_item_is_that_of_this_queue_and_not_of_another() {
    let registry = registry("1 core");
    let build = |name| queue(name).help(false).max_active(1).build_in(&registry);
    let (old, new) = (build("old").unwrap(), build("new").unwrap());
    let (old_plug, new_plug) = (plug_into(&old), plug_into(&new));
    old.spawn_detached(|| ()).unwrap();
    // The query adopts the item, so that the next push finds an empty pool again.
    assert!(old.report().oldest.is_some());
    std::thread::sleep(20 * MS);
    new.spawn_detached(|| ()).unwrap();
    let (age, other) = (old.report().oldest.unwrap(), new.report().oldest.unwrap());
    assert!(age >= 20 * MS && other < age, "{age:?}, {other:?}");
    old_plug.release();
    new_plug.release();
}

#[test]
fn a_cancelled_item_waits_no_more() {
    let queue = alone_on_two(queue("cancelled").help(false).max_active(1));
    let plug = plug_into(&queue);
    let works: Vec<_> = (0..10).map(|_| Work::new(|| ())).collect();
    for work in &works {
        queue.enqueue(work);
    }
    assert!(queue.report().oldest.is_some());
    for work in &works {
        assert!(work.cancel());
    }
    assert_eq!(queue.report().oldest, None);
    plug.release();
}

#[test]
fn nothing_is_measured_where_nobody_wants_it() {
    let params = Params {
        wait_sample: 0,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let queue = queue("waits").help(false).max_active(1);
    let queue = queue.build_in(&registry).unwrap();
    let plug = plug_into(&queue);
    let waits = queue.spawn(|| ());
    assert_eq!(queue.report().oldest, None);
    plug.release();
    waits.join().unwrap();
    queue.drain().unwrap();
    eventually("it is told", || queue.stats().completed == 2);
    assert_eq!(queue.report().wait.count, 0);
    assert_eq!(queue.report().run.count, 0);
}

#[test]
fn a_snapshot_has_each_queue_and_pool_as_table_and_as_json() {
    let registry = registry("2 core");
    let queue = queue("a \"name\"").nice(3).build_in(&registry).unwrap();
    queue.spawn(|| ()).join().unwrap();
    let now = snapshot_of(&registry);
    assert_eq!((now.queues.len(), now.pools.len()), (1, 1));
    assert_eq!(now.queues[0].attrs.nice, 3);
    let json = now.to_json();
    assert!(
        json.contains(r#"{"queue":"a \"name\"","scope":"cache_shard","nice":"3","#),
        "{json}"
    );
    assert!(
        json.contains(r#""pools":[{"pool":"0-1","strict":false,"#),
        "{json}"
    );
    let table = now.to_string();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() >= 4);
    assert!(lines[0].starts_with("queue") && lines[2].starts_with("pool"));
    drop(queue);
    let later = snapshot_of(&registry);
    assert!(later.queues.is_empty() && later.pools.is_empty());
    assert!(!later.to_string().contains("queue"), "{later}");
    let json = later.to_json();
    assert!(
        json.starts_with(r#"{"queues":[],"pools":[],"rcu":["#),
        "{json}"
    );
}

#[test]
fn the_system_queues_are_there_once_and_by_the_kernels_names() {
    let queues = [
        (workqueue::system().unwrap(), "events"),
        (workqueue::system_highpri().unwrap(), "events_highpri"),
        (workqueue::system_long().unwrap(), "events_long"),
        (workqueue::system_unbound().unwrap(), "events_unbound"),
    ];
    for (i, (queue, name)) in queues.into_iter().enumerate() {
        assert_eq!(queue.name(), name);
        assert_eq!(queue.spawn(move || i).join().unwrap(), i);
    }
    assert!(std::ptr::eq(workqueue::system().unwrap(), queues[0].0));
}

#[test]
fn the_high_priority_queue_says_by_its_nice_value_whether_it_is_one() {
    let queue = workqueue::system_highpri().unwrap();
    let may = sync::thread::may_set_nice(-20).is_ok();
    assert_eq!(queue.attrs().nice, if may { -20 } else { 0 });
}

#[test]
fn what_workers_have_run_is_counted_also_where_they_come_back_in_surplus() {
    const NR_WORKERS: usize = 8;
    ends(|| {
        let queue = queue("surplus").max_active(16).help(false);
        let queue = queue.build_in(&registry("1 core")).unwrap();
        for round in 1..=20 {
            let barrier = std::sync::Arc::new(std::sync::Barrier::new(NR_WORKERS));
            for _ in 0..NR_WORKERS {
                let barrier = barrier.clone();
                // All workers block at once, and return at once to a pool of one CPU.
                queue
                    .spawn_detached(move || {
                        workqueue::blocking(|| barrier.wait());
                    })
                    .unwrap();
            }
            queue.drain().unwrap();
            let expected = (round * NR_WORKERS) as u64;
            eventually("all are counted", || queue.stats().completed == expected);
        }
    });
}
