//! Waiting for grace periods: cookies, the driver, and the waiters that share a grace period.
//!
//! # One grace period for many
//!
//! `gp_seq` is even while no grace period runs. A waiter notes a *cookie*: the value of `gp_seq` at the end of the next
//! grace period that *begins* from now on. A waiter that finds no driver becomes the driver. The others wait, each on the
//! bucket of its cookie. One grace period serves all whose cookie it reaches.
//!
//! ```text
//! waiter: (removal);          fence;  load gp_seq → cookie
//! driver: gp_seq = odd;       fence;  scan the readers ...;  gp_seq = even  Release;  is_driven = false;  wake
//! ```
//!
//! A waiter whose cookie this grace period reaches has loaded `gp_seq` before it became odd. So its fence comes before the
//! driver's, and a section that the driver passes because it *began later* sees the waiter's removal.
//!
//! # No lost wake-up
//!
//! A waiter that is about to sleep announces itself and then reads `gp_seq` and `is_driven` again. A driver stores both and
//! then checks for waiters (`wake/event_count.rs` has the argument). A driver that stops at `gp_seq = e` wakes all waiters
//! whose cookie is `e` or earlier. All other waiters have the cookie `e + 2`. The driver wakes one of them: it becomes the
//! next driver, or finds that another thread is, or that its grace period is over.

#[cfg(not(any(loom, shuttle)))]
use std::ptr;

use sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    twin,
};

use crossbeam_utils::CachePadded;

use super::{
    node::Tree,
    roster::Roster,
    seq::{self, GpCookie},
    slot::Slot,
    tunables,
};
use crate::wake::{EventCount, report, spin_as_waiter};

/// The number of buckets of waiters. Two cookies are in use at one time, and waiters that are slow to leave keep a third.
const NR_WAIT_BUCKETS: usize = 4;
/// How many waiters are woken at a time. The kernel wakes five from the grace period and leaves the rest to a worker.
const WAKE_BATCH: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// Returns `true` if this thread drives. Foreign code that it calls then must not wait for a grace period.
pub(super) fn drives() -> bool {
    report::doubts() & report::DRIVES != 0
}

/// Readers and the grace periods that wait for them.
#[derive(Debug)]
pub(super) struct Domain {
    /// Written by the driver. Even: idle; odd: a grace period runs.
    gp_seq: CachePadded<AtomicU64>,
    /// Written by the driver: the word that an outermost section stores. On a line that readers only read.
    first_level: CachePadded<AtomicU64>,
    /// A: how many slots are not in an extended quiescent state.
    nr_active: CachePadded<AtomicU32>,
    /// A: `true` while a thread drives.
    is_driven: CachePadded<AtomicBool>,
    pub(super) roster: Roster,
    wait_buckets: [CachePadded<EventCount>; NR_WAIT_BUCKETS],
    tree: OnceLock<Tree>,
    /// The driver waits here for the last report.
    pub(super) reported: EventCount,
}

