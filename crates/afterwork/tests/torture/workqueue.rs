//! Torture of the workqueue: many threads do everything at once to a few queues, for a while, by the dice.
//!
//! `cargo xtask torture workqueue --minutes 5 --seed 7`; five seconds and a seed of the clock without. It prints its
//! seed.

mod futures;
mod support;

use std::{
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use afterwork::{
    params::{Params, WakeMode},
    workqueue::{AffinityScope, JoinError, Registry, Work, Workqueue},
};
use futures::Bells;
use support::{Dice, Life, Lives, Planned, Round, watched};
use topology::{CpuId, CpuSet, Topology};

/// How long one set of registry, queues and items is tortured before it is torn down.
const ROUND: Duration = Duration::from_millis(400);
const SCOPES: [AffinityScope; 3] = [
    AffinityScope::Cpu,
    AffinityScope::Cache,
    AffinityScope::System,
];
const NR_THREADS: usize = 8;
const NR_ITEMS: usize = 24;
/// On what machine; the dice decide about all else.
const CONFIGS: &[&str] = &["any", "one-cpu", "one-pod", "large"];

fn main() -> ExitCode {
    support::torture("workqueues", CONFIGS, |round, totals: &mut Totals| {
        totals.add(&self::round(round));
    })
}

#[derive(Debug, Default)]
struct Totals {
    nr_enqueued: u64,
    nr_cancelled: u64,
    nr_runs: u64,
    nr_spawned: u64,
    nr_panics: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.nr_enqueued += other.nr_enqueued;
        self.nr_cancelled += other.nr_cancelled;
        self.nr_runs += other.nr_runs;
        self.nr_spawned += other.nr_spawned;
        self.nr_panics += other.nr_panics;
    }
}

/// One item and what it must obey.
struct Subject {
    work: Work,
    nr_runs: Arc<AtomicU64>,
    /// Enqueues that said yes, less cancels that did.
    nr_due: AtomicI64,
}

impl Subject {
    /// Disables the item, which cancels it, and enables it again; says whether that cancelled it.
    fn disable_and_enable(&self, queue: &Workqueue, dice: &mut Dice) -> bool {
        let cancelled = if dice.below(2) == 0 {
            self.work.disable()
        } else {
            self.work.disable_sync()
        };
        self.nr_due
            .fetch_sub(i64::from(cancelled), Ordering::Relaxed);
        if dice.below(2) == 0 {
            self.work.enable();
        } else if queue.enable_and_queue(&self.work) {
            self.nr_due.fetch_add(1, Ordering::Relaxed);
        }
        cancelled
    }
}

/// A queue and how many threads are inside its one-shot items.
struct Place {
    queue: Workqueue,
    nr_inside: Arc<AtomicUsize>,
    /// How many are inside polls of its futures.
    nr_polls: Arc<AtomicUsize>,
    limit: usize,
    /// In which order an ordered queue's closures were queued and ran.
    order: Option<(Mutex<u64>, Arc<AtomicU64>)>,
}

