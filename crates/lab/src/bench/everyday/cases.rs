//! The cases: sizes, variants and claims.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use afterwork::workqueue::{Strand, Workqueue};
use rayon::ThreadPool as RayonPool;
use top::exit::Stop;
use topology::AffinityScope;

use super::admission::{Bounded, Permits, ROOM};
use super::locked::{self, REQUESTS, Splits};
use super::sleeps::{self, Clock};
use super::soon::{self, CHANGES};
use super::strands::{self, Locked, Ordered, ROUNDS};
use super::{idle, scopes, timeouts};
use crate::bench::child::apart;
use crate::bench::max_active::gauge::Size;
use crate::bench::settings::{Entry, Menu, Settings, Sizes, names};
use crate::bench::workqueue::completion::Waiting;
use crate::bench::workqueue::metrics::ITEMS_PER_S;
use crate::bench::workqueue::ours::{Ours, Way};
use crate::bench::workqueue::peers::{Crossbeam, Peer, Rayon, ThreadPool, Tokio};
use crate::bench::workqueue::shape::{Shape, Task};
use crate::bench::workqueue::subject::{OneShot, OneShotPool};
use crate::harness::case::{Case, Ran, RunFn, Sample, Variant};
use crate::harness::claim::{Against, Claim};
use crate::harness::metric::{MILLION, Metric, NS_PER_MS, NS_PER_US, PERCENT, Text, higher, lower};
use crate::harness::switches::Usage;

const BENCH: &str = "everyday";
const ASYNC_IO: &str = "async-io";
const RAYON_JOIN: &str = "rayon+join";
const RAYON_SPAWN: &str = "rayon+spawn";

const CASES: [Entry<Settings>; 11] = [
    ("admission", admission),
    ("scope-sum", sum),
    ("scope-empty", |it, name| {
        let peer = (RAYON_SPAWN, scopes::rayon_items as _);
        empty(it, name, "empty items that borrow", (SPAWN, scopes::empty_items), peer)
    }),
    ("range-empty", |it, name| {
        let peer = (Rayon::NAME, scopes::rayon_range as _);
        empty(it, name, "numbers, each with an empty call", (RANGE, scopes::empty_range), peer)
    }),
    ("idle-1ms", |it, name| idle(it, name, Duration::from_millis(1))),
    ("idle-10ms", |it, name| idle(it, name, Duration::from_millis(10))),
    ("sleeps", sleeps),
    ("timeouts", timeouts),
    ("strands", strands),
    ("locked", |_, name| locked_case(name)),
    ("save-soon", |_, name| save_soon(name)),
];

pub const MENU: Menu = Menu {
    cases: &names(&CASES),
    peers: &[Tokio::NAME, Rayon::NAME, ThreadPool::NAME, Crossbeam::NAME, ASYNC_IO],
};

const OURS: &str = "ours";
const TASK_EACH: &str = "tokio+each";
const TASK_ABORTED: &str = "tokio+abort";
const UNBOUNDED: &str = "unbounded";
const CHUNKS: &str = "for_each_chunk";
const JOIN: &str = "join";
const ONE_THREAD: &str = "(one thread)";
const SPAWN: &str = "scope.spawn";
const RANGE: &str = "for_each_range";
const ORDERED: &str = "ordered";
const FOUR_PERCENT: &str = "(4 % of a CPU)";

const RESIDENT: Metric = lower("resident", "B", ("", "MiB"), (1 << 20) as f64);
const NUMBERS_PER_S: Metric = higher("numbers_per_s", "1/s", ("", "M/s"), MILLION);
const CPU_PER_NUMBER: Metric = lower("cpu_per_number", "ns/item", ("", "CPUns each"), 1.0);
pub(super) const CPU_SHARE: Metric = lower("cpu_share", "share", ("", "% of a CPU"), PERCENT);
pub(super) const TO_RUN_P50: Metric = lower("to_run_p50", "ns", ("to run us", "p50"), NS_PER_US);
pub(super) const TO_RUN_P99: Metric = lower("to_run_p99", "ns", ("to run us", "p99"), NS_PER_US);
pub(super) const SWITCHES: Metric = lower("switches_per_item", "1/item", ("", "switches"), 1.0);
pub(super) const HAND_OVER: Metric = lower("hand_over", "ns/item", ("ns/sleep", "start"), 1.0);
pub(super) const CPU_PER_SLEEP: Metric = lower("cpu_per_item", "ns/item", ("ns/sleep", "CPU"), 1.0);
pub(super) const BYTES_PER_SLEEP: Metric = lower("bytes_per_item", "B/item", ("", "bytes"), 1.0);
pub(super) const TIMEOUTS_PER_S: Metric = higher("timeouts_per_s", "1/s", ("", "M/s"), MILLION);
pub(super) const CPU_PER_TIMEOUT: Metric =
    lower("cpu_per_item", "ns/item", ("ns/timeout", "CPU"), 1.0);
