//! The cases: axes, who takes part, and what is claimed.

use std::time::Duration;

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
use crate::harness::case::{Case, Variant};
use crate::harness::claim::{Bound, Claim};

const BENCH: &str = "scale";
const PRODUCERS: &str = "producers";
const QUEUES: &str = "queues";
const PENDING: &str = "pending";
const LENGTH: &str = "length";
const READERS: &str = "readers";
const MAILBOXES: &str = "mailboxes";
const TIMERS: &str = "timers";

const STD: &str = "std";
const EPOCH: &str = "crossbeam-epoch";
const MEMB: &str = "urcu-memb";
const ASYNC_IO: &str = "async-io";

/// What there is to measure, and against whom.
pub const MENU: Menu = Menu {
    cases: &[
        PRODUCERS, QUEUES, PENDING, LENGTH, READERS, MAILBOXES, TIMERS,
    ],
    peers: &[
        Tokio::NAME,
        Rayon::NAME,
        Crossbeam::NAME,
        EPOCH,
        MEMB,
        STD,
        ASYNC_IO,
    ],
};

const OURS: &str = "ours";
/// No item of ours that waits may be larger.
const LARGEST: (&str, f64) = ("(64 B)", 64.0);

/// Items that producers queue together, and that go to queues and have lengths; with `--quick`.
const ITEMS: usize = 200_000;
const ITEMS_QUICK: usize = 40_000;
/// All items of one length take about so long on one CPU.
const OF_A_LENGTH: Duration = Duration::from_millis(100);
const MOST_OF_A_LENGTH: usize = 100_000;

/// Makes the cases.
pub fn cases(settings: &Settings) -> Result<Vec<Case>, Stop> {
    let topology =
        Topology::detect().map_err(|error| Stop::because("cannot tell the CPUs", error))?;
    let setting = Setting {
        settings,
        topology,
        workers: settings.cpus.len(),
    };
    Ok(settings.make(MENU, |name| {
        let case = match name {
            PRODUCERS => setting.producers(),
            QUEUES => setting.queues(),
            PENDING => setting.pending(),
            LENGTH => setting.length(),
            READERS => setting.readers(),
            MAILBOXES => setting.mailboxes(),
            _ => setting.timers(),
        };
        apart(case, settings)
    }))
}

/// What all cases have in common.
struct Setting<'a> {
    settings: &'a Settings,
    topology: Topology,
    workers: usize,
}

/// Makes what a case is about, how it is claimed, and the variants.
struct About<'a> {
    name: &'static str,
    text: &'a str,
    axis: Axis,
    /// Bytes that one may take, and their name among the variants.
    largest: Option<(&'static str, f64)>,
}

