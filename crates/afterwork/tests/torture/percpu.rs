//! Random torture of per-CPU data, with owners that attach, park and leave, and callers of all
//! kinds.
//!
//! `cargo xtask torture percpu --minutes 5 --seed 7`
//!
//! Every operation adds to a slot, and its thread counts the additions. At the end the sum is
//! exact, including the values saved from CPUs that went offline. A lost queued call shows as a sum
//! that is too low, and a lost slot as a round that does not end.
//!
//! It finds these bugs, injected with `--twin`: `percpu: yields without marking it`, `percpu: runs
//! a recalled call`.
#![cfg(not(any(loom, shuttle)))]

mod hostile_percpu;
mod support;

use afterwork::percpu::{self, Builder, Escalate, Owner, PerCpu, Qpw, SloppyCounter};
use hostile_percpu::Den;
use topology::{CpuId, CpuSet, Topology};

use crate::support::*;

const NR_CPUS: u32 = 4;
const NR_OWNERS: usize = 4;
const NR_CALLERS: usize = 4;
const NR_HOSTILE: usize = 2;
const NR_STEPS: usize = 200;
/// Slot configurations. All other choices are random.
const CONFIGS: &[&str] = &["any", "queue", "on_demand", "breakable", "every_op"];

fn main() -> ExitCode {
    support::torture("per-CPU data", CONFIGS, round)
}

#[derive(Debug, Default)]
struct Totals {
    nr_added: u64,
    nr_saved: u64,
    nr_refused: AtomicU64,
    nr_panics: AtomicU64,
}

struct Scene<'a> {
    slots: Arc<PerCpu<u64>>,
    hits: SloppyCounter,
    nr_added: AtomicU64,
    nr_hits: AtomicU64,
    totals: &'a Totals,
}

impl Scene<'_> {
    fn add(&self, count: u64) {
        self.nr_added.fetch_add(count, Ordering::Relaxed);
    }

    fn refused(&self) {
        self.totals.nr_refused.fetch_add(1, Ordering::Relaxed);
    }

    fn panicked(&self, panicked: bool) {
        self.totals.nr_panics.fetch_add(u64::from(panicked), Ordering::Relaxed);
    }
}

fn round(round: &Round<'_>, totals: &mut Totals) {
    let mut dice = Dice::new(round.seed);
    let slots = builder(round.config, &mut dice).build(|_| 0);
    let slots = Arc::new(slots.expect("nothing of it is read from the machine"));
    let saved = Arc::new(AtomicU64::new(0));
    let theirs = saved.clone();
    let watch = slots.drain_when_absent(move |_, data| {
        theirs.fetch_add(std::mem::take(data), Ordering::Relaxed);
    });
    let batch = 1 + dice.below(64) as u32;
    let hits = SloppyCounter::new(builder(round.config, &mut dice), batch);
    let hits = hits.expect("as the slots");
    let (nr_added, nr_hits) = Default::default();
    let scene = Scene { slots, hits, nr_added, nr_hits, totals };
    let den = hostile::is_on().then(|| Den::new(round.config, &mut dice));
    thread::scope(|scope| {
        let (scene, seed) = (&scene, round.seed);
        if let Some(den) = &den {
            for i in 0..NR_HOSTILE {
                scope.spawn(move || den.torture(&mut Dice::of_thread(seed, 100 + i)));
            }
        }
        for i in 0..NR_OWNERS {
            scope.spawn(move || own(scene, &mut Dice::of_thread(seed, i)));
        }
        for i in NR_OWNERS..NR_OWNERS + NR_CALLERS {
            scope.spawn(move || call(scene, &mut Dice::of_thread(seed, i)));
        }
    });
    if let Some(den) = den {
        watched("ending what is hostile", || den.end());
    }
    drop(watch);
    let Scene { slots, hits, nr_added, nr_hits, .. } = scene;
    assert_eq!(hits.sum(), nr_hits.into_inner() as i64, "the count is not exact");
    // Without a flush, a queued call that has not run by now is lost.
    let slots = all_of(slots, "a thread retains a slot");
    let saved = saved.load(Ordering::Relaxed);
    let left: u64 = slots.into_data().map(|(_, data)| data).sum();
    let added = nr_added.into_inner();
    assert_eq!(left + saved, added, "the sum is not exact");
    totals.nr_added += added;
    totals.nr_saved += saved;
}

