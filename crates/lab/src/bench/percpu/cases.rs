//! The cases: guards of the cache, and ways to drain it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use afterwork::percpu::Qpw;
use clap::Args;

use super::busy::{self, Beside};
use super::isolation::{self, Way};
use super::metrics::{ALLOC, BUSY, CALLS, CYCLES, DRAIN_P50, INTERRUPTS, ISOLATION, SWITCHES};
use super::turns::Turns;
use crate::bench::settings::{Entry, Menu, Settings, Sizes, count, may_set_fifo, names};
use crate::harness::case::{Case, Ran, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::handover::ends;
use crate::harness::metric::Text;

const BENCH: &str = "percpu";
type Setting = (Settings, usize);
const CASES: [Entry<Setting, Option<Case>>; 5] = [
    ("alloc-warm", |(settings, _), name| Some(alloc(name, settings))),
    ("isolation", isolated),
    ("busy-owner", |it, name| busy(name, Beside::Quiet, "", it)),
    ("busy-owner-loaded", |it, name| busy(name, Beside::Load, ", and a thread burns each CPU", it)),
    ("busy-owner-fifo", |it, name| {
        busy(name, Beside::FifoCaller, ", the caller a SCHED_FIFO thread", it)
    }),
];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: PEERS };

/// Options of `bench percpu`.
#[derive(Args, Clone, Debug, Default)]
pub struct PercpuArgs {
    /// Drains in each run of `isolation` [default: 2000, with --quick 400]
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>)]
    pub drains: Option<usize>,
}

pub(super) const UNPROTECTED: &str = "unprotected";
pub(super) const QUEUE: &str = "queue (off)";
pub(super) const ON_DEMAND: &str = "on_demand";
pub(super) const EVERY_OP: &str = "every_op (on)";
pub(super) const STD_MUTEX: &str = "std Mutex";
pub(super) const PARKING_LOT: &str = "parking_lot";
pub(super) const THREAD_LOCAL: &str = "thread_local";
pub(super) const COMPILED_OUT: &str = "compiled out";
pub(super) const BY_TRY: &str = "queue by try";

const QUEUED: &str = "queued to a worker";
const PARKED: &str = "parked";
const QUIET: &str = "quiet";

/// The variants: a drain as programs implement it today, and the guards of a list.
const NAMES: [&str; 10] = [
    QUEUED,
    UNPROTECTED,
    STD_MUTEX,
    PARKING_LOT,
    THREAD_LOCAL,
    QUEUE,
    ON_DEMAND,
    EVERY_OP,
    COMPILED_OUT,
    BY_TRY,
];
const PEERS: &[&str] = NAMES.split_at(5).0;
const GUARDS: &[&str] = NAMES.split_at(1).1;

const WAYS: [(&str, Way); 5] = [
    (QUIET, Way::Quiet),
    (QUEUED, Way::QueuedToWorker),
    (ON_DEMAND, Way::OnDemand),
    (EVERY_OP, Way::EveryOp),
    (PARKED, Way::Parked),
];

const BUSY_GUARDS: [(&str, Option<Qpw>); 4] = [
    (STD_MUTEX, None),
    (QUEUE, Some(Qpw::Queue)),
    (ON_DEMAND, Some(Qpw::OnDemand)),
    (EVERY_OP, Some(Qpw::EveryOp)),
];

const NR_DRAINS: Sizes = [2_000, 400];
const BUSY_MS: Sizes<u64> = [2_000, 500];

pub fn cases(args: &PercpuArgs, settings: &Settings) -> Vec<Case> {
    let nr_drains = settings.size(args.drains, NR_DRAINS);
    settings.make(MENU, &CASES, &(settings.clone(), nr_drains))
}

fn variant(name: &str, run: impl FnMut() -> Ran + 'static) -> Variant {
    let variant = Variant::ours(name, run);
    let peer = PEERS.contains(&name);
    Variant { peer, ..variant }
}

