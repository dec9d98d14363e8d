//! Groups under torture: joined, changed, paused, drained and cancelled while their items wait.

use std::cell::Cell;
use std::sync::RwLock;

use afterwork::params::Params;
use afterwork::workqueue::{Group, JoinError, Registry, Workqueue};

use crate::queues::judge;
use crate::support::*;

/// The number of threads that use a group, and the number of acts of each thread.
const NR_USERS: usize = 3;
const NR_ACTS: usize = 30;
const DEPTH: usize = 3;
const CEILINGS: [u32; 4] = [1, 1, 2, 5];

/// A group that its items can use. An item waits only for items of later queues.
struct Club {
    group: Group,
    queues: RwLock<Vec<Workqueue>>,
    /// Number of outermost items that have started and have not waited yet.
    nr_inside: AtomicUsize,
    /// The highest ceiling that was ever set.
    most: AtomicUsize,
    nr_queued: AtomicUsize,
    nr_ran: AtomicUsize,
    /// Number of closures that were dropped without a run, because they were cancelled or rejected.
    nr_dropped: AtomicUsize,
}

thread_local! {
    /// Number of nested group items that this thread is running.
    static DEPTH_HERE: Cell<usize> = const { Cell::new(0) };
}

/// A run of an item.
struct Run;

impl Run {
    /// Also returns `true` for an outermost item. An inner one uses the seat of the outer one.
    fn begin() -> (Self, bool) {
        (Self, DEPTH_HERE.replace(DEPTH_HERE.get() + 1) == 0)
    }
}

sync::on_drop!(Run, this => DEPTH_HERE.set(DEPTH_HERE.get() - 1));

/// A closure of an item. Its drop counts it if it has not run.
struct Ticket {
    club: Arc<Club>,
    has_run: bool,
    _life: Life,
}

sync::on_drop!(Ticket, this => {
    let count = if this.has_run { &this.club.nr_ran } else { &this.club.nr_dropped };
    count.fetch_add(1, Ordering::Relaxed);
});

/// Lets some threads use a group, in a registry with enough workers for all items that wait.
pub fn torture(lives: &Arc<Lives>, dice: &mut Dice) {
    let machine = dice.pick(&["1 core", "4 core", "2 llc x 2 core"]);
    let params = Params {
        max_workers: 512,
        max_batch: dice.pick(&[1, 4, 64]),
        watch_tick_us: dice.pick(&[50, 1000]),
        ..Params::default()
    };
    let registry = registry_on(machine, params);
    use_group(&registry, lives, dice);
    shut_down(registry);
}

fn use_group(registry: &Registry, lives: &Arc<Lives>, dice: &mut Dice) {
    let max = dice.pick(&CEILINGS);
    let builder = Group::builder("torture").max_active(max);
    let builder = if dice.below(2) == 0 { builder.shares(300) } else { builder };
    let club = Arc::new(Club {
        group: builder.build_in(registry).unwrap(),
        queues: RwLock::default(),
        nr_inside: AtomicUsize::new(0),
        most: AtomicUsize::new(max as usize),
        nr_queued: AtomicUsize::new(0),
        nr_ran: AtomicUsize::new(0),
        nr_dropped: AtomicUsize::new(0),
    });
    club.join(registry, dice);
    let mut others: Vec<_> = (1..NR_USERS).map(|_| Dice::new(dice.bits())).collect();
    thread::scope(|scope| {
        for dice in &mut others {
            scope.spawn(|| club.use_it(registry, lives, dice));
        }
        club.use_it(registry, lives, dice);
    });
    club.group.resume();
    if dice.below(2) == 0 {
        club.group.drain_timeout(Duration::MAX).unwrap();
    } else {
        club.group.cancel_all();
        let queues = club.queues.read().unwrap();
        queues.iter().for_each(|queue| queue.drain().unwrap());
    }
    let queues = std::mem::take(&mut *club.queues.write().unwrap());
    drop(queues);
    // An item may still drop its ticket, and a worker may still hold a seat.
    let is_at_rest = || {
        let stats = club.group.stats();
        let seats = (stats.nr_active, stats.nr_over, stats.nr_waiting, stats.nr_inactive);
        seats == (0, 0, 0, 0) && stats.nr_queues == 0
    };
    while Arc::strong_count(&club) > 1 || !is_at_rest() {
        thread::yield_now();
    }
    let [nr_queued, nr_ran, nr_dropped, nr_inside] =
        [&club.nr_queued, &club.nr_ran, &club.nr_dropped, &club.nr_inside]
            .map(|count| count.load(Ordering::Relaxed));
    assert_eq!(nr_ran + nr_dropped, nr_queued, "an item of a group is lost");
    assert_eq!(nr_inside, 0);
}

