//! Statistics and snapshots.

use crate::support::*;

#[test]
fn a_worker_woken_for_a_sleeping_one_is_counted() {
    let registry = unwatched("1 core");
    let [sleeper, other] = ["sleeper", "other"].map(|it| queue(it).help(false).on(&registry));
    let next = other.clone();
    sleeper.spawn(move || next.spawn(|| ()).join()).join().unwrap().unwrap();
    assert_eq!((sleeper.stats().cm_wakeups, other.stats().cm_wakeups), (1, 0));
    assert_eq!(registry.pool_stats().iter().map(|pool| pool.cm_wakeups).sum::<u64>(), 1);
}

#[test]
fn a_pool_keeps_the_counts_of_queues_that_ended() {
    let registry = registry("2 core");
    // Two queues share a pool, and the second one keeps it alive.
    let [going, _stays] = ["going", "staying"].map(|it| queue(it).help(false).on(&registry));
    (0..10).for_each(|_| going.detach(|| ()));
    drop(going);
    assert_eq!(registry.pool_stats().iter().map(|it| it.started).sum::<u64>(), 10);
}

#[test]
fn a_cancelled_item_counts_neither_as_started_nor_as_completed() {
    let (queue, plug) = one_seat("cancelled").plugged();
    let works = [(); 10].map(|()| Work::new(|| ()));
    assert_eq!(queue.task().enqueue_all(&works), 10);
    assert!(queue.report().oldest.is_some());
    assert!(works.iter().all(Work::cancel));
    assert_eq!(queue.report().oldest, None, "a cancelled item waits no more");
    plug.release_and_drain(&queue);
    wait_until(|| queue.stats().completed == 1);
    assert_eq!(queue.stats().started, 1);
}

#[test]
fn cpu_time_does_not_count_sleep() {
    let queue = queue("time").help(false).alone();
    let burn = || {
        let me = sync::thread::current();
        let from = sync::usage::cpu_ns(me).unwrap();
        while sync::usage::cpu_ns(me).unwrap() < from + 5_000_000 {}
    };
    queue.spawn(burn).join().unwrap();
    queue.drain().unwrap();
    wait_until(|| queue.stats().cpu_time_us >= 5_000);
    let before = queue.stats().cpu_time_us;
    queue.spawn(|| thread::sleep(200 * MS)).join().unwrap();
    queue.drain().unwrap();
    wait_until(|| queue.stats().completed == 2);
    let slept = queue.stats().cpu_time_us - before;
    assert!(slept < 100_000, "{slept} µs for a sleep of 200 ms");
}

/// Runs items that sleep for a millisecond each. Returns the queue, whose statistics are complete.
fn known_of_slow_items(count: usize) -> Workqueue {
    let (queue, plug) = one_seat("slow").plugged();
    (0..count).for_each(|_| queue.detach(|| thread::sleep(MS)));
    // The query adopts the injector, so that all items count as queued by now.
    assert!(queue.report().oldest.is_some());
    plug.release_and_drain(&queue);
    wait_until(|| queue.stats().completed == count as u64 + 1);
    queue
}

#[test]
fn each_item_of_a_burst_counts_in_the_wait_times() {
    const COUNT: usize = 200;
    let queue = known_of_slow_items(COUNT);
    let waits = queue.report().wait;
    assert_eq!(waits.count, COUNT as u64 + 1, "{waits:?}");
    // The nth item waits for all earlier ones, so half of the items wait for at least half of the
    // time.
    let half_ns = (COUNT as u64 / 2 - 1) * MS.as_nanos() as u64;
    assert!(waits.quantile_ns(0.5) >= half_ns, "{waits:?}");
    assert!(waits.quantile_ns(1.0) >= 2 * half_ns, "{waits:?}");
    assert!(waits.total_ns >= half_ns * COUNT as u64 / 2, "{waits:?}");
}

#[test]
fn a_returned_local_batch_is_counted_once() {
    let (queue, plug) = queue("hands").help(false).plugged();
    let sleeps = |i| Work::new(move || thread::sleep(if i == 0 { 20 * MS } else { MS / 100 }));
    let works: Vec<_> = (0..20).map(sleeps).collect();
    assert_eq!(queue.task().enqueue_all(&works), 20);
    plug.release_and_drain(&queue);
    wait_until(|| queue.stats().completed == 21);
    let waits = queue.report().wait;
    // The waits of the last batch may not be recorded yet.
    assert!((1..=21).contains(&waits.count), "{waits:?}");
}

