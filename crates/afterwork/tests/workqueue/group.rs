//! Groups: one limit for many queues, which can be paused, drained and cancelled together.

use crate::support::*;

fn group(max_active: u32, registry: &Registry) -> Group {
    must_end();
    Group::builder("group").max_active(max_active).build_in(registry).unwrap()
}

/// Builds a group of one seat, and two of its queues, whose joiners do not help.
fn one_seat() -> (Group, Workqueue, Workqueue) {
    one_seat_on(&registry("4 core"), false)
}

/// Does the same as [`one_seat`] on `registry`. If `helps` is set, joiners help.
fn one_seat_on(registry: &Registry, helps: bool) -> (Group, Workqueue, Workqueue) {
    let group = group(1, registry);
    let [first, second] =
        ["first", "second"].map(|name| queue(name).group(&group).help(helps).on(registry));
    (group, first, second)
}

/// Returns `true` if `group` holds no seat and none of its queues waits for one.
fn is_at_rest(group: &Group) -> bool {
    let stats = group.stats();
    (stats.nr_active, stats.nr_over, stats.nr_waiting) == (0, 0, 0)
}

#[track_caller]
fn drain_to_rest(group: &Group) {
    group.drain_timeout(PATIENCE).unwrap();
    assert!(is_at_rest(group), "{:?}", group.stats());
}

#[test]
fn ceiling_holds_over_all_queues_and_pools_together() {
    let registry = registry("64 core");
    for max in [1, 2, 3] {
        let group = group(max, &registry);
        let builder = |max| queue("crowd").affinity(Cpu).max_active(max).group(&group);
        let queues = [1, 512, 512].map(|max| builder(max).on(&registry));
        let most = crowd(&queues);
        drain_to_rest(&group);
        assert!(most <= max as usize, "{most} at once, {max} allowed");
        assert_eq!(group.stats().started + group.stats().helped, CROWD);
    }
}

#[test]
fn changed_ceiling_holds_from_then_on() {
    let registry = registry("8 core");
    let group = group(1, &registry);
    let queue = queue("queue").group(&group).on(&registry);
    // These items end only if they run at the same time.
    meet_in(&queue, 3);
    group.set_max_active(3).unwrap();
    queue.drain().unwrap();
    group.set_max_active(None).unwrap();
    assert_eq!(group.stats().max_active, None);
    run_at_once(&queue, 8);
    group.set_max_active(2).unwrap();
    assert!(concurrency(&queue, 200) <= 2);
}

#[test]
fn ceiling_per_cpu_follows_the_machine() {
    let registry = registry("8 core");
    let group = Group::builder("group").max_active_per_cpu(1.5).build_in(&registry).unwrap();
    assert_eq!(group.stats().max_active, Some(12));
    registry.set_topology(registry.topology().restricted_to(&"0-2".parse().unwrap()).unwrap());
    assert_eq!(group.stats().max_active, Some(5));
    group.set_max_active_per_cpu(2.0).unwrap();
    assert_eq!(group.stats().max_active, Some(6));
}

#[test]
fn items_of_a_full_group_may_wait_for_each_other() {
    let registry = registry("4 core");
    let (group, first, second) = one_seat_on(&registry, false);
    let third = queue("third").group(&group).help(false).on(&registry);
    let inner = move || third.spawn(|| 7).join().unwrap();
    assert_eq!(first.spawn(move || second.spawn(inner).join().unwrap()).join().unwrap(), 7);
    drain_to_rest(&group);
}

#[test]
fn returning_thread_goes_on_though_the_group_is_full() {
    let (group, first, second) = one_seat();
    let (plug, hole) = stopper();
    let (go, returned) = (second.spawn(|| ()), Count::default());
    let own = second.clone();
    let outer = first.spawn(move || {
        let inner = own.spawn(|| ());
        // This item gets the seat after the inner one, before or after this thread returns.
        own.detach(move || hole.sit());
        inner.join().unwrap();
        returned.add();
    });
    go.join().unwrap();
    plug.wait_until_stuck();
    // The item ends while another one has the only seat.
    outer.join().unwrap();
    assert_eq!(returned.get(), 1);
    plug.release();
    drain_to_rest(&group);
}

