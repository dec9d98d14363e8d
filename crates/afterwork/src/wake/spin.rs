//! How long to look before sleeping: adapts to what it saw pay off.

use sync::{
    Tunable,
    atomic::{AtomicU32, Ordering},
    hint, thread, time,
};

/// How many `spin_loop` hints make up a look, before it offers the CPU to others.
const HINTS_PER_LOOK: u32 = 4;

/// One wait in so many looks around although that has not paid off lately, to notice when it would again. A
/// guess: at the default ceiling it costs a third of a microsecond a wait.
const PROBE_EVERY: u32 = 64;

/// A spin that took so long has met somebody who keeps the CPU, and stops: looking on would only cost more.
/// Four times what sixteen threads that take turns by short runs need for a round here.
const LONGEST_NS: u64 = 200_000;

/// The default ceiling. 64 looks take about 20 µs where nobody else wants the CPU: half of what waking a sleeping
/// thread on another CPU costs on a virtual machine.
pub(crate) const DEFAULT_SPIN_LIMIT: u32 = 64;

/// Decides how often one waiter looks for what it waits for before it sleeps.
///
/// A *look* is a few `spin_loop` hints, a check, and a `sched_yield`: about 0.3 µs where nobody else wants the CPU,
/// and a chance for the very thread that we wait for where somebody does. A wait that ended while looking
/// allows the next one twice the looks that it took, one that did not allows half; an allowance that fell to
/// zero is tried again every 64th wait. On a machine with one allowed CPU, in a model, and with a ceiling of zero
/// it never looks twice.
///
/// The budget belongs to one waiter; sharing it between threads is sound and only blurs it.
#[derive(Debug)]
pub struct SpinBudget {
    nr_looks: AtomicU32,
    /// Waits since `nr_looks` fell to zero.
    nr_skipped: AtomicU32,
}

impl SpinBudget {
    sync::const_unless_model! {
        /// Makes a budget that starts with 16 looks, or its ceiling if that is less.
        pub fn new() -> Self {
            Self { nr_looks: AtomicU32::new(16), nr_skipped: AtomicU32::new(0) }
        }
    }

    /// Looks until `done` says so or the budget, at most `spin_limit`, is used up; returns `true` if `done` did.
    ///
    /// # Blocking
    ///
    /// Never sleeps; may give the CPU to others meanwhile.
    #[inline]
    pub fn spin(&self, spin_limit: u32, mut done: impl FnMut() -> bool) -> bool {
        done() || self.look_around(spin_limit, done)
    }

    #[cold]
    fn look_around(&self, spin_limit: u32, mut done: impl FnMut() -> bool) -> bool {
        let nr_looks = self.allowance(spin_limit);
        if nr_looks == 0 {
            return false;
        }
        let start = time::cycles();
        let limit = LONGEST_NS * time::cycles_per_us() / 1000;
        let mut hit_after = None;
        for nr_taken in 1..=nr_looks {
            for _ in 0..HINTS_PER_LOOK {
                hint::spin_loop();
            }
            if done() {
                hit_after = Some(nr_taken);
                break;
            }
            thread::yield_now();
            if time::cycles().wrapping_sub(start) > limit {
                break;
            }
        }
        self.nr_looks.store(
            next_allowance(nr_looks, spin_limit, hit_after),
            Ordering::Relaxed,
        );
        hit_after.is_some() || done()
    }

    /// Returns how often the next wait may look, 0 when it should sleep at once.
    fn allowance(&self, spin_limit: u32) -> u32 {
        if spin_limit == 0 || !machine_may_spin() {
            return 0;
        }
        let nr_looks = self.nr_looks.load(Ordering::Relaxed);
        if nr_looks > 0 {
            return nr_looks.min(spin_limit);
        }
        let nr_skipped = self.nr_skipped.load(Ordering::Relaxed) + 1;
        if nr_skipped < PROBE_EVERY {
            self.nr_skipped.store(nr_skipped, Ordering::Relaxed);
            return 0;
        }
        self.nr_skipped.store(0, Ordering::Relaxed);
        spin_limit
    }
}

