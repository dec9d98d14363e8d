//! Completions and latches, on which producers wait for items of pools that have no way to wait.

use std::thread;

use sync::atomic::{AtomicUsize, Ordering};
use sync::futex::Futex;
use sync::hint::spin_loop;

/// The completion is not done, and its waiter does not sleep.
const ARMED: u32 = 0;
/// The waiter sleeps, or is about to sleep.
const ASLEEP: u32 = 1;
const DONE: u32 = 2;

/// The way in which a waiter delays before it sleeps. A waiter that is still awake when its item
/// has run needs no wake-up. This affects the figures more than the pool does, so pools are
/// compared with the same wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Parks,
    Yields,
    /// The waiter polls a hundred times, yields the CPU eight times, and then parks.
    Looks,
}

/// A reusable flag that one thread sets and one thread waits for.
///
/// Setting it makes a system call only if the waiter sleeps.
pub struct Completion {
    state: Futex,
}

impl Waiting {
    pub const ALL: [Self; 3] = [Self::Parks, Self::Yields, Self::Looks];

    const fn looks_and_yields(self) -> (u32, u32) {
        match self {
            Self::Parks => (0, 0),
            Self::Yields => (0, 1),
            Self::Looks => (100, 8),
        }
    }

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
        Self { state: Futex::new(DONE) }
    }
}

impl Completion {
    /// Resets the completion. The waiter calls this before any thread can complete the completion.
    #[inline]
    pub fn arm(&self) {
        // Relaxed is sufficient, because submitting the item to the pool publishes this store.
        self.state.word().store(ARMED, Ordering::Relaxed);
    }

    #[inline]
    pub fn complete(&self) {
        // The waiter may arm the completion again as soon as it reads DONE. A late wake-up is then
        // spurious, and harmless because the waiter checks the state in a loop.
        let key = self.state.key();
        // ORDER(completion): publish, other end in `wait`. If our swap comes first, the waiter
        // acquires the writes by the item. If the waiter's exchange comes first, we read ASLEEP and
        // wake it.
        // Test: waiter_sees_writes_before_the_completion.
        if self.state.word().swap(DONE, Ordering::Release) == ASLEEP {
            key.wake(1);
        }
    }

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

    #[inline]
    pub fn wait(&self) {
        let word = self.state.word();
        // ORDER(completion): consume, other end in `complete`, in the failed exchange and the loop.
        // Test: waiter_sees_writes_before_the_completion.
        let claim = word.compare_exchange(ARMED, ASLEEP, Ordering::Relaxed, Ordering::Acquire);
        if claim.is_ok() {
            while word.load(Ordering::Acquire) == ASLEEP {
                self.state.wait(ASLEEP);
            }
        }
    }
}

#[derive(Default)]
pub struct Latch {
    missing: AtomicUsize,
    done: Completion,
}

impl Latch {
    /// Resets the latch to wait for `arrivals` arrivals, which must be at least one.
    pub fn arm(&self, arrivals: usize) {
        self.missing.store(arrivals, Ordering::Relaxed);
        self.done.arm();
    }

    /// Returns `true` if this arrival was the last one.
    #[inline]
    pub fn arrive(&self) -> bool {
        // ORDER(latch): publish and consume along one word, both ends on this line. The last
        // arrival acquires the writes by all others and publishes them through
        // `Completion::complete`.
        // Test: a_latch_waits_for_every_arrival.
        let last = self.missing.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.done.complete();
        }
        last
    }

    pub fn wait(&self) {
        self.done.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_sees_writes_before_the_completion() {
        Waiting::ALL.into_iter().for_each(ping_pong);
    }

    fn ping_pong(waiting: Waiting) {
        let (there, back, value) =
            (Completion::default(), Completion::default(), AtomicUsize::new(0));
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