fn round(round: &Round<'_>) -> Totals {
    let mut dice = Dice::new(round.seed);
    let registry = registry(round.config, &mut dice);
    let lives = Arc::new(Lives::default());
    let places: Arc<[Place]> = (0..3 + dice.below(3))
        .map(|i| place(&registry, i, &mut dice))
        .collect();
    let nr_panics = Arc::new(AtomicU64::new(0));
    let subjects: Arc<[Subject]> = (0..NR_ITEMS)
        .map(|_| subject(&lives, &places, &nr_panics, &mut dice))
        .collect();
    let (stop, nr_spawned) = (AtomicBool::new(false), AtomicU64::new(0));
    let (nr_enqueued, nr_cancelled) = (AtomicU64::new(0), AtomicU64::new(0));
    let bells = Arc::new(Bells::default());
    watched("the torture itself", || {
        thread::scope(|scope| {
            for i in 0..NR_THREADS {
                let mut dice = Dice::of_thread(round.seed, i);
                let (registry, places, subjects) = (&registry, &places, &subjects);
                let (lives, stop, nr_spawned, bells) = (&lives, &stop, &nr_spawned, &bells);
                let (nr_enqueued, nr_cancelled) = (&nr_enqueued, &nr_cancelled);
                scope.spawn(move || {
                    wander(&mut dice);
                    while !stop.load(Ordering::Relaxed) {
                        let subject = &subjects[dice.below(NR_ITEMS)];
                        let place = &places[dice.below(places.len())];
                        match dice.below(100) {
                            0..45 => {
                                if place.queue.enqueue(&subject.work) {
                                    subject.nr_due.fetch_add(1, Ordering::Relaxed);
                                    nr_enqueued.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            45..58 => {
                                if subject.work.cancel() {
                                    subject.nr_due.fetch_sub(1, Ordering::Relaxed);
                                    nr_cancelled.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            58..64 => drop(subject.work.flush()),
                            64..66 => {
                                if subject.work.cancel_sync() {
                                    subject.nr_due.fetch_sub(1, Ordering::Relaxed);
                                    nr_cancelled.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            66..68 => {
                                if subject.disable_and_enable(&place.queue, &mut dice) {
                                    nr_cancelled.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            68..72 => {
                                let cpu = CpuId::new(dice.below(8) as u32);
                                let queued = match dice.below(2) {
                                    0 => place.queue.enqueue_on(cpu, &subject.work),
                                    _ => place.queue.enqueue_node(cpu.as_u32() % 3, &subject.work),
                                };
                                if queued {
                                    subject.nr_due.fetch_add(1, Ordering::Relaxed);
                                    nr_enqueued.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            72..76 => {
                                nr_spawned.fetch_add(1, Ordering::Relaxed);
                                let limit = (&place.nr_polls, place.limit);
                                futures::spawn(&place.queue, limit, bells, lives, &mut dice);
                            }
                            76..82 => drop(bells.ring(&mut dice)),
                            82..83 => change(registry, place, &mut dice),
                            83..94 => {
                                nr_spawned.fetch_add(1, Ordering::Relaxed);
                                spawn(place, lives, &mut dice);
                            }
                            94..95 => wander(&mut dice),
                            95..96 => brief_queue(registry, lives, &mut dice),
                            96..97 => {
                                let max = 1 + dice.below(place.limit) as u32;
                                if place.order.is_none() {
                                    place.queue.set_max_active(max).unwrap();
                                }
                            }
                            97..98 => registry.refuse_threads(dice.below(2) == 0),
                            98..99 => drop(place.queue.stats()),
                            _ => drop((registry.pool_stats(), registry.lock_hold())),
                        }
                    }
                });
            }
            thread::sleep(ROUND);
            stop.store(true, Ordering::Relaxed);
        });
    });
    registry.refuse_threads(false);
    watched("draining", || {
        let drained = AtomicBool::new(false);
        thread::scope(|scope| {
            // Futures that wait are waited for.
            scope.spawn(|| {
                while !drained.load(Ordering::Acquire) {
                    if !bells.ring(&mut dice) {
                        thread::yield_now();
                    }
                }
            });
            for place in places.iter() {
                place.queue.drain().unwrap();
            }
            drained.store(true, Ordering::Release);
        });
    });
    let nr_runs = subjects.iter().map(check).sum();
    for place in places.iter() {
        assert_eq!(
            place.queue.stats().nr_active,
            0,
            "a seat is lost: {:?}",
            place.queue
        );
    }
    drop(subjects);
    watched("dropping", || drop(places));
    // A brief queue whose last handle went inside one of its items may still be on its way out.
    watched("shutting down", || {
        let mut shut = registry.shutdown();
        while let Err(still) = shut {
            thread::yield_now();
            shut = still.registry.shutdown();
        }
    });
    lives.assert_none();
    Totals {
        nr_enqueued: nr_enqueued.into_inner(),
        nr_cancelled: nr_cancelled.into_inner(),
        nr_runs,
        nr_spawned: nr_spawned.into_inner(),
        nr_panics: nr_panics.load(Ordering::Relaxed),
    }
}

fn registry(config: &str, dice: &mut Dice) -> Registry {
    let large = "2 numa x 2 llc x 8 core x 2 smt";
    let machine = match config {
        "one-cpu" => "1 core",
        "one-pod" => dice.pick(&["2 core", "4 core", "8 core"]),
        "large" => large,
        _ => dice.pick(&[
            "1 core",
            "2 core",
            "4 core",
            "2 llc x 2 core",
            "8 core",
            large,
        ]),
    };
    let params = Params {
        wake: if dice.below(4) == 0 {
            WakeMode::UnderLock
        } else {
            WakeMode::Deferred
        },
        worker_looks: dice.pick(&[0, 64]),
        max_batch: dice.pick(&[1, 4, 32, 64]),
        max_workers: dice.pick(&[3, 16, 512]),
        idle_timeout_ms: dice.pick(&[1, 20, 300_000]),
        watch_tick_us: dice.pick(&[50, 1000]),
        lock_stat: dice.below(2) == 0,
        ..Params::default()
    };
    Registry::new(Topology::synthetic(machine).unwrap(), params).unwrap()
}

fn place(registry: &Registry, i: usize, dice: &mut Dice) -> Place {
    let limit = dice.pick(&[1, 2, 5, 256]);
    let ordered = i == 0;
    let mut builder = Workqueue::builder(&format!("torture {i}"));
    builder = if ordered {
        builder.ordered()
    } else {
        builder
            .scope(dice.pick(&SCOPES))
            .strict(dice.below(4) == 0)
            .help(dice.below(3) > 0)
            .max_active(limit as u32)
    };
    Place {
        queue: builder.build_in(registry).unwrap(),
        nr_inside: Arc::default(),
        nr_polls: Arc::default(),
        limit: if ordered { 1 } else { limit },
        order: ordered.then(Default::default),
    }
}

fn subject(
    lives: &Arc<Lives>,
    places: &Arc<[Place]>,
    nr_panics: &Arc<AtomicU64>,
    dice: &mut Dice,
) -> Subject {
    let nr_runs = Arc::new(AtomicU64::new(0));
    let (runs, panics, life) = (nr_runs.clone(), nr_panics.clone(), Life::new(lives));
    let (panicking, inside) = (dice.below(4) == 0, AtomicBool::new(false));
    let queues = places.len();
    let work = Work::with_handle(move |this| {
        let _ = &life;
        assert!(!inside.swap(true, Ordering::AcqRel), "two runs at once");
        let run = runs.fetch_add(1, Ordering::Relaxed);
        if run % 64 == queues as u64 {
            drop(this.clone());
            assert!(this.flush().is_err(), "an item waited for itself");
        }
        if run % 128 == 5 {
            thread::yield_now();
        }
        inside.store(false, Ordering::Release);
        if panicking && run % 32 == 0 {
            panics.fetch_add(1, Ordering::Relaxed);
            Planned::panic();
        }
    });
    Subject {
        work,
        nr_runs,
        nr_due: AtomicI64::new(0),
    }
}

/// Changes the attributes of a queue, or the machine under all of them.
fn change(registry: &Registry, place: &Place, dice: &mut Dice) {
    let queue = &place.queue;
    let machine = registry.topology();
    match dice.below(5) {
        // An ordered queue keeps the scope in which all share one pool.
        0 if place.order.is_none() => queue.set_scope(dice.pick(&SCOPES)).unwrap(),
        1 => queue.set_strict(dice.below(2) == 0).unwrap(),
        2 => queue.set_cpus(some_of(machine.allowed(), dice)).unwrap(),
        3 => registry.set_unbound_cpus(some_of(machine.allowed(), dice)),
        // All CPUs again, or but a few of them: the others went offline.
        _ => registry
            .set_topology(Topology::synthetic(dice.pick(&["1 core", "2 core", "8 core"])).unwrap()),
    }
}

/// Some of these CPUs, or no wish at all.
fn some_of(cpus: &CpuSet, dice: &mut Dice) -> Option<CpuSet> {
    let some: CpuSet = cpus.iter().filter(|_| dice.below(2) == 0).collect();
    (!some.is_empty()).then_some(some)
}

/// Spawns a closure and does something with its handle.
fn spawn(place: &Place, lives: &Arc<Lives>, dice: &mut Dice) {
    let (captured, result) = (Life::new(lives), Life::new(lives));
    if let Some((next, ran)) = &place.order {
        let (ran, mut next) = (ran.clone(), next.lock().unwrap());
        let number = *next;
        *next += 1;
        place.queue.spawn_detached(move || {
            drop((captured, result));
            let before = ran.swap(number + 1, Ordering::Relaxed);
            assert_eq!(before, number, "out of order");
        });
        return;
    }
    let (inside, limit) = (place.nr_inside.clone(), place.limit);
    let panics = dice.below(50) == 0;
    let mut handle = place.queue.spawn(move || {
        let now = inside.fetch_add(1, Ordering::AcqRel) + 1;
        assert!(now <= limit, "{now} at once, {limit} allowed at most");
        drop(captured);
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
        2 => {
            if let Ok(outcome) = handle.try_join() {
                judge(outcome, panics);
            }
        }
        _ => judge(handle.join(), panics),
    }
}

fn judge(outcome: Result<Life, JoinError>, panics: bool) {
    match outcome {
        Ok(_) => assert!(!panics),
        Err(JoinError::Panicked(payload)) if panics && Planned::is(&*payload) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Makes a queue that lives for a few items, whose last handle goes wherever it goes.
fn brief_queue(registry: &Registry, lives: &Arc<Lives>, dice: &mut Dice) {
    let queue = Workqueue::builder("brief")
        .max_active(1 + dice.below(3) as u32)
        .build_in(registry)
        .unwrap();
    let (life, inner) = (Life::new(lives), queue.clone());
    let handle = queue.spawn(move || {
        let nested = inner.spawn(move || drop(life));
        nested.join().unwrap();
    });
    for _ in 0..dice.below(8) {
        let life = Life::new(lives);
        let work = Work::new(move || {
            let _ = &life;
        });
        queue.enqueue(&work);
        if dice.below(2) == 0 {
            work.cancel();
        }
    }
    drop(queue);
    handle.join().unwrap();
}

/// Goes to another CPU, and so to another pod.
fn wander(dice: &mut Dice) {
    let Ok(all) = sync::cpu::affinity() else {
        return;
    };
    thread_local!(static ALL: std::cell::OnceCell<topology::CpuSet> = const { std::cell::OnceCell::new() });
    ALL.with(|first| {
        let cpus: Vec<_> = first.get_or_init(|| all).iter().collect();
        let cpu = cpus[dice.below(cpus.len())];
        sync::cpu::set_affinity(None, &[cpu].into_iter().collect()).unwrap();
    });
}

fn check(subject: &Subject) -> u64 {
    let (runs, due) = (
        subject.nr_runs.load(Ordering::Acquire),
        subject.nr_due.load(Ordering::Relaxed),
    );
    assert_eq!(
        runs as i64, due,
        "runs, enqueues less cancels: {:?}",
        subject.work
    );
    assert!(!subject.work.is_busy(), "{:?}", subject.work);
    runs
}
