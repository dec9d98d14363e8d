//! One grace period: scan the readers, ask them, pass the heavy barrier, wait for holdouts.
//!
//! ```text
//! start      gp_seq becomes odd; sections that begin from here on have this number
//! scan       each reader: OFF → skip;   in a section, or was lately → ASK;   idle → maybe PARK
//! answers?   running readers answer at their next unlock; if all do, no barrier is needed
//! heavy      every reader's word is current; every later lock and unlock sees ASK and PARK
//! confirm    not in a section, or in one that has this gp_seq → passed;   else count it on the tree
//! wait       for the last report
//! end        gp_seq becomes even
//! ```
//!
//! An idle reader looks the same as one whose store is not visible yet. Only the barrier
//! distinguishes them. It interrupts every CPU of this process and costs 10 to 20 µs. A reader that
//! answers needs no barrier, and a running reader answers in a tenth of a microsecond. If all
//! readers are parked, neither is needed.
//!
//! The driver is not in a section, so it skips its own slot; driving the grace period is its
//! quiescent state. The kernel's grace-period thread has done the same since 7.1, which halved the
//! wait on an idle machine.

use std::time::Duration;

use base::internal::trace;
use sync::{asym, hint, thread, twin};

use super::{
    domain::Domain,
    fork,
    seq::{self, ScanResult},
    slot::Slot,
    tunables,
};

/// Number of checks for answers before the driver pays for the barrier. About a microsecond: a
/// tenth of the barrier.
pub(super) const ANSWER_SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 60 };
/// Number of readers above which the driver does not wait for answers, because some of the readers
/// are likely not running. A guess.
pub(super) const ANSWERS_AT_ONCE: usize = 16;

impl Domain {
    /// Runs a grace period. The caller has the right to drive; `me` is its slot, in no section.
    pub(super) fn drive(&self, me: Option<&Slot>) {
        // Must precede the first barrier that a section relies on.
        asym::init();
        fork::watch();
        let gp_seq = self.start();
        trace::gp_start("rcu", gp_seq);
        let first_fqs_ms = tunables::first_fqs_ms();
        if first_fqs_ms > 0 {
            wait_as_the_kernel(first_fqs_ms);
        }
        if self.nr_active.get() > 0 {
            let seen = self.scan(gp_seq, me);
            if !seen.have_all_answered() {
                let holdouts = self.confirm(gp_seq, seen);
                if self.count(&holdouts) {
                    self.wait_for_reports(&holdouts);
                }
            }
        }
        self.end(gp_seq);
        trace::gp_end("rcu", gp_seq);
    }
}

/// Sleeps for fixed times, as the kernel's grace periods do.
#[cold]
fn wait_as_the_kernel(first_fqs_ms: u32) {
    let sleep = |span_ms: u32| thread::sleep(Duration::from_millis(span_ms.into()));
    sleep(first_fqs_ms);
    if tunables::EARLY_QS.get() == 0 {
        // Without early reports the kernel's driver does not report its own quiescent state in its
        // first scan, and waits for the second.
        sleep(tunables::NEXT_FQS_MS.get());
    }
}

/// Readers that a grace period may have to wait for.
#[derive(Debug, Default)]
struct Candidates<'a> {
    asked: Vec<&'a Slot>,
    quiet: Vec<&'a Slot>,
}

impl Candidates<'_> {
    /// Returns `true` if every candidate was asked and has answered. Spins for a moment, for
    /// readers that run.
    fn have_all_answered(&self) -> bool {
        if !self.quiet.is_empty() || self.asked.len() > ANSWERS_AT_ONCE {
            return false;
        }
        let answered = || self.asked.iter().all(|slot| slot.flags().has_answered());
        let mut nr_left = ANSWER_SPINS;
        while nr_left > 0 && !answered() {
            nr_left -= 1;
            hint::spin_loop();
        }
        answered()
    }
}

impl Domain {
    /// Scans all readers but `me`, and asks those that may be running.
    fn scan(&self, gp_seq: u64, me: Option<&Slot>) -> Candidates<'_> {
        let mut seen = Candidates::default();
        for slot in self.roster.iter() {
            // If the slot is OFF, its reader either stays parked or sees the removals:
            // ORDER(parked).
            if slot.flags().is_off() || me.is_some_and(|me| std::ptr::eq(me, slot)) {
                continue;
            }
            match seq::scan(slot.ctr(), gp_seq) {
                ScanResult::Ask => {
                    slot.flags().ask();
                    seen.asked.push(slot);
                }
                ScanResult::Quiet => seen.quiet.push(slot),
                ScanResult::Park => {
                    slot.flags().want_parked();
                    seen.quiet.push(slot);
                }
            }
        }
        seen
    }

    /// Reads each candidate again behind the heavy barrier, and returns the holdouts.
    fn confirm<'a>(&self, gp_seq: u64, seen: Candidates<'a>) -> Vec<&'a Slot> {
        // ORDER(reader): the other end; see `Slot::lock`.
        // If our barrier comes first, a section that begins later sees PARK and the removals.
        // If the reader's barrier comes first, we see its section in the word that we load below.
        // Test: a_section_keeps_what_it_sees, locking_needs_its_light_barrier
        // ORDER(holdout): the other end; see `Slot::unlock`.
        // If our barrier comes first, the reader's unlock sees ASK and answers. If the reader's
        // barrier comes first, we load its word as not nested and do not wait for it.
        // Test: a_holdout_ends_the_wait, unlocking_needs_its_light_barrier
        if !twin::armed("rcu: no heavy barrier") {
            asym::heavy();
        }
        let Candidates { mut asked, quiet } = seen;
        let nr_asked = asked.len();
        for slot in quiet {
            let ctr = slot.ctr();
            if seq::holds_up(ctr, gp_seq) {
                // The section began between our scan and the barrier, with a number that it had
                // loaded before.
                slot.flags().ask();
                asked.push(slot);
            } else if !seq::is_in_section(ctr) {
                slot.flags().confirm_parked(&self.nr_active);
            }
        }
        if asked.len() > nr_asked {
            // The readers asked just now must also see ASK at their unlock: ORDER(holdout).
            asym::heavy();
        }
        asked.retain(|slot| {
            let holds_up = !slot.flags().has_answered() && seq::holds_up(slot.ctr(), gp_seq);
            if !holds_up {
                slot.flags().withdraw();
            }
            holds_up
        });
        asked
    }

    /// Counts `holdouts` on the tree; returns `true` if any has not reported yet.
    fn count(&self, holdouts: &[&Slot]) -> bool {
        if holdouts.is_empty() {
            return false;
        }
        let tree = self.tree();
        tree.init();
        for slot in holdouts {
            if twin::armed("rcu: a holdout is not counted") {
                continue;
            }
            let leaf = tree.leaf_of(slot.cpu());
            tree.mark(leaf);
            if !slot.count_on(leaf) {
                // The reader answered before we marked it, so we count down for it. The leaf's bias
                // prevents this from being the last report.
                tree.report(leaf);
            }
        }
        !tree.all_marked()
    }
}
