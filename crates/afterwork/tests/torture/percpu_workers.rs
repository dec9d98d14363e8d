//! Workers that own slots under torture: they come and go, poll, block, wait for each other, while CPUs leave.
//!
//! Their CPUs are those of a made-up machine, so a worker owns a slot wherever the system runs it. Two things are not
//! done, for who does them waits for itself: calling on a slot from inside it, and on another slot from inside one.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use afterwork::{
    params::Params,
    percpu::OwnedByWorkers,
    workqueue::{self, AffinityScope, JoinHandle, Registry, Workqueue},
};
use topology::{CpuSet, Topology};

use crate::{
    Scene, any_cpu, machine, some_cpus,
    support::{Dice, Planned, insist, wander, watched},
};

/// How many things are done to the queue in a round.
const NR_STEPS: usize = 200;
/// How many items are on their way before the next one waits for the first.
const NR_AHEAD: usize = 16;

/// Gives workers to do, changes their machine, and has them own slots or no longer; when it returns all have ended.
pub fn keep_busy(scene: &Arc<Scene>, dice: &mut Dice) {
    let registry = insist(|| Registry::new(machine(), Params::default()));
    let queue = Workqueue::builder("owners")
        .scope(AffinityScope::Cpu)
        .help(dice.below(3) == 0)
        .build_in(&registry);
    let queue = Arc::new(queue.expect("a plain queue"));
    let mut owned = Some(let_own(scene));
    let mut ahead = VecDeque::new();
    for _ in 0..NR_STEPS {
        match dice.below(40) {
            0 => registry.set_topology(changed(dice)),
            1 => owned = owned.is_none().then(|| let_own(scene)),
            2 => wander(dice),
            3..8 => ahead.drain(..).for_each(join),
            _ => {
                ahead.push_back(spawn(scene, &queue, dice));
                if ahead.len() > NR_AHEAD {
                    ahead.pop_front().into_iter().for_each(join);
                }
            }
        }
    }
    ahead.drain(..).for_each(join);
    drop((owned, queue));
    watched("shutting down", || {
        let mut shut = registry.shutdown();
        while let Err(still) = shut {
            // An item that has been joined may be dropping its queue still.
            thread::yield_now();
            shut = still.registry.shutdown();
        }
    });
}

fn let_own(scene: &Scene) -> [OwnedByWorkers; 2] {
    [scene.slots.let_workers_own(), scene.hits.let_workers_own()]
}

/// Returns the machine with some of its CPUs, one at least.
fn changed(dice: &mut Dice) -> Topology {
    let online: CpuSet = some_cpus(dice).into_iter().chain([any_cpu(dice)]).collect();
    Topology::flat(&online).expect("one CPU at least")
}

fn spawn(scene: &Arc<Scene>, queue: &Arc<Workqueue>, dice: &mut Dice) -> JoinHandle<()> {
    let (theirs, more) = (scene.clone(), queue.clone());
    let mut own = Dice::new(dice.bits());
    queue.spawn_on(any_cpu(dice), move || {
        for _ in 0..own.below(8) {
            step(&theirs, &more, &mut own);
        }
    })
}

fn join(item: JoinHandle<()>) {
    item.join().expect("items catch what they panic with");
}

/// Does one thing as an item does it, mostly to the slot that its worker is likely to own.
fn step(scene: &Arc<Scene>, queue: &Arc<Workqueue>, dice: &mut Dice) {
    let (slots, tally) = (&scene.slots, &scene.tally);
    let cpu = any_cpu(dice);
    match dice.below(24) {
        0 => workqueue::blocking(|| thread::sleep(Duration::from_micros(dice.below(50) as u64))),
        1 => {
            slots.run_on(cpu, |data| {
                *data += 1;
                workqueue::blocking(thread::yield_now);
            });
            tally.add(1);
        }
        2 => {
            let panics = || slots.run_on(cpu, |_| Planned::panic());
            tally.panicked(catch_unwind(AssertUnwindSafe(panics)).is_err());
        }
        3 => {
            slots.drain_all(|_, data| *data += 1);
            tally.add(slots.cpus().len() as u64);
        }
        4 => {
            let theirs = scene.clone();
            let mut own = Dice::new(dice.bits());
            join(queue.spawn_on(cpu, move || theirs.call(&mut own)));
        }
        5 => thread::yield_now(),
        6..12 => {
            scene.hits.add(1);
            tally.hit();
        }
        _ => scene.call(dice),
    }
}
