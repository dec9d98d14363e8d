//! The readers of the process, and the threads that wait for their grace periods.
//!
//! `periods.rs` numbers the grace periods and makes one of the waiters the driver.
//!
//! # The readers
//!
//! The list of all readers' slots only grows, so a driver walks it without a lock while threads
//! start and exit. An exiting thread frees its slot for the next one.
//!
//! # One grace period
//!
//! The driver scans the readers, asks them, passes the heavy barrier, and waits for holdouts.
//!
//! ```text
//! start      gp_seq becomes odd; sections that begin from here on have this number
//! scan       each reader: OFF → skip;   in a section, or was lately → ASK;   idle → maybe PARK
//! answers?   running readers answer at their next unlock; if all do, no barrier is needed
//! heavy      every reader's word is current; every later lock and unlock sees ASK and PARK
//! confirm    not in a section, or in one with this gp_seq → passed;   else count it on the tree
//! wait       for the last report
//! end        gp_seq becomes even
//! ```
//!
//! Only the barrier distinguishes an idle reader from one whose store is not visible yet. It
//! interrupts every CPU that runs a thread of this process and costs 10 to 20 µs. A running reader
//! answers in a tenth of a microsecond, and parked readers need neither an answer nor a barrier.
//!
//! The driver skips its own slot: driving the grace period is its quiescent state.

use std::ptr;
use std::time::Duration;

use base::internal::trace;
use base::internal::wake::{EventCount, report};
use crossbeam_utils::CachePadded;
use mpscq::RawStack;
use sync::atomic::{AtomicU64, Ordering};
use sync::{asym, thread, twin};

use super::node::Tree;
use super::periods::{self, GpCookie, Periods, ScanResult};
use super::slot::{NrActive, Slot};
use super::{fork, tunables};

/// The number of checks for answers, about a microsecond, before the driver pays for the barrier.
pub(super) const ANSWER_SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 60 };
/// The number of asked readers above which the driver does not wait for answers, because some are
/// probably not running. A guess.
pub(super) const ANSWERS_AT_ONCE: usize = 16;

/// Returns `true` if this thread drives a grace period. User code that it calls must then not wait
/// for a grace period.
pub(super) fn drives() -> bool {
    report::doubts() & report::DRIVES != 0
}

/// A set of readers, and the grace periods that wait for them.
pub(super) struct Domain {
    pub(super) periods: Periods,
    /// The word that an outermost section stores. Readers only read its cache line.
    first_level: CachePadded<AtomicU64>,
    /// A: the bits of the latest cookie that a user may poll. The value never decreases.
    latest_cookie: CachePadded<AtomicU64>,
    pub(super) nr_active: NrActive,
    pub(super) roster: Roster,
    pub(super) tree: Tree,
    /// The driver waits here for the last report.
    pub(super) reported: EventCount,
}

