//! The cases: sizes, variants and claims.

use std::time::Duration;

use afterwork::params::Params;
use afterwork::workqueue::{Group, GroupBuilder, MAX_GROUP_ACTIVE};
use top::exit::Stop;

use super::tenants::{self, NR_TENANTS, PoolEach, Queues, Semaphores, Tenants};
use crate::bench::settings::{Entry, Menu, Settings, Sizes, names};
use crate::bench::workqueue::metrics::{self, ITEMS_PER_S};
use crate::bench::workqueue::ours::{Ours, Reusable};
use crate::bench::workqueue::peers::{Peer, Rayon, Tokio};
use crate::bench::workqueue::shape::{Shape, Task};
use crate::harness::case::{Case, RunFn, Sample, Variant};
use crate::harness::claim::{Against, Claim};
use crate::harness::metric::{Metric, NS_PER_US, PERCENT, Text, higher, lower};

const BENCH: &str = "groups";
const CASES: [Entry<Settings>; 4] = [
    ("parts", parts),
    ("flood", flood),
    ("one-at-a-time-grouped", one_at_a_time),
    ("batch-1000-grouped", batch),
];

pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &[Tokio::NAME, Rayon::NAME] };

const GROUPS: &str = "groups";
const NO_GROUPS: &str = "no groups";
const SEMAPHORES: &str = "tokio+semaphores";
const POOL_EACH: &str = "rayon+each";

const NO_GROUP: &str = "no group";
const IN_GROUP: &str = "group";
const IN_SHARES: &str = "group with shares";
const FAR_CEILING: &str = "group with a far ceiling";

const WORST: Metric = lower("worst", "share", ("% of due", "worst off"), PERCENT);
const PARTS_METRICS: &[Metric] = &[
    WORST,
    higher("of_due_1", "share", ("% of due", "1"), PERCENT),
    higher("of_due_2", "share", ("% of due", "2"), PERCENT),
    higher("of_due_3", "share", ("% of due", "3"), PERCENT),
    higher("of_due_4", "share", ("% of due", "4"), PERCENT),
    higher("of_due_5", "share", ("% of due", "5"), PERCENT),
    higher("of_due_6", "share", ("% of due", "6"), PERCENT),
    higher("of_due_7", "share", ("% of due", "7"), PERCENT),
    higher("of_due_8", "share", ("% of due", "8"), PERCENT),
];

const ALONE_P99: Metric = lower("alone_p99", "ns", ("alone us", "p99"), NS_PER_US);
const FLOODED_P50: Metric = lower("flooded_p50", "ns", ("flooded us", "p50"), NS_PER_US);
const FLOODED_P99: Metric = lower("flooded_p99", "ns", ("flooded us", "p99"), NS_PER_US);

/// The duration of a run of `parts`. The longest item takes 10 ms.
const TIME_MS: Sizes<u64> = [2000, 200];
const REQUESTS_MS: Sizes<u64> = [500, 50];
const LONE_ITEMS: Sizes = [20_000, 4_000];
const BATCH_SIZE: usize = 1000;
const BATCHES: Sizes = [300, 60];

pub fn cases(settings: &Settings) -> Vec<Case> {
    settings.make(MENU, &CASES, settings)
}

fn one_at_a_time(settings: &Settings, name: Text) -> Case {
    let items = settings.sized(LONE_ITEMS, 10);
    let about = format!("a producer queues {items} items, waiting for every one");
    // An item that its waiter runs acquires and releases one more seat.
    cost(settings, name, about, Task::one_at_a_time(1, items), 0.75)
}

fn batch(settings: &Settings, name: Text) -> Case {
    let rounds = settings.sized(BATCHES, 1);
    let about = format!("a producer queues {rounds} batches of {BATCH_SIZE}");
    // A batch acquires and releases one more seat.
    cost(settings, name, about, Task::batches(1, BATCH_SIZE, rounds), 0.9)
}

fn parts(settings: &Settings, name: Text) -> Case {
    let time = Duration::from_millis(settings.sized(TIME_MS, 20));
    let least = 4 + 2 * settings.cpus.len();
    Case {
        about: format!(
            "{NR_TENANTS} tenants with 1 to {NR_TENANTS} shares and items of 10 us to 10 ms always have work, \
             and the first floods; {} ms",
            time.as_millis()
        ),
        variants: variants(settings, Scene::Parts(least), time),
        claims: vec![Claim::at_most(GROUPS, WORST, Against::BestPeer, 1.0)],
        ..Case::new(BENCH, name, PARTS_METRICS, WORST.name)
    }
}