fn alloc(name: Text, settings: &Settings) -> Case {
    let cpu = settings.cpus.last().copied();
    let turns = Rc::new(RefCell::new(Turns::new(cpu, &settings.interrupt)));
    let guard = |name: &'static str| {
        let turns = turns.clone();
        let run = move || {
            let cycles = turns.borrow_mut().take(name)?;
            Ok(cycles.map(|cycles| Sample::of([(CYCLES, cycles)])))
        };
        variant(name, run)
    };
    Case {
        about: "objects of 64 bytes from a list that fits the first cache, shuffled within 4 KiB, all guards by turns".into(),
        variants: GUARDS.iter().copied().map(guard).collect(),
        claims: vec![
            // The first two claims allow one cycle more than the usual four.
            Claim::at_most(QUEUE, CYCLES, UNPROTECTED, 1.25),
            Claim::at_most(ON_DEMAND, CYCLES, UNPROTECTED, 1.25),
            Claim::at_most(EVERY_OP, CYCLES, STD_MUTEX, 0.55),
        ],
        ..Case::new(BENCH, name, ALLOC, CYCLES.name)
    }
}

fn isolated(&(ref settings, nr_drains): &Setting, name: Text) -> Option<Case> {
    let cpus = ends(&settings.cpus)?;
    let way = |(name, way): (&str, Way)| {
        let interrupt = settings.interrupt.clone();
        let run = move || {
            let sample = isolation::run(way, nr_drains, cpus, &interrupt)?;
            Ok(Sample::beside(sample, |sample| sample))
        };
        variant(name, run)
    };
    let thread = if may_set_fifo() {
        "a SCHED_FIFO thread"
    } else {
        "an ordinary thread (no right to SCHED_FIFO)"
    };
    // The requesting thread drains the slot itself, and is compared with a worker that must be
    // woken. The claim about interrupts allows additional timer ticks, one or two in about a
    // hundred interrupts.
    let bounds =
        [(DRAIN_P50, QUEUED, 1.0 / 30.0), (SWITCHES, QUEUED, 0.01), (INTERRUPTS, QUIET, 1.05)];
    let claims = bounds.into_iter().flat_map(|(metric, against, most)| {
        [EVERY_OP, ON_DEMAND, PARKED].map(|way| Claim::at_most(way, metric, against, most))
    });
    Some(Case {
        about: format!(
            "{thread} loops on CPU {}, drained {nr_drains} times from CPU {}",
            cpus.1, cpus.0
        ),
        variants: WAYS.map(way).into(),
        claims: claims.collect(),
        ..Case::new(BENCH, name, ISOLATION, DRAIN_P50.name)
    })
}

fn busy(name: Text, beside: Beside, more: &str, (settings, _): &Setting) -> Option<Case> {
    let span = Duration::from_millis(settings.sized(BUSY_MS, 10));
    let guard = |(name, qpw): (&'static str, Option<Qpw>)| {
        let interrupt = settings.interrupt.clone();
        let run = move || {
            let sample = match qpw {
                None => busy::on_mutex(beside, span, &interrupt),
                Some(qpw) => busy::on_slot(qpw, beside, span, &interrupt)?,
            };
            Ok((!interrupt.requested()).then_some(sample))
        };
        variant(name, run)
    };
    let claim = |way| Claim::at_least(way, CALLS, STD_MUTEX, 0.5);
    Some(Case {
        about: format!(
            "calls for {span:?}, whose owner operates for 30 us at a time without a pause{more}"
        ),
        variants: BUSY_GUARDS.map(guard).into(),
        claims: [QUEUE, ON_DEMAND, EVERY_OP].map(claim).into(),
        ..Case::new(BENCH, name, BUSY, CALLS.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::tests::run_each;

    #[test]
    fn every_guard_and_every_way_is_measured() {
        let args = PercpuArgs { drains: Some(20) };
        run_each(cases(&args, &Settings::of_tests(&[])), |case, variant, sample| {
            // The quiet run has no drains.
            let metric = if variant.name == QUIET { SWITCHES.name } else { case.headline };
            // The victim may lose its CPU for most of a short run.
            let was_beside = !sample.is_thrown_away();
            let has_value = sample.value(metric).is_some_and(|value| value >= 0.0);
            assert!(!was_beside || has_value, "{}", variant.name);
        });
    }
}
