//! One grace period of a domain: has the readers pass a barrier each, and waits until the sums are equal.
//!
//! ```text
//! start      seq becomes odd; a full fence
//! scan       each line: OFF → skip;   counted since the last scan → ASK;   else PARK
//! answers?   running readers answer at the end of their next section; if all do, no barrier is needed
//! heavy      else every thread passes a full fence; lines that have PARK get OFF
//! drain      both parities, see `slots.rs`
//! end        seq becomes even
//! ```
//!
//! Numbers, the right to drive and waiters are those of `rcu` (`periods.rs`), and so are questions and answers (`flags.rs`).
//! Here a quiescent state is no end of a wait: it only stands for the barrier, behind which the counters tell who reads.

use sync::{asym, atomic::Ordering, hint, twin};

use crate::{
    rcu::{gp::ANSWER_SPINS, seq::GpCookie},
    trace,
    wake::{SpinBudget, spin_as_waiter},
};

use super::{domain::Shared, slots::Parity};

/// How many fresh budgets of 16 rounds an expedited grace period spins: some tens of microseconds where no other thread
/// wants the CPU.
const EXPEDITED_SPINS: u32 = 8;

/// Names a grace period of one domain. Made by [`Domain::get_state`](super::Domain::get_state).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cookie(GpCookie);

/// How to wait for readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Spins for as long as has paid off for this thread.
    Normal,
    /// Spins long in any case.
    Expedited,
}

#[cfg(not(any(loom, shuttle)))]
impl Cookie {
    pub(in crate::rcu) fn bits(self) -> u64 {
        self.0.bits()
    }

    pub(in crate::rcu) fn of_bits(bits: u64) -> Self {
        Self(GpCookie::of_bits(bits))
    }
}

impl Shared {
    pub(super) fn state(&self) -> Cookie {
        Cookie(self.periods.state())
    }

    pub(super) fn is_over(&self, cookie: Cookie) -> bool {
        self.periods.is_over(cookie.0)
    }

    /// Waits until every section that has begun has ended.
    ///
    /// # Panics
    ///
    /// As [`must_be_free_to_wait`](Self::must_be_free_to_wait).
    pub(super) fn synchronize(&self, patience: Patience) {
        self.wait_for(self.state(), patience);
    }

    /// Waits for the grace period of `cookie`, and drives it if no other thread does.
    ///
    /// # Panics
    ///
    /// As [`must_be_free_to_wait`](Self::must_be_free_to_wait), when it has to wait.
    pub(super) fn wait_for(&self, cookie: Cookie, patience: Patience) {
        if !self.is_over(cookie) {
            self.must_be_free_to_wait();
            self.periods
                .wait_for(cookie.0, || self.slots.park_mine(), || self.drive(patience));
        }
    }

    /// Returns `true` if no section is open. The caller has the domain exclusively.
    pub(super) fn is_drained(&self) -> bool {
        self.slots.all_drained()
    }

    /// Runs a grace period. The caller has the right to drive.
    fn drive(&self, patience: Patience) {
        // ORDER(srcu-enter): other end in `enter`, where the reader was asked or is parked, by its answer or by
        // ORDER(parked), and else by the heavy barrier.
        // If our barrier comes first, the section sees what was unlinked. If the reader's comes first, our sums see it.
        // Test: srcu_section_needs_its_fence
        let seq = self.periods.start();
        trace::gp_start("srcu", seq);
        if !self.slots.have_all_answered() {
            if !twin::armed("srcu: no fence before the sums") {
                asym::heavy();
            }
            self.slots.confirm();
        }
        let current = self.parity();
        if !self.slots.all_drained() {
            if !twin::armed("srcu: single flip") {
                self.drain(current.other(), patience);
            }
            self.set_parity(current.other());
            self.drain(current, patience);
        }
        self.periods.end(seq);
        trace::gp_end("srcu", seq);
    }

    /// Runs a grace period if it takes neither the heavy barrier nor a wait; returns `true` if it did. For models, in which the
    /// light barrier is a full fence and would hide what answers and parking are for.
    #[cfg(any(loom, shuttle))]
    pub(in crate::rcu) fn passes_unaided(&self) -> bool {
        let seq = self.periods.start();
        let passed = self.slots.have_all_answered() && self.slots.all_drained();
        if passed {
            self.periods.end(seq);
        }
        passed
    }

    /// Waits until the sums of `parity` have been equal once.
    ///
    /// While it sleeps, the next section of `parity` that ends wakes it.
    fn drain(&self, parity: Parity, patience: Patience) {
        let is_drained = || self.slots.drained(parity);
        let is_soon_drained = (0..ANSWER_SPINS).any(|_| {
            hint::spin_loop();
            is_drained()
        });
        if is_soon_drained {
            return;
        }
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
