//! Numbers of grace periods: pure arithmetic, modulo what the words hold.
//!
//! `gp_seq` is even while no grace period runs and odd while one does. A grace period adds one at its start and one
//! at its end.
//!
//! The word of a reader (`ctr`) holds how deep it is nested and, above, the low 48 bits of the `gp_seq` that it saw
//! when its outermost section began:
//!
//! ```text
//! bits 0..16 nest | bits 16..64 gp_seq modulo 2^48
//! ```
//!
//! At a million grace periods a second 48 bits come round after four years, 64 bits never. A comparison is right as
//! long as the two numbers are less than half a round apart; a section that lasts longer than two years of such
//! grace periods holds each of them up, so there are none.

/// How far one section may nest: the largest depth that `ctr` can hold, which no section may reach.
pub(super) const NEST_MAX: u64 = 0xffff;
const NEST_BITS: u32 = 16;

/// How far `gp_seq` grows while a thread begins no section until it is parked, two a grace period. After two it would hit
/// a reader that pauses for a moment, and make it pay a locked instruction; after hundreds idle threads would cost a
/// membarrier each time. A guess.
const PARK_FROM: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 17 };
/// A thread whose latest section began less far back is likely running: it is asked.
const ASK_BELOW: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 3 };

/// Remembers a moment, to be asked later whether a full grace period has passed since.
///
/// Made by [`get_state`](super::get_state). Two cookies are equal when the same
/// grace period will satisfy them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "a cookie that nobody asks about remembers nothing"]
pub struct GpCookie(u64);

impl GpCookie {
    /// Returns the cookie of a caller that just saw `gp_seq`: a running grace period began too early for it.
    pub(super) fn after(gp_seq: u64) -> Self {
        Self(gp_seq.wrapping_add(3) & !1)
    }

    /// Returns `true` if the grace period of this cookie had ended when `gp_seq` was read.
    pub(super) fn is_over(self, gp_seq: u64) -> bool {
        gp_seq.wrapping_sub(self.0) as i64 >= 0
    }

    /// Returns on which of `nr_buckets` its waiters lie. Cookies in use at one time are neighbours, so two wait_buckets would
    /// keep them apart, and more keep out of each other's way those who are slow to leave.
    pub(super) fn wait_bucket(self, nr_buckets: usize) -> usize {
        (self.0 / 2) as usize % nr_buckets
    }

    /// Returns the latest cookie that is over when `gp_seq` was read.
    pub(super) fn reached(gp_seq: u64) -> Self {
        Self(gp_seq & !1)
    }

    /// Returns the cookie whose grace period follows this one's.
    pub(super) fn next(self) -> Self {
        Self(self.0.wrapping_add(2))
    }
}

/// Returns what an outermost section stores in its word when it begins while `gp_seq` is current.
pub(super) fn first_level(gp_seq: u64) -> u64 {
    gp_seq << NEST_BITS | 1
}

/// Returns what `gp_seq` was before the grace period that runs began, if one does.
pub(super) fn before(gp_seq: u64) -> u64 {
    gp_seq & !1
}

/// Returns the word of a reader as it is when its outermost section began no later than at `gp_seq`.
pub(super) fn no_later(ctr: u64, gp_seq: u64) -> u64 {
    let is_later = age(ctr, gp_seq) >> (u64::BITS - NEST_BITS - 1) != 0;
    if is_later {
        gp_seq << NEST_BITS | ctr & NEST_MAX
    } else {
        ctr
    }
}

/// What a driver may make of a reader's word. Decided here, acted on in `gp.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sight {
    /// In a section that began before the grace period, or that recently was: ask it to report.
    Ask,
    /// Looks idle. Whether it is, only a barrier can tell.
    Quiet,
    /// Looks idle and has been for long: park it, if the barrier confirms that.
    Park,
}

/// Says what to do about a reader whose word was `ctr` when the grace period `gp_seq` began.
pub(super) fn look(ctr: u64, gp_seq: u64) -> Sight {
    let age = age(ctr, gp_seq);
    if is_in_section(ctr) || age < ASK_BELOW {
        Sight::Ask
    } else if age < PARK_FROM {
        Sight::Quiet
    } else {
        Sight::Park
    }
}

/// Returns `true` if a reader with this word is in a section that the grace period `gp_seq` has to wait for.
///
/// A section that began in this very grace period saw its number, and with it all that was removed before.
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

    /// Places around which words wrap, the start among them.
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
            assert_eq!(look(began(1), gp), Sight::Ask);
            assert_eq!(look(began(1000), gp), Sight::Ask, "a long section");
            assert_eq!(look(began(2) - 1, gp), Sight::Ask, "just left");
            assert_eq!(look(began(4) - 1, gp), Sight::Quiet);
            assert_eq!(look(began(PARK_FROM) - 1, gp), Sight::Park);
        }
    }
}
