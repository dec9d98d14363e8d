//! The ways in which a producer of this bench waits, the same for every pool that has no way of its own.

use std::thread;

use sync::atomic::{AtomicUsize, Ordering};
use sync::futex::Futex;
use sync::hint::spin_loop;

/// Nobody has completed it, nobody sleeps on it.
const ARMED: u32 = 0;
/// The waiter sleeps, or is about to.
const ASLEEP: u32 = 1;
/// Completed.
const DONE: u32 = 2;

/// What a waiter does before it sleeps.
///
/// Much of what a pool seems to be worth is its waiter's: one that looks on for a while is still awake when its item has
/// run, and needs no wake-up. So pools are compared with all waiting alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing.
    Parks,
    /// Gives its CPU away once.
    Yields,
    /// Looks a hundred times, then gives its CPU away eight times.
    Looks,
}

/// A word that one thread completes and one waits for, over and over.
///
/// Completing wakes only a waiter that sleeps.
#[derive(Debug)]
pub struct Completion {
    state: Futex,
}

impl Waiting {
    /// From the shortest to the longest.
    pub const ALL: [Self; 3] = [Self::Parks, Self::Yields, Self::Looks];

    /// Looks, and how often the CPU is given away after them.
    const fn looks_and_yields(self) -> (u32, u32) {
        match self {
            Self::Parks => (0, 0),
            Self::Yields => (0, 1),
            Self::Looks => (100, 8),
        }
    }

    /// Returns what is added to the name of a pool that is waited for in this way.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Parks => "",
            Self::Yields => "+yield",
            Self::Looks => "+look",
        }
    }
}

impl Default for Completion {
    fn default() -> Self {
        Self {
            state: Futex::new(DONE),
        }
    }
}

impl Completion {
    /// Makes it wait-worthy again; the waiter calls it, before anybody could complete it.
    #[inline]
    pub fn arm(&self) {
        // Published by whatever hands the item to the pool.
        self.state.word().store(ARMED, Ordering::Relaxed);
    }

    /// Lets the waiter go on.
    #[inline]
    pub fn complete(&self) {
        // The waiter may arm it anew as soon as it reads DONE; a wake that comes late then wakes it for
        // nothing, and it loops.
        let key = self.state.key();
        // ORDER(completion): publish, other end in `wait`: what the item wrote before is seen by the waiter.
        // Test: a_waiter_sees_what_was_written_before_the_completion.
        if self.state.word().swap(DONE, Ordering::Release) == ASLEEP {
            key.wake(1);
        }
    }

    /// Waits until it is completed.
    ///
    /// # Blocking
    ///
    /// Until [`complete`](Self::complete).
    #[inline]
    pub fn wait_by(&self, waiting: Waiting) {
        let (looks, yields) = waiting.looks_and_yields();
        for _ in 0..looks {
            if self.is_done() {
                return;
            }
            spin_loop();
        }
        for _ in 0..yields {
            if self.is_done() {
                return;
            }
            thread::yield_now();
        }
        self.wait();
    }

    #[inline]
    fn is_done(&self) -> bool {
        // ORDER(completion): consume, other end in `complete`, as in `wait`.
        self.state.word().load(Ordering::Acquire) == DONE
    }

    /// Sleeps until it is completed.
    ///
    /// # Blocking
    ///
    /// Until [`complete`](Self::complete).
    #[inline]
    pub fn wait(&self) {
        let word = self.state.word();
        // ORDER(completion): consume, other end in `complete`, on both roads to DONE.
        // Test: a_waiter_sees_what_was_written_before_the_completion.
        let claim = word.compare_exchange(ARMED, ASLEEP, Ordering::Relaxed, Ordering::Acquire);
        if claim.is_ok() {
            while word.load(Ordering::Acquire) == ASLEEP {
                self.state.wait(ASLEEP);
            }
        }
    }
}

/// A completion that takes many arrivals.
#[derive(Debug, Default)]
pub struct Latch {
    missing: AtomicUsize,
    done: Completion,
}

impl Latch {
    /// Makes it wait for `arrivals`, of which there must be at least one.
    pub fn arm(&self, arrivals: usize) {
        self.missing.store(arrivals, Ordering::Relaxed);
        self.done.arm();
    }

    /// Counts one arrival and says whether it was the last.
    #[inline]
    pub fn arrive(&self) -> bool {
        // ORDER(latch): release to acquire along one word, both ends on this line: the last to arrive has
        // seen what all others wrote, and hands it on through `Completion::complete`.
        // Test: a_latch_waits_for_every_arrival.
        let last = self.missing.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.done.complete();
        }
        last
    }

    /// Sleeps until all have arrived.
    ///
    /// # Blocking
    ///
    /// Until the last [`arrive`](Self::arrive).
    pub fn wait(&self) {
        self.done.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_sees_what_was_written_before_the_completion() {
        Waiting::ALL.into_iter().for_each(ping_pong);
    }

    fn ping_pong(waiting: Waiting) {
        let (there, back, value) = (
            Completion::default(),
            Completion::default(),
            AtomicUsize::new(0),
        );
        back.arm();
        there.arm();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=10_000 {
                    value.store(round, Ordering::Relaxed);
                    there.complete();
                    back.wait_by(waiting);
                    back.arm();
                }
            });
            for round in 1..=10_000 {
                there.wait_by(waiting);
                assert_eq!(value.load(Ordering::Relaxed), round);
                there.arm();
                back.complete();
            }
        });
    }

    #[test]
    fn a_latch_waits_for_every_arrival() {
        let (latch, arrived) = (Latch::default(), AtomicUsize::new(0));
        for _ in 0..100 {
            arrived.store(0, Ordering::Relaxed);
            latch.arm(4);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        arrived.fetch_add(1, Ordering::Relaxed);
                        latch.arrive();
                    });
                }
                latch.wait();
                assert_eq!(arrived.load(Ordering::Relaxed), 4);
            });
        }
    }
}
