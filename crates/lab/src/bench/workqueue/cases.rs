//! The cases: sizes and variants.

use clap::Args;
use top::exit::Stop;
use topology::AffinityScope;

use super::completion::Waiting;
use super::ours::{Ours, Reusable, Way};
use super::peers::{Crossbeam, Peer, Rayon, ThreadPool, Tokio};
use super::shape::{Shape, Task};
use super::subject::{Joined, Joins, OneShot, Subject};
use super::{claims, metrics};
use crate::bench::settings::{Entry, Menu, Settings, Sizes, count, names};
use crate::harness::beside::Absent;
use crate::harness::case::{Case, RunFn, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::metric::Text;

const BENCH: &str = "workqueue";
const CASES: [Entry<Setting>; 4] = [
    ("one-at-a-time", Setting::one_at_a_time),
    ("batch-1000", Setting::batch),
    ("fan-out", Setting::fan_out),
    ("lock-hold", Setting::lock_hold),
];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &super::peers::NAMES };

/// Options of `bench workqueue`.
#[derive(Args, Clone, Debug, Default)]
pub struct WorkqueueArgs {
    /// Producer threads of one-at-a-time and batch-1000 [default: 8]
    #[arg(long, value_name = "P", value_parser = count::<1024>)]
    pub producers: Option<usize>,

    /// Items that each producer queues; in fan-out, all items [default: depends on the case]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>)]
    pub items: Option<usize>,

    /// Workers of every pool [default: one for each allowed CPU]
    #[arg(long, value_name = "N", value_parser = count::<1024>)]
    pub workers: Option<usize>,

    /// Affinity scopes of our workqueues, separated by commas [default: all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',', value_parser = scope)]
    pub scope: Vec<AffinityScope>,
}

fn scope(word: &str) -> Result<AffinityScope, String> {
    word.parse().map_err(|_| {
        let valid: Vec<&str> = AffinityScope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("valid scopes: {}", valid.join(", "))
    })
}

const PRODUCERS: usize = 8;

const BATCH_SIZE: usize = 1000;

/// The number of items of each producer in one-at-a-time, for at most 0.6 s.
const LONE_ITEMS: Sizes = [20_000, 2_000];

const BATCH_ITEMS: Sizes = [100_000, 25_000];

/// The number of fan-out items, even with `--quick`: the case tests a long queue.
const FAN_OUT_ITEMS: Sizes = [1_000_000; 2];

/// The scopes with `--quick`: the finest, the default and the coarsest.
const SCOPES_QUICK: [AffinityScope; 3] =
    [AffinityScope::Cpu, AffinityScope::CacheShard, AffinityScope::System];

pub fn cases(args: &WorkqueueArgs, settings: &Settings) -> Vec<Case> {
    let setting = Setting {
        args: args.clone(),
        settings: settings.clone(),
        workers: args.workers.unwrap_or(settings.cpus.len()),
        producers: args.producers.unwrap_or(PRODUCERS),
        scopes: scopes(&args.scope, settings.quick),
    };
    settings.make(MENU, &CASES, &setting)
}

struct Setting {
    args: WorkqueueArgs,
    settings: Settings,
    workers: usize,
    producers: usize,
    scopes: Vec<AffinityScope>,
}

impl Setting {
    fn one_at_a_time(&self, name: Text) -> Case {
        let (producers, items) = (self.producers, self.items(LONE_ITEMS));
        let ways = |way: Way| {
            let helped = way.helped();
            vec![way, way.under_lock(), helped, way.spawned(), helped.spawned()]
        };
        let peers = |workers, shape: &_| {
            let mut variants = self.by_one_word(shape);
            variants.extend(peers_by_every_wait(workers, shape));
            variants
        };
        let about =
            format!("{producers} producers queue {items} items each, waiting for every one");
        let task = Task::one_at_a_time(producers, items);
        self.against((name, about), task, ways, peers, claims::one_at_a_time(&self.scopes))
    }

