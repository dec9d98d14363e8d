//! Groups: the seats of two gates, their lending, and concurrent pauses, drains and cancels.

use afterwork::workqueue::{AffinityScope, Group, TaskOptions};

use crate::support::*;

/// Creates a machine without workers, and a group on it.
fn set_up_group(nr_cpus: usize, max_workers: usize, max_active: u32) -> (Machine, Group) {
    let machine = machine(nr_cpus, max_workers);
    let builder = Group::builder("group").max_active(max_active);
    let group = builder.build_in(machine.registry()).unwrap();
    (machine, group)
}

fn build(builder: Builder, group: &Group, machine: &Machine) -> Workqueue {
    builder.group(group).build_in(machine.registry()).unwrap()
}

/// Creates a group of one seat and two of its queues, whose joiners do not help, with two workers.
fn one_seat() -> (Machine, Group, [Workqueue; 2]) {
    let (machine, group) = set_up_group(2, 2, 1);
    let queues = [(); 2].map(|()| build(plain(), &group, &machine));
    machine.start_workers(2);
    (machine, group, queues)
}

/// A queue with three pwqs and then one with a single pwq wait for a group. They take turns.
fn take_turns() {
    let group = Gates::new(1);
    let (many, single) = (group.of_queue(0), group.of_queue(0));
    assert!(many.enter_in_turn(0));
    assert!((1..4).all(|slot| !many.enter_in_turn(slot)));
    assert!(!single.enter_in_turn(10));
    assert_eq!([many.leave(), many.leave()], [Some(1), Some(10)]);
    // `single` has saved up no turns, so it waits for one turn of `many`.
    assert!(!single.enter_in_turn(11));
    let rest = std::iter::from_fn(|| many.leave());
    assert_eq!(rest.collect::<Vec<_>>(), [2, 11, 3]);
    assert_eq!(group.nr_active(), 0);
}

/// Pwqs of two queues, one with three times the shares of the other, wait for a group.
fn turns_by_shares() {
    let group = Gates::new(1);
    let (heavy, light) = (group.of_queue(300), group.of_queue(100));
    assert!(light.enter_in_turn(20));
    assert!((0..6).all(|slot| !heavy.enter_in_turn(slot)));
    assert!((10..12).all(|slot| !light.enter_in_turn(slot)));
    let served = std::iter::from_fn(|| light.leave());
    assert_eq!(served.collect::<Vec<_>>(), [0, 1, 2, 10, 3, 4, 5, 11]);
}

/// A paused queue is resumed at any time during the item of another. The items never overlap.
fn both_climb() {
    let (_machine, _group, [first, second]) = one_seat();
    let plain = Arc::new(Plain::default());
    let item = |value| {
        let plain = plain.clone();
        move || plain.set(value)
    };
    first.pause();
    let of_first = first.spawn(item(1));
    let of_second = second.spawn(item(2));
    first.resume();
    of_second.join().unwrap();
    of_first.join().unwrap();
    wind_up([first, second]);
}

/// Returns an item that opens the first gate, and ends once the second one is opened.
fn barred() -> (impl FnOnce() + Send + 'static, [Arc<Barred>; 2]) {
    let gates = [(); 2].map(|()| Arc::new(Barred::default()));
    let [started, may_end] = gates.clone();
    let item = move || {
        started.open();
        may_end.pass();
    };
    (item, gates)
}

/// Returns the gate that ends an item of `queue`, which runs unexplored.
fn occupy(queue: &Workqueue) -> Arc<Barred> {
    loom::stop_exploring();
    let (item, [started, may_end]) = barred();
    queue.spawn_detached(item).unwrap();
    started.pass();
    loom::explore();
    may_end
}

/// A queue whose item was cancelled is drained while its group is full. If the flag is set, the
/// queue gets a seat at its own gate during the drain.
fn drained_in_a_full_group(is_paused: bool) {
    let (machine, _group, [first, second]) = one_seat();
    let outside = plain().build_in(machine.registry()).unwrap();
    let may_end = occupy(&first);
    if is_paused {
        second.pause();
    }
    let mut handle = second.spawn(|| ());
    // Before a worker runs this item, it sets the item above aside.
    let is_aside = Arc::new(Barred::default());
    let opens = is_aside.clone();
    outside.spawn_detached(move || opens.open()).unwrap();
    is_aside.pass();
    handle.cancel();
    // Removes the tombstone.
    assert_eq!(second.stats().nr_inactive, 0);
    let drainer = spawn_with(second.clone(), move |second| second.drain().unwrap());
    if is_paused {
        second.resume();
    }
    drainer.join().unwrap();
    may_end.open();
    wind_up([first, second, outside]);
}