fn flood(settings: &Settings, name: Text) -> Case {
    let time = Duration::from_millis(settings.sized(REQUESTS_MS, 4));
    Case {
        about: format!(
            "one tenant floods with items of 1 ms; the others get an item of 10 us every 0.5 ms for {} ms",
            time.as_millis()
        ),
        variants: variants(settings, Scene::Flood, time),
        claims: vec![Claim::at_most(GROUPS, FLOODED_P99, NO_GROUPS, 0.5)],
        ..Case::new(BENCH, name, &[ALONE_P99, FLOODED_P50, FLOODED_P99], FLOODED_P99.name)
    }
}

fn variants(settings: &Settings, scene: Scene, time: Duration) -> Vec<Variant> {
    fn run<T: Tenants>(
        (scene, time): (Scene, Duration),
        start: impl Fn() -> Result<T, Stop> + 'static,
    ) -> RunFn {
        Box::new(move || Ok(Some(scene.measure(start()?, time))))
    }
    let (measure, workers) = ((scene, time), settings.cpus.len());
    let queues = |grouped| {
        let topology = settings.topology.clone();
        run(measure, move || Queues::start(&topology, grouped))
    };
    let semaphores = run(measure, move || Semaphores::start(workers));
    vec![
        Variant::ours(GROUPS, queues(true)),
        Variant::ours(NO_GROUPS, queues(false)),
        Variant::peer(SEMAPHORES, semaphores),
        Variant::peer(POOL_EACH, run(measure, || PoolEach::start(Rayon::start))),
    ]
}

/// Creates a case that runs the same items on a queue without a group and in groups that limit
/// nothing. It claims that a queue in a group reaches at least `least` of the rate without one.
fn cost(settings: &Settings, name: &'static str, about: String, task: Task, least: f64) -> Case {
    let variant = |name: &str, make: Option<fn(&str) -> GroupBuilder>| {
        let shape = Shape::new(task.clone(), settings);
        let topology = settings.topology.clone();
        let run = move || {
            let start = Ours::build_with(&topology, Params::default(), |registry, builder| {
                let Some(make) = make else { return Ok(builder) };
                Ok(builder.group(&make("lab").build_in(registry)?))
            });
            shape.run(&Reusable(start?))
        };
        Variant::ours(name, run)
    };
    let far = |name: &str| Group::builder(name).max_active(MAX_GROUP_ACTIVE);
    let claim = |variant: &str| Claim::at_least(variant, ITEMS_PER_S, NO_GROUP, least);
    Case {
        about,
        variants: vec![
            variant(NO_GROUP, None),
            variant(IN_GROUP, Some(Group::builder)),
            variant(FAR_CEILING, Some(far)),
            variant(IN_SHARES, Some(|name| Group::builder(name).shares(100))),
        ],
        claims: [IN_GROUP, FAR_CEILING].map(claim).into(),
        ..Case::new(BENCH, name, metrics::ALL, ITEMS_PER_S)
    }
}

#[derive(Clone, Copy)]
enum Scene {
    /// All tenants keep at least this number of items in flight.
    Parts(usize),
    Flood,
}

impl Scene {
    fn measure<T: Tenants>(self, tenants: T, time: Duration) -> Sample {
        let mut sample = Sample::default();
        match self {
            Self::Parts(least) => {
                let parts = tenants::parts(tenants, time, least);
                let off = parts.iter().map(|part| (part - 1.0).abs());
                sample.set(WORST, off.fold(0.0, f64::max));
                for (of_due, part) in PARTS_METRICS[1..].iter().zip(parts) {
                    sample.set(*of_due, part);
                }
                sample
            }
            Self::Flood => {
                let [alone, flooded] = tenants::flood(tenants, time);
                sample
                    .with_percentiles(alone, [(99.0, ALONE_P99)])
                    .with_percentiles(flooded, [(50.0, FLOODED_P50), (99.0, FLOODED_P99)])
            }
        }
    }
}
