//! The cases: sizes, and who takes part.

use super::args::WorkqueueArgs;
use super::metrics;
use super::peers::{Crossbeam, Rayon, ThreadPool, Tokio};
use super::shape::{Shape, Task};
use super::subject::{OneShot, OneShotPool, Subject};
use crate::bench::session::Settings;
use crate::exit::Stop;
use crate::measure::case::{Case, RunFn, Variant};

const ONE_AT_A_TIME: &str = "one-at-a-time";
const BATCH: &str = "batch-1000";
const FAN_OUT: &str = "fan-out";

/// As `--cases` and tables spell them.
pub const CASES: [&str; 3] = [ONE_AT_A_TIME, BATCH, FAN_OUT];

/// Producers unless `--producers` says otherwise: more than the CPUs of a small machine, as in the kernel's
/// own test of the same kind.
const PRODUCERS: usize = 8;

/// Of batch-1000.
const BATCH_SIZE: usize = 1000;

/// Items of each producer one at a time: 0.6 s for a pool that wakes a thread for each; a tenth of it does
/// for `--quick`, as nothing but the number of samples depends on it.
const LONE_ITEMS: usize = 20_000;
const LONE_ITEMS_QUICK: usize = 2_000;

/// Items of each producer in batches.
const BATCH_ITEMS: usize = 100_000;
const BATCH_ITEMS_QUICK: usize = 25_000;

/// Items of the fan-out, `--quick` or not: how far a queue grows is what it tests.
const FAN_OUT_ITEMS: usize = 1_000_000;

/// Makes the cases that `args` ask for.
///
/// # Errors
///
/// A pool cannot be prepared.
pub fn cases(args: &WorkqueueArgs, settings: &Settings) -> Result<Vec<Case>, Stop> {
    let wanted = CASES.into_iter().filter(|case| args.wants_case(case));
    wanted.map(|name| case(name, args, settings)).collect()
}

fn case(name: &'static str, args: &WorkqueueArgs, settings: &Settings) -> Result<Case, Stop> {
    let (task, about) = task(name, args, settings.quick);
    let shape = Shape {
        task,
        pins: settings.pins.clone(),
        interrupt: settings.interrupt.clone(),
    };
    let workers = size(args.workers).unwrap_or(settings.cpus.len());
    Ok(Case {
        bench: "workqueue",
        name,
        about: format!("{about}; {workers} workers"),
        metrics: metrics::ALL,
        headline: metrics::ITEMS_PER_S,
        variants: peers(args, workers, &shape),
        claims: Vec::new(),
    })
}

/// What the case called `name` has its producers do, and the line that says so.
fn task(name: &str, args: &WorkqueueArgs, quick: bool) -> (Task, String) {
    let sized =
        |long: usize, short: usize| size(args.items).unwrap_or(if quick { short } else { long });
    let producers = size(args.producers).unwrap_or(PRODUCERS);
    match name {
        ONE_AT_A_TIME => {
            let items = sized(LONE_ITEMS, LONE_ITEMS_QUICK);
            let about =
                format!("{producers} producers queue {items} items each, waiting for every one");
            (Task::one_at_a_time(producers, items), about)
        }
        BATCH => {
            let rounds = sized(BATCH_ITEMS, BATCH_ITEMS_QUICK).div_ceil(BATCH_SIZE);
            let about =
                format!("{producers} producers queue {rounds} batches of {BATCH_SIZE} each");
            (Task::batches(producers, BATCH_SIZE, rounds), about)
        }
        _ => {
            let items = sized(FAN_OUT_ITEMS, FAN_OUT_ITEMS);
            (
                Task::batches(1, items, 1),
                format!("one producer queues {items} items at once"),
            )
        }
    }
}

fn peers(args: &WorkqueueArgs, workers: usize, shape: &Shape) -> Vec<Variant> {
    let all = [
        peer(Tokio::NAME, shape, move || Tokio::start(workers)),
        peer(Rayon::NAME, shape, move || Rayon::start(workers)),
        peer(ThreadPool::NAME, shape, move || ThreadPool::start(workers)),
        peer(Crossbeam::NAME, shape, move || Crossbeam::start(workers)),
    ];
    all.into_iter()
        .filter(|variant| args.wants_peer(&variant.name))
        .collect()
}

fn peer<P: OneShotPool + 'static>(
    name: &str,
    shape: &Shape,
    start: impl Fn() -> Result<P, Stop> + 'static,
) -> Variant {
    Variant {
        name: name.into(),
        peer: true,
        run: measured(shape, move || start().map(OneShot)),
    }
}

/// A run with a pool of its own: started before, ended after, nothing left over for the next variant.
fn measured<S: Subject + 'static>(
    shape: &Shape,
    start: impl Fn() -> Result<S, Stop> + 'static,
) -> RunFn {
    let shape = shape.clone();
    Box::new(move || shape.run(&start()?))
}

fn size(count: Option<u64>) -> Option<usize> {
    count.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}
