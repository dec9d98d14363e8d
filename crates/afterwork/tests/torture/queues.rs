//! Queues of every kind under torture, while their attributes change, until their destruction.

use afterwork::workqueue::{
    AffinityScope, Attrs, Builder, DelayedWork, Group, JoinError, Registry, Strand, Work, Workqueue,
};
use topology::Topology;

use crate::history::{Act, Event, Log, now_ns};
use crate::items::Subject;
use crate::support::*;
use crate::{scopes, strands, timed};

const SCOPES: [AffinityScope; 3] =
    [AffinityScope::Cpu, AffinityScope::Cache, AffinityScope::System];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ordered,
    Unbound,
    PerCpu,
    Bh,
}

pub struct Place {
    pub queue: Workqueue,
    pub strand: Strand<strands::State>,
    number: usize,
    kind: Kind,
    /// Number of threads inside its one-shot items.
    nr_inside: Arc<AtomicUsize>,
    /// Number of threads inside polls of its futures.
    pub nr_polls: Arc<AtomicUsize>,
    /// Maximum of both counts.
    pub limit: usize,
    /// The orders in which closures of an ordered queue were queued and ran.
    order: (Mutex<u64>, Arc<AtomicU64>),
    /// Drains that have begun, and drains that have ended.
    nr_closings: AtomicU64,
    nr_reopenings: AtomicU64,
}

impl Place {
    /// The first queue is ordered, and each is in `group` or in none.
    pub fn new(
        registry: &Registry,
        number: usize,
        group: &Group,
        lives: &Arc<Lives>,
        dice: &mut Dice,
    ) -> Self {
        let kind = match (number, dice.below(6)) {
            (0, _) => Kind::Ordered,
            (_, 0) => Kind::PerCpu,
            (_, 1) if !hostile::is_on() || hostile::may(hostile::Act::Bh) => Kind::Bh,
            _ => Kind::Unbound,
        };
        let limit = dice.pick(&[1, 2, 5, 256]);
        let before = dice.clone();
        let queue = insist(|| {
            *dice = before.clone();
            let builder = builder(number, kind, limit, dice);
            let joins = kind != Kind::Bh && dice.below(2) == 0;
            if joins { builder.group(group) } else { builder }.build_in(registry)
        });
        Self {
            strand: strands::strand(&queue, lives),
            queue,
            number,
            kind,
            nr_inside: Arc::default(),
            nr_polls: Arc::default(),
            limit: match kind {
                Kind::Ordered => 1,
                Kind::Unbound => limit,
                // The limit applies to each CPU, and the number of CPUs changes.
                Kind::PerCpu | Kind::Bh => usize::MAX,
            },
            order: Default::default(),
            nr_closings: AtomicU64::new(0),
            nr_reopenings: AtomicU64::new(0),
        }
    }

    pub fn lane(&self, dice: &mut Dice) -> Workqueue {
        if self.kind != Kind::Ordered && dice.below(4) == 0 {
            self.queue.urgent().unwrap()
        } else {
            self.queue.clone()
        }
    }

    /// Returns the argument for a later `may_have_rejected`.
    pub fn closing(&self) -> u64 {
        self.nr_reopenings.load(Ordering::SeqCst)
    }

    /// Returns `true` if a drain was in progress at any time since `closing` was called.
    pub fn may_have_rejected(&self, closing: u64) -> bool {
        self.nr_closings.load(Ordering::SeqCst) != closing
    }

    /// Flushes or drains the queue, and logs the result for the items that stay on it.
    pub fn settle(&self, drains: bool, subjects: &[Subject], log: &mut Log) {
        let from_ns = now_ns();
        if drains {
            self.nr_closings.fetch_add(1, Ordering::SeqCst);
            self.queue.drain().unwrap();
            self.nr_reopenings.fetch_add(1, Ordering::SeqCst);
        } else {
            self.queue.flush().unwrap();
        }
        let to_ns = now_ns();
        let event = Event { act: Act::Flush(None), from_ns, to_ns };
        let living = (0..subjects.len()).filter(|&item| subjects[item].lives_at(self.number));
        log.0.extend(living.map(|item| (item, event)));
    }

