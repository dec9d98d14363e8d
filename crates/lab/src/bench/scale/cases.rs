//! The cases: axes, variants and claims.

use std::time::Duration;

use afterwork::workqueue::{Registry, Workqueue};
use lab_peers::reclaim;
use top::exit::Stop;
use topology::{AffinityScope, Topology};

use super::axis::{Axis, Cost, GROWTH, Limit};
use super::{pools, things};
use crate::bench::child::apart;
use crate::bench::max_active::gauge::Size;
use crate::bench::rcu::ours as rcu_ours;
use crate::bench::settings::{Menu, Settings};
use crate::bench::workqueue::ours::{Ours, Way};
use crate::bench::workqueue::peers::{Crossbeam, Rayon, Tokio};
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::{Bound, Claim};
use crate::harness::fingerprint::find_cpus;

const BENCH: &str = "scale";
const PRODUCERS: &str = "producers";
const QUEUES: &str = "queues";
const PENDING: &str = "pending";
const LENGTH: &str = "length";
const READERS: &str = "readers";
const MAILBOXES: &str = "mailboxes";
const DOMAINS: &str = "domains";
const TIMERS: &str = "timers";

const STD: &str = "std";
const EPOCH: &str = "crossbeam-epoch";
const MEMB: &str = "urcu-memb";
const ASYNC_IO: &str = "async-io";

/// The names of the cases and peers.
pub const MENU: Menu = Menu {
    cases: &[PRODUCERS, QUEUES, PENDING, LENGTH, READERS, MAILBOXES, DOMAINS, TIMERS],
    peers: &[Tokio::NAME, Rayon::NAME, Crossbeam::NAME, EPOCH, MEMB, STD, ASYNC_IO],
};

const OURS: &str = "ours";
/// The limit for the size of a pending item.
const LARGEST: (&str, f64) = ("(64 B)", 64.0);

/// The number of items in the cases `producers`, `queues` and `length`.
const ITEMS: usize = 200_000;
const ITEMS_QUICK: usize = 40_000;
/// The approximate CPU time of all items of one length.
const OF_A_LENGTH: Duration = Duration::from_millis(100);
const MOST_OF_A_LENGTH: usize = 100_000;

/// The description of a case: its axis and the texts in its tables.
struct Asked {
    name: &'static str,
    /// The question, to which the numbers of the axis are appended.
    text: &'static str,
    /// The heading of the time columns.
    head: &'static str,
    places: &'static [usize],
    /// The number of places at the end of the axis that `--quick` skips.
    left_out: usize,
    limit: Limit,
    weighs: bool,
}

/// Expands to the cases from rows of their fields.
macro_rules! asked {
    ($($name:expr, $text:literal, $head:literal, $places:expr, $out:literal, $limit:ident,
        $weighs:literal;)*) => {
        [$(Asked {
            name: $name,
            text: $text,
            head: $head,
            places: &$places,
            left_out: $out,
            limit: Limit::$limit,
            weighs: $weighs,
        }),*]
    };
}

const ASKED: [Asked; 8] = asked! {
    PRODUCERS, "what an item takes that N producers queue; N",
        "ns an item, of so many producers", [1, 2, 4, 8, 16, 32, 64], 2, LogN, false;
    QUEUES, "what an item takes to N queues in turn (crossbeam: a thread each); N",
        "ns an item, to so many queues", [1, 10, 100, 1_000], 0, LogN, true;
    PENDING, "what an item takes of N that wait while all workers are held; N",
        "ns an item, of so many that wait",
        [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000], 1, LogN, true;
    LENGTH, "what an item takes that burns N ns (1: none), on all CPUs; N",
        "ns an item that burns so many ns", [1, 1_000, 10_000, 100_000, 1_000_000], 0, N, false;
    READERS, "what one replacement takes while N readers block; N",
        "ns a replacement, so many readers", [1, 10, 100, 1_000, 10_000], 1, NLogN, false;
    MAILBOXES, "what a post and its receipt take, N mailboxes in turn; N",
        "ns a message, so many mailboxes", [1, 10, 100, 1_000, 10_000, 100_000], 1, LogN, true;
    DOMAINS, "what the first callback of each of N new SRCU domains takes until it has run; N",
        "ns a domain, so many domains", [1, 10, 100, 1_200], 0, LogN, true;
    TIMERS, "what it takes to begin one sleep of N at once and give it up; N",
        "ns a sleep, of so many at once",
        [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000], 2, LogN, true;
};

/// Creates the selected cases.
pub fn cases(settings: &Settings) -> Result<Vec<Case>, Stop> {
    let topology = find_cpus()?;
    let setting = Setting { settings, topology, workers: settings.cpus.len() };
    Ok(settings.make(MENU, |name| {
        let asked = ASKED.iter().find(|asked| asked.name == name);
        asked.map(|asked| apart(setting.case(asked), settings))
    }))
}

