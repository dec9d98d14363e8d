//! How long to spin before sleeping: adapts to what it saw pay off.

use sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
    hint, time,
};

/// Below this a budget counts as zero: a futex sleep that ends at once costs about as much. Measured order
/// of magnitude of a system call with its entry and exit work; too small only costs a few useless spins.
const MIN_NS: u32 = 500;

/// One wait in so many spins although spinning has not paid off lately, to notice when it would again.
/// A guess: at the default ceiling it costs 0.3 µs a wait.
const PROBE_EVERY: u32 = 64;

/// How many `spin_loop` hints between two looks at the clock.
const HINTS_PER_LOOK: u32 = 8;

/// Decides how long one waiter spins before it sleeps.
///
/// A wait that ended while spinning makes the next budget twice what it took, one that did not halves it,
/// and a budget that fell to zero is tried again every 64th wait. On a machine with one allowed CPU, in a
/// model, and with a ceiling of zero it never spins.
///
/// The budget belongs to one waiter; sharing it between threads is sound and only blurs it.
#[derive(Debug)]
pub struct SpinBudget {
    /// Now, in nanoseconds.
    now_ns: AtomicU32,
    /// Never more than this; 0 turns spinning off.
    max_ns: AtomicU32,
    /// Waits since the budget fell to zero.
    nr_skipped: AtomicU32,
}

impl SpinBudget {
    sync::const_unless_model! {
        /// Makes a budget that starts at a quarter of `max_ns`.
        pub fn new(max_ns: u32) -> Self {
            Self {
                now_ns: AtomicU32::new(max_ns / 4),
                max_ns: AtomicU32::new(max_ns),
                nr_skipped: AtomicU32::new(0),
            }
        }
    }

    /// Changes the ceiling.
    pub fn set_max_ns(&self, max_ns: u32) {
        self.max_ns.store(max_ns, Ordering::Relaxed);
        self.now_ns.store(max_ns / 4, Ordering::Relaxed);
    }

    /// Spins until `done` says so or the budget is used up; says whether `done` did.
    ///
    /// # Blocking
    ///
    /// Never sleeps; burns at most the ceiling.
    #[inline]
    pub fn spin(&self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        let budget_ns = self.budget_ns();
        if budget_ns == 0 {
            return false;
        }
        let per_us = time::cycles_per_us();
        let start = time::cycles();
        let limit = u64::from(budget_ns) * per_us / 1000;
        loop {
            for _ in 0..HINTS_PER_LOOK {
                hint::spin_loop();
            }
            let hit = done();
            let spent = time::cycles().wrapping_sub(start);
            if hit || spent >= limit {
                let spent_ns = (spent * 1000 / per_us).min(u64::from(u32::MAX)) as u32;
                self.learn(budget_ns, hit.then_some(spent_ns));
                return hit;
            }
        }
    }

    /// Returns what the next wait may spend, 0 when it should sleep at once.
    fn budget_ns(&self) -> u32 {
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        if max_ns == 0 || !machine_may_spin() {
            return 0;
        }
        let now_ns = self.now_ns.load(Ordering::Relaxed);
        if now_ns > 0 {
            return now_ns.min(max_ns);
        }
        let nr_skipped = self.nr_skipped.load(Ordering::Relaxed) + 1;
        if nr_skipped < PROBE_EVERY {
            self.nr_skipped.store(nr_skipped, Ordering::Relaxed);
            return 0;
        }
        self.nr_skipped.store(0, Ordering::Relaxed);
        max_ns
    }

    fn learn(&self, budget_ns: u32, hit_after_ns: Option<u32>) {
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        self.now_ns.store(
            next_budget_ns(budget_ns, max_ns, hit_after_ns),
            Ordering::Relaxed,
        );
    }
}

/// Returns the budget after a wait that spun for `budget_ns` at most and was hit after some time, or not.
fn next_budget_ns(budget_ns: u32, max_ns: u32, hit_after_ns: Option<u32>) -> u32 {
    match hit_after_ns {
        Some(spent_ns) => spent_ns
            .saturating_mul(2)
            .max(budget_ns - budget_ns / 8)
            .clamp(MIN_NS.min(max_ns), max_ns),
        None if budget_ns / 2 < MIN_NS => 0,
        None => budget_ns / 2,
    }
}

/// Says whether another CPU exists that could end a spin.
fn machine_may_spin() -> bool {
    if cfg!(any(loom, shuttle)) {
        return false;
    }
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| sync::cpu::affinity().is_ok_and(|cpus| cpus.len() > 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_grows_the_budget_to_twice_what_it_took() {
        assert_eq!(next_budget_ns(4_000, 20_000, Some(3_000)), 6_000);
        assert_eq!(next_budget_ns(4_000, 20_000, Some(19_000)), 20_000);
    }

    #[test]
    fn a_quick_hit_shrinks_the_budget_slowly() {
        assert_eq!(next_budget_ns(8_000, 20_000, Some(10)), 7_000);
    }

    #[test]
    fn misses_bring_the_budget_to_zero() {
        let mut budget_ns = 20_000;
        let mut nr_misses = 0;
        while budget_ns > 0 {
            budget_ns = next_budget_ns(budget_ns, 20_000, None);
            nr_misses += 1;
        }
        assert!(nr_misses <= 6, "{nr_misses} misses");
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn a_budget_of_zero_is_tried_again_now_and_then() {
        if !machine_may_spin() {
            return;
        }
        let budget = SpinBudget::new(1_000);
        budget.now_ns.store(0, Ordering::Relaxed);
        let nr_spun = (0..2 * PROBE_EVERY)
            .filter(|_| {
                let spins = budget.budget_ns() > 0;
                budget.now_ns.store(0, Ordering::Relaxed);
                spins
            })
            .count();
        assert_eq!(nr_spun, 2);
    }

    #[test]
    fn a_ceiling_of_zero_never_spins() {
        let budget = SpinBudget::new(0);
        let mut nr_looks = 0;
        assert!(!budget.spin(|| {
            nr_looks += 1;
            false
        }));
        assert_eq!(nr_looks, 1);
    }
}
