//! How the workers of a pool wait for work: whichever of two ways gets more done.
//!
//! A worker that *looks* finds an item within a microsecond after it came from another CPU, and keeps its own CPU meanwhile.
//! Where more threads want the CPUs than there are, some of them would queue items on that very CPU: a worker that *gives way* lets them,
//! and finds what all of them have queued. Which gets more done depends on how many they are and on how they wait, and no worker sees
//! that. So a pool that is busy counts what is taken, in windows of half a millisecond, most of them in the way that got more done.

use sync::time;

/// What a worker does that found nothing, before it parks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Wait {
    /// Looks for a while, and then gives its CPU away a few times.
    #[default]
    Looks,
    /// Gives its CPU away at once.
    GivesWay,
}

const WINDOW_US: u64 = 500;
/// Fewer items in a window are no load: a look is all gain then.
const LOAD: u64 = 64;
/// After so many windows one is in the other way, to see whether that gets more done; after twice as many each time that it
/// does not, for threads take a while to find their places again.
const FIRST_PROBE: u32 = 4;
const LAST_PROBE: u32 = 64;

/// What a pool has got done by either way. Guarded by the pool's lock.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the window began, in cycles.
    since: u64,
    /// Items that had been taken then.
    nr_taken: u64,
    /// The way of this window, and that of most.
    wait: Wait,
    chosen: Wait,
    /// Items a window, by either way: the most of late, for it takes some windows until threads have found the places in which a look
    /// is answered at once. 0 where that is not known.
    per_window: [u64; 2],
    /// Windows until one is in the other way, and after how many the next one will be.
    until_probe: u32,
    probe_after: u32,
}

impl Pace {
    /// Takes note that so many items have been taken at the time `now`, in cycles. Returns how to wait from here on where a
    /// window is over.
    pub(crate) fn note(&mut self, now: u64, nr_taken: u64) -> Option<Wait> {
        let window = WINDOW_US * time::cycles_per_us();
        // The counter of another CPU, or of another machine that this one was moved to, may be behind.
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
        self.wait = self.after(per_window as u64);
        Some(self.wait)
    }

    /// Returns how to wait after a window in which so many items were taken.
    fn after(&mut self, per_window: u64) -> Wait {
        if per_window < LOAD {
            (self.chosen, self.per_window) = Default::default();
            (self.until_probe, self.probe_after) = (FIRST_PROBE, FIRST_PROBE);
            return Wait::Looks;
        }
        let most = &mut self.per_window[self.wait as usize];
        *most = per_window.max(*most - *most / 4);
        if self.wait == self.chosen {
            if self.until_probe == 0 {
                return self.chosen.other();
            }
            self.until_probe -= 1;
            return self.chosen;
        }
        // That was a probe.
        if self.per_window[self.wait as usize] > self.per_window[self.chosen as usize] {
            self.chosen = self.wait;
            self.probe_after = FIRST_PROBE;
        } else {
            self.probe_after = (self.probe_after * 2).min(LAST_PROBE);
        }
        self.until_probe = self.probe_after;
        self.chosen
    }
}

impl Wait {
    fn other(self) -> Self {
        match self {
            Self::Looks => Self::GivesWay,
            Self::GivesWay => Self::Looks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `nr_windows` in which a way gets done what `items` says, and returns how many of them gave way.
    fn given_way(pace: &mut Pace, nr_windows: usize, items: impl Fn(Wait) -> u64) -> usize {
        let window = |_: &usize| {
            let wait = pace.wait;
            pace.wait = pace.after(items(wait));
            wait == Wait::GivesWay
        };
        (0..nr_windows).filter(window).count()
    }

    /// So many items a window by either way.
    fn by(looks: u64, gives_way: u64) -> impl Fn(Wait) -> u64 {
        move |wait| match wait {
            Wait::Looks => looks,
            Wait::GivesWay => gives_way,
        }
    }

    #[test]
    fn most_windows_are_in_the_way_that_gets_more_done() {
        let mut pace = Pace::default();
        assert_eq!(given_way(&mut pace, 1, by(1, 1)), 0);
        assert!(given_way(&mut pace, 400, by(300, 500)) > 380);
        // And after the load has changed, too.
        given_way(&mut pace, 200, by(500, 300));
        assert!(given_way(&mut pace, 400, by(500, 300)) < 20);
    }

    #[test]
    fn a_pool_without_load_looks() {
        let mut pace = Pace::default();
        assert!(given_way(&mut pace, 100, by(300, 500)) > 80);
        given_way(&mut pace, 1, by(0, 0));
        assert_eq!(given_way(&mut pace, 100, by(LOAD - 1, LOAD - 1)), 0);
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn a_window_is_over_when_its_time_is() {
        let window = WINDOW_US * time::cycles_per_us();
        let mut pace = Pace::default();
        assert_eq!(pace.note(window * 9, 0), Some(Wait::Looks));
        assert_eq!(pace.note(window * 10 - 1, 10_000), None);
        assert_eq!(pace.note(window * 10, 10_000), Some(Wait::Looks));
        assert_eq!(pace.note(window, 10_000), None, "the counter was set back");
        assert_eq!(pace.note(window * 2, 20_000), Some(Wait::Looks));
    }
}
