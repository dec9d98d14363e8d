//! What a thread does when it has looked for something in vain.

use std::thread;

use sync::hint::spin_loop;
use sync::time::{cycles, cycles_per_us};

/// What the consumer does after it found the queue empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Looks again at once, and so takes the line that a producer is about to write.
    Tight,
    /// Leaves the queue alone for a moment, in which items gather.
    Paused,
}

/// How long a pause is, in microseconds: some tens of pushes. Shorter is tight polling by another name, longer
/// lets producers run out of items.
const PAUSE_US: u64 = 1;

/// After so many looks in vain, or pauses, the thread gives its CPU away: there may be more threads than CPUs, and
/// one of them has what it waits for. Both are a few microseconds: little beside what a thousand items take, so that
/// waiting is no part of the figure where threads share a CPU, and more than a yield to nobody costs.
const LOOKS_BEFORE_YIELD: u32 = 1024;
const PAUSES_BEFORE_YIELD: u32 = 4;

/// Counts looks in vain.
#[derive(Debug)]
pub struct Patience {
    polling: Polling,
    misses: u32,
    pause_cycles: u64,
}

impl Patience {
    /// Makes one that has missed nothing yet.
    #[must_use]
    pub fn new(polling: Polling) -> Self {
        Self {
            polling,
            misses: 0,
            pause_cycles: PAUSE_US * cycles_per_us(),
        }
    }

    /// Notes that something was found.
    #[inline(always)]
    pub fn hit(&mut self) {
        self.misses = 0;
    }

    /// Notes that nothing was found; returns `true` if the CPU was given away.
    #[inline]
    pub fn miss(&mut self) -> bool {
        self.misses += 1;
        let limit = match self.polling {
            Polling::Tight => LOOKS_BEFORE_YIELD,
            Polling::Paused => {
                self.pause();
                PAUSES_BEFORE_YIELD
            }
        };
        let give_away = self.misses >= limit;
        if give_away {
            self.misses = 0;
            thread::yield_now();
        }
        give_away
    }

    fn pause(&self) {
        let start = cycles();
        while cycles().wrapping_sub(start) < self.pause_cycles {
            spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses_until_it_yields(patience: &mut Patience) -> u32 {
        (1..).find(|_| patience.miss()).unwrap()
    }

    #[test]
    fn many_misses_in_a_row_give_the_cpu_away() {
        for (polling, limit) in [
            (Polling::Tight, LOOKS_BEFORE_YIELD),
            (Polling::Paused, PAUSES_BEFORE_YIELD),
        ] {
            let mut patience = Patience::new(polling);
            assert!(!patience.miss());
            patience.hit();
            assert_eq!(misses_until_it_yields(&mut patience), limit);
            assert_eq!(misses_until_it_yields(&mut patience), limit);
        }
    }

    #[test]
    fn a_pause_lasts() {
        let start = cycles();
        Patience::new(Polling::Paused).miss();
        assert!(cycles().wrapping_sub(start) >= PAUSE_US * cycles_per_us());
    }
}