impl Default for SpinBudget {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the allowance after a wait that was allowed `nr_looks` and was hit after some of them, or not.
fn next_allowance(nr_looks: u32, spin_limit: u32, hit_after: Option<u32>) -> u32 {
    match hit_after {
        Some(nr_taken) => nr_taken
            .saturating_mul(2)
            .max(nr_looks - nr_looks / 8)
            .min(spin_limit),
        None => nr_looks / 2,
    }
}

/// How often a thread looks at most when it joins or flushes.
static WAITER_LOOKS: Tunable = Tunable::new(DEFAULT_SPIN_LIMIT);

sync::thread_local! {
    /// How often this thread looks when it waits for something that another thread is about to finish.
    static WAITER: SpinBudget = SpinBudget::new()
}

/// Changes how often threads look, at most, before they sleep when they join or flush; 0 turns it off.
///
/// For the whole process, from the next wait on; see [`SpinBudget`] for what a look is.
pub fn set_waiter_spin_limit(spin_limit: u32) {
    WAITER_LOOKS.set(spin_limit);
}

/// Looks for `done` as often as has paid off for this thread; returns `true` if it came.
pub(crate) fn spin_as_waiter(done: impl FnMut() -> bool) -> bool {
    WAITER.with(|budget| budget.spin(WAITER_LOOKS.get(), done))
}

/// How often a waiter looks at most when the thread that it waits for needs the very CPU that it looks with. One
/// `sched_yield` is what counts there; the others are for CPUs on which more threads take turns.
const SAME_CPU_LOOKS: u32 = 4;

sync::thread_local! {
    /// As `WAITER`, for what will be finished on this thread's own CPU.
    static SAME_CPU_WAITER: SpinBudget = SpinBudget::new()
}

/// Offers this CPU to whoever will finish what the caller waits for; returns `true` if it came.
pub(crate) fn yield_as_waiter(done: impl FnMut() -> bool) -> bool {
    let spin_limit = WAITER_LOOKS.get().min(SAME_CPU_LOOKS);
    SAME_CPU_WAITER.with(|budget| budget.spin(spin_limit, done))
}

/// Returns `true` if another CPU exists that could end a spin.
pub(crate) fn machine_may_spin() -> bool {
    if cfg!(any(loom, shuttle)) {
        return false;
    }
    /// In `MAY`: asked before. Nobody waits for another's asking, who may not be in this process.
    const ASKED: u32 = 1 << 1;
    static MAY: Tunable = Tunable::new(0);
    if MAY.get() == 0 {
        let may = sync::cpu::affinity().is_ok_and(|cpus| cpus.len() > 1);
        MAY.set(ASKED | u32::from(may));
    }
    MAY.get() == ASKED | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_allows_twice_what_it_took() {
        assert_eq!(next_allowance(8, 64, Some(7)), 14);
        assert_eq!(next_allowance(64, 64, Some(60)), 64);
    }

    #[test]
    fn a_quick_hit_shrinks_the_allowance_slowly() {
        assert_eq!(next_allowance(64, 64, Some(1)), 56);
    }

    #[test]
    fn misses_bring_the_allowance_to_zero() {
        let mut nr_looks = 64;
        let mut nr_misses = 0;
        while nr_looks > 0 {
            nr_looks = next_allowance(nr_looks, 64, None);
            nr_misses += 1;
        }
        assert_eq!(nr_misses, 7);
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn an_allowance_of_zero_is_tried_again_now_and_then() {
        if !machine_may_spin() {
            return;
        }
        let budget = SpinBudget::new();
        budget.nr_looks.store(0, Ordering::Relaxed);
        let nr_tried = (0..2 * PROBE_EVERY)
            .filter(|_| budget.allowance(8) > 0)
            .count();
        assert_eq!(nr_tried, 2);
    }

    #[test]
    fn a_ceiling_of_zero_looks_once() {
        let budget = SpinBudget::new();
        let mut nr_looks = 0;
        assert!(!budget.spin(0, || {
            nr_looks += 1;
            false
        }));
        assert_eq!(nr_looks, 1);
    }
}