struct Setting<'a> {
    settings: &'a Settings,
    topology: Topology,
    workers: usize,
}

impl Setting<'_> {
    fn items(&self) -> usize {
        self.settings.sized(ITEMS, ITEMS_QUICK, 2_000)
    }

    /// Returns a run that measures with `at` at each place.
    fn along(
        &self,
        axis: Axis,
        mut at: impl FnMut(usize) -> Result<Option<Cost>, Stop> + 'static,
    ) -> impl FnMut() -> Result<Option<Sample>, Stop> + 'static {
        let interrupt = self.settings.interrupt.clone();
        move || axis.measure(&mut at, &interrupt)
    }

    fn start(&self) -> impl Fn() -> Result<Ours, Stop> + Clone + 'static {
        let (topology, workers) = (self.topology.clone(), self.workers);
        move || Ours::start(&topology, Way::plain(AffinityScope::System), workers, false)
    }

    /// Creates a case, with the limit as a variant and with claims about our variant.
    fn case(&self, asked: &Asked) -> Case {
        let left_out = self.settings.sized(0, asked.left_out, asked.places.len() - 2);
        let axis = Axis {
            places: &asked.places[..asked.places.len() - left_out],
            head: asked.head,
            limit: asked.limit,
            weighs: asked.weighs,
        };
        let (ours, mut variants) = match asked.name {
            QUEUES => (OURS, self.queues(axis)),
            READERS => (rcu_ours::RCU, self.readers(axis)),
            MAILBOXES => (OURS, self.mailboxes(axis)),
            DOMAINS => (OURS, self.domains(axis)),
            TIMERS => (OURS, self.timers(axis)),
            name => (OURS, self.pools(axis, name)),
        };
        let at_most = |what: &str, metric: &'static str, limit: &str| {
            Claim::of(ours, what, metric, limit).keeps(Bound::AtMost(1.0))
        };
        let mut growth = at_most("growth for each doubling", GROWTH, axis.limit.name());
        if axis.limit == Limit::N {
            // Items that burn n nanoseconds cost at least n, so their growth is only shown.
            growth.bound = None;
        }
        let mut claims = vec![growth];
        let limit = move || Ok(Some(axis.limit()));
        variants.push(Variant::ours(axis.limit.name(), limit));
        if asked.name == PENDING {
            let (largest, bytes) = LARGEST;
            claims.push(at_most("bytes each", axis.last_bytes(), largest));
            let room = move || Ok(Some(axis.room(bytes)));
            variants.push(Variant::ours(largest, room));
        }
        let [first, .., last] = axis.places else {
            unreachable!("an axis has two ends");
        };
        Case {
            about: format!("{} is {first} to {last}", asked.text),
            variants,
            claims,
            ..Case::new(BENCH, asked.name, axis.metrics(), axis.last_time())
        }
    }

    /// Returns variants for afterwork and three other pools.
    fn pools(&self, axis: Axis, name: &'static str) -> Vec<Variant> {
        let workers = self.workers;
        let tokio = self.at_pool(axis, name, move || Tokio::start(workers));
        let rayon = self.at_pool(axis, name, move || Rayon::start(workers));
        let crossbeam = self.at_pool(axis, name, move || Crossbeam::start(workers));
        vec![
            Variant::ours(OURS, self.at_pool(axis, name, self.start())),
            Variant::peer(Tokio::NAME, tokio),
            Variant::peer(Rayon::NAME, rayon),
            Variant::peer(Crossbeam::NAME, crossbeam),
        ]
    }

    /// Returns a variant that starts and measures a pool at each place.
    fn at_pool<P: OneShotPool>(
        &self,
        axis: Axis,
        name: &'static str,
        start: impl Fn() -> Result<P, Stop> + 'static,
    ) -> impl FnMut() -> Result<Option<Sample>, Stop> + 'static {
        let (items, workers) = (self.items(), self.workers);
        let interrupt = self.settings.interrupt.clone();
        self.along(axis, move |place| {
            let pool = start()?;
            match name {
                PRODUCERS => pools::producers(pool, place, items, &interrupt),
                PENDING => pools::pending(&pool, workers, place).map(Some),
                _ => {
                    let items = OF_A_LENGTH.as_nanos() as usize / place;
                    let items = items.clamp(1, if cfg!(test) { 100 } else { MOST_OF_A_LENGTH });
                    Ok(Some(pools::length(&pool, place, items)))
                }
            }
        })
    }

    fn queues(&self, axis: Axis) -> Vec<Variant> {
        let (items, topology) = (self.items(), self.topology.clone());
        let ours = move |count| {
            let params = afterwork::params::Params::default();
            let registry = Registry::new(topology.clone(), params)
                .map_err(|error| Stop::because("cannot start our pools", error))?;
            let before = Size::now()?;
            let build = |_| {
                let builder = Workqueue::builder("lab");
                builder.affinity(AffinityScope::System).build_in(&registry)
            };
            let queues: Result<Vec<Workqueue>, _> = (0..count).map(build).collect();
            let queues = queues.map_err(|error| Stop::because("cannot build a queue", error))?;
            let grown = Size::now()?.resident.saturating_sub(before.resident);
            let cost = pools::spread(&queues, grown, items);
            drop(queues);
            registry
                .shutdown()
                .map_err(|_| Stop::CouldNotRun("a registry is still in use".into()))?;
            Ok(Some(cost))
        };
        let crossbeam = move |count| {
            let before = Size::now()?;
            let pools: Result<Vec<Crossbeam>, Stop> =
                (0..count).map(|_| Crossbeam::start(1)).collect();
            let pools = pools?;
            let grown = Size::now()?.resident.saturating_sub(before.resident);
            Ok(Some(pools::spread(&pools, grown, items)))
        };
        vec![
            Variant::ours(OURS, self.along(axis, ours)),
            Variant::peer(Crossbeam::NAME, self.along(axis, crossbeam)),
        ]
    }

    fn readers(&self, axis: Axis) -> Vec<Variant> {
        let ours = |name: &'static str| {
            let at = move |count| Ok(things::readers(&*rcu_ours::flavor(name, 0_u64), count));
            Variant::ours(name, self.along(axis, at))
        };
        let peer = |name: &'static str| {
            reclaim::flavor(name, 0_u64)?;
            let at = move |count| {
                let flavor = reclaim::flavor(name, 0_u64);
                Ok(flavor.and_then(|flavor| things::readers(&*flavor, count)))
            };
            Some(Variant::peer(name, self.along(axis, at)))
        };
        let mut variants = vec![ours(rcu_ours::RCU), ours(rcu_ours::SRCU)];
        variants.extend([EPOCH, MEMB].into_iter().filter_map(peer));
        variants
    }

    fn mailboxes(&self, axis: Axis) -> Vec<Variant> {
        let at = |cost: fn(usize) -> Result<Cost, Stop>| {
            self.along(axis, move |count| cost(count).map(Some))
        };
        vec![
            Variant::ours(OURS, at(things::mailboxes)),
            Variant::peer(STD, at(things::std_channels)),
            Variant::peer(Crossbeam::NAME, at(things::crossbeam_channels)),
        ]
    }

    fn domains(&self, axis: Axis) -> Vec<Variant> {
        let at = |count| things::domains(count).map(Some);
        vec![Variant::ours(OURS, self.along(axis, at))]
    }

    fn timers(&self, axis: Axis) -> Vec<Variant> {
        let start = self.start();
        let ours = move |count| {
            let ours = start()?;
            things::timers(count, || ours.registry().sleep(things::FAR)).map(Some)
        };
        let tokio = |count| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_time().build();
            let runtime = runtime.map_err(|error| Stop::because("cannot start tokio", error))?;
            let _entered = runtime.enter();
            things::timers(count, || tokio::time::sleep(things::FAR)).map(Some)
        };
        let async_io =
            |count| things::timers(count, || async_io::Timer::after(things::FAR)).map(Some);
        vec![
            Variant::ours(OURS, self.along(axis, ours)),
            Variant::peer(Tokio::NAME, self.along(axis, tokio)),
            Variant::peer(ASYNC_IO, self.along(axis, async_io)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_measured_along_its_axis() {
        for case in &mut cases(&Settings::of_tests(&[])).unwrap() {
            let mut came: Vec<&str> = Vec::new();
            for variant in &mut case.variants {
                let sample = (variant.run)().unwrap().unwrap();
                let (case_name, name) = (case.name, &variant.name);
                let growth = sample.value(GROWTH);
                let grows = growth.is_some_and(|it| it > 0.0);
                assert_eq!(grows, name != LARGEST.0, "{case_name}, {name}");
                let is_limit = name.starts_with('(');
                let last = sample.value(case.headline);
                assert_eq!(last.is_none(), is_limit, "{case_name}, {name}");
                let names = case.metrics.iter().map(|metric| metric.name);
                came.extend(names.filter(|name| sample.value(name).is_some()));
            }
            for metric in case.metrics {
                let comes = came.contains(&metric.name);
                assert!(comes, "{} never has {}", case.name, metric.name);
            }
            for claim in &case.claims {
                assert!(case.can_judge(claim), "{}: {claim:?}", case.name);
            }
        }
    }

    #[test]
    fn one_action_may_grow_as_log_n_but_where_it_visits_all() {
        for case in cases(&Settings::of_tests(&[])).unwrap() {
            let wanted = match case.name {
                READERS => "(n log n)",
                LENGTH => "(n)",
                _ => "(log n)",
            };
            let growth = case.claims.iter().find(|claim| claim.metric == GROWTH);
            let growth = growth.unwrap();
            assert_eq!(growth.against, wanted.into(), "{}", case.name);
            let is_claimed = growth.bound.is_some();
            assert_eq!(is_claimed, case.name != LENGTH, "{}", case.name);
        }
    }
}
