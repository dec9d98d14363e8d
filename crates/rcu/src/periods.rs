//! Grace periods as numbers: cookies, the right to drive, and the waiters that share a grace
//! period.
//!
//! # The numbers
//!
//! A grace period adds one to `gp_seq` at its start and one at its end, so `gp_seq` is odd while
//! one runs.
//!
//! The word of a reader (`ctr`) holds its depth of nesting and, above it, the low 48 bits of the
//! `gp_seq` that it saw when its outermost section began:
//!
//! ```text
//! bits 0..16 nest | bits 16..64 gp_seq modulo 2^48
//! ```
//!
//! At a million grace periods per second, 48 bits wrap after four years, and 64 bits never. An open
//! section delays grace periods, so `gp_seq` never runs half of that range ahead of it.
//!
//! # One grace period for many waiters
//!
//! A waiter records a *cookie*: the value of `gp_seq` at the end of the next grace period that
//! *begins* after that moment. A waiter that finds no driver becomes the driver. The others wait,
//! each on the bucket of its cookie. One grace period serves all waiters whose cookie it reaches.
//!
//! ```text
//! waiter: (removal);          fence;  load gp_seq → cookie
//! driver: gp_seq = odd;       fence;  scan the readers ...;  gp_seq = even  Release;
//!         is_driven = false;  wake
//! ```
//!
//! A waiter whose cookie this grace period reaches loaded `gp_seq` before it became odd. Its fence
//! therefore comes before the driver's, and a section that the driver passes because it *began
//! later* sees the waiter's removal.
//!
//! # No lost wake-up
//!
//! A waiter that is about to sleep announces itself and then reads `gp_seq` and `is_driven` again.
//! A driver stores both and then checks for waiters (`crates/base/src/wake/event_count.rs`). A
//! driver that stops at `gp_seq = e` wakes all waiters whose cookie is `e` or earlier, and one of
//! the others, whose cookie is `e + 2`. That waiter becomes the next driver, or finds that another
//! thread drives or that its own grace period is over.
//!
//! A driver may also stop in the middle of a grace period, at an odd `gp_seq = e + 1`. Waiters then
//! have the cookie `e + 2` or `e + 4`, and the driver wakes one waiter of each group, because
//! neither group may stay asleep without a driver.

use base::internal::wake::{EventCount, spin_as_waiter};
use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sync::twin;

/// The number of buckets of waiters. Two cookies are in use, and slow waiters occupy a third
/// bucket.
const NR_WAIT_BUCKETS: usize = 4;
/// The number of waiters woken at a time. The kernel wakes five and defers the rest to a worker.
const WAKE_BATCH: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// The maximum depth that `ctr` can represent. No section may reach it.
pub(super) const NEST_MAX: u64 = 0xffff;
const NEST_BITS: u32 = 16;

/// The growth of `gp_seq` (two per grace period) after which a thread that has begun no section is
/// parked. With 2, a reader that pauses would pay a locked instruction. With hundreds, idle threads
/// would cost each grace period a membarrier. A guess.
const PARK_FROM: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 17 };
/// The growth of `gp_seq` since a thread's latest section below which it is probably running.
const ASK_BELOW: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 3 };

/// The grace periods of one set of readers.
pub(super) struct Periods {
    /// Odd while a grace period runs. Written by the driver.
    gp_seq: CachePadded<AtomicU64>,
    /// A: `true` while a thread drives.
    is_driven: CachePadded<AtomicBool>,
    wait_buckets: [CachePadded<EventCount>; NR_WAIT_BUCKETS],
}

/// The right to run grace periods. Dropping it releases the right and wakes waiters.
pub(super) struct Driver<'a>(&'a Periods);