/// Four queues in a group of one or two seats run random items. Each item waits for up to three
/// items of later queues, which do the same.
#[test]
fn random_items_that_wait_for_each_other_end() {
    fn grow(queues: Arc<[Workqueue]>, at: usize, seed: u64) -> u64 {
        let (mut dice, mut nr_items) = (Dice::new(seed), 1);
        for _ in 0..dice.below(4) {
            let below = at + 1 + dice.below(3);
            if let Some(queue) = queues.get(below) {
                let (queues, seed) = (queues.clone(), dice.bits());
                nr_items += queue.spawn(move || grow(queues, below, seed)).join().unwrap();
            }
        }
        nr_items
    }
    let (registry, mut dice) = (registry("4 core"), Dice::new(seed()));
    for nr_seats in [1, 2].repeat(30) {
        let group = group(nr_seats, &registry);
        let queues: Arc<[_]> = (0..4)
            .map(|_| {
                let builder = queue("queue").max_active(1 + dice.below(3) as u32).group(&group);
                builder.help(dice.below(2) == 0).on(&registry)
            })
            .collect();
        let spawn = |_| {
            let (all, at, seed) = (queues.clone(), dice.below(2), dice.bits());
            queues[at].spawn(move || grow(all, at, seed))
        };
        let roots: Vec<_> = (0..8).map(spawn).collect();
        let nr_items: u64 = roots.into_iter().map(|root| root.join().unwrap()).sum();
        drain_to_rest(&group);
        assert_eq!(group.stats().started + group.stats().helped, nr_items);
    }
}