pub(super) const LATE_P50: Metric = lower("late_p50", "ns", ("late us", "p50"), NS_PER_US);
pub(super) const LATE_P99: Metric = lower("late_p99", "ns", ("late us", "p99"), NS_PER_US);

pub(super) const MAKE: Metric = lower("make", "ns/state", ("ns/state", "make"), 1.0);
pub(super) const DROP: Metric = lower("drop", "ns/state", ("ns/state", "drop"), 1.0);
pub(super) const BYTES_MADE: Metric = lower("bytes_made", "B/state", ("bytes", "made"), 1.0);
pub(super) const BYTES_USED: Metric = lower("bytes_used", "B/state", ("bytes", "used"), 1.0);
pub const ENDED: Metric = higher("ended", "bool", ("", "ended"), 1.0);
const UNTIL_END: Metric = lower("until_end", "ns", ("", "ms"), NS_PER_MS);
pub(super) const SAVES: Metric = lower("saves", "saves", ("", "saves"), 1.0);
pub(super) const PER_CHANGE: Metric = lower("per_change", "ns", ("", "ns/change"), 1.0);

const ADMISSION_METRICS: &[Metric] = &[
    higher(ITEMS_PER_S, "items/s", ("items", "M/s"), MILLION),
    lower("enqueue_p50", "ns", ("enqueue us", "p50"), NS_PER_US),
    lower("enqueue_p99", "ns", ("enqueue us", "p99"), NS_PER_US),
    lower("completion_p50", "ns", ("run after us", "p50"), NS_PER_US),
    lower("completion_p99", "ns", ("run after us", "p99"), NS_PER_US),
    lower("cpu_per_item", "ns/item", ("", "CPUus"), NS_PER_US),
    RESIDENT,
];
const SCOPE_METRICS: &[Metric] = &[NUMBERS_PER_S, CPU_PER_NUMBER];
const SLEEP_METRICS: &[Metric] = &[CPU_PER_SLEEP, HAND_OVER, LATE_P50, LATE_P99, BYTES_PER_SLEEP];
const STRAND_METRICS: &[Metric] = &[
    MAKE,
    DROP,
    BYTES_MADE,
    BYTES_USED,
    higher(ITEMS_PER_S, "items/s", ("items", "M/s"), MILLION),
];

const PRODUCERS: usize = 4;
const FLOOD: Sizes = [250_000, 50_000];
/// The count of numbers to sum, which take 512 MiB, or 64 MiB with `--quick`.
const NUMBERS: Sizes = [64 << 20, 8 << 20];
const EMPTY: u64 = 1_000_000;
const IDLE: Sizes<Duration> = [Duration::from_secs(2), Duration::from_millis(300)];
/// The number of tasks, and the shortest sleep. All sleep before the first one wakes.
const SLEEPERS: Sizes<(usize, Duration)> =
    [(1_000_000, Duration::from_secs(3)), (50_000, Duration::from_millis(300))];

const CLIENTS: usize = 8;
const TIMEOUTS_EACH: Sizes = [1_000_000, 100_000];
const STATES: Sizes = [100_000, 20_000];
const ORDERED_QUEUES: usize = 10_000;

pub fn cases(settings: &Settings) -> Vec<Case> {
    settings.make(MENU, &CASES, settings)
}

fn start(settings: &Settings) -> impl Fn() -> Result<Ours, Stop> + Clone + 'static {
    let (topology, workers) = (settings.topology.clone(), settings.workers());
    move || Ours::start(&topology, Way::plain(AffinityScope::System), workers, false)
}

fn by_ours(settings: &Settings, run: impl Fn(&Workqueue) -> Ran + 'static) -> RunFn {
    let start = start(settings);
    Box::new(move || run(&start()?.queue))
}

fn by_rayon(settings: &Settings, run: impl Fn(&RayonPool) -> Ran + 'static) -> RunFn {
    let workers = settings.workers();
    Box::new(move || run(&Rayon::start(workers)?.0))
}