    pub fn change(&self, registry: &Registry, dice: &mut Dice) {
        let queue = &self.queue;
        let cpus = dice.pick(&[None, Some("0"), Some("1,3")]);
        let cpus = cpus.map(|list| list.parse().unwrap());
        let (what, is_ordered) = (dice.below(8), self.kind == Kind::Ordered);
        // The change drains an ordered queue. Items queued at the same time have no order.
        let order = (is_ordered && matches!(what, 1..=3)).then(|| {
            self.nr_closings.fetch_add(1, Ordering::SeqCst);
            self.order.0.lock().unwrap()
        });
        match what {
            0 if self.kind == Kind::Unbound => {
                queue.set_attrs(|attrs| attrs.affinity = dice.pick(&SCOPES)).unwrap()
            }
            1..=3 if self.kind != Kind::Bh => {
                let change = |attrs: &mut Attrs| match what {
                    1 => attrs.strict = dice.below(2) == 0,
                    2 => attrs.cpus = cpus,
                    _ => attrs.nice = dice.pick(&[0, 0, 5]),
                };
                queue.set_attrs(change).unwrap();
            }
            4 if self.kind != Kind::Ordered => {
                let max = 1 + dice.below(self.limit.min(256)) as u32;
                queue.set_max_active(max).unwrap();
            }
            5 => registry.set_unbound_cpus(cpus),
            6 => queue.set_shares(dice.pick(&[1, 100, 10_000])).unwrap(),
            // Either all CPUs are online again, or only a few.
            _ => {
                let machine = dice.pick(&["1 core", "2 core", "8 core"]);
                registry.set_topology(Topology::synthetic(machine).unwrap());
            }
        }
        if order.is_some() {
            self.nr_reopenings.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn hold(&self, lives: &Arc<Lives>, dice: &mut Dice) {
        self.queue.pause();
        for _ in 0..dice.below(4) {
            let life = Life::new(lives);
            drop(self.lane(dice).spawn(move || drop(life)));
        }
        if dice.below(2) == 0 {
            thread::yield_now();
        }
        self.queue.resume();
    }

    /// Workers of a bottom half must not wait.
    pub fn lend(&self, dice: &mut Dice) {
        scopes::torture(&self.lane(dice), self.kind != Kind::Bh, dice);
    }

    pub fn spawn(&self, lives: &Arc<Lives>, dice: &mut Dice) {
        let (captured, result) = (Life::new(lives), Life::new(lives));
        if self.kind == Kind::Ordered {
            let (next, ran) = &self.order;
            let (ran, mut next) = (ran.clone(), next.lock().unwrap());
            let number = *next;
            let spawned = self.queue.try_spawn(move || {
                drop((captured, result));
                let before = ran.swap(number + 1, Ordering::Relaxed);
                assert_eq!(before, number, "out of order");
            });
            *next += u64::from(spawned.is_ok());
            return;
        }
        let (inside, limit) = (self.nr_inside.clone(), self.limit);
        let panics = dice.below(50) == 0;
        let mut own = hostile::is_on().then(|| Dice::new(dice.bits()));
        let mut handle = self.lane(dice).spawn(move || {
            let now = inside.fetch_add(1, Ordering::AcqRel) + 1;
            assert!(now <= limit, "{now} at once, {limit} allowed at most");
            drop(captured);
            own.as_mut().map(hostile::misbehave_at_length);
            inside.fetch_sub(1, Ordering::AcqRel);
            if panics {
                Planned::panic();
            }
            result
        });
        match dice.below(5) {
            0 => drop(handle),
            1 => {
                if !handle.cancel() {
                    judge(handle.join(), panics);
                }
            }
            2 => drop(handle.try_join().map(|outcome| judge(outcome, panics))),
            _ => judge(handle.join(), panics),
        }
    }
}

fn builder(number: usize, kind: Kind, limit: usize, dice: &mut Dice) -> Builder {
    let mut builder = Workqueue::builder(&format!("torture {number}"));
    builder = match kind {
        Kind::Ordered => builder.ordered(),
        Kind::PerCpu => builder.per_cpu().max_active(limit as u32),
        Kind::Bh => builder.bh(),
        Kind::Unbound => builder
            .affinity(dice.pick(&SCOPES))
            .strict(dice.below(4) == 0)
            .help(dice.below(3) > 0)
            .max_active(limit as u32),
    };
    if kind != Kind::Bh && dice.below(4) == 0 {
        builder = builder.cpu_intensive();
    }
    if kind != Kind::Bh && dice.below(4) == 0 {
        builder = builder.with_rescuer();
    }
    builder
}

/// Checks the outcome of an item that was not cancelled.
pub fn judge<T>(outcome: Result<T, JoinError>, panics: bool) {
    match outcome {
        Ok(_) => assert!(!panics),
        Err(JoinError::Panicked(payload))
            if panics && payload.downcast_ref::<Planned>().is_some() => {}
        // The queue was being drained.
        Err(JoinError::Closed) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Creates a queue for a few items. Its last handle is dropped on any thread.
pub fn brief(registry: &Registry, lives: &Arc<Lives>, dice: &mut Dice) {
    let (max_active, rescues) = (1 + dice.below(3) as u32, dice.below(8) == 0);
    let queue = insist(|| {
        let builder = Workqueue::builder("brief").max_active(max_active);
        let builder = if rescues { builder.with_rescuer() } else { builder };
        builder.build_in(registry)
    });
    if dice.below(3) == 0 {
        return destroyed(&queue, lives, dice);
    }
    let (life, inner) = (Life::new(lives), queue.clone());
    let handle = queue.spawn(move || {
        let nested = inner.spawn(move || drop(life));
        nested.join().unwrap();
    });
    for _ in 0..dice.below(8) {
        let life = Life::new(lives);
        let work = Work::new(move || _ = &life);
        queue.enqueue(&work);
        if dice.below(2) == 0 {
            work.cancel();
        }
    }
    // The timer fires before or during the end of the queue, or not at all.
    let life = Life::new(lives);
    let delayed = DelayedWork::new(move || _ = &life);
    let delay = Duration::from_micros(dice.pick(&[1, 20, 50, 100, 2_000]));
    queue.enqueue_after(&delayed, delay);
    if dice.below(2) == 0 {
        timed::until_the_end(&queue, lives, dice);
    }
    if dice.below(4) == 0 {
        let bh = Workqueue::builder("brief bh").bh().build_in(registry).unwrap();
        bh.spawn(move || drop(queue)).join().unwrap();
    } else {
        drop(queue);
    }
    handle.join().unwrap();
}

/// Destroys a queue, which may be paused. All its items have run, and it rejects new ones.
fn destroyed(queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    let pauses = dice.below(2) == 0 && queue.pause();
    let nr_items = dice.below(6);
    let (nr_ran, resumed) = (Arc::<AtomicUsize>::default(), Arc::new(AtomicBool::new(!pauses)));
    for _ in 0..nr_items {
        let (life, nr_ran, resumed) = (Life::new(lives), nr_ran.clone(), resumed.clone());
        let item = move || {
            assert!(resumed.load(Ordering::Relaxed), "it runs, and is paused");
            drop(life);
            nr_ran.fetch_add(1, Ordering::Relaxed);
        };
        queue.spawn_detached(item).unwrap();
    }
    thread::yield_now();
    resumed.store(true, Ordering::Relaxed);
    queue.shutdown(Duration::MAX).unwrap();
    assert_eq!(nr_ran.load(Ordering::Relaxed), nr_items);
    assert!(queue.try_spawn(|| ()).is_err(), "a destroyed queue takes one");
    assert!(!queue.enqueue(&Work::new(|| unreachable!())));
}
