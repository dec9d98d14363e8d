//! The cases: variants and claims.

use topology::AffinityScope;

use super::detect::{Sleep, detect, start};
use super::mixed::{self, ITEMS};
use crate::bench::settings::{Entry, Menu, Settings, Sizes, names};
use crate::bench::workqueue::peers::{Crossbeam, Peer, Rayon, SpawnBlocking};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::metric::{Metric, NS_PER_MS, NS_PER_US, PERCENT, Text, lower};

const BENCH: &str = "blocking";
const SPAWN_BLOCKING: &str = SpawnBlocking::NAME;

const CASES: [Entry<Settings>; 2] = [("detect", detect_case), ("mixed", mixed_case)];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &PEERS };
pub const PEERS: [&str; 3] = [Crossbeam::NAME, Rayon::NAME, SPAWN_BLOCKING];

const GUARD: &str = "guard";
const SAMPLER: &str = "sampler";
/// The limits for the time until the next item runs, with a guard and with the sampler.
const HALF_MS: &str = "(0.5 ms)";
const THREE_MS: &str = "(3 ms)";

const P50: Metric = lower("to_run_p50", "ns", (TO_RUN, "p50"), NS_PER_US);
const P90: Metric = lower("to_run_p90", "ns", (TO_RUN, "p90"), NS_PER_US);
const LONGEST: Metric = lower("to_run_max", "ns", (TO_RUN, "max"), NS_PER_US);
pub const MAKESPAN: Metric = lower("makespan", "ns", ("", "all done ms"), NS_PER_MS);
pub const THREADS: Metric = lower("threads", "threads", ("", "threads"), 1.0);
pub const MANAGER: Metric = lower("manager_share", "share", ("", "manager % of a CPU"), PERCENT);

/// The number of rounds in a run of `detect`, of 14 ms each. It is large enough for a 90th
/// percentile.
const ROUNDS: Sizes = [40, 15];

const TO_RUN: &str = "asleep to run us";

pub fn cases(settings: &Settings) -> Vec<Case> {
    settings.make(MENU, &CASES, settings)
}

fn detect_case(settings: &Settings, name: Text) -> Case {
    let rounds = settings.size(None, ROUNDS);
    let found = |variant, sleep| {
        let interrupt = settings.interrupt.clone();
        Variant::ours(variant, move || {
            let latencies = detect(sleep, rounds, &interrupt)?;
            let percentiles = [(50.0, P50), (90.0, P90), (100.0, LONGEST)];
            Ok(latencies.map(|it| Sample::default().with_percentiles(it, percentiles)))
        })
    };
    let limit =
        |name, ns| Variant::ours(name, move || Ok(Some(Sample::of([(P50, ns), (P90, ns)]))));
    Case {
        about: format!(
            "an item sleeps on a pool of one CPU; how long until the next one runs; {rounds} rounds"
        ),
        variants: vec![
            found(GUARD, Sleep::Announced),
            found(SAMPLER, Sleep::Unannounced),
            limit(HALF_MS, 5e5),
            limit(THREE_MS, 3e6),
        ],
        claims: vec![
            Claim::at_most(GUARD, P50, HALF_MS, 1.0),
            Claim::at_most(GUARD, P90, HALF_MS, 1.0),
            Claim::at_most(SAMPLER, P50, THREE_MS, 1.0),
            Claim::at_most(SAMPLER, P90, THREE_MS, 1.0),
        ],
        ..Case::new(BENCH, name, &[P50, P90, LONGEST], P50.name)
    }
}

fn mixed_case(settings: &Settings, name: Text) -> Case {
    let nr_cpus = settings.cpus.len();
    let ours = |sleep| move || mixed::run(sleep, || start(AffinityScope::System));
    Case {
        about: format!("{ITEMS} items that burn 1 ms, sleep 5 ms and burn 1 ms"),
        variants: vec![
            Variant::ours(GUARD, ours(Sleep::Announced)),
            Variant::ours(SAMPLER, ours(Sleep::Unannounced)),
            peer::<Crossbeam>(nr_cpus),
            peer::<Rayon>(nr_cpus),
            peer::<SpawnBlocking>(ITEMS),
        ],
        claims: vec![
            Claim::at_most(GUARD, MAKESPAN, Crossbeam::NAME, 0.5),
            Claim::at_most(SAMPLER, MAKESPAN, Crossbeam::NAME, 0.5),
            Claim::at_most(GUARD, THREADS, SPAWN_BLOCKING, 0.25),
            Claim::at_most(SAMPLER, THREADS, SPAWN_BLOCKING, 0.25),
        ],
        ..Case::new(BENCH, name, &[MAKESPAN, THREADS, MANAGER], MAKESPAN.name)
    }
}

fn peer<P: Peer>(nr_threads: usize) -> Variant {
    Variant::peer(P::NAME, move || mixed::run(Sleep::Unannounced, || P::start(nr_threads)))
}