fn admission(settings: &Settings, name: Text) -> Case {
    let items = settings.sized(FLOOD, 2 * ROOM);
    let shape = Shape::new(Task::batches(PRODUCERS, items, 1), settings);
    let (topology, workers) = (settings.topology.clone(), settings.workers());
    let bounded = move || Bounded::start(&topology, workers);
    let permits = move || Permits::start(workers);
    let crossbeam = move || Crossbeam::start_bounded(workers, ROOM);
    let case = Case {
        about: format!(
            "{PRODUCERS} producers with {items} items each, capacity {ROOM}; {workers} workers"
        ),
        variants: vec![
            Variant::ours(OURS, flooded(&shape, bounded)),
            Variant::ours(UNBOUNDED, flooded(&shape, start(settings))),
            Variant::peer(Tokio::NAME, flooded(&shape, permits)),
            Variant::peer(Crossbeam::NAME, flooded(&shape, crossbeam)),
        ],
        claims: vec![Claim::at_least(OURS, ITEMS_PER_S, Against::BestPeer, 1.0)],
        ..Case::new(BENCH, name, ADMISSION_METRICS, ITEMS_PER_S)
    };
    apart(case, settings)
}

fn sum(settings: &Settings, name: Text) -> Case {
    let count = settings.sized(NUMBERS, 100_000);
    let numbers = Numbers { count, made: Rc::default() };
    let ours = |sum: fn(&Workqueue, &[u64]) -> u64| {
        let numbers = numbers.clone();
        by_ours(settings, move |queue| numbers.summed(|it| sum(queue, it)))
    };
    let theirs = |sum: fn(&RayonPool, &[u64]) -> u64| {
        let numbers = numbers.clone();
        by_rayon(settings, move |pool| numbers.summed(|it| sum(pool, it)))
    };
    let alone = numbers.clone();
    let alone = move || alone.summed(|it| it.iter().sum());
    Case {
        about: format!("the sum of {} Mi u64; {} workers", count >> 20, settings.workers()),
        variants: vec![
            Variant::ours(CHUNKS, ours(scopes::by_chunks)),
            Variant::ours(JOIN, ours(scopes::by_join)),
            Variant::ours(ONE_THREAD, alone),
            Variant::peer(Rayon::NAME, theirs(scopes::rayon_sum)),
            Variant::peer(RAYON_JOIN, theirs(scopes::rayon_join)),
        ],
        claims: vec![no_slower(CHUNKS, Rayon::NAME, 0.95), no_slower(JOIN, RAYON_JOIN, 0.95)],
        ..Case::new(BENCH, name, SCOPE_METRICS, NUMBERS_PER_S.name)
    }
}

fn empty(
    settings: &Settings,
    name: Text,
    things: &str,
    (ours, run_ours): (Text, fn(&Workqueue, u64) -> u64),
    (peer, run_peer): (Text, fn(&RayonPool, u64) -> u64),
) -> Case {
    let (count, workers) = (settings.sized([EMPTY; 2], 2000), settings.workers());
    let by_ours = by_ours(settings, move |queue| borrowed(count, count, || run_ours(queue, count)));
    let by_peer = by_rayon(settings, move |pool| borrowed(count, count, || run_peer(pool, count)));
    Case {
        about: format!("{count} {things}; {workers} workers"),
        variants: vec![Variant::ours(ours, by_ours), Variant::peer(peer, by_peer)],
        claims: vec![no_slower(ours, peer, 1.0)],
        ..Case::new(BENCH, name, SCOPE_METRICS, NUMBERS_PER_S.name)
    }
}

fn idle(settings: &Settings, name: Text, period: Duration) -> Case {
    let span = settings.sized(IDLE, 5 * period);
    let (workers, pace) = (settings.workers(), (period, span));
    let limit = || Ok(Some(Sample::of([(CPU_SHARE, 4.0 * PERCENT)])));
    let variants = vec![
        Variant::ours(OURS, idled(settings, start(settings), pace)),
        Variant::ours(FOUR_PERCENT, limit),
        idle_peer::<Tokio>(settings, pace),
        idle_peer::<Rayon>(settings, pace),
        idle_peer::<ThreadPool>(settings, pace),
        idle_peer::<Crossbeam>(settings, pace),
    ];
    let at_most = |against: Against| Claim::at_most(OURS, CPU_SHARE, against, 1.0);
    Case {
        about: format!(
            "an empty item every {} ms for {} ms; {workers} workers",
            period.as_millis(),
            span.as_millis()
        ),
        variants,
        claims: vec![at_most(FOUR_PERCENT.into()), at_most(Against::BestPeer)],
        ..Case::new(BENCH, name, &[CPU_SHARE, TO_RUN_P50, TO_RUN_P99, SWITCHES], CPU_SHARE.name)
    }
}

