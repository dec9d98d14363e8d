//! Sections without guards, and cookies as numbers, for other languages.
//!
//! A [`Guard`](super::Guard) says by its life which section ends, and that it ends on its thread. Here the caller says so.
//! Callbacks without an allocation are [`call_head`](super::call_head).

use super::{
    local::{enter, leave, mine},
    seq::GpCookie,
    slot::Slot,
    srcu::Domain,
};

/// Begins a read-side critical section of this thread, to be ended by [`read_unlock`].
///
/// # Blocking
///
/// As [`read`](super::read).
///
/// # Panics
///
/// As of [`read`](super::read).
#[inline(always)]
pub fn read_lock() {
    enter();
}

/// Ends the section of this thread that [`read_lock`] began last; false when the thread is in none, and nothing is done.
///
/// # Blocking
///
/// Never.
///
/// # Safety
///
/// 1. What is open was begun by [`read_lock`], and what it protected is not looked at any more.
#[inline(always)]
pub unsafe fn read_unlock() -> bool {
    leave()
}

/// Returns `true` if this thread is in a section.
///
/// # Blocking
///
/// Never.
pub fn is_reading() -> bool {
    mine().is_some_and(Slot::is_in_section)
}

/// Returns how deep the sections of this thread nest, guards included; 0 outside of all.
///
/// # Blocking
///
/// Never.
#[inline]
pub fn nesting() -> u64 {
    mine().map_or(0, Slot::nesting)
}

/// Returns a cookie as a number.
///
/// # Blocking
///
/// Never.
pub fn cookie_to_bits(cookie: GpCookie) -> u64 {
    cookie.bits()
}

/// Returns the cookie that was this number. Of any other one it says that it is over, or waits for some grace periods.
///
/// # Blocking
///
/// Never.
pub fn cookie_from_bits(bits: u64) -> GpCookie {
    GpCookie::of_bits(bits)
}

/// Begins a section of a domain, to be ended by [`srcu_read_unlock`] with what this returns, 0 or 1; on any thread.
///
/// # Blocking
///
/// Never.
#[inline]
pub fn srcu_read_lock(domain: &Domain) -> u32 {
    domain.enter_raw()
}

/// Ends a section of a domain.
///
/// # Blocking
///
/// Never; a system call when a grace period sleeps for it.
///
/// # Safety
///
/// 1. [`srcu_read_lock`] of this domain returned `index`, for a section that has not been ended.
#[inline]
pub unsafe fn srcu_read_unlock(domain: &Domain, index: u32) {
    domain.leave_raw(index);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rcu;

    #[test]
    fn a_section_ends_with_its_last_unlock() {
        assert!(!is_reading());
        read_lock();
        read_lock();
        assert_eq!(nesting(), 2);
        // SAFETY: begun above.
        assert!(unsafe { read_unlock() } && is_reading());
        // SAFETY: as above.
        assert!(unsafe { read_unlock() } && !is_reading());
        assert_eq!(nesting(), 0);
        // SAFETY: nothing is open, and that is what is asked.
        assert!(!unsafe { read_unlock() });
        rcu::synchronize();
    }

    #[test]
    fn a_thread_that_never_read_has_nothing_to_unlock() {
        // SAFETY: nothing is open, and that is what is asked.
        let ended = std::thread::spawn(|| unsafe { read_unlock() });
        assert!(!ended.join().unwrap());
    }

    #[test]
    fn a_cookie_survives_being_a_number() {
        let bits = cookie_to_bits(rcu::get_state());
        rcu::synchronize();
        assert!(rcu::poll_state(cookie_from_bits(bits)));
    }

    #[test]
    fn a_section_of_a_domain_may_end_on_another_thread() {
        let domain = Domain::new();
        let index = srcu_read_lock(&domain);
        let there = domain.clone();
        // SAFETY: begun above, and ended here alone.
        let ended = std::thread::spawn(move || unsafe { srcu_read_unlock(&there, index) });
        ended.join().unwrap();
        domain.synchronize();
    }
}
