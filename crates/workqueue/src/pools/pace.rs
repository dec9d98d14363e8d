//! Chooses how the workers of a pool wait for work, by measuring which of two modes completes more
//! items.
//!
//! A worker that *busy-polls* finds an item within a microsecond after another CPU queued it, but
//! keeps its own CPU busy. If there are more runnable threads than CPUs, some producers need that
//! CPU. A worker that *yields* lets them run, and then finds all the items that they queued. The
//! better mode depends on the number of threads and on how they wait, which no worker can see. A
//! busy pool therefore counts the items taken in windows of half a millisecond, and uses the mode
//! with the higher count for most windows.

use sync::time;

const WINDOW_US: u64 = 500;
/// The number of items in a window below which the pool counts as not loaded, and busy-polling
/// costs nothing.
const LOAD: u64 = 64;
/// The number of windows before a window that probes the other mode. It doubles whenever a probe
/// does not complete more items, because threads take a while to settle after a probe.
const FIRST_PROBE: u32 = 4;
const LAST_PROBE: u32 = 64;

/// The items taken in each mode. Guarded by the pool lock.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The start of the window, in cycles.
    since: u64,
    nr_taken: u64,
    /// The mode of this window, and the preferred mode. `true` means that workers yield.
    yields: bool,
    chosen: bool,
    /// Items in a window, by mode; 0 if unknown. This is a slowly decaying maximum, because threads
    /// take some windows to settle after a change of mode.
    per_window: [u64; 2],
    /// The number of windows until the next probe, and from that probe to the one after.
    until_probe: u32,
    probe_after: u32,
}

impl Pace {
    /// Records that `nr_taken` items have been taken up to the time `now`, in cycles. At the end of
    /// a window, returns the mode of the next one.
    pub(crate) fn note(&mut self, now: u64, nr_taken: u64) -> Option<bool> {
        let window = WINDOW_US * time::cycles_per_us();
        // The counter of another CPU, or of the machine to which this one migrated, may be behind.
        let Some(span) = now.checked_sub(self.since) else {
            self.since = now;
            return None;
        };
        if span < window {
            return None;
        }
        let count = nr_taken.wrapping_sub(self.nr_taken);
        let per_window = u128::from(count) * u128::from(window) / u128::from(span);
        self.since = now;
        self.nr_taken = nr_taken;
        self.yields = self.after(per_window as u64);
        Some(self.yields)
    }

    /// Returns the mode to use after a window in which `per_window` items were taken.
    fn after(&mut self, per_window: u64) -> bool {
        if per_window < LOAD {
            (self.chosen, self.per_window) = Default::default();
            (self.until_probe, self.probe_after) = (FIRST_PROBE, FIRST_PROBE);
            return false;
        }
        let most = &mut self.per_window[usize::from(self.yields)];
        *most = per_window.max(*most - *most / 4);
        if self.yields == self.chosen {
            if self.until_probe == 0 {
                return !self.chosen;
            }
            self.until_probe -= 1;
            return self.chosen;
        }
        // This window was a probe.
        if self.per_window[usize::from(self.yields)] > self.per_window[usize::from(self.chosen)] {
            self.chosen = self.yields;
            self.probe_after = FIRST_PROBE;
        } else {
            self.probe_after = (self.probe_after * 2).min(LAST_PROBE);
        }
        self.until_probe = self.probe_after;
        self.chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `nr_windows` windows in which each mode completes the items that `items` returns.
    /// Returns the number of windows in which workers yielded.
    fn yielded(pace: &mut Pace, nr_windows: usize, items: impl Fn(bool) -> u64) -> usize {
        let window = |_: &usize| {
            let yields = pace.yields;
            pace.yields = pace.after(items(yields));
            yields
        };
        (0..nr_windows).filter(window).count()
    }

    fn by(polls: u64, yields: u64) -> impl Fn(bool) -> u64 {
        move |is_yielding| if is_yielding { yields } else { polls }
    }

    #[test]
    fn most_windows_are_in_the_way_that_gets_more_done() {
        let mut pace = Pace::default();
        assert_eq!(yielded(&mut pace, 1, by(1, 1)), 0);
        assert!(yielded(&mut pace, 400, by(300, 500)) > 380);
        // The preferred mode also follows a change in the load.
        yielded(&mut pace, 200, by(500, 300));
        assert!(yielded(&mut pace, 400, by(500, 300)) < 20);
    }

    #[test]
    fn idle_pool_busy_polls() {
        let mut pace = Pace::default();
        assert!(yielded(&mut pace, 100, by(300, 500)) > 80);
        yielded(&mut pace, 1, by(0, 0));
        assert_eq!(yielded(&mut pace, 100, by(LOAD - 1, LOAD - 1)), 0);
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn window_ends_at_its_time() {
        let window = WINDOW_US * time::cycles_per_us();
        let mut pace = Pace::default();
        assert_eq!(pace.note(window * 9, 0), Some(false));
        assert_eq!(pace.note(window * 10 - 1, 10_000), None);
        assert_eq!(pace.note(window * 10, 10_000), Some(false));
        assert_eq!(pace.note(window, 10_000), None, "the counter was set back");
        assert_eq!(pace.note(window * 2, 20_000), Some(false));
    }
}
