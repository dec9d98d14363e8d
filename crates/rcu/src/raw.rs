//! Sections without guards, and cookies as numbers, for other languages.
//!
//! A [`Guard`](super::Guard) says by its life which section ends, and that it ends on its thread. Here the caller says so.
//! Callbacks without an allocation are [`call_head`](super::call_head), of a function of C [`call_c`].
//!
//! # An inlined read side
//!
//! What is compiled elsewhere may do by itself what [`read_lock`] and [`read_unlock`] do, as long as nothing rare happens. A
//! [`Place`] says where. It belongs to one thread, begins as [`Place::STAND_IN`], and comes from [`place`]; `first_level`, of all
//! threads, is at [`Place::FIRST_LEVEL`]:
//!
//! ```text
//! lock:   nest = *ctr & NEST
//!         nest == 0:         *ctr = *first_level (acquire);  compiler barrier;  *flags & PARK?  leave_parking()
//!         nest < NEST - 1:   *ctr += 1
//!         else:              read_lock(), and ask for a place
//! unlock: nest == 1:         *ctr -= 1 (release);  compiler barrier;  *flags & AT_UNLOCK?  report()
//!         1 < nest < NEST:   *ctr -= 1 (release)
//!         else:              read_unlock()
//! report: *nr_loops == 1:    *ctr == *first_level (acquire)?  else nest == 1?  *ctr = that (release), else return
//!                            *flags & ASKED?  answer()
//!         else:              quiescent()
//! ```
//!
//! These are the steps of `slot.rs`, and its proofs are theirs. The compiler barrier stands for
//! [`light`](sync::asym::light): where `membarrier` is missing, and that would be a fence, there is no place to be had. Then, and
//! before a thread's first section and while it ends, the place is the stand-in, with which every step is a call.

use super::{
    Head,
    call::call_function,
    head::Function,
    local::{enter, global, leave, left_open, mine, park_if_idle, stand_in},
    qsbr,
    seq::{GpCookie, NEST_MAX},
    slot::{self, Slot},
    srcu::{Cookie, Domain},
};

pub use super::batch::{NR_OFFSETS, of_c, run_c};

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
    mine().or_else(left_open).is_some_and(Slot::is_in_section)
}

/// Has C's `free` called with the address `offset` bytes before `head`, after a grace period.
///
/// # Blocking
///
/// As [`call`](super::call).
///
/// # Panics
///
/// If `offset` is not below [`NR_OFFSETS`].
///
/// # Safety
///
/// 1. As of [`call_head`](super::call_head), and `free` may be called with that address.
pub unsafe fn free_c(head: *mut Head, offset: usize) {
    assert!(
        offset < NR_OFFSETS,
        "so far behind the beginning is no head"
    );
    // SAFETY: not null. It is never called: `run_c` looks first.
    let run =
        unsafe { std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*mut Head)>(offset + 1) };
    // SAFETY: (1).
    unsafe { call_function(head, Function::C(run)) };
}

/// Where something stands that the inlined read side uses: a pointer, laid out as in C.
///
/// Of a thread: where its sections are noted; `ctr`, of 64 bits, then `flags` and `nr_loops`, of 32 bits each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Place(*const ());

// SAFETY: an address; what stands there is atomic.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// Of a thread that has none. It is as deeply nested as can be, so that whoever checks the depth refuses it.
    pub const STAND_IN: Self = Self(stand_in().promised());

    /// `first_level`, of 64 bits, which change. The same for all threads, for ever.
    pub const FIRST_LEVEL: Self = Self(global().place_of_first_level());
}

/// The bits of `ctr` that are the depth of nesting. All of them set: the stand-in.
pub const NEST: u64 = NEST_MAX;
/// In `flags`: a section that has begun calls [`leave_parking`].
pub const PARK: u32 = slot::PARK;
/// In `flags`, each of these: an outermost section that has ended calls [`report`].
pub const AT_UNLOCK: u32 = slot::AT_UNLOCK;
/// In `flags`, each of these: a reader that has reported calls [`answer`].
pub const ASKED: u32 = slot::ASK | slot::COUNTED;

/// Returns where this thread notes its sections, to be used until it begins to end.
///
/// Returns `None` if it has had no section, if it is ending, and where a section costs a fence.
///
/// # Blocking
///
/// Never.
pub fn place() -> Option<Place> {
    let slot = mine()?;
    sync::asym::init().then(|| Place(slot.promised()))
}

/// Has grace periods wait for this thread again: a step of a read side that is inlined.
///
/// # Blocking
///
/// Never.
#[cold]
pub fn leave_parking() {
    if let Some(slot) = mine() {
        slot.leave_parking(global());
    }
}

/// Answers a grace period that waits for this thread: a step of a read side that is inlined. Does nothing in a section.
///
/// # Blocking
///
/// Never. Makes a system call if it is the last reader that a grace period waits for.
#[cold]
pub fn report() {
    if let Some(slot) = mine().filter(|slot| !slot.is_in_section()) {
        slot.report(global());
    }
}

/// Answers a grace period that waits for this thread, which has just reported: a step of a read side that is inlined.
///
/// # Blocking
///
/// As [`report`].
///
/// # Safety
///
/// 1. `ctr` was stored, or found to be, as the module's page says, and nothing that was read before is looked at any more.
#[cold]
pub unsafe fn answer() {
    if let Some(slot) = mine().filter(|slot| slot.is_outermost()) {
        slot.answer(global());
    }
}

/// Makes this thread an online reader, as [`qsbr::Reader::new`] does, until [`offline`].
///
/// # Blocking
///
/// As [`qsbr::Reader::new`].
///
/// # Panics
///
/// As [`qsbr::Reader::new`].
pub fn online() {
    qsbr::online();
}

