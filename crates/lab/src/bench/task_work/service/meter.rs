//! Measures the time of short sections of a thread. The thread may be preempted in any section.

use sync::time::{cycles, cycles_per_us};

/// The maximum time of a section in microseconds, including the system call that wakes the owner.
const BASE_US: u64 = 10;

/// The additional microseconds for each item, which are enough for ten cache misses.
const ITEM_US: u64 = 1;

/// Sums the cycles of sections. A section that took longer than the maximum was preempted. It
/// counts with the mean time of the others, because a time slice would outweigh thousands of
/// sections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    cycles: u64,
    pub items: u64,
    sections: u64,
    pub lost: u64,
}

impl Meter {
    /// Times `body`, which returns its number of items and a result.
    #[inline(always)]
    pub fn time<R>(&mut self, body: impl FnOnce() -> (usize, R)) -> R {
        let start = cycles();
        let (items, result) = body();
        self.add(cycles().saturating_sub(start), items as u64, cycles_per_us());
        result
    }

    fn add(&mut self, cycles: u64, items: u64, cycles_per_us: u64) {
        self.items += items;
        if cycles > (BASE_US + ITEM_US * items) * cycles_per_us {
            self.lost += 1;
        } else {
            self.cycles += cycles;
            self.sections += 1;
        }
    }

    pub fn absorb(&mut self, other: &Self) {
        self.cycles += other.cycles;
        self.items += other.items;
        self.sections += other.sections;
        self.lost += other.lost;
    }

    /// Returns the nanoseconds of all sections, which are not finite if all were preempted.
    pub fn ns(&self) -> f64 {
        let mean = self.cycles as f64 / self.sections as f64;
        let cycles = mean * (self.sections + self.lost) as f64;
        cycles * 1000.0 / cycles_per_us() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_that_lost_its_cpu_counts_as_the_mean_of_the_others() {
        let mut meter = Meter::default();
        meter.add(100, 1, 1000);
        meter.add(300, 1, 1000);
        let before = meter;
        meter.add(1_000_000_000, 1, 1000);
        assert_eq!((meter.lost, meter.items, meter.cycles), (1, 3, 400));
        assert!((meter.ns() / before.ns() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn many_items_may_take_long() {
        let mut meter = Meter::default();
        meter.add(500_000, 1000, 1000);
        assert_eq!(meter.lost, 0);
    }

    #[test]
    fn timed_section_takes_time_and_returns_its_result() {
        let mut meter = Meter::default();
        assert_eq!(meter.time(|| (3, "done")), "done");
        let mut all = Meter::default();
        all.absorb(&meter);
        assert_eq!(all.items, 3);
    }
}
