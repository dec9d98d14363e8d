//! Those who wait, and those who ask whether they would have to.
//!
//! # One grace period for many
//!
//! `gp_seq` is even while no grace period runs. Whoever wants one notes what it has to reach (a cookie): the end of
//! the next grace period that *begins* from now on. Whoever finds nobody driving drives; the others wait, each on the
//! bucket of its cookie, and one grace period serves all whose cookie it reaches.
//!
//! ```text
//! waiter: (removal);          fence;  load gp_seq → cookie
//! driver: gp_seq = odd;       fence;  look at readers ...;  gp_seq = even  Release;  is_driven = false;  wake
//! ```
//!
//! A waiter whose cookie this grace period reaches loaded `gp_seq` before it became odd, so its fence precedes the
//! driver's, and what the driver lets pass as *began later* sees the waiter's removal, too.
//!
//! # Nobody sleeps for nothing
//!
//! A waiter that is about to sleep announces itself and then looks again at `gp_seq` and `is_driven`; a driver stores
//! both and then looks for waiters (`wake/event_count.rs` has the argument). When a driver lets go at `gp_seq = e`,
//! all waiters with a cookie of `e` or earlier are woken, and of those who have to wait longer, all of whom hold the
//! cookie `e + 2`, one: it drives, or finds that somebody else does, or that it need not.

use sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    twin,
};
use topology::Topology;

use crossbeam_utils::CachePadded;

use super::{
    node::Tree,
    roster::Roster,
    seq::{self, GpCookie},
    slot::Slot,
    tunables,
};
use crate::wake::{EventCount, report, spin_as_waiter};

/// Over how many buckets waiters are spread. Cookies in use at one time are two, and waiters that leave slowly hold up one more.
const NR_WAIT_BUCKETS: usize = 4;
/// How many waiters are woken at a time. The kernel wakes five from the grace period itself and leaves the rest to
/// a worker.
const WAKE_BATCH: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// Returns `true` if this thread drives: whatever foreign code it calls must not wait for a grace period.
pub(super) fn drives() -> bool {
    report::doubts() & report::DRIVES != 0
}

/// Readers and the grace periods that wait for them.
#[derive(Debug)]
pub(super) struct Domain {
    /// Written by the driver: even: idle, odd: a grace period runs.
    gp_seq: CachePadded<AtomicU64>,
    /// Written by the driver: what an outermost section stores. On a line that readers only read.
    first_level: CachePadded<AtomicU64>,
    /// A: how many slots are not in an extended quiescent state.
    nr_active: CachePadded<AtomicU32>,
    /// A: whether somebody drives.
    is_driven: CachePadded<AtomicBool>,
    pub(super) roster: Roster,
    wait_buckets: [CachePadded<EventCount>; NR_WAIT_BUCKETS],
    tree: OnceLock<Tree>,
    /// Where the driver waits for the last report.
    pub(super) reported: EventCount,
}

/// The right to run grace periods; given up when dropped, and then whoever waits is woken.
#[derive(Debug)]
pub(super) struct Driver<'a>(pub(super) &'a Domain);