impl Setting<'_> {
    /// Leaves out what takes long: `quick` places fewer, and of a test the first ones alone.
    fn places(&self, all: &'static [usize], quick: usize) -> &'static [usize] {
        let left_out = match (cfg!(test), self.settings.quick) {
            (true, _) => all.len() - 2,
            (false, true) => quick,
            (false, false) => 0,
        };
        &all[..all.len() - left_out]
    }

    fn items(&self) -> usize {
        match (cfg!(test), self.settings.quick) {
            (true, _) => 2_000,
            (false, true) => ITEMS_QUICK,
            (false, false) => ITEMS,
        }
    }

    /// Measures `at` each place.
    fn along(
        &self,
        axis: Axis,
        mut at: impl FnMut(usize) -> Result<Option<Cost>, Stop> + 'static,
    ) -> impl FnMut() -> Result<Option<crate::harness::case::Sample>, Stop> + 'static {
        let interrupt = self.settings.interrupt.clone();
        move || axis.measure(&mut at, &interrupt)
    }

    fn start(&self) -> impl Fn() -> Result<Ours, Stop> + Clone + 'static {
        let (topology, workers) = (self.topology.clone(), self.workers);
        move || Ours::start(&topology, Way::plain(AffinityScope::System), workers, false)
    }

    /// Ours and three pools, each measured by `at`, which gets a pool that has just been started.
    fn pools(&self, axis: Axis, at: impl AtPool) -> Vec<Variant> {
        let workers = self.workers;
        let start = self.start();
        let [ours, tokio, rayon, crossbeam] = [(); 4].map(|()| at.clone());
        vec![
            Variant::ours(
                OURS,
                self.along(axis, move |place| ours.cost(start()?, place)),
            ),
            Variant::peer(
                Tokio::NAME,
                self.along(axis, move |place| tokio.cost(Tokio::start(workers)?, place)),
            ),
            Variant::peer(
                Rayon::NAME,
                self.along(axis, move |place| rayon.cost(Rayon::start(workers)?, place)),
            ),
            Variant::peer(
                Crossbeam::NAME,
                self.along(axis, move |place| {
                    crossbeam.cost(Crossbeam::start(workers)?, place)
                }),
            ),
        ]
    }

    fn producers(&self) -> Case {
        let axis = Axis {
            places: self.places(&[1, 2, 4, 8, 16, 32, 64], 2),
            head: "ns an item, of so many producers",
            limit: Limit::LogN,
            weighs: false,
        };
        let at = Producers {
            items: self.items(),
            interrupt: self.settings.interrupt.clone(),
        };
        let about = About {
            name: PRODUCERS,
            text: "what an item takes that N producers queue; N",
            axis,
            largest: None,
        };
        about.case(self.pools(axis, at))
    }

    fn pending(&self) -> Case {
        let axis = Axis {
            places: self.places(&[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000], 1),
            head: "ns an item, of so many that wait",
            limit: Limit::LogN,
            weighs: true,
        };
        let at = Pending {
            workers: self.workers,
        };
        let about = About {
            name: PENDING,
            text: "what an item takes of N that wait while all workers are held; N",
            axis,
            largest: Some(LARGEST),
        };
        about.case(self.pools(axis, at))
    }

    fn length(&self) -> Case {
        let axis = Axis {
            places: self.places(&[1, 1_000, 10_000, 100_000, 1_000_000], 0),
            head: "ns an item that burns so many ns",
            limit: Limit::N,
            weighs: false,
        };
        let about = About {
            name: LENGTH,
            text: "what an item takes that burns N ns (1: none), on all CPUs; N",
            axis,
            largest: None,
        };
        about.case(self.pools(axis, Length))
    }

    fn queues(&self) -> Case {
        let axis = Axis {
            places: self.places(&[1, 10, 100, 1_000], 0),
            head: "ns an item, to so many queues",
            limit: Limit::LogN,
            weighs: true,
        };
        let (items, topology) = (self.items(), self.topology.clone());
        let ours = move |count| {
            let params = afterwork::params::Params::default();
            let registry = afterwork::workqueue::Registry::new(topology.clone(), params)
                .map_err(|error| Stop::because("cannot start our pools", error))?;
            let before = Size::now()?;
            let build = |_| {
                let builder = afterwork::workqueue::Workqueue::builder("lab");
                let queue = builder.scope(AffinityScope::System).build_in(&registry);
                queue.map(Queue)
            };
            let queues: Result<Vec<Queue>, _> = (0..count).map(build).collect();
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
        let about = About {
            name: QUEUES,
            text: "what an item takes to N queues in turn (crossbeam: a thread each); N",
            axis,
            largest: None,
        };
        about.case(vec![
            Variant::ours(OURS, self.along(axis, ours)),
            Variant::peer(Crossbeam::NAME, self.along(axis, crossbeam)),
        ])
    }

    fn readers(&self) -> Case {
        let axis = Axis {
            places: self.places(&[1, 10, 100, 1_000, 10_000], 1),
            head: "ns a replacement, so many readers",
            limit: Limit::NLogN,
            weighs: false,
        };
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
        let about = About {
            name: READERS,
            text: "what one replacement takes beside N readers that block; N",
            axis,
            largest: None,
        };
        let mut case = about.case(variants);
        for claim in &mut case.claims {
            claim.variant = rcu_ours::RCU.into();
            claim.what = claim.what.replacen(OURS, rcu_ours::RCU, 1);
        }
        case
    }

    fn mailboxes(&self) -> Case {
        let axis = Axis {
            places: self.places(&[1, 10, 100, 1_000, 10_000, 100_000], 1),
            head: "ns a message, so many mailboxes",
            limit: Limit::LogN,
            weighs: true,
        };
        let at = |cost: fn(usize) -> Result<Cost, Stop>| {
            self.along(axis, move |count| cost(count).map(Some))
        };
        let about = About {
            name: MAILBOXES,
            text: "what a post and its receipt take, N mailboxes in turn; N",
            axis,
            largest: None,
        };
        about.case(vec![
            Variant::ours(OURS, at(things::mailboxes::<things::Ours>)),
            Variant::peer(STD, at(things::mailboxes::<things::Std>)),
            Variant::peer(Crossbeam::NAME, at(things::mailboxes::<things::Crossbeam>)),
        ])
    }

    fn timers(&self) -> Case {
        let all = &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
        let axis = Axis {
            places: self.places(all, 2),
            head: "ns a sleep, of so many at once",
            limit: Limit::LogN,
            weighs: true,
        };
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
        let about = About {
            name: TIMERS,
            text: "what it takes to begin one sleep of N at once and give it up; N",
            axis,
            largest: None,
        };
        about.case(vec![
            Variant::ours(OURS, self.along(axis, ours)),
            Variant::peer(Tokio::NAME, self.along(axis, tokio)),
            Variant::peer(ASYNC_IO, self.along(axis, async_io)),
        ])
    }
}

