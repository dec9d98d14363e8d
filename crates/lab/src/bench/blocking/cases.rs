//! The cases: who takes part, and what is claimed.

use super::args::BlockingArgs;
use super::detect::{Sleep, detect};
use super::mixed::{ITEMS, Mixed, SpawnBlocking, ours, pool};
use crate::bench::session::Settings;
use crate::bench::workqueue::peers::{Crossbeam, Rayon};
use crate::measure::case::{Case, Sample, Variant};
use crate::measure::claim::{Against, Bound, Claim, Source};
use crate::measure::metric::{Metric, NS_PER_MS, NS_PER_US, PERCENT, lower};

const BENCH: &str = "blocking";
const DETECT: &str = "detect";
const MIXED: &str = "mixed";
const SPAWN_BLOCKING: &str = "spawn_blocking";

/// As `--cases` and tables spell them.
pub const CASES: [&str; 2] = [DETECT, MIXED];
/// As `--peers` and tables spell them.
pub const PEERS: [&str; 3] = [Crossbeam::NAME, Rayon::NAME, SPAWN_BLOCKING];

const GUARD: &str = "guard";
const SAMPLER: &str = "sampler";
/// Not ways to be found out but limits: how soon each is to be.
const HALF_MS: &str = "(0.5 ms)";
const THREE_MS: &str = "(3 ms)";

const P50: &str = "to_run_p50";
const P90: &str = "to_run_p90";
const LONGEST: &str = "to_run_max";
const MAKESPAN: &str = "makespan";
const THREADS: &str = "threads";
const MANAGER: &str = "manager_share";

/// Rounds of a run of `detect`, 14 ms each: enough for a p90.
const ROUNDS: usize = 40;
const ROUNDS_QUICK: usize = 15;

const TO_RUN: &str = "asleep to run us";

const DETECT_METRICS: &[Metric] = &[
    lower(P50, "ns", (TO_RUN, "p50"), NS_PER_US),
    lower(P90, "ns", (TO_RUN, "p90"), NS_PER_US),
    lower(LONGEST, "ns", (TO_RUN, "max"), NS_PER_US),
];

const MIXED_METRICS: &[Metric] = &[
    lower(MAKESPAN, "ns", ("", "all done ms"), NS_PER_MS),
    lower(THREADS, "threads", ("", "threads"), 1.0),
    lower(MANAGER, "share", ("", "looks % of a CPU"), PERCENT),
];

/// Makes the cases that `args` ask for.
#[must_use]
pub fn cases(args: &BlockingArgs, settings: &Settings) -> Vec<Case> {
    args.pick.make(|name| match name {
        DETECT => detect_case(settings),
        _ => mixed_case(settings),
    })
}

fn detect_case(settings: &Settings) -> Case {
    let rounds = if settings.quick { ROUNDS_QUICK } else { ROUNDS };
    let found = |name, sleep| {
        let interrupt = settings.interrupt.clone();
        Variant::ours(name, move || {
            let latencies = detect(sleep, rounds, &interrupt)?;
            Ok(latencies.map(|latencies| {
                let mut sample = Sample::default();
                if let Some([p50, p90, longest]) = latencies.percentiles_ns([50.0, 90.0, 100.0]) {
                    sample.set(P50, p50);
                    sample.set(P90, p90);
                    sample.set(LONGEST, longest);
                }
                sample
            }))
        })
    };
    let limit = |name, ns| {
        Variant::ours(name, move || {
            let mut sample = Sample::default();
            sample.set(P50, ns);
            sample.set(P90, ns);
            Ok(Some(sample))
        })
    };
    Case {
        bench: BENCH,
        name: DETECT,
        about: format!(
            "an item sleeps on a pool of one CPU; how long until the next one runs; {rounds} rounds"
        ),
        metrics: DETECT_METRICS,
        headline: P50,
        variants: vec![
            found(GUARD, Sleep::Told),
            found(SAMPLER, Sleep::Untold),
            limit(HALF_MS, 5e5),
            limit(THREE_MS, 3e6),
        ],
        claims: vec![
            claim(GUARD, P50, "asleep to run, p50", HALF_MS, 1.0).beside(Source::prototype("0.42")),
            claim(GUARD, P90, "asleep to run, p90", HALF_MS, 1.0),
            claim(SAMPLER, P50, "asleep to run, p50", THREE_MS, 1.0)
                .beside(Source::prototype("0.67")),
            claim(SAMPLER, P90, "asleep to run, p90", THREE_MS, 1.0),
        ],
    }
}

fn mixed_case(settings: &Settings) -> Case {
    let nr_cpus = settings.cpus.len();
    let run = |measure: fn(usize) -> Result<Mixed, crate::exit::Stop>| {
        move || measure(nr_cpus).map(|mixed| Some(sample(&mixed)))
    };
    Case {
        bench: BENCH,
        name: MIXED,
        about: format!("{ITEMS} items that burn 1 ms, sleep 5 ms and burn 1 ms"),
        metrics: MIXED_METRICS,
        headline: MAKESPAN,
        variants: vec![
            Variant::ours(GUARD, run(|_| ours(Sleep::Told))),
            Variant::ours(SAMPLER, run(|_| ours(Sleep::Untold))),
            Variant::peer(Crossbeam::NAME, run(|n| pool(|| Crossbeam::start(n)))),
            Variant::peer(Rayon::NAME, run(|n| pool(|| Rayon::start(n)))),
            Variant::peer(SPAWN_BLOCKING, run(|_| pool(SpawnBlocking::start))),
        ],
        claims: vec![
            claim(GUARD, MAKESPAN, "all done", Crossbeam::NAME, 0.5)
                .beside(Source::prototype("0.37")),
            claim(SAMPLER, MAKESPAN, "all done", Crossbeam::NAME, 0.5),
            claim(GUARD, THREADS, "threads", SPAWN_BLOCKING, 0.25)
                .beside(Source::prototype("0.05 to 0.13")),
            claim(SAMPLER, THREADS, "threads", SPAWN_BLOCKING, 0.25),
        ],
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

fn claim(variant: &str, metric: &'static str, what: &str, against: &str, most: f64) -> Claim {
    Claim {
        what: format!("{variant}, {what}"),
        variant: variant.into(),
        metric,
        against: Against::Variant(against.into()),
        bound: Some(Bound::AtMost(most)),
        source: None,
    }
}