impl Periods {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self {
                gp_seq: CachePadded::new(AtomicU64::new(0)),
                is_driven: CachePadded::new(AtomicBool::new(false)),
                wait_buckets: sync::array_of![CachePadded::new(EventCount::new()); NR_WAIT_BUCKETS],
            }
        }
    }

    // ---- for threads that request a grace period ----

    /// Returns the cookie of the first grace period that begins after this call.
    pub(super) fn state(&self) -> GpCookie {
        // ORDER(cookie): store buffering, other end in `start`; see the top of the file. If our
        // fence comes first, the sections that this grace period skips see our removals, so it may
        // serve us. If the driver's fence comes first, we read its odd number and wait for the
        // grace period after it.
        // Test: grace_period_serves_all_earlier_callers,
        // srcu_cookie_covers_a_whole_grace_period
        twin::fence("rcu: no fence before the cookie");
        GpCookie::after(self.gp_seq.load(Ordering::Relaxed))
    }

    pub(super) fn is_over(&self, cookie: GpCookie) -> bool {
        // ORDER(gp-end): publish and consume, other end in `end`. If the driver's store comes
        // first, everything that it acquired from the sections happened before us. If our load
        // comes first, we read a smaller number and keep waiting.
        // Test: section_protects_the_version_it_read
        cookie.is_over(self.gp_seq.load(Ordering::Acquire))
    }

    /// Waits until the grace period of `cookie` is over. Calls `drive` to run it if no other thread
    /// drives, otherwise `before_wait`.
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
                let waiting = self.wait_buckets[cookie.wait_bucket()].prepare();
                if !self.is_over(cookie) && self.is_driven() {
                    waiting.wait();
                }
            }
        }
    }

    pub(super) fn is_driven(&self) -> bool {
        self.is_driven.load(Ordering::Relaxed)
    }

    pub(super) fn try_drive(&self) -> Option<Driver<'_>> {
        // ORDER(drive): publish and consume, other end in `Driver::drop`. If the last driver's
        // store comes first, our exchange succeeds, and we see all that it wrote. If our exchange
        // comes first, it fails, and the caller waits until that driver wakes it after its store.
        // Test: grace_period_serves_all_earlier_callers
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = !self.is_driven()
            && self.is_driven.compare_exchange(false, true, acquire, relaxed).is_ok();
        // `then_some` would always create a `Driver`, whose drop would release the right of another
        // thread.
        taken.then(|| Driver(self))
    }

    /// Resets all fields, in a child of `fork`. If `drives` is `true`, this thread continues a
    /// grace period. Returns the number of that one or the last one, and `true` if it has changed.
    pub(super) fn inherit(&self, drives: bool) -> (u64, bool) {
        let gp_seq = self.gp_seq();
        let ended = if drives { gp_seq } else { before(gp_seq) };
        self.gp_seq.store(ended, Ordering::Relaxed);
        self.is_driven.store(drives, Ordering::Relaxed);
        self.wait_buckets.iter().for_each(|bucket| bucket.forget());
        (ended, ended != gp_seq)
    }

    // ---- for the driver ----

    pub(super) fn gp_seq(&self) -> u64 {
        self.gp_seq.load(Ordering::Relaxed)
    }

    /// Begins a grace period and returns its number, which is odd. Passes a full fence.
    pub(super) fn start(&self) -> u64 {
        let gp_seq = self.gp_seq().wrapping_add(1);
        self.gp_seq.store(gp_seq, Ordering::Relaxed);
        // ORDER(cookie): the other end; see the top of the file.
        // ORDER(parked): the other end; see `Flags::leave_parking`.
        fence(Ordering::SeqCst);
        gp_seq
    }

    pub(super) fn end(&self, gp_seq: u64) {
        // ORDER(gp-end): the other end; see `is_over`. (Loom cannot distinguish it from Relaxed: it
        // treats the full fences of the grace period as synchronization.)
        self.gp_seq.store(gp_seq.wrapping_add(1), Ordering::Release);
    }
}