impl About<'_> {
    /// Makes the case with the limit among its variants, and the claims on what is ours.
    fn case(self, mut variants: Vec<Variant>) -> Case {
        let Self {
            name,
            text,
            axis,
            largest,
        } = self;
        let at_most = |what: &str, metric: &'static str, limit: &str| {
            let claim = Claim::of(OURS, what, metric, limit);
            claim.keeps(Bound::AtMost(1.0))
        };
        let mut growth = at_most("growth for each doubling", GROWTH, axis.limit.name());
        if axis.limit == Limit::N {
            // Items that burn n cost no less than n: that they grow no faster says nothing of a pool, and is only shown.
            growth.bound = None;
        }
        let mut claims = vec![growth];
        let limit = move || Ok(Some(axis.limit()));
        variants.push(Variant::ours(axis.limit.name(), limit));
        if let Some((largest, bytes)) = largest {
            claims.push(at_most("bytes each", axis.last_bytes(), largest));
            let room = move || Ok(Some(axis.room(bytes)));
            variants.push(Variant::ours(largest, room));
        }
        let [first, .., last] = axis.places else {
            unreachable!("an axis has two ends");
        };
        Case {
            bench: BENCH,
            name,
            about: format!("{text} is {first} to {last}"),
            metrics: axis.metrics(),
            headline: axis.last_time(),
            variants,
            claims,
        }
    }
}

/// How much an item costs at a place.
trait AtPool: Clone + 'static {
    fn cost(&self, pool: impl OneShotPool, place: usize) -> Result<Option<Cost>, Stop>;
}

#[derive(Clone)]
struct Producers {
    items: usize,
    interrupt: top::interrupt::Interrupt,
}

#[derive(Clone)]
struct Pending {
    workers: usize,
}

#[derive(Clone)]
struct Length;

impl AtPool for Producers {
    fn cost(&self, pool: impl OneShotPool, place: usize) -> Result<Option<Cost>, Stop> {
        pools::producers(pool, place, self.items, &self.interrupt)
    }
}

impl AtPool for Pending {
    fn cost(&self, pool: impl OneShotPool, place: usize) -> Result<Option<Cost>, Stop> {
        pools::pending(&pool, self.workers, place).map(Some)
    }
}

impl AtPool for Length {
    fn cost(&self, pool: impl OneShotPool, place: usize) -> Result<Option<Cost>, Stop> {
        let items = OF_A_LENGTH.as_nanos() as usize / place;
        let items = items.clamp(1, if cfg!(test) { 100 } else { MOST_OF_A_LENGTH });
        Ok(Some(pools::length(&pool, place, items)))
    }
}

/// A queue of pools that many share.
struct Queue(afterwork::workqueue::Workqueue);

impl OneShotPool for Queue {
    #[inline]
    fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.0.spawn_detached(work);
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
