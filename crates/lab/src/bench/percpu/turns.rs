//! Who takes objects when: all guards by turns, from one list.
//!
//! What a miss costs depends on which memory it is and on what the neighbours of this machine do at the moment, and
//! differs by more from one piece of memory or half a second to another than from one guard to the next. So all guards
//! work on the same ring, a few thousand objects each in turn, in an order shuffled anew for each round of turns; of the
//! turns of a guard the median counts.

use std::thread;

use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::CpuId;

use super::cache::Cache;
use super::list::with_all;
use crate::bench::workqueue::producers::pin_to;
use crate::harness::stats::Spread;

/// How much is taken, how often.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Objects of the ring.
    pub len: usize,
    /// Objects of a turn. Where a turn begins the guard's own words come back to the first cache, so not too few; where
    /// they go to belongs to what is to stay in that cache, so not too many.
    pub per_turn: usize,
    /// Turns of each guard.
    pub nr_turns: usize,
}

/// The guards' results of one repetition, of which each variant takes its own.
pub struct Turns {
    size: Size,
    cpu: Option<CpuId>,
    interrupt: Interrupt,
    /// Made by the first repetition; all have the same memory.
    cache: Option<Cache>,
    /// Cycles an object, by guard.
    left: Vec<(&'static str, f64)>,
}

impl Turns {
    /// Will run on `cpu`, or wherever it is.
    pub fn new(size: Size, cpu: Option<CpuId>, interrupt: &Interrupt) -> Self {
        Self {
            size,
            cpu,
            interrupt: interrupt.clone(),
            cache: None,
            left: Vec::new(),
        }
    }

    /// Returns the cycles that an object took through `guard`; `None` says that it was cut short.
    ///
    /// Runs all guards if this one's result was taken already.
    pub fn take(&mut self, guard: &str) -> Result<Option<f64>, Stop> {
        let find = |(name, _): &(&str, f64)| *name == guard;
        if !self.left.iter().any(find) {
            self.left = match self.run()? {
                Some(left) => left,
                None => return Ok(None),
            };
        }
        let at = self.left.iter().position(find).expect("every guard ran");
        Ok(Some(self.left.swap_remove(at).1))
    }

    fn run(&mut self) -> Result<Option<Vec<(&'static str, f64)>>, Stop> {
        let size = self.size;
        let cache = self.cache.get_or_insert_with(|| Cache::new(size.len));
        let (cpu, interrupt) = (self.cpu, &self.interrupt);
        thread::scope(|scope| {
            // On a thread of its own, for it stays on its CPU.
            let measured = scope.spawn(move || {
                cpu.into_iter().for_each(pin_to);
                all_by_turns(size, cache, interrupt)
            });
            measured
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn all_by_turns(
    size: Size,
    cache: &mut Cache,
    interrupt: &Interrupt,
) -> Result<Option<Vec<(&'static str, f64)>>, Stop> {
    let mut random = fastrand::Rng::with_seed(size.len as u64);
    let mut places = vec![0; size.per_turn];
    with_all(|guards| {
        let mut spent = vec![Vec::with_capacity(size.nr_turns); guards.len()];
        let mut order: Vec<usize> = (0..guards.len()).collect();
        for _ in 0..size.nr_turns {
            if interrupt.requested() {
                return None;
            }
            random.shuffle(&mut order);
            for &turn in &order {
                let cycles = (guards[turn].1)(cache, &mut places);
                spent[turn].push(cycles as f64 / size.per_turn as f64);
            }
        }
        let medians = spent
            .iter()
            .map(|spent| Spread::of(spent).map(|all| all.median));
        let names = guards.iter().map(|(name, _)| *name);
        Some(names.zip(medians.flatten()).collect())
    })
}
