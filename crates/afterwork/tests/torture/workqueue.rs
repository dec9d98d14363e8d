//! Torture of the workqueue: many threads perform random operations of all kinds on a few queues.
//!
//! `cargo xtask torture workqueue --minutes 5 --seed 7`
//!
//! The acts on reusable and delayed items, and the times of their runs, are recorded and checked
//! against a model after the round (`history.rs`).
//!
//! The program fails with each of these twins (`--twin`):
//!
//! - `let go: still asleep`
//! - `cancel: overlooks a claim`
//! - `batch: mixes colors`
//! - with `--hostile`: `queue: an end unwinds`
//! - with `--asan`: `queue: a lease without its queue`

mod admission;
mod futures;
mod groups;
mod history;
mod hostile_workqueue;
mod items;
mod queues;
mod raw_items;
mod scopes;
mod shutdown;
mod strands;
mod support;
mod timed;

use admission::Crowded;
use afterwork::observe;
use afterwork::params::{Params, WakeMode};
use afterwork::workqueue::{Group, GroupStats, Registry};
use history::Log;
use hostile_workqueue::Lair;
use items::Subject;
use queues::Place;
use raw_items::Yard;

use crate::support::*;

/// Time after which a round that has not ended prints its state.
const LATE: Duration = Duration::from_secs(60);
/// Numbers of hostile users of all kinds, and of those that only flush timers.
const NR_HOSTILE: usize = 3;
const NR_FLUSHERS: usize = 2;
/// Pause if there is no stored waker.
const PAUSE: Duration = Duration::from_micros(200);
const NR_THREADS: usize = 8;
const NR_ITEMS: usize = 24;
/// Machine configurations. All other choices are random.
const CONFIGS: &[&str] = &["any", "one-cpu", "one-pod", "large"];

fn main() -> ExitCode {
    support::torture("workqueues", CONFIGS, round)
}

#[derive(Debug, Default)]
struct Totals {
    /// Acts on reusable and delayed items, and their runs.
    nr_acts: u64,
    nr_runs: u64,
    nr_spawned: AtomicU64,
    nr_panics: Arc<AtomicU64>,
}

struct Scene<'a> {
    totals: &'a Totals,
    registry: Registry,
    /// The group of some of the places.
    group: Group,
    places: Arc<[Place]>,
    subjects: Vec<Subject>,
    crowded: Crowded,
    yard: Yard,
    lives: Arc<Lives>,
    wakes: Wakes,
    log: Mutex<Log>,
}

fn round(round: &Round<'_>, totals: &mut Totals) {
    let mut dice = Dice::new(round.seed);
    let registry = registry(round.config, &mut dice);
    let lives = Arc::new(Lives::default());
    let group = Group::builder("torture").build_in(&registry).unwrap();
    let places: Arc<[Place]> = (0..3 + dice.below(3))
        .map(|i| Place::new(&registry, i, &group, &lives, &mut dice))
        .collect();
    let nr_panics = &totals.nr_panics;
    let subjects = (0..NR_ITEMS).map(|i| Subject::new(i, &places, &lives, nr_panics, &mut dice));
    let scene = Scene {
        totals,
        subjects: subjects.collect(),
        crowded: Crowded::new(&registry, &mut dice),
        yard: Yard::new(&places, &lives),
        registry,
        group,
        places,
        lives,
        wakes: Wakes::default(),
        log: Mutex::default(),
    };
    let lair = hostile::is_on().then(|| Lair::new(&mut dice));
    let mut is_late = false;
    // A flusher or drainer waits for futures, which wait for stored wakers.
    let meanwhile = |elapsed| {
        if !scene.wakes.ring(&mut dice) {
            thread::sleep(PAUSE);
        }
        if !is_late && elapsed >= LATE {
            is_late = true;
            let all = observe::snapshot_of(&scene.registry).to_json();
            eprintln!("after {LATE:?} there is still: {all}");
            scene.places.iter().for_each(|place| eprintln!("{:?}", place.queue));
        }
    };
    watched("the torture itself", || {
        Crew::run(round, meanwhile, |crew| {
            if let Some(lair) = &lair {
                crew.repeat_hostile(100..100 + NR_HOSTILE, |dice| lair.act(dice));
                crew.repeat_hostile(200..200 + NR_FLUSHERS, |dice| lair.flush_a_timer(dice));
            }
            for i in 0..NR_THREADS {
                crew.spawn(i, |dice, is_over| scene.torture(dice, is_over));
            }
        });
    });
    if let Some(lair) = lair {
        lair.end();
    }
    scene.registry.refuse_threads(false);
    let mut log = scene.log.into_inner().unwrap();
    watched("ending raw items", || scene.yard.end(&mut dice));
    watched("flushing", || {
        // A drain does not wait for timers, and the test must not wait for the long ones to elapse.
        scene.subjects.iter().for_each(|subject| subject.flush(&mut log));
    });
    watched("draining", || {
        let drained = AtomicBool::new(false);
        thread::scope(|threads| {
            // The drain waits for pending futures, so their wakers must be fired.
            threads.spawn(|| scene.wakes.ring_until(&drained, &mut dice));
            for place in scene.places.iter() {
                // A drain may reject items of other queues. The histories allow for that.
                place.settle(true, &scene.subjects, &mut log);
            }
            drained.store(true, Ordering::Release);
        });
    });
    // A worker may still hold a seat before it finds that all its items are cancelled.
    watched("giving seats back", || {
        let of_group = |stats: GroupStats| (stats.nr_active, stats.nr_waiting) != (0, 0);
        let has_seat = |place: &Place| place.queue.stats().nr_active > 0;
        while scene.places.iter().any(has_seat) || of_group(scene.group.stats()) {
            thread::yield_now();
        }
    });
    let (nr_runs, nr_acts) = watched("checking", || items::check(scene.subjects, log));
    watched("dropping", || {
        scene.crowded.end();
        drop(scene.places);
    });
    watched("shutting down", || shut_down(scene.registry));
    scene.lives.assert_none();
    totals.nr_acts += nr_acts;
    totals.nr_runs += nr_runs;
}