sync::on_drop!(Driver<'_>, it => {
    let Periods { gp_seq, is_driven, wait_buckets } = it.0;
    let seq = gp_seq.load(Ordering::Relaxed);
    let reached = GpCookie::reached(seq);
    let bucket = |cookie: GpCookie| &wait_buckets[cookie.wait_bucket()];
    let stops_midway = seq & 1 == 1 && !twin::armed("rcu: a driver that stops wakes one");
    // ORDER(drive): the other end; see `try_drive`. Waiters are woken after it, so that one of them
    // can drive.
    is_driven.store(false, Ordering::Release);
    // The next driver is woken first.
    if !twin::armed("rcu: no next driver") {
        bucket(reached.next()).notify_one();
    }
    if stops_midway {
        bucket(reached.next().next()).notify_one();
    }
    bucket(reached).notify_in_batches(WAKE_BATCH);
});

/// Identifies a moment; created by [`get_state`](super::get_state). A later call to
/// [`poll_state`](super::poll_state) returns `true` if a full grace period has passed since then.
/// Two cookies are equal if one grace period satisfies both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "a cookie does nothing until it is polled"]
pub struct GpCookie(u64);

impl GpCookie {
    /// Returns the cookie for a caller that has just read `gp_seq`.
    pub(super) fn after(gp_seq: u64) -> Self {
        Self(gp_seq.wrapping_add(3) & !1)
    }

    /// Returns `true` if the grace period of this cookie had ended when `gp_seq` was read.
    pub(super) fn is_over(self, gp_seq: u64) -> bool {
        gp_seq.wrapping_sub(self.0) as i64 >= 0
    }

    /// Returns the index of the bucket for waiters with this cookie.
    pub(super) fn wait_bucket(self) -> usize {
        (self.0 / 2) as usize % NR_WAIT_BUCKETS
    }

    /// Returns the latest cookie that is over at `gp_seq`.
    pub(super) fn reached(gp_seq: u64) -> Self {
        Self(before(gp_seq))
    }

    /// Returns the cookie as a number, for other languages and for atomics.
    #[doc(hidden)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the cookie whose [`bits`](Self::bits) are `bits`. With other bits, the result is
    /// over or requires further grace periods.
    #[doc(hidden)]
    pub fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn next(self) -> Self {
        Self(self.0.wrapping_add(2))
    }
}

/// Returns the word of a reader whose outermost section begins at `gp_seq`.
pub(super) fn first_level(gp_seq: u64) -> u64 {
    gp_seq << NEST_BITS | 1
}

/// Returns `gp_seq`, or the number before it if a grace period is running.
pub(super) fn before(gp_seq: u64) -> u64 {
    gp_seq & !1
}

/// Returns `ctr` if its section began no later than `gp_seq`, otherwise the same word with `gp_seq`
/// as its start.
pub(super) fn no_later(ctr: u64, gp_seq: u64) -> u64 {
    let is_later = age(ctr, gp_seq) >> (u64::BITS - NEST_BITS - 1) != 0;
    if is_later { gp_seq << NEST_BITS | ctr & NEST_MAX } else { ctr }
}

/// The driver's decision about a reader. It is made here and carried out in `domain.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanResult {
    /// The reader is in a section, or was in one recently. Ask it to report.
    Ask,
    /// The reader seems to be idle. Only the barrier can confirm this.
    Quiet,
    /// The reader seems to have been idle for a long time. Park it if the barrier confirms this.
    Park,
}

/// Returns the decision about a reader whose word was `ctr` when the grace period `gp_seq` began.
pub(super) fn scan(ctr: u64, gp_seq: u64) -> ScanResult {
    let age = age(ctr, gp_seq);
    if is_in_section(ctr) || age < ASK_BELOW {
        ScanResult::Ask
    } else if age < PARK_FROM {
        ScanResult::Quiet
    } else {
        ScanResult::Park
    }
}

