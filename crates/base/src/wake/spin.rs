//! Decides how long a waiter spins before it sleeps. The limit adapts to the success of earlier
//! spins.

use sync::atomic::{AtomicU32, Ordering};
use sync::{Tunable, hint, thread, time};

/// The number of `spin_loop` hints in a round, before the waiter yields the CPU.
const HINTS_PER_ROUND: u32 = 4;

/// After failed spins, one wait in this number still spins, to detect when spinning becomes useful
/// again. This is a guess: at the default limit, the probes cost a third of a microsecond per wait.
const PROBE_EVERY: u32 = 64;

/// The longest busy-poll. A round trip of an item to a worker on another CPU takes 0.3 µs, or 2 µs
/// on a machine whose cache lines move slowly (measured on two CPUs of a virtual machine). Sleeping
/// and being woken costs more than twice that.
pub(crate) const MAX_POLL_NS: u64 = 4_000;

/// The longest busy-poll of a worker whose last one found work. Producers that share a CPU take
/// turns on it, so the next item arrives only after the kernel has switched threads. On two CPUs,
/// with eight producers that busy-poll while they wait, the median throughput of 7 to 9 runs, in
/// millions of items per second, is 1.4 to 2.7 for 4 µs, 1.7 to 4.0 for 20 µs, 3.8 to 3.9 for 50
/// µs, and 2.0 to 3.7 for 100 µs.
pub const MAX_POLL_AFTER_WORK_NS: u64 = 50_000;

/// The number of failed busy-polls in a row before one is skipped.
const FREE_MISSES: u32 = 2;

/// The maximum count of failures. At this count, one wait in sixteen busy-polls, to detect when
/// busy-polling becomes useful again.
const MOST_MISSES: u32 = FREE_MISSES + 4;

/// The minimum spin budget, in rounds, after a successful busy-poll. If the next one fails, the
/// wake-up is probably about to come, so it is worth spinning.
const ROUNDS_AFTER_POLL: u32 = 16;

/// The longest spin, in nanoseconds: four times the duration of a round with sixteen threads that
/// yield to each other after short runs (measured on two CPUs). A longer spin competes with a
/// thread that keeps the CPU.
const LONGEST_NS: u64 = 200_000;

/// The default limit. 64 rounds take about 20 µs if no other thread needs the CPU: half the cost of
/// waking a sleeping thread on another CPU of a virtual machine.
pub(crate) const DEFAULT_SPIN_LIMIT: u32 = 64;

/// Decides how long a waiter spins before it sleeps.
///
/// A *round* is a few `spin_loop` hints, a check, and a `sched_yield`. It takes about 0.3 µs if no
/// other thread needs the CPU. Otherwise the yield runs the other thread, which may be the one that
/// the waiter waits for.
///
/// A thread that waits for an item, and a worker that waits for work, *busy-polls* first: it checks
/// its condition for at most four microseconds (fifty for a worker whose last busy-poll found work)
/// and keeps its CPU. As busy-polls fail repeatedly, up to fifteen out of sixteen are skipped.
///
/// If a wait ends while it spins, the next wait may spin twice as many rounds as this one took. If
/// it sleeps, the next wait may spin half as many rounds. If no rounds are left, every 64th wait
/// still spins. If the process may use only one CPU, in a model, or with a limit of zero, a wait
/// checks its condition once and does not spin.
///
/// Threads may share a budget, which then adapts to all of them together.
#[derive(Debug)]
#[doc(hidden)]
pub struct SpinBudget {
    /// Busy-polls in a row that failed.
    nr_misses: AtomicU32,
    /// Further waits that skip the busy-poll.
    nr_left_out: AtomicU32,
    nr_rounds: AtomicU32,
    /// Waits since `nr_rounds` fell to zero.
    nr_skipped: AtomicU32,
}

impl SpinBudget {
    sync::const_unless_model! {
        /// Creates a budget that starts with 16 rounds, or with the limit if that is less.
        pub fn new() -> Self {
            Self {
                // No busy-poll has succeeded yet.
                nr_misses: AtomicU32::new(1),
                nr_left_out: AtomicU32::new(0),
                nr_rounds: AtomicU32::new(16),
                nr_skipped: AtomicU32::new(0),
            }
        }
    }

    /// Spins until `done` returns `true`, for at most as long as the budget and `spin_limit` allow.
    /// Returns `true` if `done` did.
    ///
    /// # Blocking
    ///
    /// Never sleeps. Yields the CPU once a round.
    #[inline]
    pub fn spin(&self, spin_limit: u32, mut done: impl FnMut() -> bool) -> bool {
        done() || self.spin_rounds(spin_limit, done)
    }

