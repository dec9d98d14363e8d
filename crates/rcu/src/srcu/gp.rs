//! One grace period of a domain: makes each reader pass a barrier, and waits for equal sums.
//!
//! ```text
//! start      seq becomes odd; a full fence
//! scan       each line: OFF → skip;   counted since the last scan → ASK;   else PARK
//! answers?   running readers answer at the end of their next section; if all do, no barrier
//! heavy      else every thread passes a full fence; lines that have PARK get OFF
//! drain      both parities, see `slots.rs`
//! end        seq becomes even
//! ```
//!
//! A grace period that must wait for readers can be put aside: its thread asks the readers, gives
//! up the right to drive and continues with other work (`runners.rs`), while `seq` stays odd. The
//! next thread that acquires the right continues. A reader that answers notifies the runners.
//!
//! Numbers, the right to drive, waiters, requests and answers work as for the global flavor
//! (`periods.rs`, `slot.rs`). Here a quiescent state only replaces the barrier, after which the
//! counters show the open sections.

use base::internal::trace;
use base::internal::wake::{SpinBudget, spin_as_waiter};
use sync::atomic::Ordering;
use sync::{asym, hint, twin};

use super::domain::Shared;
use super::slots::Parity;
use crate::domain::ANSWER_SPINS;
use crate::periods::GpCookie;

/// The number of times that an expedited grace period renews its spin budget of 16 rounds.
const EXPEDITED_SPINS: u32 = 8;

/// Identifies a grace period of one domain; created by
/// [`Domain::get_state`](super::Domain::get_state).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cookie(#[doc(hidden)] pub GpCookie);

const NONE: u32 = 0;
/// The driver waits for readers of the parity that new sections do not use.
const FIRST: u32 = 1;
/// The parity has changed, and the driver waits for readers of the previous parity.
const SECOND: u32 = 2;

impl Shared {
    pub(super) fn state(&self) -> Cookie {
        Cookie(self.periods.state())
    }

    pub(super) fn is_over(&self, cookie: Cookie) -> bool {
        self.periods.is_over(cookie.0)
    }

    pub(super) fn synchronize(&self, is_expedited: bool) {
        self.wait_for(self.state(), is_expedited);
    }

    /// Waits for the grace period of `cookie`, and drives it if no other thread does. If it has to
    /// wait, panics in the same cases as [`must_be_free_to_wait`](Self::must_be_free_to_wait).
    pub(super) fn wait_for(&self, cookie: Cookie, is_expedited: bool) {
        if !self.is_over(cookie) {
            self.must_be_free_to_wait();
            let drive = || _ = self.drive(|parity| self.drain(parity, is_expedited));
            let park = || self.slots.park_mine();
            self.periods.wait_for(cookie.0, park, drive);
            // The domain may be aside. Its runner sets `is_aside` before it checks whether there is
            // a driver, and our drive ended with a full fence.
            self.notify_if_aside();
        }
    }

    pub(super) fn notify_if_aside(&self) {
        if self.callbacks.is_aside.load(Ordering::Relaxed)
            && !twin::armed("srcu: the runners are not notified")
        {
            self.runners.notify();
        }
    }

    /// Drives the grace period of `cookie` as far as possible without waiting. Returns `true` if
    /// it is over. Otherwise the runners are notified when another call may make progress.
    pub(super) fn try_pass(&self, cookie: Cookie) -> bool {
        let is_aside = &self.callbacks.is_aside;
        // This precedes the check for a driver and the question to the readers.
        is_aside.store(true, Ordering::Relaxed);
        while !self.is_over(cookie) {
            let Some(driver) = self.periods.try_drive() else {
                self.slots.park_mine();
                return false;
            };
            let passed = self.is_over(cookie) || self.drive(|parity| self.ask(parity));
            drop(driver);
            if !passed {
                return false;
            }
        }
        is_aside.store(false, Ordering::Relaxed);
        true
    }