#[test]
fn thread_that_blocks_keeps_its_seat() {
    let (group, first, second) = one_seat();
    let (_, plug) = stuck(|hole| first.detach(|| blocking(move || hole.sit())));
    let (work, count) = counted();
    second.enqueue(&work);
    wait_until(|| group.stats().nr_waiting == 1);
    assert_eq!((group.stats().nr_active, count.get()), (1, 0));
    plug.release();
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn joiner_runs_no_item_of_a_full_group() {
    let (_group, first, second) = one_seat_on(&registry("4 core"), true);
    joiner_waits_for_a_seat(&first, &second);
    // A joiner inside of the group lends its seat.
    // The only worker is in the outer item, and no other one is requested.
    let (group, first, second) = one_seat_on(&unwatched("1 core"), true);
    let inner = second.clone();
    assert_eq!(first.spawn(move || inner.spawn(|| 7).join().unwrap()).join().unwrap(), 7);
    drain_to_rest(&group);
    assert_eq!(group.stats().started + group.stats().helped, 2);
}

#[test]
fn queue_without_items_does_not_wait_for_its_group() {
    let (group, first, second) = one_seat();
    let plug = plug_into(&first);
    let ways: [fn(&Workqueue, JoinHandle<()>) -> bool; 2] =
        [|_, mut handle| handle.cancel(), |queue, _| queue.cancel_all() == 1];
    for way in ways {
        let handle = second.spawn(|| ());
        wait_until(|| group.stats().nr_waiting == 1);
        assert!(way(&second, handle));
        // The group is still full.
        second.drain().unwrap();
        assert_eq!((second.stats().nr_active, group.stats().nr_waiting), (0, 0));
    }
    plug.release_and_drain(&first);
    assert!(is_at_rest(&group));
}

/// Occupies the worker of a CPU as soon as the worker takes the item.
fn plug_on(queue: &Workqueue, cpu: u32) -> Plug {
    let (plug, hole) = stopper();
    on_cpu(queue, cpu).spawn_detached(move || hole.sit()).unwrap();
    plug
}

/// Builds a group of one seat and two of its queues on a machine with a pool for each of its two
/// CPUs, and a builder of queues outside of the group.
fn in_two_pools() -> (Registry, Group, [Workqueue; 2]) {
    let registry = unwatched("2 core");
    let group = group(1, &registry);
    let queues = ["first", "second"].map(|it| narrow(it).group(&group).on(&registry));
    (registry, group, queues)
}

fn narrow(name: &str) -> Builder {
    queue(name).affinity(Cpu).max_active(1).help(false)
}

#[test]
fn queue_whose_turn_in_its_pool_has_not_come_holds_no_seat() {
    let (registry, group, [first, second]) = in_two_pools();
    let others = [(); 2].map(|()| narrow("other").shares(100).on(&registry));
    let [before, next] = others.each_ref().map(|other| plug_on(other, 0));
    before.wait_until_stuck();
    // Of the two new queues, the worker serves the one that got its item first.
    let waits = on_cpu(&first, 0).spawn(|| ());
    before.release();
    next.wait_until_stuck();
    on_cpu(&second, 1).spawn(|| ()).join().unwrap();
    assert!(!waits.is_finished());
    next.release();
    waits.join().unwrap();
    drain_to_rest(&group);
}

#[test]
fn queue_with_more_items_asks_for_a_seat_at_its_next_turn() {
    let (registry, group, [first, second]) = in_two_pools();
    let full = plug_as(on_cpu(&second, 1));
    // The group is full, so the items wait in the list of their queue.
    let own = plug_on(&first, 0);
    let rest = [(); 2].map(|()| on_cpu(&first, 0).spawn(|| ()));
    wait_until(|| group.stats().nr_waiting == 1);
    full.release();
    own.wait_until_stuck();
    let queue = narrow("other").on(&registry);
    let other = plug_on(&queue, 0);
    own.release();
    // The worker takes the item of `other` after at most one more item of `first`.
    other.wait_until_stuck();
    on_cpu(&second, 1).spawn(|| ()).join().unwrap();
    assert!(!rest[1].is_finished());
    other.release();
    rest.into_iter().for_each(|handle| handle.join().unwrap());
    drain_to_rest(&group);
}

/// While `item` holds the only seat of a group, another queue waits for a seat, and the worker of
/// that queue's pool is busy. `pass` makes the group pass a seat to the queue and then exceed its
/// ceiling. The queue starts no item until `end` lets `item` return.
fn passed_seat_is_not_used(
    item: impl FnOnce() + Send + 'static,
    pass: impl FnOnce(&Group),
    end: impl FnOnce(),
) {
    let (registry, group, [first, second]) = in_two_pools();
    // If an assertion fails, this is dropped before the queues, so that `item` returns.
    let end = end;
    on_cpu(&second, 1).spawn_detached(item).unwrap();
    wait_until(|| group.stats().nr_active == 1);
    let waits = on_cpu(&first, 0).spawn(|| ());
    wait_until(|| group.stats().nr_waiting == 1);
    let queue = narrow("other").on(&registry);
    let other = plug_as(on_cpu(&queue, 0));
    pass(&group);
    assert_eq!((group.stats().nr_active, group.stats().nr_over), (2, 1));
    let next = on_cpu(&queue, 0).spawn(|| ());
    other.release();
    // If the queue could use its seat, the worker would run the item of `first` before this one.
    next.join().unwrap();
    assert!(!waits.is_finished());
    assert_eq!((group.stats().nr_active, group.stats().nr_waiting), (1, 1));
    end();
    waits.join().unwrap();
    drain_to_rest(&group);
}

#[test]
fn lower_ceiling_holds_for_a_seat_that_was_passed_and_not_used() {
    let (plug, hole) = stopper();
    let raise_and_lower = |group: &Group| {
        group.set_max_active(2).unwrap();
        group.set_max_active(1).unwrap();
    };
    passed_seat_is_not_used(move || hole.sit(), raise_and_lower, move || plug.release());
}

#[test]
fn seat_that_was_passed_is_not_used_after_a_thread_has_returned() {
    let outside = queue("outside").alone();
    let [(lends, first), (returns, second), (ends, third)] = [(); 3].map(|()| stopper());
    let waited_for = outside.spawn(move || second.sit());
    returns.wait_until_stuck();
    let item = move || {
        first.sit();
        waited_for.join().unwrap();
        third.sit();
    };
    let pass = |group: &Group| {
        lends.release();
        wait_until(|| group.stats().nr_waiting == 0);
        returns.release();
        wait_until(|| group.stats().nr_over == 1);
    };
    passed_seat_is_not_used(item, pass, move || ends.release());
}

#[test]
fn pause_holds_for_all_queues_and_for_new_ones() {
    let registry = registry("4 core");
    let (group, first, second) = one_seat_on(&registry, false);
    assert!(second.pause());
    assert!(group.pause() && !group.pause());
    let third = queue("third").group(&group).on(&registry);
    let [of_first, of_second, of_third] = [&first, &second, &third].map(|it| it.spawn(|| ()));
    assert!(is_at_rest(&group));
    assert_eq!(group.stats().nr_inactive, 3);
    assert!(group.resume() && !group.resume());
    of_first.join().unwrap();
    of_third.join().unwrap();
    // This queue was also paused separately.
    assert!(!of_second.is_finished());
    assert!(second.resume());
    of_second.join().unwrap();
}

#[test]
fn queue_that_ends_passes_the_pause_of_its_group() {
    let (group, first, second) = one_seat();
    group.pause();
    let handles = [first.spawn(|| ()), second.spawn(|| ())];
    drop(first);
    second.shutdown(Duration::MAX).unwrap();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(group.stats().nr_queues, 1);
    drop(second);
    assert_eq!(group.stats().nr_queues, 0);
}

#[test]
fn drain_accepts_items_of_the_group_only() {
    let registry = registry("4 core");
    let (group, first, second) = one_seat_on(&registry, false);
    let (late, count) = counted();
    let theirs = (second.clone(), group.clone(), registry.clone());
    let queues_more = |hole: Hole| {
        first.detach(move || {
            let (second, group, registry) = theirs;
            hole.sit();
            second.enqueue(&late);
            let new = queue("new").group(&group).on(&registry);
            new.detach(move || drop(late));
            new.close_in_background();
        });
    };
    let (_, plug) = stuck(queues_more);
    thread::scope(|scope| {
        let drain = scope.spawn(|| group.drain_timeout(PATIENCE));
        wait_until(|| is_closed(second.try_spawn(|| ())));
        // A queue that joins during the drain is also closed.
        let new = queue("new").group(&group).on(&registry);
        assert!(is_closed(new.try_spawn(|| ())));
        plug.release();
        drain.join().unwrap().unwrap();
        assert_eq!(count.get(), 1);
        new.spawn(|| ()).join().unwrap();
    });
    second.spawn(|| ()).join().unwrap();
}

#[test]
fn drain_names_the_items_of_all_queues_that_are_left() {
    let (group, first, second) = one_seat();
    let plug = plug_into(&first);
    second.detach(|| ());
    let text = group.drain_timeout(Duration::ZERO).unwrap_err().to_string();
    assert!(text.starts_with("group \"group\" still has 2 items: "), "{text}");
    // The queues accept items again.
    first.detach(|| ());
    plug.release();
    group.drain_timeout(PATIENCE).unwrap();
}

#[test]
fn an_item_cannot_drain_its_own_group() {
    let (group, first, _second) = one_seat();
    let inner = group.clone();
    let error = first.spawn(move || inner.drain_timeout(HOUR).unwrap_err());
    let text = error.join().unwrap().to_string();
    assert_eq!(text, "an item of group \"group\" cannot wait for its own group");
}

#[test]
fn cancelled_closure_may_wait_for_items_of_other_queues() {
    let (group, first, second) = one_seat();
    group.pause();
    let (others, outcome) = (second.spawn(|| ()), Log::default());
    let at_end = at_drop(move || outcome.push(is_cancelled(others.join())));
    first.detach(move || drop(at_end));
    let delayed = DelayedWork::new(|| ());
    second.enqueue_after(&delayed, HOUR);
    assert_eq!(group.cancel_all(), 3);
    assert_eq!(outcome.take(), [true]);
    group.resume();
    assert_eq!(group.cancel_all(), 0);
    assert!(is_at_rest(&group));
}

#[test]
fn rescuer_runs_items_of_a_full_group() {
    let registry = threadless("1 core");
    let group = group(1, &registry);
    let plain = queue("plain").group(&group).help(false).on(&registry);
    // The registry's own rescuer runs this item, and has the only seat.
    let plug = plug_into(&plain);
    let reclaim = queue("reclaim").with_rescuer().help(false).group(&group).on(&registry);
    for i in 0..3 {
        assert_eq!(reclaim.spawn(move || i).join().unwrap(), i);
    }
    assert_eq!(reclaim.stats().rescued, 3);
    plug.release_and_drain(&plain);
    drain_to_rest(&group);
}

#[test]
fn queue_with_a_rescuer_needs_no_seat_that_waits_for_a_worker() {
    let registry = registry("3 core");
    let group = group(1, &registry);
    let [holds, stuck] = ["holds", "stuck"].map(|it| narrow(it).group(&group).on(&registry));
    let reclaim = narrow("reclaim").with_rescuer().group(&group).on(&registry);
    let other = queue("other").affinity(Cpu).help(false).on(&registry);
    let full = plug_as(on_cpu(&holds, 2));
    let waits = on_cpu(&stuck, 1).spawn(|| ());
    wait_until(|| group.stats().nr_waiting == 1);
    let rescued = on_cpu(&reclaim, 0).spawn(|| ());
    wait_until(|| group.stats().nr_waiting == 2);
    registry.refuse_threads(true);
    // The only worker of the pool runs one of these items, and the registry's rescuer runs the
    // other.
    let plugs = [(); 2].map(|()| plug_as(on_cpu(&other, 1)));
    // The group passes the seat to `stuck`, which has waited longer than `reclaim`.
    full.release();
    wait_until(|| rescued.is_finished());
    assert!(!waits.is_finished());
    plugs.iter().for_each(Plug::release);
    waits.join().unwrap();
    drain_to_rest(&group);
}

#[test]
fn settings_out_of_range_are_named() {
    let registry = registry("1 core");
    let named = || Group::builder("group");
    for (builder, expected) in [
        (named().max_active(0), "max_active 0 of a group is not between 1 and 4096"),
        (named().max_active_per_cpu(-0.5), "max_active_per_cpu -0.5 is not above 0 and at most 64"),
    ] {
        assert_eq!(builder.build_in(&registry).unwrap_err().to_string(), expected);
    }
    let group = group(1, &registry);
    assert!(group.set_max_active(4097).is_err() && group.set_max_active_per_cpu(65.0).is_err());
    assert_eq!(group.stats().max_active, Some(1));
    let member = || queue("queue").group(&group);
    let error = member().build_in(&self::registry("1 core")).unwrap_err();
    assert_eq!(error.to_string(), "group \"group\" belongs to another registry");
    assert!(matches!(member().bh().build_in(&registry), Err(BuildError::Bh)));
}