/// Waits until this is the last reference: the handler of offline CPUs may still use the object.
fn all_of<T>(mut shared: Arc<T>, otherwise: &'static str) -> T {
    watched(otherwise, || {
        loop {
            match Arc::try_unwrap(shared) {
                Ok(all) => return all,
                Err(still) => shared = still,
            }
            thread::yield_now();
        }
    })
}

fn builder(config: &str, dice: &mut Dice) -> Builder {
    let config = match config {
        "any" => dice.pick(&CONFIGS[1..]),
        config => config,
    };
    let (qpw, how) = match config {
        "queue" => (Qpw::Queue, Escalate::Never),
        "on_demand" => (Qpw::OnDemand, Escalate::Never),
        "breakable" => {
            let how = dice.pick(&[Escalate::Quietly, Escalate::Interrupt]);
            // Not every system has the `membarrier` that interrupts require.
            let how = [Escalate::Quietly, how][usize::from(sync::asym::init())];
            (Qpw::OnDemand, how)
        }
        _ => (Qpw::EveryOp, Escalate::Never),
    };
    let isolated: CpuSet = (dice.below(4) == 0).then_some(CpuId::new(1)).into_iter().collect();
    PerCpu::builder()
        .topology(machine())
        .qpw(qpw)
        .isolated(&isolated)
        .escalate(how, Duration::from_micros(dice.below(200) as u64))
}

fn machine() -> Topology {
    Topology::synthetic(&format!("{NR_CPUS} core")).expect("a plain machine")
}

fn any_cpu(dice: &mut Dice) -> CpuId {
    CpuId::new(dice.below(NR_CPUS as usize) as u32)
}

fn some_cpus(dice: &mut Dice) -> CpuSet {
    let all = (0..NR_CPUS).map(CpuId::new);
    all.filter(|_| dice.below(2) == 0).collect()
}

fn own(scene: &Scene<'_>, dice: &mut Dice) {
    for _ in 0..NR_STEPS / 20 {
        wander(dice);
        let Ok(mut owner) = scene.slots.attach(any_cpu(dice)) else {
            scene.refused();
            thread::yield_now();
            continue;
        };
        for _ in 0..dice.below(200) {
            owner = step(owner, scene, dice);
        }
    }
}

fn step<'p>(mut owner: Owner<'p, u64>, scene: &Scene<'_>, dice: &mut Dice) -> Owner<'p, u64> {
    match dice.below(40) {
        0 => return owner.park().unpark(),
        1 => owner.while_parked(|| {
            scene.slots.drain_all(|_, data| *data += 1);
            scene.add(u64::from(NR_CPUS));
        }),
        2 => {
            let panics = || owner.with(|_| Planned::panic());
            scene.panicked(catch_unwind(AssertUnwindSafe(panics)).is_err());
        }
        3 => wander(dice),
        4..10 => owner.poll(),
        _ => {
            owner.with(|data| *data += 1);
            scene.add(1);
        }
    }
    owner
}

fn call(scene: &Scene<'_>, dice: &mut Dice) {
    for _ in 0..NR_STEPS {
        match dice.below(8) {
            0 => wander(dice),
            1 => {
                scene.hits.add(1);
                scene.nr_hits.fetch_add(1, Ordering::Relaxed);
            }
            2 if dice.below(8) == 0 => percpu::set_online_cpus(&some_cpus(dice)),
            _ => scene.call(dice),
        }
    }
}

impl Scene<'_> {
    fn call(&self, dice: &mut Dice) {
        let slots = &self.slots;
        let cpu = any_cpu(dice);
        let nr_added = match dice.below(7) {
            0 => {
                slots.queue_percpu_work(cpu, |data| *data += 1);
                1
            }
            1 => {
                slots.queue_percpu_work(cpu, |_| Planned::panic());
                return self.panicked(true);
            }
            2 => {
                let deadline = Duration::from_micros(dice.below(100) as u64);
                if slots.try_run_on(cpu, deadline, |data| *data += 1).is_err() {
                    return self.refused();
                }
                1
            }
            3 => {
                let online = some_cpus(dice);
                slots.drain_absent(&online, |_, data| *data += 1);
                u64::from(NR_CPUS) - online.len() as u64
            }
            4 => {
                slots.with_current(|data| *data += 1);
                1
            }
            5 => return slots.flush(cpu),
            _ => {
                slots.run_on(cpu, |data| *data += 1);
                1
            }
        };
        self.add(nr_added);
    }
}