fn idle_peer<P: Peer>(settings: &Settings, pace: (Duration, Duration)) -> Variant {
    let workers = settings.workers();
    Variant::peer(P::NAME, idled(settings, move || P::start(workers), pace))
}

fn idled<P: OneShotPool + 'static>(
    settings: &Settings,
    start: impl Fn() -> Result<P, Stop> + 'static,
    pace: (Duration, Duration),
) -> RunFn {
    let interrupt = settings.interrupt.clone();
    Box::new(move || Ok(idle::run(&start()?, pace, &interrupt)))
}

fn strands(settings: &Settings, name: Text) -> Case {
    let count = settings.sized(STATES, 100);
    let nr_queues = count.min(ORDERED_QUEUES);
    let (start, start_ordered) = (start(settings), start(settings));
    let ours = move || strands::run::<Strand<usize>>(&start()?.queue, count);
    let ordered = move || strands::run::<Ordered>(&start_ordered()?.pools, nr_queues);
    let workers = settings.workers();
    let tokio = move || strands::run::<Locked>(&sleeps::runtime(workers)?, count);
    let at_most = |metric: Metric| Claim::at_most(OURS, metric, ORDERED, 1.0);
    let case = Case {
        about: format!(
            "{count} states ({nr_queues} ordered queues) with {ROUNDS} closures each; {workers} workers"
        ),
        variants: vec![
            Variant::ours(OURS, ours),
            Variant::ours(ORDERED, ordered),
            Variant::peer(Tokio::NAME, tokio),
        ],
        claims: [BYTES_USED, MAKE, DROP].map(at_most).into(),
        ..Case::new(BENCH, name, STRAND_METRICS, ITEMS_PER_S)
    };
    apart(case, settings)
}

fn sleeps(settings: &Settings, name: Text) -> Case {
    let test = (500, Duration::from_millis(2));
    let (count, shortest) = settings.sized(SLEEPERS, test);
    let workers = settings.workers();
    let run = |clock| move || sleeps::run(clock, count, shortest, workers).map(Some);
    let at_most = |metric: Metric| Claim::at_most(OURS, metric, Against::BestPeer, 1.0);
    let case = Case {
        about: format!(
            "{count} tasks sleep {} to {} ms; {workers} workers",
            shortest.as_millis(),
            2 * shortest.as_millis()
        ),
        variants: vec![
            Variant::ours(OURS, run(Clock::Ours)),
            Variant::peer(Tokio::NAME, run(Clock::Tokio)),
            Variant::peer(ASYNC_IO, run(Clock::AsyncIo)),
        ],
        claims: [CPU_PER_SLEEP, BYTES_PER_SLEEP].map(at_most).into(),
        ..Case::new(BENCH, name, SLEEP_METRICS, CPU_PER_SLEEP.name)
    };
    apart(case, settings)
}

fn timeouts(settings: &Settings, name: Text) -> Case {
    let count = settings.sized(TIMEOUTS_EACH, 100);
    let ours = |nr_threads: usize| move || timeouts::ours(nr_threads, count).map(Some);
    let workers = settings.workers();
    let tokio = move || {
        let runtime = sleeps::runtime(workers)?;
        Ok(Some(timeouts::tokio(&runtime, CLIENTS, count)))
    };
    let case = Case {
        about: format!("{CLIENTS} threads arm and cancel {count} timeouts each; none fires"),
        variants: vec![
            Variant::ours(OURS, ours(CLIENTS)),
            Variant::ours(ONE_THREAD, ours(1)),
            Variant::peer(Tokio::NAME, tokio),
        ],
        claims: vec![
            Claim::at_least(OURS, TIMEOUTS_PER_S, Against::BestPeer, 1.0),
            Claim::at_most(OURS, CPU_PER_TIMEOUT, Against::BestPeer, 1.0),
            Claim::at_most(OURS, CPU_PER_TIMEOUT, ONE_THREAD, 1.25),
        ],
        ..Case::new(BENCH, name, &[TIMEOUTS_PER_S, CPU_PER_TIMEOUT], TIMEOUTS_PER_S.name)
    };
    apart(case, settings)
}

