//! One grace period: look, ask, pass the barrier, wait for holdouts.
//!
//! ```text
//! start      gp_seq becomes odd, sections from here on say so
//! look       at each reader: off → skip;   in a section, or lately → ASK;   idle → maybe PARK
//! answers?   running readers answer at their next unlock: then no barrier is needed
//! heavy      every reader's word is current, every later lock and unlock sees ASK and PARK
//! confirm    not in a section, or in one that says this gp_seq → passed;   else count it on the tree
//! wait       for the last report
//! end        gp_seq becomes even
//! ```
//!
//! A reader that is idle can not be told from one whose store is still on its way, so only the barrier tells; one that
//! answers needs none. The barrier interrupts every CPU of this process and costs 10 to 20 µs, the answer of a quick
//! reader a tenth of a microsecond. When all are parked, neither is needed.
//!
//! The driver itself is in no section and is not looked at: its quiescent state is reported by its driving. The
//! kernel's grace-period thread does the same since 7.1, and halved what an idle machine waits.

use std::time::Duration;

use sync::{asym, hint, thread, twin};

use super::{
    domain::{Domain, Driver},
    fork,
    seq::{self, Sight},
    slot::Slot,
    tunables,
};
use crate::trace;

/// How often the driver looks for answers before it pays for the barrier. About a microsecond: a tenth of what the
/// barrier costs.
const ANSWER_LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 60 };
/// With more readers than this to ask, some of them do not run, and will not answer soon. A guess.
const ANSWERS_AT_ONCE: usize = 16;

impl Driver<'_> {
    /// Runs a grace period; `me` is this thread's slot, in no section.
    pub(super) fn run(&self, me: Option<&Slot>) {
        let domain = self.0;
        // Before the first barrier that anybody leans on.
        asym::init();
        fork::watch();
        let gp_seq = self.start();
        trace::gp_start("rcu", gp_seq);
        let first_fqs_ms = tunables::first_fqs_ms();
        if first_fqs_ms > 0 {
            wait_as_the_kernel(first_fqs_ms);
        }
        if domain.nr_active() > 0 {
            let seen = domain.look(gp_seq, me);
            if !seen.have_all_answered() {
                let holdouts = domain.confirm(gp_seq, seen);
                if domain.count(&holdouts) {
                    domain.wait_for_reports(&holdouts);
                }
            }
        }
        self.end(gp_seq);
        trace::gp_end("rcu", gp_seq);
    }
}

/// Waits for fixed times, as the kernel's grace periods do.
#[cold]
fn wait_as_the_kernel(first_fqs_ms: u32) {
    let sleep = |span_ms: u32| thread::sleep(Duration::from_millis(span_ms.into()));
    sleep(first_fqs_ms);
    if tunables::EARLY_QS.get() == 0 {
        // The driver itself does not look idle at its first look.
        sleep(tunables::NEXT_FQS_MS.get());
    }
}

/// Readers that a grace period may have to wait for.
#[derive(Debug, Default)]
struct Seen<'a> {
    asked: Vec<&'a Slot>,
    quiet: Vec<&'a Slot>,
}

impl Seen<'_> {
    /// Returns `true` if everybody was asked and has answered, after a moment for those who run.
    fn have_all_answered(&self) -> bool {
        if !self.quiet.is_empty() || self.asked.len() > ANSWERS_AT_ONCE {
            return false;
        }
        let answered = || self.asked.iter().all(|slot| slot.has_answered());
        let mut nr_left = ANSWER_LOOKS;
        while nr_left > 0 && !answered() {
            nr_left -= 1;
            hint::spin_loop();
        }
        answered()
    }
}

impl Domain {
    /// Looks at all readers but `me`, and asks those who may be running.
    fn look(&self, gp_seq: u64, me: Option<&Slot>) -> Seen<'_> {
        let mut seen = Seen::default();
        for slot in self.roster.iter() {
            // A slot that is off now was so after `start`, or comes back later: ORDER(parked).
            if slot.is_off() || me.is_some_and(|me| std::ptr::eq(me, slot)) {
                continue;
            }
            match seq::look(slot.ctr(), gp_seq) {
                Sight::Ask => {
                    slot.ask();
                    seen.asked.push(slot);
                }
                Sight::Quiet => seen.quiet.push(slot),
                Sight::Park => {
                    slot.want_parked();
                    seen.quiet.push(slot);
                }
            }
        }
        seen
    }

    /// Makes sure of what was seen; returns the holdouts.
    fn confirm<'a>(&self, gp_seq: u64, seen: Seen<'a>) -> Vec<&'a Slot> {
        // ORDER(reader): the other end; see `Slot::lock`.
        // Test: a_section_keeps_what_it_sees, locking_needs_its_light_barrier
        // ORDER(holdout): the other end; see `Slot::unlock`.
        // Test: a_holdout_ends_the_wait, unlocking_needs_its_light_barrier
        if !twin::armed("rcu: no heavy barrier") {
            asym::heavy();
        }
        let Seen { mut asked, quiet } = seen;
        let nr_asked = asked.len();
        for slot in quiet {
            let ctr = slot.ctr();
            if seq::holds_up(ctr, gp_seq) {
                // It began between our look and the barrier, with a number that it had loaded before.
                slot.ask();
                asked.push(slot);
            } else if !seq::is_in_section(ctr) {
                slot.confirm_parked(self);
            }
        }
        if asked.len() > nr_asked {
            // Their unlocks must see the question, too.
            asym::heavy();
        }
        asked.retain(|slot| {
            let holds_up = !slot.has_answered() && seq::holds_up(slot.ctr(), gp_seq);
            if !holds_up {
                slot.never_mind();
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
                // It answered meanwhile, and counts nothing down; the bias keeps this from being the last.
                tree.report(leaf);
            }
        }
        !tree.all_marked()
    }
}