#[test]
fn wait_times_and_starts_never_fall() {
    let registry = tuned("1 core", |it| it.wait_sample = 1);
    let queue = queue("hands").help(false).max_active(2).on(&registry);
    // A worker takes a large batch if items are short.
    let works: Vec<_> = (0..200).map(|_| Work::new(|| ())).collect();
    queue.task().enqueue_all(&works);
    queue.drain().unwrap();
    // Uses the other seat, so that no worker takes the items that the blocked one returns.
    let plug = plug_into(&queue);
    let (go, may_go) = mpsc::channel::<()>();
    let (began, stop) = (Count::default(), Count::default());
    let first = Work::new(move || {
        began.add();
        hogging(stop)();
        // The worker returns its local batch to the pool.
        let _ = workqueue::blocking(|| may_go.recv());
    });
    let works: Vec<_> = [first].into_iter().chain(works).collect();
    queue.task().enqueue_all(&works);
    wait_until(|| began.get() == 1);
    let started = || (queue.stats().started, registry.pool_stats()[0].started);
    assert_eq!(started(), (202, 202), "the local batch has not started");
    let before = queue.report().wait;
    stop.add();
    wait_until(|| waiting(&queue) == 200);
    let after = queue.report().wait;
    assert_eq!(started(), (202, 202));
    let mut pairs = before.buckets.iter().zip(&after.buckets);
    assert!(pairs.all(|(before, after)| before <= after), "{before:?} {after:?}");
    assert!(before.total_ns <= after.total_ns, "{before:?} {after:?}");
    go.send(()).unwrap();
    plug.release_and_drain(&queue);
}

/// A batch of the worker contains items of many queues, which alternate.
#[test]
fn items_run_in_the_order_of_their_queue_and_count_there() {
    const NR_QUEUES: usize = 20;
    const NR_ITEMS: u64 = 200;
    for wait_sample in [1, 1_000_000_000] {
        let registry = tuned("1 core", |it| {
            it.max_workers = 1;
            it.wait_sample = wait_sample;
        });
        let queues = [(); NR_QUEUES].map(|()| queue("turn").help(false).on(&registry));
        let logs = [(); NR_QUEUES].map(|()| Log::default());
        // The worker does not record the times of a queue before it takes items of all queues.
        let plug = plug_into(&queues[0]);
        for number in 0..NR_ITEMS {
            queues.iter().zip(logs).for_each(|(queue, log)| queue.detach(log.note(number)));
        }
        plug.release();
        for (nth, (queue, log)) in queues.iter().zip(logs).enumerate() {
            queue.drain().unwrap();
            assert!(log.take().into_iter().eq(0..NR_ITEMS));
            let expected = NR_ITEMS + u64::from(nth == 0);
            wait_until(|| queue.stats().completed == expected);
            let report = queue.report();
            assert_eq!(report.stats.started, expected);
            assert_eq!((report.wait.count, report.run.count), (expected, expected));
        }
        let all = NR_ITEMS * NR_QUEUES as u64 + 1;
        assert_eq!(registry.pool_stats()[0].completed, all);
    }
}

#[test]
fn time_of_an_item_counts_at_its_own_queue() {
    const SLEEP: Duration = Duration::from_millis(200);
    let registry = unwatched("1 core");
    let [quick, slow, other] =
        ["quick", "slow", "other"].map(|name| queue(name).help(false).on(&registry));
    quick.detach(|| ());
    slow.detach(|| thread::sleep(SLEEP));
    other.detach(|| ());
    for (queue, is_slow) in [(&quick, false), (&slow, true), (&other, false)] {
        queue.drain().unwrap();
        wait_until(|| queue.report().run.count == 1);
        let took = Duration::from_nanos(queue.report().run.total_ns);
        assert_eq!(took >= SLEEP, is_slow, "{took:?}");
    }
}

#[test]
fn items_run_by_joiners_are_not_counted_as_waiting() {
    // The monitor does not replace the worker that is busy.
    let [hogged, queue] = [queue("hog").help(false), queue("helped")].on(&unwatched("1 core"));
    for reads in [true, false] {
        let plug = plug_into(&hogged);
        for _ in 0..50 {
            // The first item cannot be taken out of the injector, because it is not the newest.
            let (first, second) = (queue.spawn(|| ()), queue.spawn(|| ()));
            first.join().unwrap();
            second.join().unwrap();
        }
        if reads {
            assert_eq!((waiting(&queue), queue.report().oldest), (0, None));
        }
        plug.release_and_drain(&hogged);
        queue.drain().unwrap();
    }
    let stats = queue.stats();
    assert_eq!((stats.helped, stats.started, stats.completed), (200, 0, 0));
    wait_until(|| queue.report().wait.count == 0);
}

#[test]
fn items_cancelled_during_a_query_do_not_stay_in_len() {
    let queue = queue("asked").max_active(1).paused();
    for _ in 0..100 {
        let done = Count::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                while done.get() == 0 {
                    std::hint::black_box(waiting(&queue));
                }
            });
            (0..100).for_each(|_| assert!(queue.spawn(|| ()).cancel()));
            done.add();
        });
        assert_eq!([(); 5].map(|()| waiting(&queue)), [0; 5]);
    }
}

