//! Shares of a pool's CPU time: a queue that floods the pool does not delay the others.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use afterwork::workqueue::{BuildError, MAX_SHARES, Registry, Workqueue};

use crate::support::*;

/// The number of items in the flood. They take some tens of milliseconds.
const FLOOD: usize = 200;

fn burn(us: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn build(name: &str, registry: &Registry) -> Workqueue {
    queue(name)
        .max_active(1)
        .help(false)
        .build_in(registry)
        .unwrap()
}

/// Queues a flood of items that increment the returned counter when they start.
fn flood(queue: &Workqueue) -> Arc<AtomicUsize> {
    let nr_started = Arc::new(AtomicUsize::new(0));
    for _ in 0..FLOOD {
        let nr_started = nr_started.clone();
        queue
            .spawn_detached(move || {
                nr_started.fetch_add(1, Ordering::Relaxed);
                burn(200);
            })
            .unwrap();
    }
    nr_started
}

#[test]
fn without_shares_items_go_in_the_order_of_queueing() {
    let registry = unwatched("1 core");
    let compaction = build("compaction", &registry);
    let requests = build("requests", &registry);
    let plug = plug_into(&compaction);
    let nr_started = flood(&compaction);
    let counted = nr_started.clone();
    let answer = requests.spawn(move || counted.load(Ordering::Relaxed));
    plug.release();
    assert_eq!(answer.join().unwrap(), FLOOD);
}

#[test]
fn a_flood_does_not_hold_up_a_queue_with_the_same_limit() {
    for max_active in [1, 4] {
        let registry = unwatched("1 core");
        let describe = |name| queue(name).max_active(max_active).help(false).shares(100);
        let compaction = describe("compaction").build_in(&registry).unwrap();
        let requests = describe("requests").build_in(&registry).unwrap();
        let plug = plug_into(&compaction);
        let nr_started = flood(&compaction);
        let counted = nr_started.clone();
        let answer = requests.spawn(move || counted.load(Ordering::Relaxed));
        plug.release();
        assert_eq!(answer.join().unwrap(), 0, "it had used nothing");
        compaction.drain().unwrap();
        assert_eq!(nr_started.load(Ordering::Relaxed), FLOOD);
    }
}

/// Builds a queue with one item. The item builds the next such queue and drops its own queue,
/// `nr_left` times, unless `stop` is 0. `nr_pwqs` counts the items.
fn chain_queues(registry: Registry, nr_pwqs: Count, nr_left: usize, stop: Arc<AtomicUsize>) {
    if nr_left == 0 || stop.load(Ordering::Relaxed) == 0 {
        return;
    }
    let queue = queue("for one item").help(false).shares(100);
    let queue = queue.build_in(&registry).unwrap();
    let its_own = queue.clone();
    queue
        .spawn_detached(move || {
            burn(50);
            nr_pwqs.add();
            // The next queue is built before this item ends, so the worker always finds a new one.
            chain_queues(registry, nr_pwqs, nr_left - 1, stop);
            drop(its_own);
        })
        .unwrap();
}

#[test]
fn a_new_queue_for_each_item_starves_no_other_queue() {
    const NR_OLD: usize = 20;
    const MOST_LINKS: usize = 3000;
    for max_active in [1, 16] {
        let registry = unwatched("1 core");
        let old = queue("old").max_active(max_active).help(false).shares(100);
        let old = old.build_in(&registry).unwrap();
        let plug = plug_into(&old);
        let nr_left = Arc::new(AtomicUsize::new(NR_OLD));
        for _ in 0..NR_OLD {
            let nr_left = nr_left.clone();
            old.spawn_detached(move || {
                burn(50);
                nr_left.fetch_sub(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        let nr_pwqs = Count::default();
        chain_queues(registry.clone(), nr_pwqs.clone(), MOST_LINKS, nr_left);
        plug.release();
        old.drain().unwrap();
        // About one link for each item of the old queue is expected. A preemption adds some
        // hundreds.
        assert!(nr_pwqs.get() < MOST_LINKS, "the old queue waited too long");
    }
}

#[test]
fn shares_hold_for_what_waits_already() {
    let registry = unwatched("1 core");
    let wide = queue("wide").help(false).build_in(&registry).unwrap();
    let requests = build("requests", &registry);
    let plug = plug_into(&wide);
    let nr_started = flood(&wide);
    let counted = nr_started.clone();
    let answer = requests.spawn(move || counted.load(Ordering::Relaxed));
    assert_eq!(
        (requests.report().shares, wide.report().shares),
        (None, None)
    );
    requests.set_shares(500).unwrap();
    assert_eq!(
        (requests.report().shares, wide.report().shares),
        (Some(500), None)
    );
    plug.release();
    assert_eq!(answer.join().unwrap(), 0);
    // The queue releases its shares. Its items run all the same.
    drop(requests);
    wide.drain().unwrap();
    assert_eq!(nr_started.load(Ordering::Relaxed), FLOOD);
    assert_eq!(wide.spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn time_goes_by_shares() {
    let registry = unwatched("1 core");
    let many = queue("many").max_active(1).help(false).shares(900);
    let many = many.build_in(&registry).unwrap();
    let few = queue("few")
        .help(false)
        .shares(100)
        .build_in(&registry)
        .unwrap();
    let plugged = build("plug", &registry);
    let plug = plug_into(&plugged);
    let (first, second) = (flood(&many), flood(&few));
    let (counted, at_end) = (second.clone(), Arc::new(AtomicUsize::new(0)));
    let noted = at_end.clone();
    many.spawn_detached(move || noted.store(counted.load(Ordering::Relaxed), Ordering::Relaxed))
        .unwrap();
    plug.release();
    many.drain().unwrap();
    few.drain().unwrap();
    assert_eq!(
        first.load(Ordering::Relaxed) + second.load(Ordering::Relaxed),
        2 * FLOOD
    );
    // 22 items are expected, a ninth. Times on a loaded machine are inexact, so the bound is large.
    let at_end = at_end.load(Ordering::Relaxed);
    assert!(at_end < FLOOD / 2, "{at_end} of the few while the many ran");
}

/// Runs two queues on a pool of one worker. `few` has one share, owes much CPU time, and has one
/// item waiting. `many` has all the shares and a flood, whose tenth item calls `at_tenth` with
/// `few`. Returns the number of started items of the flood when the waiting item starts. If that
/// item is cancelled, returns the number at which `seen` first returned `true`.
fn owing(
    at_tenth: impl FnOnce(&Workqueue) + Send + 'static,
    seen: impl Fn(&Workqueue) -> bool + Send + 'static,
) -> usize {
    let registry = unwatched("1 core");
    let plugged = build("plug", &registry);
    let few = queue("few").max_active(1).help(false).shares(1);
    let few = few.build_in(&registry).unwrap();
    let many = queue("many").max_active(1).help(false).shares(MAX_SHARES);
    let many = many.build_in(&registry).unwrap();
    let plug = plug_into(&plugged);
    let nr_started = Arc::new(AtomicUsize::new(0));
    few.spawn_detached(|| burn(3000)).unwrap();
    let counted = nr_started.clone();
    let second = few.spawn(move || counted.load(Ordering::Relaxed));
    let when_seen = Arc::new(AtomicUsize::new(FLOOD));
    let mut at_tenth = Some(at_tenth);
    for number in 0..10 {
        let nr_started = nr_started.clone();
        let at_tenth = (number == 9).then(|| at_tenth.take()).flatten();
        let few = few.clone();
        many.spawn_detached(move || {
            nr_started.fetch_add(1, Ordering::Relaxed);
            burn(200);
            if let Some(at_tenth) = at_tenth {
                at_tenth(&few);
            }
        })
        .unwrap();
    }
    let seen = Arc::new(Mutex::new(seen));
    for number in 10..FLOOD {
        let (nr_started, when_seen) = (nr_started.clone(), when_seen.clone());
        let (few, seen) = (few.clone(), seen.clone());
        many.spawn_detached(move || {
            nr_started.fetch_add(1, Ordering::Relaxed);
            burn(200);
            if seen.lock().unwrap()(&few) {
                when_seen.fetch_min(number, Ordering::Relaxed);
            }
        })
        .unwrap();
    }
    plug.release();
    many.drain().unwrap();
    match second.join() {
        Ok(nr_started) => nr_started,
        Err(_) => when_seen.load(Ordering::Relaxed),
    }
}

#[test]
fn who_is_given_more_shares_owes_no_longer_by_the_few() {
    assert_eq!(owing(|_| (), |_| false), FLOOD);
    let given_more = |few: &Workqueue| few.set_shares(MAX_SHARES).unwrap();
    let nr_started = owing(given_more, |_| false);
    assert!(nr_started < FLOOD / 2, "{nr_started}");
}

#[test]
fn a_queue_of_which_all_is_cancelled_ends_before_its_turn() {
    let nr_started = owing(
        |few| assert_eq!(few.cancel_all(), 1),
        |few| few.drain_timeout(Duration::ZERO).is_ok(),
    );
    assert!(nr_started < FLOOD / 2, "{nr_started}");
}

#[test]
fn who_had_an_idle_pool_for_itself_owes_nothing() {
    let registry = unwatched("1 core");
    let plugged = build("plug", &registry);
    let few = queue("few").max_active(1).help(false).shares(1);
    let few = few.build_in(&registry).unwrap();
    let many = queue("many").max_active(1).help(false).shares(MAX_SHARES);
    let many = many.build_in(&registry).unwrap();
    // Repeats until the worker finds the pool empty before the blocker item is queued.
    eventually("it goes at once", || {
        few.spawn(|| burn(3000)).join().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let plug = plug_into(&plugged);
        let nr_started = flood(&many);
        let counted = nr_started.clone();
        let answer = few.spawn(move || counted.load(Ordering::Relaxed));
        plug.release();
        let nr_started = answer.join().unwrap();
        many.drain().unwrap();
        nr_started <= 1
    });
}

#[test]
fn a_queue_takes_its_shares_out_of_a_pool_that_it_leaves() {
    let registry = unwatched("1 core");
    let compaction = build("compaction", &registry);
    let requests = build("requests", &registry);
    let moved = queue("moved").shares(100).build_in(&registry).unwrap();
    for (nice, expected) in [(5, FLOOD), (0, 0)] {
        moved.set_attrs(|attrs| attrs.nice = nice).unwrap();
        let plug = plug_into(&compaction);
        let nr_started = flood(&compaction);
        let counted = nr_started.clone();
        let answer = requests.spawn(move || counted.load(Ordering::Relaxed));
        plug.release();
        assert_eq!(answer.join().unwrap(), expected, "nice {nice}");
        // By the end of the drain the worker has recorded the CPU time of its items.
        compaction.drain().unwrap();
        requests.drain().unwrap();
        assert_eq!(moved.spawn(|| 1).join().unwrap(), 1);
    }
}

#[test]
fn an_ordered_queue_keeps_its_order_among_shares() {
    let registry = registry("2 core");
    let ordered = queue("ordered").ordered().build_in(&registry).unwrap();
    let other = queue("other")
        .affinity(afterwork::workqueue::AffinityScope::System)
        .shares(1);
    let other = other.build_in(&registry).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..500 {
        let order = order.clone();
        ordered
            .spawn_detached(move || order.lock().unwrap().push(number))
            .unwrap();
        other.spawn_detached(|| ()).unwrap();
    }
    ordered.drain().unwrap();
    other.drain().unwrap();
    assert!(order.lock().unwrap().iter().copied().eq(0..500));
}

#[test]
fn flush_cancel_all_and_pause_hold_among_shares() {
    let registry = registry("2 core");
    let queue = queue("example").shares(10).build_in(&registry).unwrap();
    let urgent = queue.urgent().unwrap();
    let count = Count::default();
    let give = |handle: &Workqueue| {
        for _ in 0..100 {
            let count = count.clone();
            handle.spawn_detached(move || count.add()).unwrap();
        }
    };
    give(&queue);
    give(&urgent);
    queue.flush().unwrap();
    assert_eq!(count.get(), 200);
    queue.pause();
    give(&queue);
    give(&urgent);
    assert_eq!(queue.stats().nr_inactive, 200);
    assert_eq!(queue.cancel_all(), 200);
    give(&queue);
    queue.resume();
    queue.drain().unwrap();
    assert_eq!(count.get(), 300);
}

#[test]
fn shares_out_of_range_are_named() {
    let registry = unwatched("1 core");
    for shares in [0, MAX_SHARES + 1] {
        let refused = queue("none")
            .shares(shares)
            .build_in(&registry)
            .unwrap_err();
        assert!(matches!(refused, BuildError::Shares(said) if said == shares));
        assert_eq!(
            refused.to_string(),
            format!("shares {shares} are not between 1 and 10000")
        );
    }
    let queue = queue("some")
        .shares(MAX_SHARES)
        .build_in(&registry)
        .unwrap();
    assert!(matches!(queue.set_shares(0), Err(BuildError::Shares(0))));
    assert_eq!(queue.report().shares, Some(MAX_SHARES));
}
