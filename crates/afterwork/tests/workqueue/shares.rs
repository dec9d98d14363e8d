//! Shares of a pool's CPU time: a queue that floods the pool does not delay the others.

use crate::support::*;

/// The number of items in a flood, which takes a few tens of milliseconds.
const FLOOD: usize = 200;

fn burn(us: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn flood(queue: &Workqueue) -> Count {
    let nr_started = Count::default();
    for _ in 0..FLOOD {
        queue.detach(move || {
            nr_started.add();
            burn(200);
        });
    }
    nr_started
}

/// Floods `flooded`, and then queues an item on `other`. Returns the number of items of the flood
/// that start before that item, and the count of all that start.
fn started_before(flooded: &Workqueue, plugged: &Workqueue, other: &Workqueue) -> (usize, Count) {
    let plug = plug_into(plugged);
    let nr_started = flood(flooded);
    let answer = other.spawn(move || nr_started.get());
    plug.release();
    let before = answer.join().unwrap();
    // By the end of the drain the worker has recorded the CPU time of its items.
    flooded.drain().unwrap();
    other.drain().unwrap();
    (before, nr_started)
}

#[test]
fn without_shares_items_run_in_the_order_of_queueing() {
    let [flooded, other] = ["flooded", "other"].map(one_seat).on(&unwatched("1 core"));
    assert_eq!(started_before(&flooded, &flooded, &other).0, FLOOD);
}

#[test]
fn a_flood_does_not_delay_a_queue_with_the_same_limit() {
    for max_active in [1, 4] {
        let registry = unwatched("1 core");
        let builder = |name| queue(name).max_active(max_active).help(false).shares(100);
        let [flooded, other] = ["flooded", "other"].map(|name| builder(name).on(&registry));
        let (before, nr_started) = started_before(&flooded, &flooded, &other);
        assert_eq!(before, 0, "it had used nothing");
        assert_eq!(nr_started.after_drain(&flooded), FLOOD);
    }
}

/// Builds a queue with one item. The item builds the next such queue and drops its own queue, at
/// most `MOST_LINKS` times, until `nr_old` is `NR_OLD`. `nr_items` counts the items.
fn chain_queues(registry: Registry, nr_items: Count, nr_old: Count) {
    if nr_items.get() == MOST_LINKS || nr_old.get() == NR_OLD {
        return;
    }
    let queue = queue("for one item").help(false).shares(100).on(&registry);
    let its_own = queue.clone();
    queue.detach(move || {
        burn(50);
        nr_items.add();
        // The next queue is built before this item ends, so the worker always finds a new one.
        chain_queues(registry, nr_items, nr_old);
        drop(its_own);
    });
}

const NR_OLD: usize = 20;
const MOST_LINKS: usize = 3000;

#[test]
fn a_new_queue_for_each_item_starves_no_other_queue() {
    for max_active in [1, 16] {
        let registry = unwatched("1 core");
        let old = queue("old").max_active(max_active).help(false).shares(100).on(&registry);
        let plug = plug_into(&old);
        let (nr_items, nr_old) = (Count::default(), Count::default());
        for _ in 0..NR_OLD {
            old.detach(move || {
                burn(50);
                nr_old.add();
            });
        }
        chain_queues(registry, nr_items, nr_old);
        plug.release_and_drain(&old);
        // About one link for each item of the old queue is expected. A preemption adds a few
        // hundred.
        assert!(nr_items.get() < MOST_LINKS, "the old queue waited too long");
    }
}

#[test]
fn shares_hold_for_items_that_wait_already() {
    let (registry, wide) = queue("wide").help(false).on_own(unwatched("1 core"));
    let requests = one_seat("requests").on(&registry);
    let (plug, nr_started) = (plug_into(&wide), flood(&wide));
    let answer = requests.spawn(move || nr_started.get());
    assert_eq!((requests.report().shares, wide.report().shares), (None, None));
    requests.set_shares(500).unwrap();
    assert_eq!((requests.report().shares, wide.report().shares), (Some(500), None));
    plug.release();
    assert_eq!(answer.join().unwrap(), 0);
    // The queue releases its shares. Its items still run.
    drop(requests);
    assert_eq!(nr_started.after_drain(&wide), FLOOD);
    assert_eq!(wide.spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn cpu_time_is_divided_by_shares() {
    let (registry, many) = one_seat("many").shares(900).on_own(unwatched("1 core"));
    let few = queue("few").help(false).shares(100).on(&registry);
    let (_plugged, plug) = one_seat("plug").plugged_on(&registry);
    let (first, second) = (flood(&many), flood(&few));
    let at_end = many.spawn(move || second.get());
    plug.release();
    many.drain().unwrap();
    few.drain().unwrap();
    assert_eq!(first.get() + second.get(), 2 * FLOOD);
    // A ninth of the flood, 22 items, is expected. Times on a loaded machine are inexact, so the
    // bound is large.
    let at_end = at_end.join().unwrap();
    assert!(at_end < FLOOD / 2, "{at_end} of the few while the many ran");
}

#[test]
fn cpu_time_is_divided_by_shares_of_groups_then_of_queues() {
    let registry = unwatched("1 core");
    // Both groups have the same shares, and one of them has three queues.
    let [wide, narrow] = ["wide", "narrow"]
        .map(|name| Group::builder(name).shares(100).build_in(&registry).unwrap());
    let of_wide = [(); 3].map(|()| one_seat("wide").group(&wide).on(&registry));
    let of_narrow = one_seat("narrow").group(&narrow).on(&registry);
    let (_plugged, plug) = one_seat("plug").plugged_on(&registry);
    let floods = of_wide.each_ref().map(flood);
    let of_flood = flood(&of_narrow);
    let at_end = of_narrow.spawn(move || floods.map(|it| it.get()));
    plug.release();
    wide.drain_timeout(PATIENCE).unwrap();
    narrow.drain_timeout(PATIENCE).unwrap();
    assert_eq!(of_flood.get() + floods.iter().map(Count::get).sum::<usize>(), 4 * FLOOD);
    // Each queue of `wide` should start a third of `FLOOD`. Without groups it would start all of
    // it.
    for nr_started in at_end.join().unwrap() {
        assert!(nr_started < FLOOD * 2 / 3, "{nr_started} of a third");
    }
}

#[test]
fn shares_of_a_group_hold_until_its_last_queue_leaves_a_pool() {
    let registry = unwatched("1 core");
    let group = Group::builder("group").build_in(&registry).unwrap();
    let [flooded, other] = ["flooded", "other"].map(|name| one_seat(name).on(&registry));
    let member = queue("member").group(&group).on(&registry);
    let before = |expected| assert_eq!(started_before(&flooded, &flooded, &other).0, expected);
    before(FLOOD);
    group.set_shares(300).unwrap();
    before(0);
    // A queue that joins later also has the shares of its group.
    drop(member);
    before(FLOOD);
    let member = queue("member").group(&group).on(&registry);
    before(0);
    assert_eq!(member.spawn(|| 1).join().unwrap(), 1);
    assert_eq!(group.stats().shares, Some(300));
}

/// Runs two queues on a pool of one worker. `few` has one share, owes much CPU time, and has one
/// item waiting. `many` has the maximum number of shares and a flood, whose tenth item calls
/// `at_tenth` with `few`. Returns the number of flood items that have started when the waiting item
/// starts. If that item is cancelled, returns the number at which `seen` first returned `true`.
fn owing(at_tenth: fn(&Workqueue), seen: fn(&Workqueue) -> bool) -> usize {
    let (registry, plugged) = one_seat("plug").on_own(unwatched("1 core"));
    let plug = plug_into(&plugged);
    let [few, many] = [1, MAX_SHARES].map(|shares| one_seat("shares").shares(shares)).on(&registry);
    let nr_started = Count::default();
    few.detach(|| burn(3000));
    let second = few.spawn(move || nr_started.get());
    let when_seen = Arc::new(AtomicUsize::new(FLOOD));
    for number in 0..FLOOD {
        let (when_seen, few) = (when_seen.clone(), few.clone());
        many.detach(move || {
            nr_started.add();
            burn(200);
            if number == 9 {
                at_tenth(&few);
            } else if number > 9 && seen(&few) {
                when_seen.fetch_min(number, Ordering::Relaxed);
            }
        });
    }
    plug.release();
    many.drain().unwrap();
    second.join().unwrap_or_else(|_| when_seen.load(Ordering::Relaxed))
}

#[test]
fn a_queue_with_more_shares_keeps_no_debt_of_the_few() {
    assert_eq!(owing(|_| (), |_| false), FLOOD);
    let nr_started = owing(|few| few.set_shares(MAX_SHARES).unwrap(), |_| false);
    assert!(nr_started < FLOOD / 2, "{nr_started}");
    // A queue without items ends before its turn.
    let nr_started = owing(
        |few| assert_eq!(few.cancel_all(), 1),
        |few| few.drain_timeout(Duration::ZERO).is_ok(),
    );
    assert!(nr_started < FLOOD / 2, "{nr_started}");
}

#[test]
fn only_queue_of_an_idle_pool_has_no_debt() {
    let (registry, plugged) = one_seat("plug").on_own(unwatched("1 core"));
    let [few, many] = [1, MAX_SHARES].map(|shares| one_seat("shares").shares(shares)).on(&registry);
    // Repeats until the worker finds the pool empty before the blocker item is queued.
    wait_until(|| {
        few.spawn(|| burn(3000)).join().unwrap();
        thread::sleep(5 * MS);
        let (before, _) = started_before(&many, &plugged, &few);
        many.drain().unwrap();
        before <= 1
    });
}

#[test]
fn queue_removes_its_shares_from_a_pool_that_it_leaves() {
    let registry = unwatched("1 core");
    let [flooded, other] = ["flooded", "other"].map(|name| one_seat(name).on(&registry));
    let moved = queue("moved").shares(100).on(&registry);
    for (nice, expected) in [(5, FLOOD), (0, 0)] {
        moved.set_attrs(|attrs| attrs.nice = nice).unwrap();
        assert_eq!(started_before(&flooded, &flooded, &other).0, expected, "nice {nice}");
        assert_eq!(moved.spawn(|| 1).join().unwrap(), 1);
    }
}

#[test]
fn an_ordered_queue_keeps_its_order_among_shares() {
    let (registry, ordered) = queue("ordered").ordered().on_own(registry("2 core"));
    let other = queue("other").affinity(System).shares(1).on(&registry);
    let log = Log::default();
    for number in 0..500 {
        ordered.detach(log.note(number));
        other.detach(|| ());
    }
    ordered.drain().unwrap();
    other.drain().unwrap();
    assert!(log.take().into_iter().eq(0..500));
}

#[test]
fn shares_out_of_range_are_named() {
    let registry = unwatched("1 core");
    for shares in [0, MAX_SHARES + 1] {
        let refused = queue("none").shares(shares).build_in(&registry).unwrap_err();
        assert!(matches!(refused, BuildError::Shares(named) if named == shares));
        assert_eq!(refused.to_string(), format!("shares {shares} are not between 1 and 10000"));
    }
    let queue = queue("some").shares(MAX_SHARES).on(&registry);
    assert!(matches!(queue.set_shares(0), Err(BuildError::Shares(0))));
    let refused = Group::builder("none").shares(0).build_in(&registry);
    assert!(matches!(refused.unwrap_err(), BuildError::Shares(0)));
    let group = Group::builder("some").build_in(&registry).unwrap();
    assert!(matches!(group.set_shares(MAX_SHARES + 1), Err(BuildError::Shares(_))));
    assert_eq!(group.stats().shares, None);
    assert_eq!(queue.report().shares, Some(MAX_SHARES));
}
