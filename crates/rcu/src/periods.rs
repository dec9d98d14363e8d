//! Grace periods as numbers: cookies, the right to drive, and the waiters that share a grace
//! period.
//!
//! # One grace period for many
//!
//! `gp_seq` is even while no grace period runs. A waiter records a *cookie*: the value of `gp_seq`
//! at the end of the next grace period that *begins* after this. A waiter that finds no driver
//! becomes the driver. The others wait, each on the bucket of its cookie. One grace period serves
//! all waiters whose cookie it reaches.
//!
//! ```text
//! waiter: (removal);          fence;  load gp_seq → cookie
//! driver: gp_seq = odd;       fence;  scan the readers ...;  gp_seq = even  Release;  is_driven = false;  wake
//! ```
//!
//! A waiter whose cookie this grace period reaches has loaded `gp_seq` before it became odd. So its
//! fence comes before the driver's, and a section that the driver passes because it *began later*
//! sees the waiter's removal.
//!
//! # No lost wake-up
//!
//! A waiter that is about to sleep announces itself and then reads `gp_seq` and `is_driven` again.
//! A driver stores both and then checks for waiters (`wake/event_count.rs` has the argument). A
//! driver that stops at `gp_seq = e` wakes all waiters whose cookie is `e` or earlier. All other
//! waiters have the cookie `e + 2`. The driver wakes one of them: it becomes the next driver, or
//! finds that another thread is, or that its grace period is over.
//!
//! A driver may also stop in the middle of a grace period, at an odd `gp_seq = e + 1`, and leave
//! the rest to the next driver. Waiters then have the cookie `e + 2` or `e + 4`, and the driver
//! wakes one waiter of each: neither group may stay asleep without a driver.

use base::internal::wake::{EventCount, spin_as_waiter};
use sync::{
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
    twin,
};

use crossbeam_utils::CachePadded;

use super::seq::GpCookie;

/// The number of buckets of waiters. Two cookies are in use at a time, and waiters that are slow to
/// leave occupy a third bucket.
const NR_WAIT_BUCKETS: usize = 4;
/// Number of waiters woken at a time. The kernel wakes five from the grace period and leaves the
/// rest to a worker.
const WAKE_BATCH: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// The grace periods of one set of readers.
#[derive(Debug)]
pub(super) struct Periods {
    /// Written by the driver. Even: idle; odd: a grace period runs.
    gp_seq: CachePadded<AtomicU64>,
    /// A: `true` while a thread drives.
    is_driven: CachePadded<AtomicBool>,
    wait_buckets: [CachePadded<EventCount>; NR_WAIT_BUCKETS],
}

/// The right to run grace periods. Dropping it releases the right and wakes waiters.
#[derive(Debug)]
pub(super) struct Driver<'a>(&'a Periods);