    /// Busy-polls, and then spins as [`spin`](Self::spin) does. Use it if a thread on another CPU
    /// may end the wait soon. A busy-poll takes at most `after_hit_ns` if the last one succeeded,
    /// otherwise at most [`MAX_POLL_NS`].
    #[inline]
    #[doc(hidden)]
    pub fn poll_and_spin(
        &self,
        spin_limit: u32,
        after_hit_ns: u64,
        mut done: impl FnMut() -> bool,
    ) -> bool {
        done() || self.poll_or_spin(spin_limit, after_hit_ns, done)
    }

    #[cold]
    fn poll_or_spin(
        &self,
        spin_limit: u32,
        after_hit_ns: u64,
        mut done: impl FnMut() -> bool,
    ) -> bool {
        let may_poll = spin_limit > 0 && machine_may_spin();
        if may_poll && self.poll(after_hit_ns, &mut done) {
            let nr_rounds = self.nr_rounds.load(Ordering::Relaxed);
            self.nr_rounds.store(nr_rounds.max(ROUNDS_AFTER_POLL), Ordering::Relaxed);
            return true;
        }
        self.spin_rounds(spin_limit, done)
    }

    #[cold]
    fn spin_rounds(&self, spin_limit: u32, mut done: impl FnMut() -> bool) -> bool {
        let nr_rounds = self.allowance(spin_limit);
        if nr_rounds == 0 {
            return false;
        }
        let hit_after = run_rounds(nr_rounds, LONGEST_NS, thread::yield_now, &mut done);
        self.nr_rounds.store(next_allowance(nr_rounds, spin_limit, hit_after), Ordering::Relaxed);
        hit_after.is_some() || done()
    }

    /// Returns the number of rounds that the next wait may spin.
    fn allowance(&self, spin_limit: u32) -> u32 {
        if spin_limit == 0 || !machine_may_spin() {
            return 0;
        }
        let nr_rounds = self.nr_rounds.load(Ordering::Relaxed);
        if nr_rounds > 0 {
            return nr_rounds.min(spin_limit);
        }
        let nr_skipped = self.nr_skipped.load(Ordering::Relaxed) + 1;
        if nr_skipped < PROBE_EVERY {
            self.nr_skipped.store(nr_skipped, Ordering::Relaxed);
            return 0;
        }
        self.nr_skipped.store(0, Ordering::Relaxed);
        spin_limit
    }

    /// Busy-polls, unless this wait must skip it. Returns `true` if `done` did.
    fn poll(&self, after_hit_ns: u64, done: impl FnMut() -> bool) -> bool {
        let nr_left_out = self.nr_left_out.load(Ordering::Relaxed);
        if nr_left_out > 0 {
            self.nr_left_out.store(nr_left_out - 1, Ordering::Relaxed);
            return false;
        }
        let longest_ns = match self.nr_misses.load(Ordering::Relaxed) {
            0 => after_hit_ns,
            _ => MAX_POLL_NS,
        };
        let is_done = run_rounds(u32::MAX, longest_ns, || (), done).is_some();
        self.note(is_done);
        is_done
    }

    fn note(&self, paid_off: bool) {
        let nr_misses = self.nr_misses.load(Ordering::Relaxed);
        let nr_misses = if paid_off { 0 } else { MOST_MISSES.min(nr_misses + 1) };
        // Each further failure roughly doubles the number of waits that skip the busy-poll.
        let further = nr_misses.saturating_sub(FREE_MISSES);
        self.nr_misses.store(nr_misses, Ordering::Relaxed);
        self.nr_left_out.store((1 << further) - 1, Ordering::Relaxed);
    }
}

/// Runs rounds until `done` returns `true`, and returns their number. Returns `None` after
/// `nr_rounds` rounds or `longest_ns` nanoseconds. Calls `pass` after each round that fails.
#[inline]
fn run_rounds(
    nr_rounds: u32,
    longest_ns: u64,
    pass: impl Fn(),
    mut done: impl FnMut() -> bool,
) -> Option<u32> {
    let start = time::cycles();
    let limit = longest_ns * time::cycles_per_us() / 1000;
    for nr_run in 1..=nr_rounds {
        for _ in 0..HINTS_PER_ROUND {
            hint::spin_loop();
        }
        if done() {
            return Some(nr_run);
        }
        pass();
        if time::cycles().wrapping_sub(start) > limit {
            break;
        }
    }
    None
}