/// A queue waits for a seat of its full group. The ceiling is raised and lowered again, and a
/// worker ends an item. It must not start the item of the queue.
fn passed_seat_and_a_lower_ceiling() {
    let (machine, group, [first, second]) = one_seat();
    let outside = plain().build_in(machine.registry()).unwrap();
    let may_end = occupy(&first);
    let waits = second.spawn(|| ());
    // Before a worker runs this item, it sets the item above aside.
    let outside_may_end = occupy(&outside);
    group.set_max_active(2).unwrap();
    group.set_max_active(1).unwrap();
    let next = outside.spawn(|| ());
    outside_may_end.open();
    next.join().unwrap();
    assert!(!waits.is_finished(), "an item started while the group was over its ceiling");
    may_end.open();
    waits.join().unwrap();
    assert_eq!(group.stats().nr_over, 0);
    wind_up([first, second, outside]);
}

/// A group passes its only seat to a queue in a pool without workers. A queue with a rescuer waits
/// for that seat in another pool.
fn passed_seat_without_a_worker() {
    loom::stop_exploring();
    let (machine, group) = set_up_group(2, 1, 1);
    let [first, second, third] = [plain(), plain(), plain().with_rescuer()]
        .map(|builder| build(builder.affinity(AffinityScope::Cpu), &group, &machine));
    let (item, [started, may_end]) = barred();
    on_cpu(&first, 0).spawn_detached(item).unwrap();
    machine.make_workers();
    started.pass();
    let waits = on_cpu(&second, 1).spawn(|| ());
    machine.make_workers();
    while group.stats().nr_waiting == 0 {
        thread::yield_now();
    }
    while machine.nr_workers() > 1 {
        machine.culler().cull();
        thread::yield_now();
    }
    let rescued = on_cpu(&third, 0).spawn(|| ());
    may_end.open();
    for nth in 0..50 {
        machine.mayday(nth * 10_000_000);
        thread::yield_now();
    }
    assert!(rescued.is_finished(), "a pool without workers keeps a seat");
    machine.make_workers();
    waits.join().unwrap();
    drop([first, second, third]);
}

fn on_cpu(queue: &Workqueue, cpu: u32) -> TaskOptions<'_> {
    queue.task().on_cpu(CpuId::new(cpu))
}

/// The only worker runs an item of a queue in which another waits. The joiner of an item of another
/// queue needs the group's second seat.
fn second_seat_is_free() {
    let (machine, group) = set_up_group(1, 1, 2);
    // With shares, items wait in the lists of their queues.
    group.set_shares(100).unwrap();
    let helped = Workqueue::builder("helped");
    let [first, second] = [plain(), helped].map(|it| build(it, &group, &machine));
    let (item, [started, may_end]) = barred();
    first.spawn_detached(item).unwrap();
    first.spawn_detached(|| ()).unwrap();
    loom::stop_exploring();
    machine.start_workers(1);
    started.pass();
    loom::explore();
    assert_eq!(second.spawn(|| 7).join().unwrap(), 7);
    may_end.open();
    wind_up([first, second]);
}

/// A joiner finds a seat in the group and none in the queue, whose item waits for another queue.
fn refused_helper() {
    let (machine, group) = set_up_group(2, 2, 2);
    let narrow = Workqueue::builder("narrow").max_active(1);
    let (narrow, other) = (build(narrow, &group, &machine), build(plain(), &group, &machine));
    machine.start_workers(2);
    let may_end = occupy(&narrow);
    let handle = narrow.spawn(|| 7);
    other.spawn_detached(move || may_end.open()).unwrap();
    assert_eq!(handle.join().unwrap(), 7);
    wind_up([narrow, other]);
}

/// An item waits for one of another queue. A third item then gets the only seat, and blocks until
/// the first has returned from its wait.
fn lends_and_comes_back() {
    let (_machine, group, [first, second]) = one_seat();
    let may_end = Arc::new(Barred::default());
    let to_second = second.clone();
    let outer = first.spawn(move || {
        let inner = to_second.spawn(|| 7);
        let waits = may_end.clone();
        let after = to_second.spawn(move || waits.pass());
        let seven = inner.join().unwrap();
        may_end.open();
        after.join().unwrap();
        seven
    });
    assert_eq!(outer.join().unwrap(), 7);
    loom::stop_exploring();
    first.drain().unwrap();
    second.drain().unwrap();
    assert_eq!(group.stats().nr_active, 0);
}

fn joins_beside_a_pause() {
    let (machine, group) = set_up_group(1, 1, 1);
    let pauser = spawn_with(group.clone(), move |group| group.pause());
    let queue = build(plain(), &group, &machine);
    machine.start_workers(1);
    pauser.join().unwrap();
    // This is a lock, because resuming a queue need not publish this thread's earlier writes.
    let is_paused = Arc::new(Mutex::new(true));
    let reads = is_paused.clone();
    let after = queue.spawn(move || *reads.lock().unwrap());
    *is_paused.lock().unwrap() = false;
    group.resume();
    assert!(!after.join().unwrap());
    wind_up(queue);
}

