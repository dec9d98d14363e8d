//! The cases: readers, updaters and variants.

use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use lab_peers::reclaim::{self, Flavor, Value};
use sync::time::cycles;
use top::interrupt::Interrupt;

use super::metrics::{
    BARRIER, BRIDGE, CALL_TO_RUN, CALLS, READ, READ_CYCLES, READS, REPLACE_LATENCY, REPLACE_MAX,
    REPLACE_MEAN, REPLACE_MIN, REPLACE_P50, REPLACE_P95, REPLACES,
};
use super::routes::Routes;
use super::scene::{self, Readers, Scope};
use super::{claims, ours};
use crate::bench::settings::{Entry, Menu, Settings, count, names};
use crate::harness::beside::least_ms;
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::latency::Latencies;
use crate::harness::metric::{Metric, Text};

pub const BENCH: &str = "rcu";
/// A case without the kernel's methods, because two readers show the same effect.
pub(super) const ONE_BUSY: &str = "replace-1-busy";
pub(super) const TWO_BUSY: &str = "replace-2-busy";
/// A case with more readers than CPUs, so that most of them are preempted in a section.
pub(super) const EIGHT_BUSY: &str = "replace-8-busy";

const CASES: [Entry<Setting>; 10] = [
    ("read", Setting::read),
    ("replace-idle", |it, name| it.replace(name, readers(0, 0, 0), "no reader")),
    ("replace-32-idle", |it, name| it.replace(name, readers(32, 0, 0), "32 readers that block")),
    (ONE_BUSY, |it, name| it.replace(name, readers(0, 1, 0), "one reader without a pause")),
    (TWO_BUSY, |it, name| it.replace(name, readers(0, 2, 0), "two readers without a pause")),
    (EIGHT_BUSY, |it, name| it.replace(name, readers(0, 8, 0), "8 readers without a pause")),
    ("updaters-8", |it, name| it.updaters(name, 8)),
    ("updaters-64", |it, name| it.updaters(name, 64)),
    ("call", Setting::call),
    ("bridge", Setting::bridge),
];

pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &lab_peers::reclaim::NAMES };

/// Options of `bench rcu`.
#[derive(Args, Clone, Debug, Default)]
pub struct RcuArgs {
    /// Replacements in each run of the replace cases, and bridges in each run of bridge, for at
    /// most 20 s; by default 100 (20000 with one or two busy readers, and of bridges) for at most
    /// 1 s
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>)]
    pub calls: Option<usize>,
}

const NR_CALLS: usize = 100;
const NR_CALLS_BUSY: usize = 20_000;
/// The pause between replacements with preempted readers, which last longer than a time slice.
const PAUSE: Duration = Duration::from_micros(200);
const NR_BRIDGES: usize = 20_000;
const BESIDE_BRIDGES: Readers = readers(0, 0, 2);

const NR_READS: usize = 10_000_000;
const NR_CALLBACKS: usize = 2_000_000;
const SPAN: Duration = Duration::from_millis(300);
/// The maximum duration with `--quick`, for any number of threads per CPU. Without `--quick`, it is
/// four times as long.
const QUICK_SPAN: Duration = Duration::from_millis(400);
const QUICK_SHARE: u32 = 10;

/// The maximum duration of a run with single replacements, each of which may take 20 ms.
const LIMIT: Duration = Duration::from_secs(1);
/// The maximum duration if `--calls` is given. A thousand replacements may take 20 ms each.
const LIMIT_ASKED: Duration = Duration::from_secs(20);

const fn readers(idle: usize, busy: usize, bursts: usize) -> Readers {
    Readers { idle, busy, bursts }
}

pub fn cases(args: &RcuArgs, settings: &Settings) -> Vec<Case> {
    let setting = Setting {
        calls: args.calls,
        limit: args.calls.map_or(LIMIT, |_| LIMIT_ASKED),
        nr_cpus: settings.cpus.len(),
        share: if settings.quick { QUICK_SHARE } else { 1 },
        interrupt: settings.interrupt.clone(),
    };
    settings.make(MENU, &CASES, &setting)
}

struct Setting {
    calls: Option<usize>,
    limit: Duration,
    nr_cpus: usize,
    share: u32,
    interrupt: Interrupt,
}