impl Domain {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self {
                gp_seq: CachePadded::new(AtomicU64::new(0)),
                first_level: CachePadded::new(AtomicU64::new(1)),
                nr_active: CachePadded::new(AtomicU32::new(0)),
                is_driven: CachePadded::new(AtomicBool::new(false)),
                roster: Roster::new(),
                wait_buckets: [
                    CachePadded::new(EventCount::new()),
                    CachePadded::new(EventCount::new()),
                    CachePadded::new(EventCount::new()),
                    CachePadded::new(EventCount::new()),
                ],
                tree: OnceLock::new(),
                reported: EventCount::new(),
            }
        }
    }

    // ---- for readers ----

    /// Returns what an outermost section stores in its word.
    #[inline(always)]
    pub(super) fn first_level(&self) -> u64 {
        // ORDER(began-later): publish and consume, other end in `start`.
        //   driver: (removals);  fence;  gp_seq into first_level  Release;  skip whoever says this gp_seq
        //   reader: load first_level  Acquire, say it;  load what RCU protects
        // Who says the present number sees every removal that this grace period is for. (In a model `lock` has a full
        // fence that hides it; `renew` has none.)
        // Test: a_section_that_begins_later_is_not_waited_for, a_report_needs_acquire
        let order = twin::order("qsbr: relaxed number", Ordering::Acquire);
        self.first_level.load(order)
    }

    /// Counts a reader that left its extended quiescent state.
    pub(super) fn count_in(&self) {
        self.nr_active.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a reader that went into an extended quiescent state, after its flag says so.
    pub(super) fn count_out(&self) {
        // Release, and read-modify-writes pass it on: whoever reads zero has all sections before it.
        self.nr_active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts down `leaf` for a holdout, and wakes the driver if it was the last.
    pub(super) fn report(&self, leaf: usize) {
        if self.tree().report(leaf) {
            self.reported.notify_all();
        }
    }

    // ---- for whoever wants a grace period ----

    /// Returns `true` if no thread but `me` can be in a section, so that a grace period would have nobody to wait for.
    pub(super) fn nobody_reads(&self, me: Option<&Slot>) -> bool {
        // ORDER(parked): the other end; see `Slot::leave_parking`.
        // Test: a_parked_reader_comes_back, leaving_a_parking_needs_its_fence
        fence(Ordering::SeqCst);
        match self.nr_active.load(Ordering::Acquire) {
            0 => true,
            // The one may be us. Looked at after the count: a driver that counts us out sets OFF before.
            1 => me.is_some_and(|slot| !slot.is_off()),
            _ => false,
        }
    }

    /// Waits until every section that is open now has ended. `me` is this thread's slot, in no section.
    pub(super) fn synchronize(&self, me: Option<&Slot>) {
        if tunables::first_fqs_ms() > 0 || !self.nobody_reads(me) {
            self.wait_for(self.state(), me);
        }
    }

    /// Remembers this moment.
    pub(super) fn state(&self) -> GpCookie {
        // ORDER(cookie): store buffering, other end in `Driver::start`; see the top of the file.
        // Test: a_grace_period_serves_whoever_came_before_it, a_cookie_needs_its_fence
        twin::fence("rcu: no fence before the cookie");
        GpCookie::after(self.gp_seq.load(Ordering::Relaxed))
    }

    /// Returns `true` if the grace period of `cookie` is over.
    pub(super) fn is_over(&self, cookie: GpCookie) -> bool {
        // ORDER(gp-end): publish and consume, other end in `Driver::end`: what all sections did, which the driver
        // has acquired, is over for whoever sees the number.
        // Test: a_section_keeps_what_it_sees
        cookie.is_over(self.gp_seq.load(Ordering::Acquire))
    }

    /// Waits until the grace period of `cookie` is over, and drives it if nobody else does.
    ///
    /// `me` is this thread's slot, in no section.
    pub(super) fn wait_for(&self, cookie: GpCookie, me: Option<&Slot>) {
        while !self.is_over(cookie) {
            if let Some(driver) = self.try_drive() {
                if !self.is_over(cookie) {
                    driver.run(me);
                }
                continue;
            }
            // Others drive now, and must not wait for us.
            if let Some(slot) = me {
                slot.park(self);
            }
            if !spin_as_waiter(|| self.is_over(cookie) || !self.is_driven()) {
                let waiting = self.wait_buckets[cookie.wait_bucket(NR_WAIT_BUCKETS)].prepare();
                if !self.is_over(cookie) && self.is_driven() {
                    waiting.wait();
                }
            }
        }
    }

    fn is_driven(&self) -> bool {
        self.is_driven.load(Ordering::Relaxed)
    }

    /// Takes the right to drive, if nobody has it.
    pub(super) fn try_drive(&self) -> Option<Driver<'_>> {
        // ORDER(drive): publish and consume, other end in `Driver::drop`: one driver's words become the next one's.
        // Test: a_grace_period_serves_whoever_came_before_it
        let taken = !self.is_driven()
            && self
                .is_driven
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // Not `then_some`: a driver that is made and dropped lets go of what another one drives.
        taken.then(|| {
            report::doubt(report::DRIVES, true);
            Driver(self)
        })
    }

    // ---- in a child of `fork`, which has no other thread ----

    /// Makes all as it is where no thread but this one was ever there.
    pub(super) fn inherit(&self) {
        let gp_seq = self.gp_seq();
        // In a stall handler: this grace period goes on, and this thread with it.
        let drives = drives();
        let ended = if drives { gp_seq } else { seq::before(gp_seq) };
        if ended != gp_seq {
            self.gp_seq.store(ended, Ordering::Relaxed);
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
        self.nr_active.store(nr_active, Ordering::Relaxed);
        self.is_driven.store(drives, Ordering::Relaxed);
        self.wait_buckets.iter().for_each(|bucket| bucket.forget());
        self.reported.forget();
    }

    // ---- for the driver ----

    /// Returns how far grace periods have come.
    pub(super) fn gp_seq(&self) -> u64 {
        self.gp_seq.load(Ordering::Relaxed)
    }

    /// Returns how many slots are not in an extended quiescent state.
    pub(super) fn nr_active(&self) -> u32 {
        self.nr_active.load(Ordering::Acquire)
    }

    /// Returns the tree on which holdouts report.
    pub(super) fn tree(&self) -> &Tree {
        self.tree.get_or_init(|| {
            if cfg!(any(loom, shuttle)) {
                // Two CPUs that share nothing: models register on either by turns.
                return Tree::new(2, Box::new([0, 1]));
            }
            match Topology::detect() {
                Ok(machine) => Tree::for_machine(&machine),
                Err(_) => Tree::new(1, Box::new([])),
            }
        })
    }
}

impl Driver<'_> {
    /// Begins a grace period; returns its number, which is odd.
    pub(super) fn start(&self) -> u64 {
        let domain = self.0;
        let gp_seq = domain.gp_seq.load(Ordering::Relaxed).wrapping_add(1);
        domain.gp_seq.store(gp_seq, Ordering::Relaxed);
        // ORDER(cookie): the other end; see the top of the file.
        // Test: a_grace_period_serves_whoever_came_before_it, a_cookie_needs_its_fence
        // ORDER(parked): the other end; see `Slot::leave_parking`.
        // Test: a_parked_reader_comes_back, leaving_a_parking_needs_its_fence
        fence(Ordering::SeqCst);
        // ORDER(began-later): the other end; see `first_level`.
        // Test: a_section_that_begins_later_is_not_waited_for, a_report_needs_acquire
        domain
            .first_level
            .store(seq::first_level(gp_seq), Ordering::Release);
        gp_seq
    }

    /// Ends the grace period `gp_seq`.
    pub(super) fn end(&self, gp_seq: u64) {
        // ORDER(gp-end): the other end; see `is_over`.
        // (Loom cannot tell it from Relaxed: it takes the full fences of the grace period for synchronization.)
        // Test: a_section_keeps_what_it_sees
        self.0
            .gp_seq
            .store(gp_seq.wrapping_add(1), Ordering::Release);
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let domain = self.0;
        report::doubt(report::DRIVES, false);
        let reached = GpCookie::reached(domain.gp_seq.load(Ordering::Relaxed));
        // ORDER(drive): the other end; see `try_drive`.
        // Test: a_grace_period_serves_whoever_came_before_it
        domain.is_driven.store(false, Ordering::Release);
        // The next driver first: it has work to do.
        if !twin::armed("rcu: nobody to drive next") {
            domain.wait_buckets[reached.next().wait_bucket(NR_WAIT_BUCKETS)].notify_one();
        }
        domain.wait_buckets[reached.wait_bucket(NR_WAIT_BUCKETS)].notify_in_batches(WAKE_BATCH);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn whoever_finds_a_driver_leaves_it_the_right_to_drive() {
        let domain = Domain::new();
        let driver = domain.try_drive();
        assert!(domain.try_drive().is_none());
        assert!(domain.try_drive().is_none(), "the failed attempt let go");
        drop(driver);
        assert!(domain.try_drive().is_some());
    }
}
