//! Torture of per-CPU data: owners that come, park and go, callers of every kind, all of them wandering, by the dice.
//!
//! `cargo xtask torture percpu --minutes 5 --seed 7`; five seconds and a seed of the clock without. It prints its seed.
//!
//! Every operation adds to a slot, and its thread counts what it added. In the end the sum is exact. Threads change their
//! CPU all the time, and CPUs are said to be gone that are not. Panics happen inside. Mail that is lost shows as a sum
//! that is short, a slot that is lost as a round that does not end.
#![cfg(not(any(loom, shuttle)))]

mod support;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use afterwork::percpu::{Escalate, Owner, PerCpu, Qpw};
use support::{Dice, Planned, Round};
use topology::{CpuId, CpuSet, Topology};

const NR_CPUS: u32 = 4;
const NR_OWNERS: usize = 4;
const NR_CALLERS: usize = 4;
const NR_STEPS: usize = 200;
/// What the slots are; the dice decide about all else.
const CONFIGS: &[&str] = &["any", "queue", "on_demand", "breakable", "every_op"];

fn main() -> ExitCode {
    support::torture("per-CPU data", CONFIGS, round)
}

#[derive(Debug, Default)]
struct Totals {
    nr_added: u64,
    nr_refused: u64,
    nr_panics: u64,
}

/// What all threads of a round add up.
#[derive(Default)]
struct Tally {
    added: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
}

impl Tally {
    fn add(&self, count: u64) {
        self.added.fetch_add(count, Ordering::Relaxed);
    }
}

fn round(round: &Round<'_>, totals: &mut Totals) {
    let mut dice = Dice::new(round.seed);
    let slots = slots(round.config, &mut dice);
    let tally = Tally::default();
    thread::scope(|scope| {
        let (slots, tally, seed) = (&slots, &tally, round.seed);
        for i in 0..NR_OWNERS {
            scope.spawn(move || own(slots, tally, &mut Dice::of_thread(seed, i)));
        }
        for i in NR_OWNERS..NR_OWNERS + NR_CALLERS {
            scope.spawn(move || call(slots, tally, &mut Dice::of_thread(seed, i)));
        }
    });
    slots.cpus().iter().for_each(|cpu| slots.flush(cpu));
    let added = tally.added.load(Ordering::Relaxed);
    assert_eq!(slots.sum_over(|data| *data), added, "the sum is not exact");
    totals.nr_added += added;
    totals.nr_refused += tally.refused.load(Ordering::Relaxed);
    totals.nr_panics += tally.panics.load(Ordering::Relaxed);
}

fn slots(config: &str, dice: &mut Dice) -> PerCpu<u64> {
    let config = match config {
        "any" => dice.pick(&CONFIGS[1..]),
        config => config,
    };
    let (qpw, how) = match config {
        "queue" => (Qpw::Queue, Escalate::Never),
        "on_demand" => (Qpw::OnDemand, Escalate::Never),
        "breakable" => (
            Qpw::OnDemand,
            dice.pick(&[Escalate::Quietly, Escalate::Interrupt]),
        ),
        _ => (Qpw::EveryOp, Escalate::Never),
    };
    let topology = Topology::synthetic(&format!("{NR_CPUS} core")).expect("a plain machine");
    let isolated: CpuSet = (dice.below(4) == 0)
        .then_some(CpuId::new(1))
        .into_iter()
        .collect();
    let builder = PerCpu::builder()
        .topology(topology)
        .qpw(qpw)
        .isolated(&isolated);
    let builder = builder.escalate(how, Duration::from_micros(dice.below(200) as u64));
    builder
        .build(|_| 0)
        .expect("nothing of it is read from the machine")
}

/// Owns one slot after another.
fn own(slots: &PerCpu<u64>, tally: &Tally, dice: &mut Dice) {
    for _ in 0..NR_STEPS / 20 {
        wander(dice);
        let cpu = CpuId::new(dice.below(NR_CPUS as usize) as u32);
        let Ok(mut owner) = slots.attach(cpu) else {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            continue;
        };
        for _ in 0..dice.below(200) {
            owner = step(owner, slots, tally, dice);
        }
    }
}

fn step<'p>(
    mut owner: Owner<'p, u64>,
    slots: &PerCpu<u64>,
    tally: &Tally,
    dice: &mut Dice,
) -> Owner<'p, u64> {
    match dice.below(40) {
        0 => return owner.park().unpark(),
        1 => owner.while_parked(|| {
            slots.drain_all(|_, data| *data += 1);
            tally.add(u64::from(NR_CPUS));
        }),
        2 => {
            let panicked = catch_unwind(AssertUnwindSafe(|| owner.with(|_| Planned::panic())));
            tally
                .panics
                .fetch_add(u64::from(panicked.is_err()), Ordering::Relaxed);
        }
        3 => wander(dice),
        4..10 => owner.poll(),
        _ => {
            owner.with(|data| *data += 1);
            tally.add(1);
        }
    }
    owner
}

/// Calls on any slot, in any way.
fn call(slots: &PerCpu<u64>, tally: &Tally, dice: &mut Dice) {
    for _ in 0..NR_STEPS {
        let cpu = CpuId::new(dice.below(NR_CPUS as usize) as u32);
        match dice.below(8) {
            0 => {
                slots.queue_percpu_work(cpu, |data| *data += 1);
                tally.add(1);
            }
            1 => {
                slots.queue_percpu_work(cpu, |_| Planned::panic());
                tally.panics.fetch_add(1, Ordering::Relaxed);
            }
            2 => {
                let deadline = Duration::from_micros(dice.below(100) as u64);
                match slots.try_run_on(cpu, deadline, |data| *data += 1) {
                    Ok(()) => tally.add(1),
                    Err(_) => drop(tally.refused.fetch_add(1, Ordering::Relaxed)),
                }
            }
            3 => {
                let online = (0..NR_CPUS).map(CpuId::new).filter(|_| dice.below(2) == 0);
                let online: CpuSet = online.collect();
                slots.drain_absent(&online, |_, data| *data += 1);
                tally.add(u64::from(NR_CPUS) - online.len() as u64);
            }
            4 => {
                slots.with_current(|data| *data += 1);
                tally.add(1);
            }
            5 => slots.flush(cpu),
            6 => wander(dice),
            _ => {
                slots.run_on(cpu, |data| *data += 1);
                tally.add(1);
            }
        }
    }
}

/// Moves this thread to another CPU, if there is one.
fn wander(dice: &mut Dice) {
    static CPUS: std::sync::OnceLock<Vec<CpuId>> = std::sync::OnceLock::new();
    let cpus = CPUS.get_or_init(|| {
        let allowed = sync::cpu::affinity().unwrap_or_default();
        allowed.iter().collect()
    });
    if !cpus.is_empty() {
        // One that went away since is as good as none.
        let _ = sync::cpu::set_affinity(None, &[dice.pick(cpus)].into_iter().collect());
    }
}