fn joins_beside_new_shares() {
    let (machine, group) = set_up_group(1, 1, 1);
    let setter = spawn_with(group.clone(), move |group| group.set_shares(200).unwrap());
    let queue = build(plain(), &group, &machine);
    setter.join().unwrap();
    assert!(machine.has_shares(), "the pool has no shares");
    assert_eq!(group.stats().shares, Some(200));
    wind_up(queue);
}

fn joins_beside_a_drain() {
    let (machine, group) = set_up_group(1, 1, 1);
    let builder =
        spawn_with((group.clone(), machine.registry().clone()), move |(group, registry)| {
            plain().group(&group).build_in(&registry).unwrap()
        });
    let drain = group.begin_drain();
    let queue = builder.join().unwrap();
    assert!(queue.try_spawn(|| ()).is_err(), "open during a drain");
    drop(drain);
    wind_up(queue);
}

/// An item of the last queue queues one on the first, which may have been drained before.
fn drain_of_a_chain() {
    let (_machine, group, [first, second]) = one_seat();
    let plain = Arc::new(Plain::default());
    let (to_first, word) = (first.clone(), plain.clone());
    let outer = move || to_first.spawn_detached(move || word.set(1)).unwrap();
    second.spawn_detached(outer).unwrap();
    group.drain_timeout(Duration::MAX).unwrap();
    assert_eq!(plain.get(), 1);
    wind_up([first, second]);
}

/// The destructor of a cancelled closure waits for a cancelled item of another queue.
fn cancel_with_a_destructor_that_waits() {
    struct Joins(Option<afterwork::workqueue::JoinHandle<()>>);
    sync::on_drop!(Joins, this => {
        let outcome = this.0.take().map(|handle| handle.join());
        assert!(matches!(outcome, Some(Err(JoinError::Cancelled))));
    });
    let (machine, group) = set_up_group(1, 1, 1);
    let queues = [(); 2].map(|()| build(plain(), &group, &machine));
    machine.pretend_busy(true);
    group.pause();
    let joins = Joins(Some(queues[1].spawn(|| ())));
    queues[0].spawn_detached(move || drop(joins)).unwrap();
    assert_eq!(group.cancel_all(), 2);
    wind_up(queues);
}

models! {
    fn queues_of_a_full_group_take_turns() =
        exhaustive(take_turns).detects(["group: pwqs take turns"]);
    fn turns_in_a_full_group_follow_shares() =
        exhaustive(turns_by_shares).detects(["group: turns overlook shares"]);
    fn items_of_two_queues_share_one_seat_and_both_run() =
        bounded(1, both_climb)
            .detects(["group: a passed seat does not climb", "active: no second check"]);
    fn queue_without_items_leaves_the_wait_for_its_group() =
        bounded(1, || drained_in_a_full_group(false)).detects(["seats: an emptied pwq keeps them"]),
        bounded(1, || drained_in_a_full_group(true)).detects(["group: an emptied pwq climbs"]);
    fn lower_ceiling_holds_for_a_passed_seat() =
        bounded(1, passed_seat_and_a_lower_ceiling)
            .detects(["group: a passed seat overlooks the ceiling"]);
    fn pool_without_workers_returns_its_seats() =
        bounded(1, passed_seat_without_a_worker)
            .detects(["mayday: a pool without workers keeps its seats"]);
    fn queue_that_waits_for_its_turn_holds_no_seat_of_its_group() =
        bounded(1, second_seat_is_free)
            .detects(["group: a seat is held while the pwq waits for its turn"]);
    fn helper_that_is_refused_keeps_no_seat_of_the_group() =
        bounded(1, refused_helper).detects(["group: a refused helper keeps its seat"]);
    fn waiting_item_lends_its_seat_and_goes_on_at_once() =
        bounded(1, lends_and_comes_back).detects([
            "group: a waiter keeps its seats",
            "group: a returning thread asks",
            "group: a returning thread counts twice",
        ]);
    fn pause_holds_for_a_queue_that_joins() =
        bounded(2, joins_beside_a_pause).detects(["group: a pause overlooks who joins"]);
    fn new_shares_hold_for_a_queue_that_joins() =
        bounded(2, joins_beside_new_shares).detects(["group: shares overlook who joins"]);
    fn drain_closes_a_queue_that_joins() =
        bounded(2, joins_beside_a_drain).detects(["group drain: overlooks who joins"]);
    fn drain_waits_for_items_that_pass_between_queues() =
        bounded(1, drain_of_a_chain).detects(["group drain: checks each queue once"]);
    fn cancel_ends_the_items_of_all_queues_before_it_drops_one() =
        bounded(1, cancel_with_a_destructor_that_waits)
            .detects(["group cancel: notifies before all are taken"]);
}