impl Setting {
    fn read(&self, name: Text) -> Case {
        let (count, interrupt) = (NR_READS / self.share as usize, self.interrupt.clone());
        let run = move |flavor: &dyn Flavor, _: &str| read(flavor, count, &interrupt);
        let about = "sections that read the value, one thread".into();
        let metrics = (&[READ, READ_CYCLES][..], READ);
        case((name, about), metrics, &ours::NAMES, NUMBER, run, claims::read())
    }

    fn call(&self, name: Text) -> Case {
        let (count, interrupt) = (NR_CALLBACKS / self.share as usize, self.interrupt.clone());
        let run = move |flavor: &dyn Flavor, _: &str| call(flavor, count, &interrupt);
        let about =
            format!("{count} callbacks from one thread, then single callbacks and barriers");
        let metrics = (&[CALLS, CALL_TO_RUN, BARRIER][..], CALLS);
        case((name, about), metrics, &ours::NAMES, NUMBER, run, claims::call())
    }

    fn replace(&self, name: Text, readers: Readers, who: &str) -> Case {
        let calls = match readers.busy {
            1 | 2 => NR_CALLS_BUSY / self.share as usize,
            _ => NR_CALLS,
        };
        let calls = self.calls.unwrap_or(calls);
        let (limit, interrupt) = (self.limits(), self.interrupt.clone());
        let least = self.least(readers.busy + 1);
        let pause = if name == EIGHT_BUSY { PAUSE } else { Duration::ZERO };
        let run = move |flavor: &dyn Flavor, name: &str| {
            let scope = Scope { calls, least, limit: limit(name).max(least), pause };
            let latencies = scene::replace_one_by_one(flavor, readers, scope, &interrupt);
            Sample::beside(latencies, |latencies| latencies.and_then(latency))
        };
        let about =
            format!("replace a value until the old one is freed, at least {calls} times; {who}");
        let mut ours =
            if name == ONE_BUSY { ours::NAMES.to_vec() } else { ours::with_kernel_ways() };
        if name == EIGHT_BUSY {
            ours.push(ours::NOT_BOOSTED);
        }
        let metrics = (REPLACE_LATENCY, REPLACE_P50);
        case((name, about), metrics, &ours, NUMBER, run, claims::replace(name))
    }

    fn bridge(&self, name: Text) -> Case {
        let least = self.least(BESIDE_BRIDGES.bursts + 1);
        let scope = Scope {
            calls: self.calls.unwrap_or(NR_BRIDGES / self.share as usize),
            least,
            limit: self.calls.map_or(LIMIT / self.share, |_| LIMIT_ASKED).max(least),
            pause: Duration::ZERO,
        };
        let interrupt = self.interrupt.clone();
        let run = move |flavor: &dyn Flavor<Routes>, _: &str| bridge(flavor, scope, &interrupt);
        let about =
            "add, configure and delete a bridge in a routing table that two threads read".into();
        let metrics = (&[BRIDGE, REPLACE_P50, REPLACE_MIN, REPLACE_MAX, READS][..], BRIDGE);
        let (ours, first) = (ours::with_kernel_ways(), Routes::resident);
        case((name, about), metrics, &ours, first, run, claims::bridge())
    }

    /// Returns the maximum duration of runs. `--quick` shortens the kernel's methods, which sleep.
    fn limits(&self) -> impl Fn(&str) -> Duration + 'static {
        let (limit, share) = (self.limit, self.share);
        move |name| {
            let is_slow = ours::KERNEL_WAYS.iter().any(|way| way.0 == name);
            if is_slow { limit / share } else { limit }
        }
    }

    /// Returns the minimum duration of a run in which each of `threads` gets its time slices.
    fn least(&self, threads: usize) -> Duration {
        // Unit tests measure nothing.
        let least_ms = if cfg!(test) { 0 } else { least_ms(threads, self.nr_cpus) };
        Duration::from_millis(least_ms)
    }

    fn updaters(&self, name: Text, updaters: usize) -> Case {
        let most = if self.share > 1 { QUICK_SPAN } else { 4 * QUICK_SPAN };
        let least = self.least(updaters + 1).min(most);
        let span = least.max(SPAN / self.share.min(3));
        let interrupt = self.interrupt.clone();
        let run = move |flavor: &dyn Flavor, _: &str| {
            let beside = readers(0, 1, 0);
            let done = scene::replace_together(flavor, beside, (updaters, span), &interrupt);
            Sample::beside(done, |done| {
                let (replaces_per_s, read) = done?;
                Some(Sample::of([(REPLACES, replaces_per_s), (READS, read.sections_per_s)]))
            })
        };
        let about = format!("{updaters} threads replace a value, one reads it without a pause");
        let metrics = (&[REPLACES, READS][..], REPLACES);
        case((name, about), metrics, &ours::NAMES, NUMBER, run, claims::updaters())
    }
}