    /// Returns `true` if [`try_pass`](Self::try_pass) may make progress: its grace period is over,
    /// or no other thread drives and a reader has answered.
    pub(super) fn may_go_on(&self, cookie: Cookie) -> bool {
        let is_answered = || self.front.asked.word().load(Ordering::Relaxed) == 0;
        self.is_over(cookie) || !self.periods.is_driven() && is_answered()
    }

    /// Runs a grace period, or continues one that was put aside. The caller has the right to drive.
    /// `drain` returns `true` once the sums of a parity have been equal. If it returns `false`, the
    /// grace period is put aside, and this returns `false`.
    fn drive(&self, drain: impl Fn(Parity) -> bool) -> bool {
        let phase = &self.front.phase;
        if phase.load(Ordering::Relaxed) == NONE {
            // ORDER(srcu-enter): other end in `enter`. If the reader was asked, its answer ensures
            // the order. If it is parked, ORDER(parked) does. Otherwise the heavy barrier does.
            // Test: unparked_srcu_reader_protects_its_data
            let seq = self.periods.start();
            trace::gp_start("srcu", seq);
            if !self.slots.have_all_answered() {
                if !twin::armed("srcu: no fence before the sums") {
                    asym::heavy();
                }
                self.slots.confirm();
            }
            if self.slots.all_drained() {
                self.end();
                return true;
            }
            phase.store(FIRST, Ordering::Relaxed);
        }
        if phase.load(Ordering::Relaxed) == FIRST {
            let other = self.parity().other();
            if !twin::armed("srcu: single flip") && !drain(other) {
                return false;
            }
            self.front.parity.store(other.word(), Ordering::Relaxed);
            phase.store(SECOND, Ordering::Relaxed);
        }
        if !drain(self.parity().other()) {
            return false;
        }
        phase.store(NONE, Ordering::Relaxed);
        self.end();
        true
    }

    fn end(&self) {
        let seq = self.periods.gp_seq();
        self.periods.end(seq);
        trace::gp_end("srcu", seq);
    }

    /// Runs a grace period if that takes neither the heavy barrier nor a wait. Returns `true` if
    /// one was run. In a model, the light barrier would hide answers and parking.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn passes_unaided(&self) -> bool {
        let seq = self.periods.start();
        let passed = self.slots.have_all_answered() && self.slots.all_drained();
        if passed {
            self.periods.end(seq);
        }
        passed
    }

    /// Waits until the sums of `parity` have been equal once. Returns `true`. If `is_expedited` is
    /// set, spins for a long time before it sleeps.
    fn drain(&self, parity: Parity, is_expedited: bool) -> bool {
        let is_drained = || self.slots.drained(parity);
        let was_seen = self.drains_soon(parity)
            || if is_expedited {
                (0..EXPEDITED_SPINS).any(|_| SpinBudget::new().spin(u32::MAX, is_drained))
            } else {
                spin_as_waiter(is_drained)
            };
        while !was_seen && !self.ask_now(parity) {
            self.front.asked.wait(parity.word() + 1);
        }
        true
    }

    /// Returns `true` if the sums of `parity` have been equal once, or has the runners notified.
    fn ask(&self, parity: Parity) -> bool {
        self.drains_soon(parity) || self.ask_now(parity)
    }

    fn drains_soon(&self, parity: Parity) -> bool {
        (0..ANSWER_SPINS).any(|_| {
            hint::spin_loop();
            self.slots.drained(parity)
        })
    }

    /// Asks the readers of `parity`. Returns `true` if the sums are equal after that.
    fn ask_now(&self, parity: Parity) -> bool {
        let asked = self.front.asked.word();
        // Release: see `answer`.
        asked.store(parity.word() + 1, Ordering::Release);
        // ORDER(srcu-leave): other end in `leave`.
        if !twin::armed("srcu: no fence before the sleep") {
            asym::heavy();
        }
        let is_drained = self.slots.drained(parity);
        if is_drained {
            asked.store(0, Ordering::Relaxed);
        }
        is_drained
    }
}