/// Ends what [`online`] began; false when this thread is no such reader, and nothing is done.
///
/// # Blocking
///
/// Never.
///
/// # Safety
///
/// 1. What is online was made so by [`online`], and what was read is not looked at any more.
pub unsafe fn offline() -> bool {
    let online = mine().filter(|slot| slot.nr_loops() > 0);
    online.map(qsbr::end).is_some()
}

/// Reports that this thread, which is [`online`], holds nothing that it has read. Does nothing in another section.
///
/// # Blocking
///
/// As [`qsbr::Reader::quiescent`].
///
/// # Safety
///
/// 1. What is online was made so by [`online`], and what was read is not looked at any more.
pub unsafe fn quiescent() {
    if let Some(slot) = mine().filter(|slot| slot.nr_loops() > 0) {
        slot.renew(global());
    }
}

/// Has grace periods overlook this thread until its next section. Does nothing in one.
///
/// # Blocking
///
/// Never.
pub fn park() {
    park_if_idle();
}

/// Calls `run` with `head` after a grace period, as [`call_head`](super::call_head).
///
/// # Blocking
///
/// As [`call`](super::call).
///
/// # Safety
///
/// 1. As of [`call_head`](super::call_head).
pub unsafe fn call_c(head: *mut Head, run: unsafe extern "C-unwind" fn(*mut Head)) {
    // SAFETY: (1).
    unsafe { call_function(head, Function::C(run)) };
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

/// Returns a cookie of a domain as a number.
///
/// # Blocking
///
/// Never.
pub fn srcu_cookie_to_bits(cookie: Cookie) -> u64 {
    cookie.bits()
}

/// Returns the cookie of a domain that was this number. Of any other one the domain says that it is over, or waits for some grace
/// periods.
///
/// # Blocking
///
/// Never.
pub fn srcu_cookie_from_bits(bits: u64) -> Cookie {
    Cookie::of_bits(bits)
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
        assert_eq!(crate::rcu::local::nesting(), 2);
        // SAFETY: begun above.
        assert!(unsafe { read_unlock() } && is_reading());
        // SAFETY: as above.
        assert!(unsafe { read_unlock() } && !is_reading());
        assert_eq!(crate::rcu::local::nesting(), 0);
        // SAFETY: nothing is open, and that is what is asked.
        assert!(!unsafe { read_unlock() });
        rcu::synchronize();
    }

    #[test]
    fn sections_of_an_ending_thread_nest() {
        use std::cell::RefCell;
        use std::sync::mpsc;
        struct ReadsAtExit(RefCell<Option<mpsc::Sender<Vec<bool>>>>);
        impl Drop for ReadsAtExit {
            fn drop(&mut self) {
                let is_open = |slot: &&Slot| slot.is_mine() && slot.is_in_section();
                read_lock();
                read_lock();
                // The first section protects until the second unlock: it has no slot beside it.
                let mut seen = vec![
                    is_reading(),
                    global().roster.iter().filter(is_open).count() == 1,
                ];
                // SAFETY: begun above, and the last time nothing is open, and that is what is asked.
                seen.extend((0..3).flat_map(|_| [unsafe { read_unlock() }, is_reading()]));
                self.0.take().map(|seen_by| seen_by.send(seen));
            }
        }
        // Touched before the thread's first section, so destroyed after its slot was given back.
        sync::thread_local!(static LATE: ReadsAtExit = ReadsAtExit(RefCell::new(None)));
        let (seen_by, seen) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            LATE.with(|late| late.0.replace(Some(seen_by)));
            drop(rcu::read());
        });
        reader.join().unwrap();
        let expected = [true, true, true, true, true, false, false, false];
        assert_eq!(seen.recv().unwrap(), expected);
    }

    #[test]
    fn a_thread_that_never_read_has_nothing_to_unlock() {
        // SAFETY: nothing is open, and that is what is asked.
        let ended = std::thread::spawn(|| unsafe { read_unlock() });
        assert!(!ended.join().unwrap());
    }

    #[test]
    fn a_thread_has_a_place_once_it_has_read() {
        let found = std::thread::spawn(|| {
            let before = place();
            drop(rcu::read());
            (before, place())
        });
        let (before, after) = found.join().unwrap();
        assert_eq!(before, None);
        assert_eq!(after.is_some(), sync::asym::init());
        assert_ne!(after, Some(Place::STAND_IN));
    }

    #[test]
    fn a_reader_is_online_until_it_is_not() {
        let readers = std::thread::spawn(|| {
            // SAFETY: nothing is online, and that is what is asked.
            assert!(!unsafe { offline() } && !is_reading());
            online();
            assert!(is_reading());
            // SAFETY: online, and nothing is looked at.
            unsafe { quiescent() };
            assert!(is_reading());
            // SAFETY: as above.
            assert!(unsafe { offline() } && !is_reading());
            park();
            rcu::synchronize();
        });
        readers.join().unwrap();
    }

    #[test]
    fn a_report_without_a_reader_ends_no_section() {
        read_lock();
        // SAFETY: nobody is online, and it does nothing.
        unsafe { quiescent() };
        report();
        assert!(is_reading());
        // SAFETY: begun above.
        assert!(unsafe { read_unlock() });
    }

    #[test]
    fn a_function_of_c_is_called_with_its_head() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NR_CALLED: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C-unwind" fn count(head: *mut Head) {
            // SAFETY: leaked below, for this.
            drop(unsafe { Box::from_raw(head) });
            NR_CALLED.fetch_add(1, Ordering::Relaxed);
        }
        for _ in 0..3 {
            // SAFETY: the head is the callback's alone.
            unsafe { call_c(Box::into_raw(Box::new(Head::new())), count) };
        }
        rcu::barrier();
        assert_eq!(NR_CALLED.load(Ordering::Relaxed), 3);
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