impl Periods {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self {
                gp_seq: CachePadded::new(AtomicU64::new(0)),
                is_driven: CachePadded::new(AtomicBool::new(false)),
                wait_buckets: [
                    CachePadded::new(EventCount::new()),
                    CachePadded::new(EventCount::new()),
                    CachePadded::new(EventCount::new()),
                    CachePadded::new(EventCount::new()),
                ],
            }
        }
    }

    // ---- for threads that request a grace period ----

    /// Returns the cookie of the first grace period that begins after this call.
    pub(super) fn state(&self) -> GpCookie {
        // ORDER(cookie): store buffering, other end in `start`; see the top of the file.
        // If our fence comes first, the sections that this grace period skips see our removals,
        // so it may serve us. If the driver's fence comes first, we read its odd number and ask for
        // the grace period after it.
        // Test: a_grace_period_serves_whoever_came_before_it, a_cookie_needs_its_fence, srcu_cookie_needs_its_fence
        twin::fence("rcu: no fence before the cookie");
        GpCookie::after(self.gp_seq.load(Ordering::Relaxed))
    }

    /// Returns `true` if the grace period of `cookie` is over.
    pub(super) fn is_over(&self, cookie: GpCookie) -> bool {
        // ORDER(gp-end): publish and consume, other end in `end`. If the driver's store comes
        // first, everything that it acquired from the sections happened before us. If our load
        // comes first, we read a smaller number and keep waiting.
        // Test: a_section_keeps_what_it_sees
        cookie.is_over(self.gp_seq.load(Ordering::Acquire))
    }

    /// Waits until the grace period of `cookie` is over. Calls `drive` to run it if no other thread
    /// drives.
    ///
    /// Calls `before_wait` before it waits for another thread.
    pub(super) fn wait_for(&self, cookie: GpCookie, before_wait: impl Fn(), drive: impl Fn()) {
        while !self.is_over(cookie) {
            if let Some(_driver) = self.try_drive() {
                if !self.is_over(cookie) {
                    drive();
                }
                continue;
            }
            before_wait();
            if !spin_as_waiter(|| self.is_over(cookie) || !self.is_driven()) {
                let waiting = self.wait_buckets[cookie.wait_bucket(NR_WAIT_BUCKETS)].prepare();
                if !self.is_over(cookie) && self.is_driven() {
                    waiting.wait();
                }
            }
        }
    }

    /// Returns `true` if a thread has the right to drive.
    pub(super) fn is_driven(&self) -> bool {
        self.is_driven.load(Ordering::Relaxed)
    }

    /// Acquires the right to drive, if no thread has it.
    pub(super) fn try_drive(&self) -> Option<Driver<'_>> {
        // ORDER(drive): publish and consume, other end in `Driver::drop`.
        // If the last driver's store comes first, our exchange succeeds, and we see all that it
        // wrote. If our exchange comes first, it fails, and the caller waits: that driver wakes it
        // after its store.
        // Test: a_grace_period_serves_whoever_came_before_it
        let taken = !self.is_driven()
            && self
                .is_driven
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // Not `then_some`: it would always create a `Driver`, and its drop would release the right
        // of another thread.
        taken.then(|| Driver(self))
    }

    /// Resets everything to the state without other threads, in a child of `fork`. If `drives`,
    /// this thread continues a grace period. Returns the number of the last grace period that
    /// ended, or of the one that continues, and whether the number has changed.
    pub(super) fn inherit(&self, drives: bool) -> (u64, bool) {
        let gp_seq = self.gp_seq();
        let ended = if drives {
            gp_seq
        } else {
            super::seq::before(gp_seq)
        };
        self.gp_seq.store(ended, Ordering::Relaxed);
        self.is_driven.store(drives, Ordering::Relaxed);
        self.wait_buckets.iter().for_each(|bucket| bucket.forget());
        (ended, ended != gp_seq)
    }

    // ---- for the driver ----

    /// Returns `gp_seq`: two for each grace period, odd while one runs.
    pub(super) fn gp_seq(&self) -> u64 {
        self.gp_seq.load(Ordering::Relaxed)
    }

    /// Begins a grace period and returns its number, which is odd. Passes a full fence.
    pub(super) fn start(&self) -> u64 {
        let gp_seq = self.gp_seq().wrapping_add(1);
        self.gp_seq.store(gp_seq, Ordering::Relaxed);
        // ORDER(cookie): the other end; see the top of the file.
        // If our fence comes first, a later cookie is derived from the odd number, and we do not
        // serve it. If the waiter's fence comes first, its removals are visible to every section
        // that we pass because it begins later.
        // Test: a_grace_period_serves_whoever_came_before_it, a_cookie_needs_its_fence
        // ORDER(parked): the other end; see `Flags::leave_parking`.
        // If our fence comes first, a reader that leaves its parking later sees the removals. If
        // the reader's fence comes first, the scan finds it not OFF.
        // Test: a_parked_reader_comes_back, leaving_a_parking_needs_its_fence
        fence(Ordering::SeqCst);
        gp_seq
    }

    /// Ends the grace period `gp_seq`.
    pub(super) fn end(&self, gp_seq: u64) {
        // ORDER(gp-end): the other end; see `is_over`.
        // (Loom cannot distinguish it from Relaxed: it treats the full fences of the grace period
        // as synchronization.)
        // Test: a_section_keeps_what_it_sees
        self.gp_seq.store(gp_seq.wrapping_add(1), Ordering::Release);
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let Periods {
            gp_seq,
            is_driven,
            wait_buckets,
        } = self.0;
        let seq = gp_seq.load(Ordering::Relaxed);
        let reached = GpCookie::reached(seq);
        let stops_midway = seq & 1 == 1 && !twin::armed("rcu: a driver that stops wakes one");
        // ORDER(drive): the other end; see `try_drive`. Waiters are woken after it, so that one of
        // them can drive.
        // Test: a_grace_period_serves_whoever_came_before_it
        is_driven.store(false, Ordering::Release);
        // The next driver is woken first: it has work to do.
        if !twin::armed("rcu: nobody to drive next") {
            wait_buckets[reached.next().wait_bucket(NR_WAIT_BUCKETS)].notify_one();
        }
        if stops_midway {
            let after_next = reached.next().next();
            wait_buckets[after_next.wait_bucket(NR_WAIT_BUCKETS)].notify_one();
        }
        wait_buckets[reached.wait_bucket(NR_WAIT_BUCKETS)].notify_in_batches(WAKE_BATCH);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn whoever_finds_a_driver_leaves_it_the_right_to_drive() {
        let periods = Periods::new();
        let driver = periods.try_drive();
        assert!(periods.try_drive().is_none());
        assert!(periods.try_drive().is_none(), "the failed attempt let go");
        drop(driver);
        assert!(periods.try_drive().is_some());
    }
}
