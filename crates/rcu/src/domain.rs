//! The readers of the process, and the threads that wait for their grace periods.
//!
//! `periods.rs` numbers the grace periods and makes one of the waiters the driver; `gp.rs` runs
//! one.

#[cfg(not(any(loom, shuttle)))]
use std::ptr;

use base::internal::wake::{EventCount, report};
use sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
    twin,
};

use crossbeam_utils::CachePadded;

use super::{
    flags::NrActive,
    node::Tree,
    periods::Periods,
    roster::Roster,
    seq::{self, GpCookie},
    slot::Slot,
    tunables,
};

/// Returns `true` if this thread drives. User code that it calls must then not wait for a grace
/// period.
pub(super) fn drives() -> bool {
    report::doubts() & report::DRIVES != 0
}

/// Readers and the grace periods that wait for them.
#[derive(Debug)]
pub(super) struct Domain {
    periods: Periods,
    /// Written by the driver: the word that an outermost section stores. On a cache line that
    /// readers only read.
    first_level: CachePadded<AtomicU64>,
    /// A: the bits of the latest cookie that a user may poll. The value never decreases.
    latest_cookie: CachePadded<AtomicU64>,
    pub(super) nr_active: NrActive,
    pub(super) roster: Roster,
    tree: OnceLock<Tree>,
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
                tree: OnceLock::new(),
                reported: EventCount::new(),
            }
        }
    }

    // ---- for readers ----

    /// Returns the word that an outermost section stores.
    #[inline(always)]
    pub(super) fn first_level(&self) -> u64 {
        // ORDER(began-later): publish and consume, other end in `start`.
        //   driver: (removals);  fence;  gp_seq into first_level  Release;  skip readers whose word has this gp_seq
        //   reader: load first_level  Acquire, store it;  load the protected data
        // If the driver's store comes first, the section has its number and sees every removal that
        // this grace period serves: the driver may skip it. If our load comes first, the section
        // has an older number, and the driver waits for it.
        // (In a model `lock` has a full fence that hides this; `renew` has none.)
        // Test: a_section_that_begins_later_is_not_waited_for, a_report_needs_acquire
        let order = twin::order("qsbr: relaxed number", Ordering::Acquire);
        self.first_level.load(order)
    }

    /// Returns the address of that word.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) const fn place_of_first_level(&self) -> *const () {
        ptr::from_ref(&self.first_level).cast()
    }

    /// Reports a holdout's quiescent state on `leaf`, and wakes the driver if it was the last
    /// report.
    pub(super) fn report(&self, leaf: usize) {
        if self.tree().report(leaf) {
            self.reported.notify_all();
        }
    }

    // ---- for threads that request a grace period ----

    /// Returns `true` if no thread but `me` can be in a section, so that a grace period would have
    /// nothing to wait for.
    pub(super) fn nobody_reads(&self, me: Option<&Slot>) -> bool {
        self.nr_active.is_nobody(me.map(Slot::flags))
    }

    /// Waits until every section that is open now has ended. `me` is this thread's slot, in no
    /// section.
    ///
    /// If no other thread reads, no grace period is needed, and none is counted. However, if a user
    /// may hold a cookie whose grace period is not over, this runs a grace period, which ends that
    /// cookie.
    pub(super) fn synchronize(&self, me: Option<&Slot>) {
        if tunables::first_fqs_ms() > 0 || !self.nobody_reads(me) || self.has_open_cookie() {
            self.wait_for(self.state(), me);
        }
    }

    /// Returns the cookie of the first grace period that begins after this call.
    pub(super) fn state(&self) -> GpCookie {
        self.periods.state()
    }

    /// Returns a cookie that a user may poll.
    pub(super) fn state_to_poll(&self) -> GpCookie {
        let cookie = self.state();
        let bits = cookie.bits();
        // Relaxed: a `synchronize` that is ordered after this call reads this cookie or a later
        // one. Most cookies are created while the latest one is still open, and cost a load here.
        if self.latest_cookie.load(Ordering::Relaxed) < bits {
            self.latest_cookie.fetch_max(bits, Ordering::Relaxed);
        }
        cookie
    }

    /// Returns `true` if a user may hold a cookie whose grace period is not over.
    fn has_open_cookie(&self) -> bool {
        let latest = GpCookie::of_bits(self.latest_cookie.load(Ordering::Relaxed));
        !twin::armed("rcu: synchronize overlooks cookies") && !self.is_over(latest)
    }

    /// Returns `true` if the grace period of `cookie` is over.
    pub(super) fn is_over(&self, cookie: GpCookie) -> bool {
        self.periods.is_over(cookie)
    }

    /// Waits until the grace period of `cookie` is over, and drives it if no other thread does.
    ///
    /// `me` is this thread's slot, in no section.
    pub(super) fn wait_for(&self, cookie: GpCookie, me: Option<&Slot>) {
        let park = || {
            // Another thread drives, and must not wait for this one.
            if let Some(slot) = me {
                slot.park(self);
            }
        };
        self.periods.wait_for(cookie, park, || {
            report::doubt(report::DRIVES, true);
            self.drive(me);
            report::doubt(report::DRIVES, false);
        });
    }

    // ---- in a child of `fork`, which has no other thread ----

    /// Resets everything to the state of a process that never had another thread.
    pub(super) fn inherit(&self) {
        // If the fork came from a stall handler, this thread continues its grace period.
        let (ended, has_changed) = self.periods.inherit(drives());
        if has_changed {
            self.first_level
                .store(seq::first_level(ended), Ordering::Relaxed);
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

    /// Returns `gp_seq`: two for each grace period, odd while one runs.
    pub(super) fn gp_seq(&self) -> u64 {
        self.periods.gp_seq()
    }

    /// Returns the tree on which holdouts report.
    pub(super) fn tree(&self) -> &Tree {
        self.tree.get_or_init(|| {
            if cfg!(any(loom, shuttle)) {
                // Two CPUs that share nothing: the threads of a model register on one or the other
                // in turn.
                return Tree::new(2, Box::new([0, 1]));
            }
            if cfg!(miri) {
                // The interpreter does not open files of the host.
                return Tree::new(1, Box::new([]));
            }
            Tree::of_this_machine()
        })
    }

    /// Begins a grace period and returns its number, which is odd.
    pub(super) fn start(&self) -> u64 {
        let gp_seq = self.periods.start();
        // ORDER(began-later): the other end; see `first_level`.
        // Test: a_section_that_begins_later_is_not_waited_for, a_report_needs_acquire
        self.first_level
            .store(seq::first_level(gp_seq), Ordering::Release);
        gp_seq
    }

    /// Ends the grace period `gp_seq`.
    pub(super) fn end(&self, gp_seq: u64) {
        self.periods.end(gp_seq);
    }
}