impl Scene<'_> {
    fn torture(&self, dice: &mut Dice, is_over: &AtomicBool) {
        let mut log = Log::default();
        wander(dice);
        while !is_over.load(Ordering::Relaxed) {
            let place = &self.places[dice.below(self.places.len())];
            let spawned = || self.totals.nr_spawned.fetch_add(1, Ordering::Relaxed);
            match dice.below(231) {
                200..210 => {
                    spawned();
                    self.crowded.torture(&self.lives, dice);
                }
                210..215 => {
                    spawned();
                    admission::late(&place.lane(dice), &self.lives, dice);
                }
                0..140 => {
                    let subject = &self.subjects[dice.below(NR_ITEMS)];
                    subject.torture(&self.places, dice, &mut log);
                }
                140..148 => {
                    spawned();
                    let limit = (&place.nr_polls, place.limit);
                    futures::spawn(&place.lane(dice), limit, &self.wakes, &self.lives, dice);
                }
                148..160 => drop(self.wakes.ring(dice)),
                160..168 => self.yard.torture(&self.places, &self.lives, dice),
                168..182 => {
                    spawned();
                    place.spawn(&self.lives, dice);
                }
                182..186 => place.change(&self.registry, dice),
                230 => self.change_group(dice),
                186..188 => place.settle(false, &self.subjects, &mut log),
                188..189 => place.settle(dice.below(4) == 0, &self.subjects, &mut log),
                189..191 => place.hold(&self.lives, dice),
                191..193 => wander(dice),
                193..195 => queues::brief(&self.registry, &self.lives, dice),
                195..197 => self.registry.refuse_threads(dice.below(2) == 0),
                197 => place.lend(dice),
                198 if dice.below(2) == 0 => shutdown::torture(&self.registry, &self.lives, dice),
                228..230 => groups::torture(&self.lives, dice),
                198 => drop(observe::snapshot_of(&self.registry)),
                222..228 => {
                    spawned();
                    strands::torture(&place.queue, &place.strand, &self.lives, dice);
                }
                215..222 => timed::torture(&self.registry, &place.lane(dice), &self.lives, dice),
                _ => drop((place.queue.stats(), self.registry.lock_hold())),
            }
        }
        self.log.lock().unwrap().0.append(&mut log.0);
    }

    fn change_group(&self, dice: &mut Dice) {
        match dice.below(4) {
            0 => self.group.set_shares(dice.pick(&[1, 100, 10_000])).unwrap(),
            1 => {
                self.group.pause();
                thread::yield_now();
                self.group.resume();
            }
            _ => self.group.set_max_active(dice.pick(&[None, Some(1), Some(3)])).unwrap(),
        }
    }
}

fn registry(config: &str, dice: &mut Dice) -> Registry {
    let large = "2 numa x 2 llc x 8 core x 2 smt";
    let machine = match config {
        "one-cpu" => "1 core",
        "one-pod" => dice.pick(&["2 core", "4 core", "8 core"]),
        "large" => large,
        _ => dice.pick(&["1 core", "2 core", "4 core", "2 llc x 2 core", "8 core", large]),
    };
    let params = Params {
        wake: if dice.below(4) == 0 { WakeMode::UnderLock } else { WakeMode::Deferred },
        worker_spin_limit: dice.pick(&[0, 64]),
        max_batch: dice.pick(&[1, 4, 32, 64]),
        max_workers: dice.pick(&[3, 16, 512]),
        idle_timeout_ms: dice.pick(&[1, 20, 300_000]),
        watch_tick_us: dice.pick(&[50, 1000]),
        lock_stat: dice.below(2) == 0,
        ..Params::default()
    };
    registry_on(machine, params)
}