impl Club {
    fn join(&self, registry: &Registry, dice: &mut Dice) {
        let max_active = 1 + dice.below(4) as u32;
        let builder = Workqueue::builder("of a group").group(&self.group).help(dice.below(2) == 0);
        let builder = match dice.below(4) {
            0 => builder.shares(dice.pick(&[1, 100, 10_000])),
            1 => builder.per_cpu(),
            _ => builder,
        };
        let queue = builder.max_active(max_active).build_in(registry).unwrap();
        self.queues.write().unwrap().push(queue);
    }

    fn pick(&self, from: usize, dice: &mut Dice) -> Option<(usize, Workqueue)> {
        let queues = self.queues.read().unwrap();
        let nr_later = queues.len().checked_sub(from).filter(|&nr| nr > 0)?;
        let at = from + dice.below(nr_later);
        Some((at, queues[at].clone()))
    }

    fn use_it(self: &Arc<Self>, registry: &Registry, lives: &Arc<Lives>, dice: &mut Dice) {
        let group = &self.group;
        for _ in 0..NR_ACTS {
            match dice.below(24) {
                0 => self.join(registry, dice),
                1 => {
                    let max = dice.pick(&CEILINGS);
                    self.most.fetch_max(max as usize, Ordering::SeqCst);
                    group.set_max_active(max).unwrap();
                }
                2 => group.set_shares(dice.pick(&[1, 100, 10_000])).unwrap(),
                3 => {
                    group.pause();
                    self.spawn(0, DEPTH, lives, dice, false);
                    thread::yield_now();
                    group.resume();
                }
                4 => {
                    let timeout = Duration::from_micros(dice.pick(&[0, 50, 2_000]));
                    drop(group.drain_timeout(timeout));
                }
                5 => drop(group.cancel_all()),
                6 => {
                    let Some((_, queue)) = self.pick(0, dice) else { continue };
                    queue.flush().unwrap();
                }
                7 => {
                    let stats = group.stats();
                    let most = self.most.load(Ordering::SeqCst) as u32;
                    let max = stats.max_active.unwrap();
                    assert!(max <= most && stats.nr_active <= max + stats.nr_over, "{stats:?}");
                }
                _ => {
                    let waits = dice.below(2) == 0;
                    self.spawn(0, DEPTH, lives, dice, waits);
                }
            }
        }
    }

    /// Spawns an item that waits for others, on a queue at or after `from`.
    fn spawn(
        self: &Arc<Self>,
        from: usize,
        depth: usize,
        lives: &Arc<Lives>,
        dice: &mut Dice,
        waits: bool,
    ) {
        let Some((at, queue)) = self.pick(from, dice) else { return };
        let mut ticket = Ticket { club: self.clone(), has_run: false, _life: Life::new(lives) };
        let (lives, mut own, panics) = (lives.clone(), Dice::new(dice.bits()), dice.below(30) == 0);
        self.nr_queued.fetch_add(1, Ordering::Relaxed);
        let mut handle = queue.spawn(move || {
            ticket.has_run = true;
            let club = &ticket.club;
            let (_run, is_outermost) = Run::begin();
            if is_outermost {
                let now = club.nr_inside.fetch_add(1, Ordering::SeqCst) + 1;
                let most = club.most.load(Ordering::SeqCst);
                assert!(now <= most, "{now} items of a group began, {most} may run at most");
                if own.below(4) == 0 {
                    thread::yield_now();
                }
                club.nr_inside.fetch_sub(1, Ordering::SeqCst);
            }
            let nr_inner = if depth > 0 { own.below(3) } else { 0 };
            for _ in 0..nr_inner {
                club.spawn(at + 1, depth - 1, &lives, &mut own, true);
            }
            if panics {
                Planned::panic();
            }
        });
        // A handle must not keep the queue beyond the end of the group.
        drop(queue);
        match dice.below(8) {
            0 => drop(handle.cancel()),
            _ if waits => match handle.join() {
                Err(JoinError::Cancelled) => {}
                outcome => judge(outcome, panics),
            },
            _ => {}
        }
    }
}
