//! The cases: how many read and replace, and who takes part.

use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use lab_peers::reclaim::{self, Flavor};
use sync::time::cycles;
use top::interrupt::Interrupt;

use super::metrics::{
    BARRIER, CALL_TO_RUN, CALLBACKS, CALLS, READ, READ_CYCLES, READS, READS_ALONE, REPLACE_LATENCY,
    REPLACE_MAX, REPLACE_MEAN, REPLACE_MIN, REPLACE_P50, REPLACE_P95, REPLACES, UPDATERS,
};
use super::scene::{self, Readers, Scope};
use super::{claims, ours};
use crate::bench::settings::{Menu, Settings, count};
use crate::harness::beside::least_ms;
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::latency::Latencies;
use crate::harness::metric::Metric;

/// Its name.
pub const BENCH: &str = "rcu";
const READ_CASE: &str = "read";
const CALL_CASE: &str = "call";
pub(super) const ONE_BUSY: &str = "replace-1-busy";
pub(super) const TWO_BUSY: &str = "replace-2-busy";
/// More readers than CPUs: most are preempted in a section.
pub(super) const EIGHT_BUSY: &str = "replace-8-busy";

/// What there is to measure, and against whom.
pub const MENU: Menu = Menu {
    cases: &[
        READ_CASE,
        "replace-idle",
        "replace-32-idle",
        ONE_BUSY,
        TWO_BUSY,
        EIGHT_BUSY,
        "updaters-8",
        "updaters-64",
        CALL_CASE,
    ],
    peers: &lab_peers::reclaim::NAMES,
};

/// What to replace, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct RcuArgs {
    /// Replacements of each run of the replace cases, for at most 20 s; without, 100 for at most a second, and 20000
    /// beside one or two busy readers
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>)]
    pub calls: Option<usize>,
}

/// The cases of single replacements and the readers beside them.
const REPLACE_CASES: [(&str, Readers, &str); 5] = [
    ("replace-idle", readers(0, 0), "no reader"),
    ("replace-32-idle", readers(32, 0), "32 readers that block"),
    (ONE_BUSY, readers(0, 1), "one reader without a pause"),
    (TWO_BUSY, readers(0, 2), "two readers without a pause"),
    (EIGHT_BUSY, readers(0, 8), "8 readers without a pause"),
];

const NR_CALLS: usize = 100;
/// Beside readers that do not lose their CPU: a hundred are over before a cache line has gone to and fro.
const NR_CALLS_BUSY: usize = 20_000;
/// What lies between replacements where readers are to lose their CPU meanwhile: a hundred without it may be over within a
/// time slice.
const PAUSE: Duration = Duration::from_micros(200);

/// Sections of a figure of `read`, and callbacks of one of `call`, enough that the wake-up before the first is no part of it; a tenth
/// of them with `--quick`.
const NR_READS: usize = 10_000_000;
const NR_CALLBACKS: usize = 2_000_000;
/// How long updaters update together.
const SPAN: Duration = Duration::from_millis(300);
/// And at most with `--quick`, however many share the CPUs with the reader; four times as long without.
const QUICK_SPAN: Duration = Duration::from_millis(400);
const QUICK_SHARE: u32 = 10;

/// How long a run of single replacements lasts at most: with preempted readers one may take 20 ms.
const LIMIT: Duration = Duration::from_secs(1);
/// The same where somebody asked for a number of calls: a thousand that wait 20 ms each.
const LIMIT_ASKED: Duration = Duration::from_secs(20);

const fn readers(idle: usize, busy: usize) -> Readers {
    Readers { idle, busy }
}

/// Makes the cases that `args` ask for.
#[must_use]
pub fn cases(args: &RcuArgs, settings: &Settings) -> Vec<Case> {
    let setting = Setting {
        calls: args.calls,
        limit: args.calls.map_or(LIMIT, |_| LIMIT_ASKED),
        nr_cpus: settings.cpus.len(),
        share: if settings.quick { QUICK_SHARE } else { 1 },
        interrupt: settings.interrupt.clone(),
    };
    settings.make(MENU, |name| setting.case(name))
}

/// What all cases have in common.
struct Setting {
    /// Replacements that were asked for.
    calls: Option<usize>,
    /// How long a run of replacements lasts at most.
    limit: Duration,
    nr_cpus: usize,
    /// What sizes are divided by.
    share: u32,
    interrupt: Interrupt,
}

impl Setting {
    fn case(&self, name: &'static str) -> Case {
        let interrupt = self.interrupt.clone();
        match name {
            READ_CASE => {
                let count = NR_READS / self.share as usize;
                let run = move |flavor: &dyn Flavor| read(flavor, count, &interrupt);
                let about = "a section with a look at the value, one thread".into();
                let (metrics, claims) = ((READS_ALONE, READ), claims::read());
                case((name, about), metrics, run, claims)
            }
            CALL_CASE => {
                let count = NR_CALLBACKS / self.share as usize;
                let run = move |flavor: &dyn Flavor| call(flavor, count, &interrupt);
                let about = format!("{count} callbacks from one thread; single ones; barriers");
                let (metrics, claims) = ((CALLBACKS, CALLS), claims::call());
                case((name, about), metrics, run, claims)
            }
            "updaters-8" => self.updaters(name, 8),
            "updaters-64" => self.updaters(name, 64),
            _ => self.replace(name),
        }
    }

