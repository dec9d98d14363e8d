//! Grace periods of a domain: numbered, driven by a waiter, shared by all waiters that came before one began.
//!
//! `seq` is even while no grace period runs, and odd while one does. A waiter notes the number at which the first grace
//! period that begins from now on will have ended. The first waiter takes the right to drive. The others sleep until their
//! number is reached or the right is free.

use sync::{
    asym,
    atomic::{AtomicBool, AtomicU64, Ordering},
    twin,
};

use crate::{
    trace,
    wake::{EventCount, SpinBudget, spin_as_waiter},
};

use super::{domain::Shared, slots::Parity};

/// How many fresh budgets of 16 rounds an expedited grace period spins: some tens of microseconds where no other thread
/// wants the CPU.
const EXPEDITED_SPINS: u32 = 8;

/// Names a grace period of one domain. Made by [`Domain::get_state`](super::Domain::get_state).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cookie {
    /// The sequence number at its end.
    end_seq: u64,
}

/// How to wait for readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Spins for as long as has paid off for this thread.
    Normal,
    /// Spins long in any case.
    Expedited,
}

#[derive(Debug)]
pub(super) struct GracePeriods {
    /// A: two for each grace period, odd while one runs. Written by the driver.
    seq: AtomicU64,
    /// A: `true` while a thread drives.
    is_driven: AtomicBool,
    /// Notified when `seq` or `is_driven` has moved.
    moved: EventCount,
}

/// Returns the number at the end of the first grace period to begin after `seq` was read.
fn end_of_next(seq: u64) -> u64 {
    // A grace period that runs began before, so it does not count.
    (seq + 3) & !1
}

#[cfg(not(any(loom, shuttle)))]
impl Cookie {
    pub(in crate::rcu) fn bits(self) -> u64 {
        self.end_seq
    }

    pub(in crate::rcu) fn of_bits(end_seq: u64) -> Self {
        Self { end_seq }
    }
}

impl GracePeriods {
    pub(super) fn new() -> Self {
        Self {
            seq: AtomicU64::new(0),
            is_driven: AtomicBool::new(false),
            moved: EventCount::new(),
        }
    }

    pub(super) fn snap(&self) -> Cookie {
        // ORDER(srcu-cookie): store buffering, other end in `run_grace_period`.
        //   here:         value unlinked;  fence;  read seq
        //   grace period: seq is odd;      heavy;  sum of locks
        // If our fence comes first, each section that its sums miss sees the unlinking, so that grace period may serve us.
        // If the heavy barrier comes first, we read its odd number, and our cookie names the one after it.
        // Test: srcu_cookie_needs_its_fence
        twin::fence("srcu: no fence before the cookie");
        Cookie {
            end_seq: end_of_next(self.seq.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn is_over(&self, cookie: Cookie) -> bool {
        // ORDER(srcu-end): publish and consume, other end in `run_grace_period`.
        //   grace period: unlocks seen; seq is even Release
        //   here:         seq Acquire;  the caller frees
        // If its store comes first, the sections that it waited for happened before us. If our load comes first, it returns
        // a smaller number, and the caller goes on waiting.
        // Test: a_srcu_reader_keeps_what_it_reached
        self.seq.load(Ordering::Acquire) >= cookie.end_seq
    }
}

impl Shared {
    /// Waits for the grace period of `cookie`, and drives it if no other thread does.
    ///
    /// # Panics
    ///
    /// As [`must_be_free_to_wait`](Self::must_be_free_to_wait), when it has to wait.
    pub(super) fn wait_for(&self, cookie: Cookie, patience: Patience) {
        let gp = &self.gp;
        while !gp.is_over(cookie) {
            self.must_be_free_to_wait();
            // Acquire pairs with the Release below. If the last driver's store comes first, we take the right, and see its
            // `seq`. If our exchange comes first, it fails, and we sleep: that driver notifies `moved` after its store.
            let taken =
                gp.is_driven
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_err() {
                gp.moved
                    .wait_until(|| gp.is_over(cookie) || !gp.is_driven.load(Ordering::Relaxed));
                continue;
            }
            if !gp.is_over(cookie) {
                self.run_grace_period(patience);
            }
            // Release pairs with the exchange above.
            gp.is_driven.store(false, Ordering::Release);
            gp.moved.notify_all();
        }
    }

    /// Returns `true` if no section is open. The caller has the domain exclusively.
    pub(super) fn is_drained(&self) -> bool {
        let parity = self.parity();
        self.slots.drained(parity) && self.slots.drained(parity.other())
    }

    /// Runs a grace period. The caller has the right to drive.
    fn run_grace_period(&self, patience: Patience) {
        let seq = self.gp.seq.load(Ordering::Relaxed);
        self.gp.seq.store(seq + 1, Ordering::Relaxed);
        trace::gp_start("srcu", seq + 1);
        // ORDER(srcu-enter): other end in `enter`.
        // If our barrier comes first, the section sees what was unlinked. If the reader's comes first, our sums see it.
        // Test: srcu_section_needs_its_fence
        // ORDER(srcu-cookie): other end in `snap`.
        // If our barrier comes first, the waiter reads our odd number and does not count on us. If the waiter's fence comes
        // first, what it unlinked is unlinked for every section that our sums miss.
        // Test: srcu_cookie_needs_its_fence
        if !twin::armed("srcu: no fence before the sums") {
            asym::heavy();
        }
        let current = self.parity();
        if !twin::armed("srcu: single flip") {
            self.drain(current.other(), patience);
        }
        if !self.slots.drained(current) {
            self.set_parity(current.other());
            self.drain(current, patience);
        }
        // ORDER(srcu-end): other end in `is_over`.
        // Test: a_srcu_reader_keeps_what_it_reached
        self.gp.seq.store(seq + 2, Ordering::Release);
        trace::gp_end("srcu", seq + 1);
    }

    /// Waits until the sums of `parity` have been equal once.
    ///
    /// While it sleeps, the next section of `parity` that ends wakes it.
    fn drain(&self, parity: Parity, patience: Patience) {
        let is_drained = || self.slots.drained(parity);
        let was_seen = match patience {
            Patience::Normal => spin_as_waiter(is_drained),
            Patience::Expedited => {
                (0..EXPEDITED_SPINS).any(|_| SpinBudget::new().spin(u32::MAX, is_drained))
            }
        };
        if was_seen {
            return;
        }
        let asked = self.asked();
        loop {
            asked.word().store(parity.word() + 1, Ordering::Relaxed);
            // ORDER(srcu-leave): other end in `leave`.
            // If our barrier comes first, the reader sees `asked` and wakes us. If the reader's comes first, our sums below
            // have its unlock.
            // Test: srcu_leaving_needs_its_fence
            if !twin::armed("srcu: no fence before the sleep") {
                asym::heavy();
            }
            if is_drained() {
                break;
            }
            asked.wait(parity.word() + 1);
        }
        asked.word().store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_that_runs_is_not_waited_for_but_the_next() {
        assert_eq!(end_of_next(0), 2);
        assert_eq!(end_of_next(1), 4);
        assert_eq!(end_of_next(2), 4);
    }
}
