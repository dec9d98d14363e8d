//! The ways in which a thread polls for items.

use std::thread;

use sync::hint::spin_loop;
use sync::time::{cycles, cycles_per_us};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// The consumer polls at once, and takes the cache line that a producer is about to write.
    Tight,
    Paused,
}

/// The duration of a pause in microseconds, about as long as a few dozen pushes take. Shorter
/// pauses amount to tight polling. With longer pauses, producers run out of items.
const PAUSE_US: u64 = 1;

/// The number of failed polls, or of pauses, before the thread yields its CPU, which a thread with
/// items may need. Both take a few microseconds: shorter than a thousand items, and longer than a
/// yield that finds no other thread.
const LOOKS_BEFORE_YIELD: u32 = 1024;
const PAUSES_BEFORE_YIELD: u32 = 4;

pub struct Backoff {
    polling: Polling,
    misses: u32,
    pause_cycles: u64,
}

impl Backoff {
    pub fn new(polling: Polling) -> Self {
        Self { polling, misses: 0, pause_cycles: PAUSE_US * cycles_per_us() }
    }

    #[inline(always)]
    pub fn hit(&mut self) {
        self.misses = 0;
    }

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

    fn misses_until_it_yields(backoff: &mut Backoff) -> u32 {
        (1..).find(|_| backoff.miss()).unwrap()
    }

    #[test]
    fn many_misses_in_a_row_give_the_cpu_away() {
        for (polling, limit) in
            [(Polling::Tight, LOOKS_BEFORE_YIELD), (Polling::Paused, PAUSES_BEFORE_YIELD)]
        {
            let mut backoff = Backoff::new(polling);
            assert!(!backoff.miss());
            backoff.hit();
            assert_eq!(misses_until_it_yields(&mut backoff), limit);
            assert_eq!(misses_until_it_yields(&mut backoff), limit);
        }
    }

    #[test]
    fn a_pause_lasts() {
        let start = cycles();
        Backoff::new(Polling::Paused).miss();
        assert!(cycles().wrapping_sub(start) >= PAUSE_US * cycles_per_us());
    }
}