/// The right to run grace periods. Dropping it gives the right up and wakes waiters.
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

    /// Returns the word that an outermost section stores.
    #[inline(always)]
    pub(super) fn first_level(&self) -> u64 {
        // ORDER(began-later): publish and consume, other end in `start`.
        //   driver: (removals);  fence;  gp_seq into first_level  Release;  skip readers whose word has this gp_seq
        //   reader: load first_level  Acquire, store it;  load what RCU protects
        // If the driver's store comes first, the section has its number and sees every removal that this grace period is
        // for: it may be skipped. If our load comes first, the section has an older number and is waited for.
        // (In a model `lock` has a full fence that hides this; `renew` has none.)
        // Test: a_section_that_begins_later_is_not_waited_for, a_report_needs_acquire
        let order = twin::order("qsbr: relaxed number", Ordering::Acquire);
        self.first_level.load(order)
    }

    /// Returns where that word is.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) const fn place_of_first_level(&self) -> *const () {
        ptr::from_ref(&self.first_level).cast()
    }

    /// Counts a reader that leaves its extended quiescent state.
    pub(super) fn count_in(&self) {
        // The fence in `Slot::leave_parking` orders this before the reads of the section: ORDER(parked). As a
        // read-modify-write it passes on what every `count_out` before it has released.
        self.nr_active.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a reader that has entered an extended quiescent state. Its flag `OFF` is set before.
    pub(super) fn count_out(&self) {
        // Release pairs with the Acquire in `nobody_reads` and `nr_active`; later read-modify-writes pass it on. If a driver
        // reads our count, our sections happened before. If it reads an older count, it looks at our slot.
        self.nr_active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Reports a holdout's quiescent state on `leaf`, and wakes the driver if it was the last report.
    pub(super) fn report(&self, leaf: usize) {
        if self.tree().report(leaf) {
            self.reported.notify_all();
        }
    }

    // ---- for threads that want a grace period ----

    /// Returns `true` if no thread but `me` can be in a section, so that a grace period would have nothing to wait for.
    pub(super) fn nobody_reads(&self, me: Option<&Slot>) -> bool {
        // ORDER(parked): the other end; see `Slot::leave_parking`.
        // If our fence comes first, a reader that leaves its parking later sees what was removed before this call. If the
        // reader's fence comes first, we read it in `nr_active`.
        // Test: a_parked_reader_comes_back, leaving_a_parking_needs_its_fence
        fence(Ordering::SeqCst);
        // Acquire pairs with `count_out`: the sections of all who were counted out happened before.
        match self.nr_active.load(Ordering::Acquire) {
            0 => true,
            // The one may be us. Our flag is read after the count: a driver that counts us out sets OFF before.
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

    /// Returns the cookie of the first grace period that begins from now on.
    pub(super) fn state(&self) -> GpCookie {
        // ORDER(cookie): store buffering, other end in `Driver::start`; see the top of the file.
        // If our fence comes first, the sections that this grace period skips see what we removed, so it may serve us. If
        // the driver's fence comes first, we read its odd number and ask for the grace period after it.
        // Test: a_grace_period_serves_whoever_came_before_it, a_cookie_needs_its_fence
        twin::fence("rcu: no fence before the cookie");
        GpCookie::after(self.gp_seq.load(Ordering::Relaxed))
    }

    /// Returns `true` if the grace period of `cookie` is over.
    pub(super) fn is_over(&self, cookie: GpCookie) -> bool {
        // ORDER(gp-end): publish and consume, other end in `Driver::end`. If the driver's store comes first, all that it
        // acquired from the sections happened before us. If our load comes first, we read a smaller number and go on waiting.
        // Test: a_section_keeps_what_it_sees
        cookie.is_over(self.gp_seq.load(Ordering::Acquire))
    }

    /// Waits until the grace period of `cookie` is over, and drives it if no other thread does.
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
            // Another thread drives, and must not wait for this one.
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

    /// Takes the right to drive, if no thread has it.
    pub(super) fn try_drive(&self) -> Option<Driver<'_>> {
        // ORDER(drive): publish and consume, other end in `Driver::drop`.
        // If the last driver's store comes first, our exchange succeeds, and we see all that it wrote. If our exchange
        // comes first, it fails, and the caller waits: that driver wakes it after its store.
        // Test: a_grace_period_serves_whoever_came_before_it
        let taken = !self.is_driven()
            && self
                .is_driven
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // Not `then_some`: it would make a `Driver` in any case, and its drop would free the right of another thread.
        taken.then(|| {
            report::doubt(report::DRIVES, true);
            Driver(self)
        })
    }

    // ---- in a child of `fork`, which has no other thread ----

    /// Resets everything to the state of a process that never had another thread.
    pub(super) fn inherit(&self) {
        let gp_seq = self.gp_seq();
        // If the fork came from a stall handler, this thread goes on with its grace period.
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

    /// Returns `gp_seq`: two for each grace period, odd while one runs.
    pub(super) fn gp_seq(&self) -> u64 {
        self.gp_seq.load(Ordering::Relaxed)
    }

    /// Returns how many slots are not in an extended quiescent state.
    pub(super) fn nr_active(&self) -> u32 {
        // Acquire pairs with `count_out`: if the driver reads zero, every section has ended before, or sees what was
        // removed (ORDER(parked)).
        self.nr_active.load(Ordering::Acquire)
    }

    /// Returns the tree on which holdouts report.
    pub(super) fn tree(&self) -> &Tree {
        self.tree.get_or_init(|| {
            if cfg!(any(loom, shuttle)) {
                // Two CPUs that share nothing: the threads of a model register on one or the other in turn.
                return Tree::new(2, Box::new([0, 1]));
            }
            match sync::cpu::topology() {
                Ok(machine) => Tree::for_machine(&machine),
                Err(_) => Tree::new(1, Box::new([])),
            }
        })
    }
}

impl Driver<'_> {
    /// Begins a grace period and returns its number, which is odd.
    pub(super) fn start(&self) -> u64 {
        let domain = self.0;
        let gp_seq = domain.gp_seq.load(Ordering::Relaxed).wrapping_add(1);
        domain.gp_seq.store(gp_seq, Ordering::Relaxed);
        // ORDER(cookie): the other end; see the top of the file.
        // If our fence comes first, a later cookie is made from the odd number, and we do not serve it. If the waiter's
        // fence comes first, what it removed is removed for every section that begins with our number.
        // Test: a_grace_period_serves_whoever_came_before_it, a_cookie_needs_its_fence
        // ORDER(parked): the other end; see `Slot::leave_parking`.
        // If our fence comes first, a reader that leaves its parking later sees what was removed. If the reader's fence
        // comes first, the scan finds it not OFF.
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
        // ORDER(drive): the other end; see `try_drive`. Waiters are woken after it, so that one of them can drive.
        // Test: a_grace_period_serves_whoever_came_before_it
        domain.is_driven.store(false, Ordering::Release);
        // The next driver is woken first: it has work to do.
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