#[test]
fn run_times_count_each_run_by_itself() {
    let queue = known_of_slow_items(20);
    let runs = queue.report().run;
    assert_eq!(runs.count, 21, "{runs:?}");
    assert!(runs.quantile_ns(0.05) >= 1_000_000, "{runs:?}");
    assert!(runs.total_ns >= 20_000_000, "{runs:?}");
    // A worker records the first item, and records others only when it must.
    let registry = tuned("1 core", |it| it.wait_sample = 1_000_000);
    let queue = self::queue("left").help(false).on(&registry);
    (0..10).for_each(|_| queue.spawn(|| ()).join().unwrap());
    queue.drain().unwrap();
    // The queue no longer uses its former pool.
    queue.set_attrs(|attrs| attrs.nice = 1).unwrap();
    wait_until(|| registry.pool_stats().iter().all(|it| it.nr_workers == 0));
    assert_eq!((queue.report().wait.count, queue.report().run.count), (10, 10));
}

#[test]
fn a_wait_lasts_from_the_enqueue_to_the_start() {
    let queue = one_seat("waits").on(&registry("1 core"));
    let (plug, waits) = (plug_into(&queue), queue.spawn(|| ()));
    let from = Instant::now();
    thread::sleep(20 * MS);
    let waited = from.elapsed();
    let oldest = queue.report().oldest.unwrap();
    assert!(oldest >= waited, "{oldest:?}");
    plug.release();
    waits.join().unwrap();
    assert_eq!(queue.report().oldest, None);
    let times = queue.report().wait;
    assert!(times.quantile_ns(1.0) >= waited.as_nanos() as u64, "{times:?}");
}

#[test]
fn the_oldest_item_is_that_of_this_queue_and_not_of_another() {
    let [old, new] = ["old", "new"].map(one_seat).on(&registry("1 core"));
    let plugs = [plug_into(&old), plug_into(&new)];
    old.detach(|| ());
    // The query adopts the item, so that the next push finds an empty pool again.
    assert!(old.report().oldest.is_some());
    thread::sleep(20 * MS);
    new.detach(|| ());
    let (age, other) = (old.report().oldest.unwrap(), new.report().oldest.unwrap());
    assert!(age >= 20 * MS && other < age, "{age:?}, {other:?}");
    plugs.iter().for_each(Plug::release);
}

#[test]
fn no_time_is_measured_with_sampling_off() {
    let registry = tuned("1 core", |it| it.wait_sample = 0);
    let (queue, plug) = one_seat("waits").plugged_on(&registry);
    let waits = queue.spawn(|| ());
    assert_eq!(queue.report().oldest, None);
    plug.release();
    waits.join().unwrap();
    queue.drain().unwrap();
    wait_until(|| queue.stats().completed == 2);
    assert_eq!((queue.report().wait.count, queue.report().run.count), (0, 0));
}

#[test]
fn a_snapshot_has_each_queue_and_pool_as_table_and_as_json() {
    let (registry, queue) = queue("a \"name\"").nice(3).on_own(registry("2 core"));
    queue.spawn(|| ()).join().unwrap();
    let now = snapshot_of(&registry);
    assert_eq!((now.queues.len(), now.pools.len()), (1, 1));
    assert_eq!(now.queues[0].attrs.nice, 3);
    let json = now.to_json();
    let of_queue = r#"{"queue":"a \"name\"","scope":"cache_shard","nice":"3","#;
    let of_pool = r#""pools":[{"pool":"0-1","strict":false,"#;
    assert!(json.contains(of_queue) && json.contains(of_pool), "{json}");
    let table = now.to_string();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() >= 4);
    assert!(lines[0].starts_with("queue") && lines[2].starts_with("pool"));
    drop(queue);
    let later = snapshot_of(&registry);
    assert!(later.queues.is_empty() && later.pools.is_empty());
    assert!(!later.to_string().contains("queue"), "{later}");
    let json = later.to_json();
    assert!(json.starts_with(r#"{"queues":[],"groups":[],"pools":[],"rcu":["#), "{json}");
}

#[test]
fn system_queues_exist_once_under_the_kernels_names() {
    use workqueue::{system, system_highpri, system_long, system_unbound};
    let queues = [system(), system_highpri(), system_long(), system_unbound()].map(Result::unwrap);
    let names = queues.map(Workqueue::name);
    assert_eq!(names, ["events", "events_highpri", "events_long", "events_unbound"]);
    for queue in queues {
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    }
    assert!(std::ptr::eq(system().unwrap(), queues[0]));
}

#[test]
fn the_nice_value_of_system_highpri_shows_its_priority() {
    let may = sync::thread::may_set_nice(-20).is_ok();
    let own = queue("perhaps").nice(5).highpri_if_permitted().build().unwrap();
    for queue in [workqueue::system_highpri().unwrap(), &own] {
        assert_eq!(queue.report().attrs.nice, if may { -20 } else { 0 });
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    }
}

#[test]
fn items_of_surplus_workers_are_counted() {
    const NR_WORKERS: usize = 8;
    let queue = queue("surplus").max_active(16).help(false).on(&registry("1 core"));
    let barrier = Shared::new(Barrier::new(NR_WORKERS));
    for round in 1..=20 {
        for _ in 0..NR_WORKERS {
            // All workers block at once, and return at once to a pool of one CPU.
            queue.detach(move || _ = blocking(|| barrier.wait()));
        }
        queue.drain().unwrap();
        let expected = (round * NR_WORKERS) as u64;
        wait_until(|| queue.stats().completed == expected);
    }
}