const NUMBER: fn() -> u64 = || 0;

fn case<T: Value>(
    (name, about): (Text, String),
    (metrics, headline): (&'static [Metric], Metric),
    ours: &[&'static str],
    first: fn() -> T,
    run: impl Fn(&dyn Flavor<T>, &str) -> Option<Sample> + 'static,
    claims: Vec<Claim>,
) -> Case {
    let run = Rc::new(run);
    let flavor = move |name| match reclaim::NAMES.contains(&name) {
        true => reclaim::flavor(name, first()),
        false => Some(ours::flavor(name, first())),
    };
    let variant = |name: &'static str| {
        let run = run.clone();
        let run = move || Ok(run(&*flavor(name).expect("it was there a moment ago"), name));
        Variant::ours(name, run)
    };
    // If liburcu is missing, `about` reports it.
    let peers = reclaim::NAMES.into_iter().filter(|name| flavor(name).is_some());
    let peers = peers.map(|name| variant(name).into_peer());
    let variants = ours.iter().map(|name| variant(name)).chain(peers).collect();
    let without = if reclaim::has_liburcu() {
        ""
    } else {
        " (built without liburcu: install its headers and build again)"
    };
    Case {
        about: about + without,
        variants,
        claims,
        ..Case::new(BENCH, name, metrics, headline.name)
    }
}

fn read(flavor: &dyn Flavor, count: usize, interrupt: &Interrupt) -> Option<Sample> {
    let mut reader = flavor.reader();
    std::hint::black_box(reader.read(count / 10));
    let (begun, start) = (Instant::now(), cycles());
    std::hint::black_box(reader.read(count));
    let (end, wall) = (cycles(), begun.elapsed());
    let sample = Sample::of([
        (READ, wall.as_nanos() as f64 / count as f64),
        (READ_CYCLES, end.saturating_sub(start) as f64 / count as f64),
    ]);
    (!interrupt.requested()).then_some(sample)
}

fn latency(latencies: Latencies) -> Option<Sample> {
    let mean = Sample::of([(REPLACE_MEAN, latencies.mean_ns()?)]);
    let [min, max] = [(0.0, REPLACE_MIN), (100.0, REPLACE_MAX)];
    let percentiles = [min, (50.0, REPLACE_P50), (95.0, REPLACE_P95), max];
    Some(mean.with_percentiles(latencies, percentiles))
}

fn call(flavor: &dyn Flavor, count: usize, interrupt: &Interrupt) -> Option<Sample> {
    if !flavor.call(scene::counter(), 0) {
        return Some(Sample::default());
    }
    let many = Sample::of([(CALLS, scene::call_many(flavor, count, interrupt)?)]);
    let singly = many.with_percentiles(scene::call_singly(flavor), [(50.0, CALL_TO_RUN)]);
    Some(singly.with_percentiles(scene::barriers(flavor), [(50.0, BARRIER)]))
}

fn bridge(flavor: &dyn Flavor<Routes>, scope: Scope, interrupt: &Interrupt) -> Option<Sample> {
    let done = scene::bridges(flavor, BESIDE_BRIDGES, scope, interrupt);
    Sample::beside(done, |done| {
        let (ns, latencies, read) = done?;
        let percentiles = [(50.0, REPLACE_P50), (0.0, REPLACE_MIN), (100.0, REPLACE_MAX)];
        let sample = Sample::of([(BRIDGE, ns), (READS, read.sections_per_s)]);
        Some(sample.with_percentiles(latencies, percentiles))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::tests::run_each;

    #[test]
    fn every_flavor_runs_every_case() {
        let args = RcuArgs { calls: Some(3) };
        run_each(cases(&args, &Settings::of_tests(&[])), |case, variant, sample| {
            let headline = sample.value(case.headline);
            // A run of a few microseconds may end before a reader has run.
            let may_lack = (case.name == "call" && variant.peer) || sample.is_thrown_away();
            assert!(may_lack || headline.unwrap() > 0.0, "{} of {}", case.name, variant.name);
        });
    }
}