/// Returns `true` if a reader with this word delays the grace period `gp_seq`. A section with the
/// number of this grace period sees every removal that came before the grace period.
pub(super) fn holds_up(ctr: u64, gp_seq: u64) -> bool {
    is_in_section(ctr) && age(ctr, gp_seq) != 0
}

pub(super) fn is_in_section(ctr: u64) -> bool {
    ctr & NEST_MAX != 0
}

/// Returns the growth of `gp_seq` since the section of `ctr` began.
fn age(ctr: u64, gp_seq: u64) -> u64 {
    gp_seq.wrapping_sub(ctr >> NEST_BITS) << NEST_BITS >> NEST_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The initial value of `gp_seq`, and values near which words wrap around.
    const ROUNDS: [u64; 4] = [0, 1 << 48, u64::MAX - 9, (1 << 48) - 10];

    #[test]
    fn cookie_requests_a_grace_period_that_begins_later() {
        for base in ROUNDS {
            let at = |offset: u64| base.wrapping_add(offset) & !1;
            let idle = GpCookie::after(at(0));
            assert!(!idle.is_over(at(0)) && !idle.is_over(at(0) | 1));
            assert!(idle.is_over(at(2)) && idle.is_over(at(40)));
            let running = GpCookie::after(at(0) | 1);
            assert!(!running.is_over(at(2)), "that grace period began too early");
            assert!(!running.is_over(at(2) | 1) && running.is_over(at(4)));
            assert_eq!(idle.next(), running);
        }
    }

    #[test]
    fn adjacent_cookies_use_different_wait_queues() {
        for base in ROUNDS {
            let cookie = GpCookie::after(base);
            assert_ne!(cookie.wait_bucket(), cookie.next().wait_bucket());
            assert_ne!(cookie.wait_bucket(), cookie.next().next().wait_bucket());
        }
    }

    #[test]
    fn only_sections_begun_before_a_grace_period_delay_it() {
        for base in ROUNDS {
            let gp = base | 1;
            assert!(!holds_up(first_level(gp), gp));
            assert!(!holds_up(first_level(gp) + 4, gp), "nested");
            assert!(holds_up(first_level(gp.wrapping_sub(1)), gp));
            assert!(holds_up(first_level(gp.wrapping_sub(2)) + 1, gp));
            assert!(!holds_up(first_level(gp.wrapping_sub(2)) - 1, gp), "idle");
        }
    }

    #[test]
    fn section_of_a_reverted_grace_period_delays_its_successor() {
        for base in ROUNDS {
            let gp = base | 1;
            let ended = before(gp);
            assert_eq!((ended, before(ended)), (gp.wrapping_sub(1), ended));
            let section = no_later(first_level(gp) + 2, ended);
            assert!(holds_up(section, gp) && section & NEST_MAX == 3);
            for ago in [1, 2, 1000] {
                let older = first_level(gp.wrapping_sub(ago));
                assert_eq!(no_later(older, ended), older);
            }
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn reading_thread_is_asked_and_a_long_idle_one_is_parked() {
        for base in ROUNDS {
            let gp = base | 1;
            let began = |ago: u64| first_level(gp.wrapping_sub(ago));
            assert_eq!(scan(began(1), gp), ScanResult::Ask);
            assert_eq!(scan(began(1000), gp), ScanResult::Ask, "a long section");
            assert_eq!(scan(began(2) - 1, gp), ScanResult::Ask, "just left");
            assert_eq!(scan(began(4) - 1, gp), ScanResult::Quiet);
            assert_eq!(scan(began(PARK_FROM) - 1, gp), ScanResult::Park);
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn second_driver_leaves_the_right_to_drive_to_the_first() {
        let periods = Periods::new();
        let driver = periods.try_drive();
        assert!(periods.try_drive().is_none());
        assert!(periods.try_drive().is_none(), "the failed attempt released it");
        drop(driver);
        assert!(periods.try_drive().is_some());
    }
}
