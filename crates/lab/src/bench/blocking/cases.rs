//! The cases: variants and claims.

use super::mixed::{ITEMS, Mixed, Sleep, ours, pool};
use crate::bench::settings::{Menu, Settings};
use crate::bench::workqueue::peers::{Crossbeam, Rayon, SpawnBlocking};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::{Metric, NS_PER_MS, PERCENT, lower};

const BENCH: &str = "blocking";
const MIXED: &str = "mixed";
const SPAWN_BLOCKING: &str = SpawnBlocking::NAME;

/// Names of the cases and peers.
pub const MENU: Menu = Menu {
    cases: &[MIXED],
    peers: &PEERS,
};
/// Names of the peers, as `--peers` and tables spell them.
pub const PEERS: [&str; 3] = [Crossbeam::NAME, Rayon::NAME, SPAWN_BLOCKING];

const GUARD: &str = "guard";
const SAMPLER: &str = "sampler";

const MAKESPAN: Metric = lower("makespan", "ns", ("", "all done ms"), NS_PER_MS);
const THREADS: Metric = lower("threads", "threads", ("", "threads"), 1.0);
const MANAGER: Metric = lower("manager_share", "share", ("", "looks % of a CPU"), PERCENT);

const MIXED_METRICS: &[Metric] = &[MAKESPAN, THREADS, MANAGER];

/// Creates the selected cases.
#[must_use]
pub fn cases(settings: &Settings) -> Vec<Case> {
    settings.make(MENU, |_| mixed_case(settings))
}

fn mixed_case(settings: &Settings) -> Case {
    let nr_cpus = settings.cpus.len();
    let run = |measure: fn(usize) -> Result<Mixed, top::exit::Stop>| {
        move || measure(nr_cpus).map(|mixed| Some(sample(&mixed)))
    };
    Case {
        about: format!("{ITEMS} items that burn 1 ms, sleep 5 ms and burn 1 ms"),
        variants: vec![
            Variant::ours(GUARD, run(|_| ours(Sleep::Announced))),
            Variant::ours(SAMPLER, run(|_| ours(Sleep::Unannounced))),
            Variant::peer(Crossbeam::NAME, run(|n| pool(|| Crossbeam::start(n)))),
            Variant::peer(Rayon::NAME, run(|n| pool(|| Rayon::start(n)))),
            Variant::peer(
                SPAWN_BLOCKING,
                run(|_| pool(|| SpawnBlocking::start(ITEMS))),
            ),
        ],
        claims: vec![
            claim(GUARD, MAKESPAN, "all done", Crossbeam::NAME, 0.5),
            claim(SAMPLER, MAKESPAN, "all done", Crossbeam::NAME, 0.5),
            claim(GUARD, THREADS, "threads", SPAWN_BLOCKING, 0.25),
            claim(SAMPLER, THREADS, "threads", SPAWN_BLOCKING, 0.25),
        ],
        ..Case::new(BENCH, MIXED, MIXED_METRICS, MAKESPAN.name)
    }
}

fn sample(mixed: &Mixed) -> Sample {
    let mut sample = Sample::default();
    sample.set(MAKESPAN, mixed.makespan.as_nanos() as f64);
    sample.set(THREADS, mixed.threads as f64);
    if let Some(manager) = mixed.manager {
        sample.set(
            MANAGER,
            manager.as_secs_f64() / mixed.makespan.as_secs_f64(),
        );
    }
    sample
}

fn claim(variant: &str, metric: Metric, what: &str, against: &str, most: f64) -> Claim {
    Claim::of(variant, what, metric, against).keeps(Bound::AtMost(most))
}