impl Default for SpinBudget {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the allowance after a wait that was allowed `nr_rounds`, and ended after `hit_after`
/// rounds, or slept if that is `None`.
fn next_allowance(nr_rounds: u32, spin_limit: u32, hit_after: Option<u32>) -> u32 {
    match hit_after {
        Some(nr_run) => nr_run.saturating_mul(2).max(nr_rounds - nr_rounds / 8).min(spin_limit),
        None => nr_rounds / 2,
    }
}

sync::thread_local! {
    /// The budget of this thread for waits in joins and flushes.
    static WAITER: SpinBudget = SpinBudget::new();
    /// The budget for waits that another thread on the same CPU ends.
    static SAME_CPU_WAITER: SpinBudget = SpinBudget::new()
}

/// Busy-polls and spins for as long as earlier success on this thread justifies. Returns `true` if
/// `done` did.
pub fn poll_as_waiter(done: impl FnMut() -> bool) -> bool {
    WAITER.with(|budget| budget.poll_and_spin(DEFAULT_SPIN_LIMIT, MAX_POLL_NS, done))
}

/// Spins for as long as earlier success on this thread justifies. Returns `true` if `done` did.
pub fn spin_as_waiter(done: impl FnMut() -> bool) -> bool {
    WAITER.with(|budget| budget.spin(DEFAULT_SPIN_LIMIT, done))
}

/// The maximum number of rounds that a waiter spins if the thread that it waits for needs the same
/// CPU. One `sched_yield` is usually enough. The further rounds are for CPUs that more than two
/// threads share.
const SAME_CPU_SPIN_LIMIT: u32 = 4;

/// Yields this CPU to the thread that the caller waits for. Returns `true` if `done` did.
pub fn yield_as_waiter(done: impl FnMut() -> bool) -> bool {
    SAME_CPU_WAITER.with(|budget| budget.spin(SAME_CPU_SPIN_LIMIT, done))
}

/// Returns `true` if a thread of this process may run on another CPU, so that it can end a spin.
#[inline]
pub fn machine_may_spin() -> bool {
    if cfg!(any(loom, shuttle)) {
        return false;
    }
    /// Set in `MAY` once the answer is known. Two threads may determine it at the same time. There
    /// is no once-lock, because another thread could hold it during a `fork`.
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
    fn samples_that_miss_become_rare_but_never_stop() {
        let busy_polls = SpinBudget::new();
        let nr_left_out = [false; 8].map(|paid_off| {
            busy_polls.note(paid_off);
            busy_polls.nr_left_out.load(Ordering::Relaxed)
        });
        assert_eq!(nr_left_out, [0, 1, 3, 7, 15, 15, 15, 15]);
        busy_polls.note(true);
        busy_polls.note(false);
        busy_polls.note(false);
        assert_eq!(busy_polls.nr_left_out.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn omitted_check_checks_nothing() {
        let busy_polls = SpinBudget::new();
        busy_polls.nr_left_out.store(1, Ordering::Relaxed);
        assert!(!busy_polls.poll(MAX_POLL_NS, || true));
        assert!(busy_polls.poll(MAX_POLL_NS, || true));
    }

    #[test]
    fn allowance_follows_the_success_of_each_wait() {
        for (row, nr_rounds, hit_after, expected) in [
            ("a hit doubles it", 8, Some(7), 14),
            ("up to the limit", 64, Some(60), 64),
            ("a quick hit shrinks it slowly", 64, Some(1), 56),
        ] {
            assert_eq!(next_allowance(nr_rounds, 64, hit_after), expected, "{row}");
        }
        let after_misses =
            |count| (0..count).fold(64, |nr_rounds, _| next_allowance(nr_rounds, 64, None));
        assert_eq!([5, 6, 7].map(after_misses), [2, 1, 0]);
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn allowance_of_zero_is_tried_again_sometimes() {
        if !machine_may_spin() {
            return;
        }
        let budget = SpinBudget::new();
        budget.nr_rounds.store(0, Ordering::Relaxed);
        let nr_tried = (0..2 * PROBE_EVERY).filter(|_| budget.allowance(8) > 0).count();
        assert_eq!(nr_tried, 2);
    }

    #[test]
    fn ceiling_of_zero_checks_once() {
        let budget = SpinBudget::new();
        let mut nr_rounds = 0;
        assert!(!budget.spin(0, || {
            nr_rounds += 1;
            false
        }));
        assert_eq!(nr_rounds, 1);
    }
}