    fn replace(&self, name: &'static str) -> Case {
        let found = REPLACE_CASES.iter().find(|case| case.0 == name);
        let &(_, readers, who) = found.expect("`CASES` and `REPLACE_CASES` agree");
        let calls = match readers.busy {
            1 | 2 => NR_CALLS_BUSY / self.share as usize,
            _ => NR_CALLS,
        };
        let calls = self.calls.unwrap_or(calls);
        let (limit, interrupt) = (self.limit, self.interrupt.clone());
        let least = self.least(readers.busy + 1);
        let pause = if name == EIGHT_BUSY {
            PAUSE
        } else {
            Duration::ZERO
        };
        let run = move |flavor: &dyn Flavor| {
            let scope = Scope {
                calls,
                least,
                limit: limit.max(least),
                pause,
            };
            let latencies = scene::replace_one_by_one(flavor, readers, scope, &interrupt);
            Sample::beside(latencies, |latencies| latencies.and_then(latency))
        };
        let about = format!("replace until the old is freed, {calls} times or more; {who}");
        let (metrics, claims) = ((REPLACE_LATENCY, REPLACE_P50), claims::replace(name));
        case((name, about), metrics, run, claims)
    }

    /// Returns how long a run has to last so that each of `threads` has its turns.
    fn least(&self, threads: usize) -> Duration {
        // A test measures nothing.
        let least_ms = if cfg!(test) {
            0
        } else {
            least_ms(threads, self.nr_cpus)
        };
        Duration::from_millis(least_ms)
    }

    fn updaters(&self, name: &'static str, updaters: usize) -> Case {
        let most = if self.share > 1 {
            QUICK_SPAN
        } else {
            4 * QUICK_SPAN
        };
        let least = self.least(updaters + 1).min(most);
        let span = least.max(SPAN / self.share.min(3));
        let interrupt = self.interrupt.clone();
        let run = move |flavor: &dyn Flavor| {
            let beside = readers(0, 1);
            let done = scene::replace_together(flavor, beside, (updaters, span), &interrupt);
            Sample::beside(done, |done| {
                let (replaces_per_s, read) = done?;
                let mut sample = Sample::default();
                sample.set(REPLACES, replaces_per_s);
                sample.set(READS, read.nr_sections as f64 / read.wall.as_secs_f64());
                Some(sample)
            })
        };
        let about = format!("{updaters} threads replace, one reads without a pause");
        let (metrics, claims) = ((UPDATERS, REPLACES), claims::updaters());
        case((name, about), metrics, run, claims)
    }
}

/// Makes a case with our flavors and all peers.
fn case(
    (name, about): (&'static str, String),
    (metrics, headline): (&'static [Metric], Metric),
    run: impl Fn(&dyn Flavor) -> Option<Sample> + 'static,
    claims: Vec<Claim>,
) -> Case {
    let run = Rc::new(run);
    let once = |make: fn(&str) -> Option<Box<dyn Flavor>>, name: &'static str| {
        let run = run.clone();
        move || Ok(run(&*make(name).expect("it was there before")))
    };
    let mut variants = Vec::new();
    for name in ours::NAMES {
        let make = |name: &str| Some(ours::flavor(name, 0));
        variants.push(Variant::ours(name, once(make, name)));
    }
    for name in reclaim::NAMES {
        // liburcu is skipped with a word, in `about`.
        let make = |name: &str| reclaim::flavor(name, 0);
        if make(name).is_some() {
            variants.push(Variant::peer(name, once(make, name)));
        }
    }
    let without = if reclaim::has_liburcu() {
        ""
    } else {
        " (built without liburcu: install its headers and build again)"
    };
    Case {
        bench: BENCH,
        name,
        about: about + without,
        metrics,
        headline: headline.name,
        variants,
        claims,
    }
}

fn read(flavor: &dyn Flavor, count: usize, interrupt: &Interrupt) -> Option<Sample> {
    let mut reader = flavor.reader();
    std::hint::black_box(reader.read(count / 10));
    let (begun, start) = (Instant::now(), cycles());
    std::hint::black_box(reader.read(count));
    let (end, wall) = (cycles(), begun.elapsed());
    let mut sample = Sample::default();
    sample.set(READ, wall.as_nanos() as f64 / count as f64);
    sample.set(READ_CYCLES, end.saturating_sub(start) as f64 / count as f64);
    (!interrupt.requested()).then_some(sample)
}

fn latency(latencies: Latencies) -> Option<Sample> {
    let mut sample = Sample::default();
    sample.set_curve("until freed", &latencies);
    sample.set(REPLACE_MEAN, latencies.mean_ns()?);
    let [min, p50, p95, max] = latencies.percentiles_ns([0.0, 50.0, 95.0, 100.0])?;
    sample.set(REPLACE_MIN, min);
    sample.set(REPLACE_P50, p50);
    sample.set(REPLACE_P95, p95);
    sample.set(REPLACE_MAX, max);
    Some(sample)
}

fn call(flavor: &dyn Flavor, count: usize, interrupt: &Interrupt) -> Option<Sample> {
    let mut sample = Sample::default();
    let Some(calls) = flavor.calls() else {
        return Some(sample);
    };
    sample.set(CALLS, scene::call_many(calls, count, interrupt)?);
    sample.set_percentiles(scene::call_singly(calls), [(50.0, CALL_TO_RUN)]);
    sample.set_percentiles(scene::barriers(calls), [(50.0, BARRIER)]);
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flavor_runs_every_case() {
        let args = RcuArgs { calls: Some(3) };
        for case in &mut cases(&args, &Settings::of_tests(&[])) {
            for variant in &mut case.variants {
                let sample = (variant.run)().unwrap().unwrap();
                let headline = sample.value(case.headline);
                // A run of microseconds may be over before a reader has had its turn.
                let may_lack = (case.name == CALL_CASE && variant.peer) || sample.is_thrown_away();
                let name = format!("{} of {}", case.name, variant.name);
                assert!(may_lack || headline.unwrap() > 0.0, "{name}");
            }
        }
    }
}