    fn batch(&self, name: Text) -> Case {
        let producers = self.producers;
        let rounds = self.items(BATCH_ITEMS).div_ceil(BATCH_SIZE);
        let about = format!("{producers} producers queue {rounds} batches of {BATCH_SIZE} each");
        self.many((name, about), Task::batches(producers, BATCH_SIZE, rounds), 1.3)
    }

    fn fan_out(&self, name: Text) -> Case {
        let items = self.items(FAN_OUT_ITEMS);
        let about = format!("one producer queues {items} items at once");
        self.many((name, about), Task::batches(1, items, 1), 1.5)
    }

    fn many(&self, name_and_about: (Text, String), task: Task, reusable: f64) -> Case {
        let ways = |way: Way| vec![way, way.under_lock(), way.spawned()];
        let peers = |workers, shape: &_| peers(workers, shape, Waiting::Parks).into();
        self.against(name_and_about, task, ways, peers, claims::many(&self.scopes, reusable))
    }

    fn against(
        &self,
        (name, about): (Text, String),
        task: Task,
        ways: impl Fn(Way) -> Vec<Way>,
        peers: impl Fn(usize, &Shape) -> Vec<Variant>,
        claims: Vec<Claim>,
    ) -> Case {
        let shape = Shape::new(task, &self.settings);
        let ours = self.scopes.iter().flat_map(|&scope| ways(Way::plain(scope)));
        let mut variants: Vec<Variant> = ours.map(|way| self.ours(&shape, way)).collect();
        variants.extend(peers(self.workers, &shape));
        Case {
            about: format!("{about}; {} workers", self.workers),
            variants,
            claims,
            ..Case::new(BENCH, name, metrics::ALL, metrics::ITEMS_PER_S)
        }
    }

    /// Returns variants of the system scope that wait as peers do, on a word that items write.
    fn by_one_word(&self, shape: &Shape) -> Vec<Variant> {
        if !self.scopes.contains(&AffinityScope::System) {
            return Vec::new();
        }
        let way = Way::plain(AffinityScope::System).spawned();
        let variants = [Waiting::Parks, Waiting::Yields].map(|waiting| {
            let start = self.start(way, false);
            let run = measured(shape, move || Ok(OneShot(start()?, waiting)));
            Variant::ours(format!("{way}+word{}", waiting.suffix()), run)
        });
        variants.into()
    }

    fn lock_hold(&self, name: Text) -> Case {
        let (items, workers) = (self.items(LONE_ITEMS), self.workers);
        // The names of the variants contain the scope only if scopes were requested.
        let named = |&scope: &AffinityScope| (scope, format!("{scope} "));
        let (requested, scopes) = match self.args.scope.is_empty() {
            true => ("system scope", vec![(AffinityScope::System, String::new())]),
            false => ("the requested scopes", self.scopes.iter().map(named).collect()),
        };
        let about = format!(
            "as one-at-a-time, {items} each, pinned; {requested}; {workers} workers, which do not spin"
        );
        let (mut variants, mut claims) = (Vec::new(), Vec::new());
        let mut counts = vec![1, self.producers];
        counts.dedup();
        let counts = counts.into_iter();
        for (producers, (scope, of)) in counts.flat_map(|it| scopes.iter().map(move |s| (it, s))) {
            let deferred = Way::plain(*scope);
            let variant = |wake: &str| format!("{of}{wake}, producers: {producers}");
            let (after, under) = (variant("deferred"), variant("under_lock"));
            // Both variants use the same completions, which are created once. The producers are
            // pinned, because otherwise the result would depend on where the kernel places the
            // threads.
            let shape = Shape {
                pins: self.settings.cpus.clone(),
                ..Shape::new(Task::one_at_a_time(producers, items), &self.settings)
            };
            for (of, way) in [(after.clone(), deferred), (under.clone(), deferred.under_lock())] {
                variants.push(self.lock_hold_variant(of, way, &shape, producers * items));
            }
            claims.push(Claim::at_most(after, metrics::LOCK_MEAN, under, 0.02));
        }
        Case {
            about,
            variants,
            claims,
            ..Case::new(BENCH, name, metrics::LOCK, metrics::LOCK_MEAN)
        }
    }