impl Domain {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self {
                periods: Periods::new(),
                first_level: CachePadded::new(AtomicU64::new(1)),
                latest_cookie: CachePadded::new(AtomicU64::new(0)),
                nr_active: NrActive::new(),
                roster: Roster::new(),
                tree: Tree::new(),
                reported: EventCount::new(),
            }
        }
    }

    // ---- for readers ----

    #[inline(always)]
    pub(super) fn first_level(&self) -> u64 {
        // ORDER(began-later): publish and consume, other end in `start`.
        //   driver: (removals);  fence;  gp_seq into first_level  Release;
        //           skip readers whose word has this gp_seq
        //   reader: load first_level  Acquire, store it;  load the protected data
        // If the driver's store comes first, the section has its number and sees every removal that
        // this grace period serves, so the driver may skip it. If our load comes first, the section
        // has an older number, and the driver waits for it. (In a model, `lock` has a full fence
        // that hides this. `renew` has none.)
        // Test: a_section_that_begins_later_is_not_waited_for, a_report_ends_a_section
        let order = twin::order("qsbr: relaxed number", Ordering::Acquire);
        self.first_level.load(order)
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) const fn place_of_first_level(&self) -> *const () {
        ptr::from_ref(&self.first_level).cast()
    }

    /// Reports a holdout's quiescent state on `leaf`. The last report wakes the driver.
    pub(super) fn report(&self, leaf: usize) {
        if self.tree.report(leaf) {
            self.reported.notify_all();
        }
    }

    // ---- for threads that request a grace period ----

    /// Returns `true` if no thread but `me` can be in a section, so that a grace period would wait
    /// for nothing.
    pub(super) fn nobody_reads(&self, me: Option<&Slot>) -> bool {
        self.nr_active.is_nobody(me.map(Slot::flags))
    }

    /// Waits until every section that is open now has ended. `me` is this thread's slot, which is
    /// in no section.
    ///
    /// If no other thread reads, no grace period is needed. However, if a user may hold a cookie
    /// whose grace period is not over, this runs one, so that the cookie expires.
    pub(super) fn synchronize(&self, me: Option<&Slot>) {
        if tunables::first_fqs_ms() > 0 || !self.nobody_reads(me) || self.has_open_cookie() {
            self.wait_for(self.periods.state(), me);
        }
    }

    pub(super) fn state_to_poll(&self) -> GpCookie {
        let cookie = self.periods.state();
        let bits = cookie.bits();
        // Relaxed is sufficient: a `synchronize` that is ordered after this call reads this cookie
        // or a later one. Most cookies are created while the latest one is still open.
        if self.latest_cookie.load(Ordering::Relaxed) < bits {
            self.latest_cookie.fetch_max(bits, Ordering::Relaxed);
        }
        cookie
    }

    fn has_open_cookie(&self) -> bool {
        let latest = GpCookie::of_bits(self.latest_cookie.load(Ordering::Relaxed));
        !twin::armed("rcu: synchronize overlooks cookies") && !self.periods.is_over(latest)
    }

    /// Waits until the grace period of `cookie` is over, and drives it if no other thread does.
    /// `me` is this thread's slot, which is in no section.
    pub(super) fn wait_for(&self, cookie: GpCookie, me: Option<&Slot>) {
        // If another thread drives the grace period, it must not wait for this thread.
        let park = || me.into_iter().for_each(|slot| slot.park(self));
        self.periods.wait_for(cookie, park, || {
            report::doubt(report::DRIVES, true);
            self.drive(me);
            report::doubt(report::DRIVES, false);
        });
    }

    // ---- in a child of `fork`, which has no other thread ----

    pub(super) fn inherit(&self) {
        // If the fork came from a stall handler, this thread continues its grace period.
        let (ended, has_changed) = self.periods.inherit(drives());
        if has_changed {
            self.first_level.store(periods::first_level(ended), Ordering::Relaxed);
        }
        let mut nr_active = 0;
        for slot in self.roster.iter() {
            if slot.is_mine() {
                nr_active += u32::from(slot.inherit(ended));
            } else {
                slot.vacate();
            }
        }
        self.nr_active.inherit(nr_active);
        self.reported.forget();
    }

    // ---- for the driver ----

    pub(super) fn start(&self) -> u64 {
        let gp_seq = self.periods.start();
        // ORDER(began-later): the other end; see `first_level`.
        self.first_level.store(periods::first_level(gp_seq), Ordering::Release);
        gp_seq
    }

    /// Runs a grace period. The caller has the right to drive, and its slot `me` is in no section.
    pub(super) fn drive(&self, me: Option<&Slot>) {
        // This must precede the first barrier that a section relies on.
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
        self.periods.end(gp_seq);
        trace::gp_end("rcu", gp_seq);
    }
}

/// Sleeps for fixed times, as the kernel's grace periods do.
#[cold]
fn wait_as_the_kernel(first_fqs_ms: u32) {
    let sleep = |span_ms: u32| thread::sleep(Duration::from_millis(span_ms.into()));
    sleep(first_fqs_ms);
    if tunables::EARLY_QS.get() == 0 {
        // Without early reports, the kernel's driver is quiescent only in the second scan.
        sleep(tunables::NEXT_FQS_MS.get());
    }
}

/// The readers for which a grace period may have to wait.
#[derive(Default)]
struct Candidates<'a> {
    asked: Vec<&'a Slot>,
    quiet: Vec<&'a Slot>,
}

impl Candidates<'_> {
    /// Returns `true` if every candidate was asked and has answered within a moment.
    fn have_all_answered(&self) -> bool {
        if !self.quiet.is_empty() || self.asked.len() > ANSWERS_AT_ONCE {
            return false;
        }
        self.asked.iter().all(|slot| slot.flags().answers_soon())
    }
}

