//! Runs all guards alternately on one ring, a few thousand objects per turn, in an order that is
//! shuffled each round. The cost of a cache miss varies more between pieces of memory, and from one
//! half second to the next, than between guards. The result of a guard is the median of its turns.

use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::CpuId;

use super::cache::Cache;
use super::list::with_all;
use crate::bench::workqueue::producers::on_own_thread;
use crate::harness::stats::Spread;

/// The number of objects in the ring. They take 16 KiB, and the list of their indexes takes 8 KiB.
/// Both fit in a first-level cache.
const LEN: usize = 256;

/// The number of objects in a turn. It is so large that reloading the guard's data at the start
/// does not matter, and so small that the indexes fit in the first-level cache.
const PER_TURN: usize = 2048;

const NR_TURNS: usize = 1000;

type Cycles = Vec<(&'static str, f64)>;

pub struct Turns {
    cpu: Option<CpuId>,
    interrupt: Interrupt,
    /// The cache, which is created in the first repetition, so that all repetitions use the same
    /// memory.
    cache: Option<Cache>,
    left: Cycles,
}

impl Turns {
    pub fn new(cpu: Option<CpuId>, interrupt: &Interrupt) -> Self {
        Self { cpu, interrupt: interrupt.clone(), cache: None, left: Vec::new() }
    }

    /// Returns the cycles per object of `guard`, or `None` if interrupted.
    ///
    /// If this result has already been taken, runs all guards again.
    pub fn take(&mut self, guard: &str) -> Result<Option<f64>, Stop> {
        let find = |(name, _): &(&str, f64)| *name == guard;
        if !self.left.iter().any(find) {
            let Some(left) = self.run()? else { return Ok(None) };
            self.left = left;
        }
        let at = self.left.iter().position(find).expect("every guard ran");
        Ok(Some(self.left.swap_remove(at).1))
    }

    fn run(&mut self) -> Result<Option<Cycles>, Stop> {
        let cache = self.cache.get_or_insert_with(|| Cache::new(LEN));
        on_own_thread(self.cpu, || all_by_turns(cache, &self.interrupt))
    }
}

fn all_by_turns(cache: &mut Cache, interrupt: &Interrupt) -> Result<Option<Cycles>, Stop> {
    let mut random = fastrand::Rng::with_seed(LEN as u64);
    let mut places = vec![0; PER_TURN];
    with_all(|guards| {
        let mut spent = vec![Vec::with_capacity(NR_TURNS); guards.len()];
        let mut order: Vec<usize> = (0..guards.len()).collect();
        for _ in 0..NR_TURNS {
            if interrupt.requested() {
                return None;
            }
            random.shuffle(&mut order);
            for &turn in &order {
                let cycles = (guards[turn].1)(cache, &mut places);
                spent[turn].push(cycles as f64 / PER_TURN as f64);
            }
        }
        let medians = spent.iter().map(|spent| Spread::of(spent).map(|all| all.median));
        let names = guards.iter().map(|(name, _)| *name);
        Some(names.zip(medians.flatten()).collect())
    })
}
