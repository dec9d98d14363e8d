//! Models with pools of three and four workers, several producers, and tens of items.

use crate::*;

/// A machine whose manager is a thread of the model.
pub struct Managed {
    registry: Registry,
    notifier: Unparker,
    is_over: Arc<AtomicBool>,
    manager: thread::JoinHandle<()>,
    culler: Culler,
}

impl Managed {
    /// Builds queues, the first of which lets joiners help, and starts a manager and a worker.
    pub fn new(max_active: &[u32], nr_workers: usize) -> (Self, Vec<Workqueue>) {
        Self::with(Params::default(), max_active, nr_workers)
    }

    pub fn with(params: Params, max_active: &[u32], nr_workers: usize) -> (Self, Vec<Workqueue>) {
        let topology = Topology::synthetic(&format!("{nr_workers} core")).unwrap();
        let params = Params { max_workers: nr_workers, ..params };
        let mut machine = Machine::new(&topology, params);
        let build = |(number, &max_active): (usize, &u32)| {
            let builder = Workqueue::builder("model").affinity(AffinityScope::System);
            let builder = builder.max_active(max_active).help(number == 0);
            builder.build_in(machine.registry()).unwrap()
        };
        let queues = max_active.iter().enumerate().map(build).collect();
        machine.start_workers(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let (notifier, culler) = (machine.notifier(), machine.culler());
        let registry = machine.registry().clone();
        let theirs = is_over.clone();
        let manager = thread::spawn(move || machine.serve_until(|| theirs.load(Ordering::Acquire)));
        let managed = Self { registry, notifier, is_over, manager, culler };
        (managed, queues)
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Drops the queues, which waits for their remaining items, and ends the manager.
    pub fn end(self, queues: Vec<Workqueue>) {
        drop(queues);
        self.is_over.store(true, Ordering::Release);
        self.notifier.unpark();
        self.manager.join().unwrap();
    }
}

/// An item that counts its runs and detects overlapping ones.
struct Counted {
    work: Work,
    nr_runs: Arc<AtomicU32>,
    nr_queued: AtomicU32,
    nr_cancelled: AtomicU32,
}

impl Counted {
    fn new() -> Self {
        let nr_runs = Arc::new(AtomicU32::new(0));
        let is_inside = AtomicBool::new(false);
        let theirs = nr_runs.clone();
        let work = Work::new(move || {
            assert!(!is_inside.swap(true, Ordering::Relaxed), "two runs at once");
            theirs.fetch_add(1, Ordering::Relaxed);
            is_inside.store(false, Ordering::Relaxed);
        });
        Self { work, nr_runs, nr_queued: AtomicU32::new(0), nr_cancelled: AtomicU32::new(0) }
    }

    fn queue(&self, queue: &Workqueue) {
        if queue.enqueue(&self.work) {
            self.nr_queued.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_cancelled(&self, cancelled: bool) {
        self.nr_cancelled.fetch_add(u32::from(cancelled), Ordering::Relaxed);
    }

    fn check(&self) {
        let nr_due = self.nr_queued.load(Ordering::Relaxed);
        let nr_cancelled = self.nr_cancelled.load(Ordering::Relaxed);
        assert_eq!(self.nr_runs.load(Ordering::Relaxed), nr_due - nr_cancelled);
    }
}

/// Three producers perform random operations on three items, while idle workers are culled.
fn mix() {
    const NR_STEPS: usize = 10;
    let (managed, queues) = Managed::new(&[2, 1], 4);
    let items: Arc<[Counted]> = (0..3).map(|_| Counted::new()).collect();
    let nr_detached = Arc::new(AtomicU32::new(0));
    let (shared, theirs, culler) = (queues.clone(), items.clone(), managed.culler.clone());
    let runs = nr_detached.clone();
    let producers = spawn_each(3, move |_| {
        let mut nr_spawned = 0;
        for number in 0..NR_STEPS {
            let queue = &shared[thread_rng().gen_range(0..shared.len())];
            let item = &theirs[thread_rng().gen_range(0..theirs.len())];
            match thread_rng().gen_range(0..14) {
                0..=3 => item.queue(queue),
                4 => _ = item.work.flush().unwrap(),
                5 => item.note_cancelled(item.work.cancel()),
                6 => item.note_cancelled(item.work.cancel_sync()),
                7 => assert_eq!(queue.spawn(move || number).join().unwrap(), number),
                8 => drop(queue.spawn(move || number)),
                9 => {
                    nr_spawned += 1;
                    queue.spawn_detached(adder(&runs)).unwrap();
                }
                10 => queue.set_max_active(thread_rng().gen_range(1..=3)).unwrap(),
                11 => {
                    let nice = thread_rng().gen_range(0..2);
                    queue.set_attrs(|attrs| attrs.nice = nice).unwrap();
                }
                12 => queue.flush().unwrap(),
                _ => culler.cull(),
            }
        }
        nr_spawned
    });
    let nr_spawned: u32 = join_all(producers).into_iter().sum();
    managed.end(queues);
    items.iter().for_each(Counted::check);
    assert_eq!(nr_detached.load(Ordering::Relaxed), nr_spawned);
}

/// Three producers queue items on a queue with two seats. At most two run at once; none is lost.
fn two_seats() {
    let (managed, queues) = Managed::new(&[256, 2], 4);
    let nr_runs = Arc::new(AtomicU32::new(0));
    let (queue, nr_inside, runs) =
        (queues[1].clone(), Arc::new(AtomicU32::new(0)), nr_runs.clone());
    join_all(spawn_each(3, move |_| {
        for _ in 0..12 {
            let (nr_inside, runs) = (nr_inside.clone(), runs.clone());
            let item = move || {
                assert!(nr_inside.fetch_add(1, Ordering::Relaxed) < 2, "three at once");
                runs.fetch_add(1, Ordering::Relaxed);
                nr_inside.fetch_sub(1, Ordering::Relaxed);
            };
            queue.spawn_detached(item).unwrap();
        }
    }));
    managed.end(queues);
    assert_eq!(nr_runs.load(Ordering::Relaxed), 36);
}

/// Three threads queue, cancel and help items. After a flush, all items they queued have ended.
fn flushes() {
    let (managed, queues) = Managed::new(&[3], 3);
    let queue = queues[0].clone();
    join_all(spawn_each(3, move |_| {
        let items: Vec<_> = (0..3).map(|_| Counted::new()).collect();
        for _ in 0..3 {
            for item in &items {
                item.queue(&queue);
                match thread_rng().gen_range(0..6) {
                    0 => item.note_cancelled(item.work.cancel()),
                    1 => {
                        let work = item.work.clone();
                        thread::spawn(move || work.flush().unwrap());
                    }
                    2 => item.queue(&queue),
                    _ => {}
                }
            }
            queue.flush().unwrap();
            items.iter().for_each(Counted::check);
        }
    }));
    managed.end(queues);
}

/// Items wait for others of their queue, three levels deep. Each wait lets another worker run.
fn nested() {
    let (managed, queues) = Managed::new(&[256, 256], 4);
    // Joiners of the second queue sleep.
    let [outer, inner] = [queues[1].clone(), queues[1].clone()];
    let sum = queues[1].spawn(move || {
        let below = outer.spawn(move || inner.spawn(|| 1).join().unwrap() + 1);
        below.join().unwrap() + 1
    });
    assert_eq!(sum.join().unwrap(), 3);
    managed.end(queues);
}

/// Items block on one another without a report. They complete because kicks are chained.
fn chained() {
    let (managed, queues) = Managed::new(&[256, 256], 3);
    let barrier = Arc::new(shuttle::sync::Barrier::new(3));
    for _ in 0..3 {
        let barrier = barrier.clone();
        queues[1].enqueue(&Work::new(move || _ = barrier.wait()));
    }
    managed.end(queues);
}

/// Two threads queue two items on two queues in opposite order, while a third cancels them. Without
/// workers, only an enqueuer can remove an item from the other list.
fn chains_in_opposite_order() {
    let topology = Topology::synthetic("1 core").unwrap();
    let machine = Machine::new(&topology, Params::default());
    let [one, other] = [0, 1].map(|_| {
        let queue = Workqueue::builder("model").help(false);
        queue.build_in(machine.registry()).unwrap()
    });
    machine.pretend_busy(true);
    let items: Arc<[Counted]> = (0..2).map(|_| Counted::new()).collect();
    let forth: Vec<_> = items.iter().map(|item| item.work.clone()).collect();
    let back: Vec<_> = forth.iter().rev().cloned().collect();
    let enqueuers = [(one.clone(), forth), (other.clone(), back)]
        .map(|(queue, works)| thread::spawn(move || queue.task().enqueue_all(&works)));
    for _ in 0..2 {
        for item in items.iter() {
            item.note_cancelled(item.work.cancel());
        }
    }
    let nr_queued: usize = enqueuers.into_iter().map(|it| it.join().unwrap()).sum();
    machine.pretend_busy(false);
    machine.help_out();
    let sum = |number: fn(&Counted) -> &AtomicU32| -> u32 {
        let numbers = items.iter().map(number);
        numbers.map(|it| it.load(Ordering::Relaxed)).sum()
    };
    let nr_ended = sum(|item| &item.nr_runs) + sum(|item| &item.nr_cancelled);
    assert_eq!(nr_ended as usize, nr_queued);
    assert!(items.iter().all(|item| !item.work.is_busy()));
    drop((one, other));
}

/// Items of an ordered queue requeue themselves. The items of one thread start in order.
fn ordered() {
    let (managed, mut queues) = Managed::new(&[256], 3);
    let queue = Workqueue::builder("ordered").ordered().build_in(&managed.registry).unwrap();
    let seen = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
    for number in 0..8 {
        let seen = seen.clone();
        queue.spawn_detached(move || seen.lock().unwrap().push(number)).unwrap();
    }
    queues.push(queue);
    managed.end(queues);
    assert!(seen.lock().unwrap().iter().copied().eq(0..8));
}

/// An ordinary item waits among more urgent ones than may start before it.
fn ordinary_among_urgent() {
    /// Number of urgent items that start in a row, plus one taken before the ordinary item arrived.
    const MOST: u32 = 2 + 1;
    const NR_URGENT: u32 = 6;
    let (managed, queues) = Managed::new(&[1, 1], 2);
    let queue = queues[1].clone();
    let nr_started = Arc::new(AtomicU32::new(0));
    let (lane, starts) = (queue.urgent().unwrap(), nr_started.clone());
    let urgent = thread::spawn(move || {
        (0..NR_URGENT).for_each(|_| lane.spawn_detached(adder(&starts)).unwrap());
    });
    let at_start = Arc::new(AtomicU32::new(0));
    let (counts, noted) = (nr_started.clone(), at_start.clone());
    let note = move || noted.store(counts.load(Ordering::Relaxed), Ordering::Relaxed);
    queue.spawn_detached(note).unwrap();
    let when_queued = nr_started.load(Ordering::Relaxed);
    urgent.join().unwrap();
    drop(queue);
    managed.end(queues);
    let before = at_start.load(Ordering::Relaxed).saturating_sub(when_queued);
    assert!(before <= MOST, "{before} urgent items preceded it");
    assert_eq!(nr_started.load(Ordering::Relaxed), NR_URGENT);
}

/// On a paused queue with one seat, an urgent item is queued after an ordinary one.
fn urgent_before_the_pause_ends() {
    let (managed, queues) = Managed::new(&[1], 2);
    let queue = queues[0].clone();
    let urgent = queue.urgent().unwrap();
    queue.pause();
    let order = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
    for (name, queue) in [("ordinary", &queue), ("urgent", &urgent)] {
        let order = order.clone();
        queue.spawn_detached(move || order.lock().unwrap().push(name)).unwrap();
    }
    queue.resume();
    drop((queue, urgent));
    managed.end(queues);
    assert_eq!(*order.lock().unwrap(), ["urgent", "ordinary"]);
}

/// Queues an item on `queue` that blocks until the returned sender sends.
fn occupy(queue: &Workqueue) -> shuttle::sync::mpsc::Sender<()> {
    let (release, released) = shuttle::sync::mpsc::channel::<()>();
    queue.spawn_detached(move || _ = released.recv()).unwrap();
    release
}

/// Queues `nr_items` on each queue after the first, and returns the numbers of the queues in the
/// order in which the items run. None runs before all are queued. The first was busy alone before.
fn order_of(managed: Managed, queues: Vec<Workqueue>, nr_items: &[usize]) -> Vec<usize> {
    let [plugged, members @ ..] = &queues[..] else { unreachable!() };
    (0..nr_items[0]).for_each(|_| members[0].spawn_detached(|| ()).unwrap());
    members[0].drain().unwrap();
    let release = occupy(plugged);
    let seen = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
    let producers = members.iter().zip(nr_items).enumerate().map(|(member, (queue, &nr_items))| {
        let (queue, seen) = (queue.clone(), seen.clone());
        thread::spawn(move || {
            for _ in 0..nr_items {
                let seen = seen.clone();
                queue.spawn_detached(move || seen.lock().unwrap().push(member)).unwrap();
            }
        })
    });
    join_all(producers.collect());
    release.send(()).unwrap();
    managed.end(queues);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), nr_items.iter().sum());
    seen
}

/// Two queues with shares alternate, although one of them was busy alone before.
fn busy_next_to_idle() {
    let params = Params { max_batch: 1, ..Params::default() };
    let (managed, queues) = Managed::with(params, &[1, 256, 256], 1);
    queues[1].set_shares(100).unwrap();
    let seen = order_of(managed, queues, &[5, 5]);
    let mut ahead = 0_i32;
    for &member in &seen {
        ahead += if member == 0 { 1 } else { -1 };
        assert!(ahead.abs() <= 2, "not in turns: {seen:?}");
    }
}

/// The same for a queue and a group of two queues, which alternate as well.
fn busy_next_to_an_idle_group() {
    let params = Params { max_batch: 1, ..Params::default() };
    let (managed, mut queues) = Managed::with(params, &[1, 256], 1);
    let group = Group::builder("group").shares(100).build_in(&managed.registry).unwrap();
    for _ in 0..2 {
        let builder = Workqueue::builder("model").affinity(AffinityScope::System).help(false);
        queues.push(builder.group(&group).build_in(&managed.registry).unwrap());
    }
    let seen = order_of(managed, queues, &[4, 2, 2]);
    let (mut of_group, mut of_first) = (0_i32, 0_i32);
    for &member in &seen {
        let amount = |more| if more { 1 } else { -1 };
        of_group += amount(member > 0);
        of_first += if member > 0 { amount(member == 1) } else { 0 };
        assert!(of_group.abs() <= 2 && of_first.abs() <= 2, "not in turns: {seen:?}");
    }
    assert_eq!(group.stats().nr_active, 0);
}

/// A queue is served before the end of a chain of items that queue the next on another queue.
fn old_next_to_new() {
    const NR_OLD: u32 = 2;
    const NR_NEW: usize = 12;
    fn chain(mut new: Vec<Workqueue>, ended: shuttle::sync::mpsc::Sender<()>) {
        match new.pop() {
            Some(queue) => queue.spawn_detached(move || chain(new, ended)).unwrap(),
            None => ended.send(()).unwrap(),
        }
    }
    let params = Params { max_batch: 1, ..Params::default() };
    let (managed, queues) =
        Managed::with(params, &[[1, 256].as_slice(), &[256; NR_NEW]].concat(), 1);
    let [plugged, old, new @ ..] = &queues[..] else { unreachable!() };
    for queue in &queues[1..] {
        queue.set_shares(100).unwrap();
    }
    let release = occupy(plugged);
    let nr_old = Arc::new(AtomicU32::new(0));
    (0..NR_OLD).for_each(|_| old.spawn_detached(adder(&nr_old)).unwrap());
    let (ended, has_ended) = shuttle::sync::mpsc::channel();
    chain(new.to_vec(), ended);
    release.send(()).unwrap();
    has_ended.recv().unwrap();
    let nr_old = nr_old.load(Ordering::Relaxed);
    managed.end(queues);
    assert_eq!(nr_old, NR_OLD, "all new queues go first");
}

/// A queue that owes thousands of turns holds its seat for one more item. Items of a queue with
/// many shares cancel that item, and drain the queue.
fn emptied_among_shares() {
    let params = Params { max_batch: 1, ..Params::default() };
    let (managed, queues) = Managed::with(params, &[256, 1, 1], 1);
    let [plugged, few, many] = &queues[..] else { unreachable!() };
    few.set_shares(1).unwrap();
    many.set_shares(MAX_SHARES).unwrap();
    let release = occupy(plugged);
    let nr_of_few = Arc::new(AtomicU32::new(0));
    (0..2).for_each(|_| few.spawn_detached(adder(&nr_of_few)).unwrap());
    let nr_cancelled = Arc::new(AtomicU32::new(0));
    let (few, many, cancelled) = (few.clone(), many.clone(), nr_cancelled.clone());
    let producer = thread::spawn(move || {
        let drained = few.clone();
        let cancel = move || cancelled.store(few.cancel_all() as u32, Ordering::Relaxed);
        many.spawn_detached(cancel).unwrap();
        many.spawn_detached(move || drained.drain().unwrap()).unwrap();
    });
    producer.join().unwrap();
    release.send(()).unwrap();
    managed.end(queues);
    assert_eq!(nr_of_few.load(Ordering::Relaxed), 1);
    assert_eq!(nr_cancelled.load(Ordering::Relaxed), 1);
}

models! {
    fn emptied_queue_waits_for_no_turn() =
        explore(200, emptied_among_shares).deadlocks_with(["seats: an emptied pwq keeps them"]);
    fn a_new_queue_for_each_item_starves_no_queue_that_waits() =
        explore(200, old_next_to_new).detects(["shares: a new pwq begins as an idle one"]);
    fn queues_with_shares_take_turns_after_any_idle_time() =
        explore(400, busy_next_to_idle).detects(["shares: idle time is accumulated"]);
    fn queues_and_groups_take_turns_after_any_idle_time() =
        explore(400, busy_next_to_an_idle_group).detects([
            "shares: idle time of a group is accumulated",
            "shares: a group pays for nothing",
        ]);
    fn items_run_as_often_as_they_were_queued() =
        explore(15_000, mix).detects(["active: no second check", "item: runs overlap"]);
    fn no_more_run_at_once_than_have_seats_and_none_is_forgotten() =
        explore(1_000, two_seats)
            .detects(["take: forgets the inactive", "active: a seat given twice"]);
    fn after_a_flush_all_earlier_items_have_ended() =
        explore(1_500, flushes),
        must_fail("flush: forgets the helpers", || explore(6_000, flushes));
    fn chains_in_opposite_order_do_not_wait_for_each_other() =
        explore(4_000, chains_in_opposite_order)
            .detects(["enqueue all: waits with an unpushed chain"]);
    fn items_that_wait_for_items_end() = explore(1_500, nested);
    fn item_never_waits_behind_blocked_items() =
        explore(2_000, chained).detects(["take: no chained kick"]);
    fn an_ordered_queue_starts_its_items_in_their_order() = explore(1_500, ordered);
    fn an_ordinary_item_gets_its_turn_among_urgent_ones() =
        explore(400, ordinary_among_urgent),
        must_fail("lanes: ordinary items get no turn", || explore(1_000, ordinary_among_urgent));
    fn urgent_item_queued_in_a_pause_runs_first_after_resume() =
        explore(400, urgent_before_the_pause_ends),
        must_fail("lanes: a seat does not recheck",
            || explore(4_000, urgent_before_the_pause_ends));
}