fn locked_case(name: Text) -> Case {
    Case {
        about: format!(
            "{REQUESTS} requests take one lock; the first holds it while it waits for its other half"
        ),
        variants: vec![
            Variant::ours(OURS, final_if_deadlocked(locked::ours)),
            Variant::peer(Rayon::NAME, final_if_deadlocked(locked::theirs)),
        ],
        claims: vec![Claim::at_most(OURS, UNTIL_END, Against::BestPeer, 1.0)],
        ..Case::new(BENCH, name, &[ENDED, UNTIL_END], UNTIL_END.name)
    }
}

/// Returns a run of the requests. A run that deadlocks leaves its threads behind, so it is not
/// repeated, and later runs return the same sample.
fn final_if_deadlocked<S: Splits>(start: impl Fn() -> Result<S, Stop> + 'static) -> RunFn {
    let mut is_deadlocked = false;
    Box::new(move || {
        let took = if is_deadlocked { None } else { locked::run(&start()?) };
        is_deadlocked = took.is_none();
        Ok(Some(Sample::of([
            (ENDED, f64::from(u8::from(took.is_some()))),
            (UNTIL_END, took.unwrap_or(locked::PATIENCE).as_nanos() as f64),
        ])))
    })
}

fn save_soon(name: Text) -> Case {
    let run = |save: fn() -> Result<Sample, Stop>| move || save().map(Some);
    Case {
        about: format!("{CHANGES} changes, each with a save 100 ms after the last one"),
        variants: vec![
            Variant::ours(OURS, run(soon::ours)),
            Variant::peer(TASK_EACH, run(|| soon::tokio(false))),
            Variant::peer(TASK_ABORTED, run(|| soon::tokio(true))),
        ],
        claims: vec![Claim::at_most(OURS, PER_CHANGE, Against::BestPeer, 1.0)],
        ..Case::new(BENCH, name, &[SAVES, PER_CHANGE], PER_CHANGE.name)
    }
}

fn no_slower(variant: &str, against: &str, least: f64) -> Claim {
    Claim::at_least(variant, NUMBERS_PER_S, against, least)
}

/// Random numbers and their sum, which are created when the first variant needs them.
#[derive(Clone)]
struct Numbers {
    count: usize,
    made: Rc<OnceCell<(Vec<u64>, u64)>>,
}

impl Numbers {
    fn summed(&self, sum: impl Fn(&[u64]) -> u64) -> Ran {
        let (numbers, wanted) = self.made.get_or_init(|| {
            let mut random = fastrand::Rng::with_seed(self.count as u64);
            let numbers = std::iter::repeat_with(|| u64::from(random.u32(..)));
            let numbers: Vec<u64> = numbers.take(self.count).collect();
            let sum = numbers.iter().sum();
            (numbers, sum)
        });
        borrowed(self.count as u64, *wanted, || sum(numbers))
    }
}

fn flooded<P: OneShotPool + 'static>(
    shape: &Shape,
    start: impl Fn() -> Result<P, Stop> + 'static,
) -> RunFn {
    let shape = shape.clone();
    Box::new(move || {
        let before = Size::now()?;
        let pool = OneShot(start()?, Waiting::Parks);
        let Some(mut sample) = shape.run(&pool)? else { return Ok(None) };
        let grown = Size::now()?.resident.saturating_sub(before.resident);
        sample.set(RESIDENT, grown as f64);
        Ok(Some(sample))
    })
}

fn borrowed(count: u64, wanted: u64, run: impl Fn() -> u64) -> Ran {
    let before = Usage::now();
    let Some(took) = scopes::timed(wanted, run) else {
        return Err(Stop::CouldNotRun("a sum is wrong".into()));
    };
    let spent = Usage::now().since(before);
    // CPU time includes the warm-up round.
    let times = f64::from(scopes::TIMES + 1);
    Ok(Some(Sample::of([
        (NUMBERS_PER_S, count as f64 / took.as_secs_f64()),
        (CPU_PER_NUMBER, spent.cpu_ns as f64 / times / count as f64),
    ])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawn_is_compared_with_a_spawn_and_a_range_with_a_range() {
        let cases = cases(&Settings::of_tests(&["scope-empty", "range-empty"]));
        let names = cases.iter().map(|case| case.variants.iter().map(|it| it.name.as_str()));
        let names: Vec<Vec<&str>> = names.map(Iterator::collect).collect();
        assert_eq!(names, [[SPAWN, RAYON_SPAWN], [RANGE, Rayon::NAME]]);
    }
}