    fn lock_hold_variant(&self, name: String, way: Way, shape: &Shape, items: usize) -> Variant {
        let (start, shape) = (self.start(way, true), shape.clone());
        let run = move || {
            let subject = Reusable(start()?);
            let Some(mut sample) = shape.run(&subject)? else { return Ok(None) };
            metrics::add_lock_hold(&mut sample, &subject.0.pools.lock_hold(), items);
            // Without wake-ups, neither variant wakes under the lock.
            if sample.value(metrics::WAKEUPS) == Some(0.0) {
                sample = Sample::thrown_away(Absent("no worker was woken".into()));
            }
            Ok(Some(sample))
        };
        Variant::ours(name, run)
    }

    fn ours(&self, shape: &Shape, way: Way) -> Variant {
        let start = self.start(way, false);
        let run = if way.spawn {
            measured(shape, move || start().map(Joined))
        } else {
            measured(shape, move || start().map(Reusable))
        };
        Variant::ours(way.to_string(), run)
    }

    fn start(&self, way: Way, lock_stat: bool) -> impl Fn() -> Result<Ours, Stop> + 'static {
        let (topology, workers) = (self.settings.topology.clone(), self.workers);
        move || Ours::start(&topology, way, workers, lock_stat)
    }

    fn items(&self, sizes: Sizes) -> usize {
        self.settings.size(self.args.items, sizes)
    }
}

fn peers_by_every_wait(workers: usize, shape: &Shape) -> Vec<Variant> {
    let waits = Waiting::ALL.into_iter();
    let mut variants: Vec<Variant> = waits.flat_map(|wait| peers(workers, shape, wait)).collect();
    variants.push(joined::<Tokio>(workers, shape));
    variants.push(joined::<Rayon>(workers, shape));
    variants.push(joined::<Crossbeam>(workers, shape));
    variants
}

fn joined<P: Peer + Joins>(workers: usize, shape: &Shape) -> Variant {
    let run = measured(shape, move || P::start(workers).map(Joined));
    Variant::peer(format!("{}+join", P::NAME), run)
}

fn peers(workers: usize, shape: &Shape, waiting: Waiting) -> [Variant; 4] {
    [
        peer::<Tokio>(workers, shape, waiting),
        peer::<Rayon>(workers, shape, waiting),
        peer::<ThreadPool>(workers, shape, waiting),
        peer::<Crossbeam>(workers, shape, waiting),
    ]
}

fn peer<P: Peer>(workers: usize, shape: &Shape, waiting: Waiting) -> Variant {
    let run = measured(shape, move || Ok(OneShot(P::start(workers)?, waiting)));
    Variant::peer(format!("{}{}", P::NAME, waiting.suffix()), run)
}

/// Returns a run that starts and drops its own pool, so that runs do not affect each other.
pub(in crate::bench) fn measured<S: Subject + 'static>(
    shape: &Shape,
    start: impl Fn() -> Result<S, Stop> + 'static,
) -> RunFn {
    let shape = shape.clone();
    Box::new(move || shape.run(&start()?))
}

fn scopes(asked: &[AffinityScope], quick: bool) -> Vec<AffinityScope> {
    let mut scopes = match (asked, quick) {
        ([], true) => SCOPES_QUICK.to_vec(),
        ([], false) => AffinityScope::ALL.to_vec(),
        (asked, _) => asked.to_vec(),
    };
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_requested_twice_is_measured_once() {
        use AffinityScope::{Cpu, System};
        assert_eq!(scopes(&[System, Cpu, System], true), [Cpu, System]);
        assert_eq!(scopes(&[], false), AffinityScope::ALL);
    }
}
