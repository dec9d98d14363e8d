//! The arithmetic of grace-period numbers.
//!
//! `gp_seq` is even while no grace period runs, and odd while one does. A grace period adds one at
//! its start and one at its end.
//!
//! The word of a reader (`ctr`) holds its depth of nesting and, above, the low 48 bits of the
//! `gp_seq` that it saw when its outermost section began:
//!
//! ```text
//! bits 0..16 nest | bits 16..64 gp_seq modulo 2^48
//! ```
//!
//! At a million grace periods a second 48 bits wrap after four years, and 64 bits never. A
//! comparison is correct while the two numbers are less than half of that range apart. For an open
//! section they always are: it delays grace periods, so `gp_seq` cannot run far ahead of it.

/// The largest depth that `ctr` can represent. No section may reach it.
pub(super) const NEST_MAX: u64 = 0xffff;
const NEST_BITS: u32 = 16;

/// Growth of `gp_seq` (two per grace period) after which a thread that has begun no section is
/// parked. With 2, a reader that pauses for a moment would be parked and pay a locked instruction.
/// With hundreds, each grace period would pay a membarrier for idle threads. A guess.
const PARK_FROM: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 17 };
/// Growth of `gp_seq` since a thread's latest section below which the thread is likely running, and
/// is asked.
const ASK_BELOW: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 3 };

/// Identifies a moment. A later call of [`poll_state`](super::poll_state) returns whether a full
/// grace period has passed since.
///
/// Created by [`get_state`](super::get_state). Two cookies are equal if the same grace period
/// satisfies both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "a cookie does nothing until it is polled"]
pub struct GpCookie(u64);

impl GpCookie {
    /// Returns the cookie for a caller that has just read `gp_seq`. A grace period that is already
    /// running does not count.
    pub(super) fn after(gp_seq: u64) -> Self {
        Self(gp_seq.wrapping_add(3) & !1)
    }

    /// Returns `true` if the grace period of this cookie had ended when `gp_seq` was read.
    pub(super) fn is_over(self, gp_seq: u64) -> bool {
        gp_seq.wrapping_sub(self.0) as i64 >= 0
    }

    /// Returns the bucket of its waiters, out of `nr_buckets`. Two cookies are in use at a time,
    /// and they are consecutive, so two buckets are enough to separate them. More buckets also
    /// separate them from waiters that are slow to leave.
    pub(super) fn wait_bucket(self, nr_buckets: usize) -> usize {
        (self.0 / 2) as usize % nr_buckets
    }

    /// Returns the latest cookie that is over at `gp_seq`.
    pub(super) fn reached(gp_seq: u64) -> Self {
        Self(gp_seq & !1)
    }

    /// Returns the cookie as a number, for other languages and for atomics.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Returns the cookie whose [`bits`](Self::bits) are `bits`.
    pub(super) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the cookie whose grace period follows this one's.
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
    if is_later {
        gp_seq << NEST_BITS | ctr & NEST_MAX
    } else {
        ctr
    }
}

/// The driver's decision about a reader. Made here, executed in `gp.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanResult {
    /// In a section, or in one recently: ask it to report.
    Ask,
    /// Seems idle; only the barrier can confirm this.
    Quiet,
    /// Seems to have been idle for long: park it, if the barrier confirms this.
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

/// Returns `true` if a reader with this word is in a section that the grace period `gp_seq` has to
/// wait for.
///
/// A section that has the number of this grace period has seen all that was removed before it.
pub(super) fn holds_up(ctr: u64, gp_seq: u64) -> bool {
    is_in_section(ctr) && age(ctr, gp_seq) != 0
}

/// Returns `true` if `ctr` is the word of a reader in a section.
pub(super) fn is_in_section(ctr: u64) -> bool {
    ctr & NEST_MAX != 0
}

/// Returns how much `gp_seq` grew since the section of `ctr` began.
fn age(ctr: u64, gp_seq: u64) -> u64 {
    gp_seq.wrapping_sub(ctr >> NEST_BITS) << NEST_BITS >> NEST_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around which words wrap, including the start.
    const ROUNDS: [u64; 4] = [0, 1 << 48, u64::MAX - 9, (1 << 48) - 10];

    #[test]
    fn a_cookie_asks_for_a_grace_period_that_begins_later() {
        for base in ROUNDS {
            let at = |offset: u64| base.wrapping_add(offset) & !1;
            let idle = GpCookie::after(at(0));
            assert!(!idle.is_over(at(0)) && !idle.is_over(at(0) | 1));
            assert!(idle.is_over(at(2)) && idle.is_over(at(40)));
            let running = GpCookie::after(at(0) | 1);
            assert!(!running.is_over(at(2)), "that one began too early");
            assert!(!running.is_over(at(2) | 1) && running.is_over(at(4)));
            assert_eq!(idle.next(), running);
        }
    }

    #[test]
    fn neighbouring_cookies_lie_on_different_beds() {
        for base in ROUNDS {
            let cookie = GpCookie::after(base);
            assert_ne!(cookie.wait_bucket(4), cookie.next().wait_bucket(4));
            assert_ne!(cookie.wait_bucket(4), cookie.next().next().wait_bucket(4));
        }
    }

    #[test]
    fn only_sections_that_began_before_the_grace_period_hold_it_up() {
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
    fn a_section_of_a_grace_period_that_is_taken_back_holds_up_the_next_of_that_number() {
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
    fn a_thread_is_asked_while_it_reads_and_parked_when_it_has_not_for_long() {
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
}