impl Domain {
    /// Scans all readers but `me`, and asks those that may be running.
    fn scan(&self, gp_seq: u64, me: Option<&Slot>) -> Candidates<'_> {
        let mut seen = Candidates::default();
        for slot in self.roster.iter() {
            // An OFF reader stays parked or sees the removals: ORDER(parked).
            if slot.flags().is_off() || me.is_some_and(|me| ptr::eq(me, slot)) {
                continue;
            }
            match periods::scan(slot.ctr(), gp_seq) {
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

    /// Reads each candidate again after the heavy barrier, and returns the holdouts.
    fn confirm<'a>(&self, gp_seq: u64, seen: Candidates<'a>) -> Vec<&'a Slot> {
        // ORDER(reader): the other end; see `Slot::lock`.
        // ORDER(holdout): the other end; see `Slot::unlock`.
        if !twin::armed("rcu: no heavy barrier") {
            asym::heavy();
        }
        let Candidates { mut asked, quiet } = seen;
        let nr_asked = asked.len();
        for slot in quiet {
            let ctr = slot.ctr();
            if periods::holds_up(ctr, gp_seq) {
                // The section began after our scan, with a number that it had loaded before.
                slot.flags().ask();
                asked.push(slot);
            } else if !periods::is_in_section(ctr) {
                slot.flags().confirm_parked(&self.nr_active);
            }
        }
        if asked.len() > nr_asked {
            // The readers asked just now must also see ASK at their unlock: ORDER(holdout).
            asym::heavy();
        }
        asked.retain(|slot| {
            let holds_up = !slot.flags().has_answered() && periods::holds_up(slot.ctr(), gp_seq);
            if !holds_up {
                slot.flags().withdraw();
            }
            holds_up
        });
        asked
    }

    /// Counts `holdouts` on the tree. Returns `true` if any of them has not reported yet.
    fn count(&self, holdouts: &[&Slot]) -> bool {
        if holdouts.is_empty() {
            return false;
        }
        let tree = &self.tree;
        tree.init();
        for slot in holdouts {
            if twin::armed("rcu: a holdout is not counted") {
                continue;
            }
            let leaf = tree.leaf_of(slot.cpu());
            tree.mark(leaf);
            if !slot.count_on(leaf) {
                // The reader has already answered, so we count down for it. The leaf's bias
                // prevents this from being the last report.
                tree.report(leaf);
            }
        }
        !tree.all_marked()
    }
}

pub(super) struct Roster {
    /// Entries are never popped.
    entries: RawStack<Entry>,
}

struct Entry {
    slot: Slot,
    /// I: the next entry.
    next: *mut Entry,
}

impl Roster {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self { entries: RawStack::new() }
        }
    }

    /// Claims a free slot for this thread, or creates one. Walks over all slots in use.
    pub(super) fn join(&self) -> &Slot {
        if let Some(slot) = self.iter().find(|slot| slot.take()) {
            return slot;
        }
        let entry = Box::new(Entry { slot: Slot::new(), next: ptr::null_mut() });
        let taken = entry.slot.take();
        debug_assert!(taken, "no other thread can reach the slot yet");
        let entry = Box::into_raw(entry);
        // SAFETY: no other thread can reach `entry` until the push succeeds.
        let link = |below| unsafe { (*entry).next = below };
        self.entries.push(entry, link);
        // SAFETY: pushed entries are freed only with the roster, which `self` keeps alive.
        unsafe { &(*entry).slot }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        // ORDER(mpscq-stack): the other end of the push in `join`. If the push comes first, we walk
        // over its slot. If our load comes first, we do not see the slot, which is OFF like a
        // parked one. Its first section leaves that state and sees the removals; see ORDER(parked).
        // Test: threads_start_and_exit
        let mut next = self.entries.top().load(Ordering::Acquire);
        if twin::armed("rcu: the newest reader is skipped") {
            // SAFETY: as below.
            next = unsafe { next.as_ref() }.map_or(next, |entry| entry.next);
        }
        std::iter::from_fn(move || {
            // SAFETY: the pointer is null, or leads to an entry that was fully initialized before
            // its push (ORDER above) and is freed only with the roster.
            let entry = unsafe { next.as_ref() }?;
            next = entry.next;
            Some(&entry.slot)
        })
    }
}

// SAFETY: entries are shared as `&Slot`, which is `Sync`; `next` does not change after the push.
unsafe impl Send for Roster {}
// SAFETY: as above.
unsafe impl Sync for Roster {}

sync::on_drop!(Roster, it => {
    let mut next = it.entries.top().load(Ordering::Acquire);
    while !next.is_null() {
        // SAFETY: the pointer came from `into_raw` in `join`, and we have exclusive access.
        let entry = unsafe { Box::from_raw(next) };
        next = entry.next;
    }
});
