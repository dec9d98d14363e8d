//! Sections without guards, and cookies as numbers, for other languages.
//!
//! The lifetime of a [`Guard`](super::Guard) determines which section ends, and ensures that it
//! ends on its own thread. Here the caller is responsible for both. A function without a remark
//! about blocking never blocks.
//!
//! # An inlined read side
//! Code in other languages may inline [`read_lock`] and [`read_unlock`] for the common case.
//! [`Place`]s are the addresses that this code needs. A thread's place is initially
//! [`Place::STAND_IN`], and later the result of [`place`]. `first_level`, shared by all threads, is
//! at [`Place::FIRST_LEVEL`]:
//!
//! ```text
//! lock:   nest = *ctr & NEST
//!         nest == 0:         *ctr = *first_level (acquire);  compiler barrier;
//!                            *flags & PARK?  leave_parking()
//!         nest < NEST - 1:   *ctr += 1
//!         otherwise:         read_lock(), then call place()
//! unlock: nest == 1:         *ctr -= 1 (release);  compiler barrier;
//!                            *flags & AT_UNLOCK?  report()
//!         1 < nest < NEST:   *ctr -= 1 (release)
//!         otherwise:         read_unlock()
//! report: *nr_loops == 1:    *ctr == *first_level (acquire)?
//!                            else nest == 1?  *ctr = that (release), else return
//!                            *flags & ASKED?  answer()
//!         otherwise:         quiescent()
//! ```
//! These are the steps of `slot.rs`, with the same proofs. The compiler barrier replaces
//! [`light`](sync::asym::light). Without `membarrier`, it would have to be a fence, so [`place`]
//! returns `None`. In that case, before a thread's first section, and while the thread exits, the
//! place is the stand-in, which makes every step a call.

pub use super::batch::{NR_OFFSETS, of_c, run_c};
use super::callback::callbacks;
use super::head::Function;
use super::local::{enter, found, global, left_open, mine, stand_in};
use super::periods::NEST_MAX;
use super::slot::{self, Slot};
use super::srcu::{Domain, Parity};
use super::{Head, qsbr};

/// Begins a read-side critical section of this thread, which [`read_unlock`] ends. Panics in the
/// same cases as [`read`](super::read).
#[inline(always)]
pub fn read_lock() {
    enter();
}

/// Ends the section of this thread that [`read_lock`] began last. Returns `false` and does nothing
/// if the thread is in no section.
///
/// # Safety
///
/// 1. All open sections of this thread were begun by [`read_lock`], and the data that the ending
///    section protected is no longer used.
#[inline(always)]
pub unsafe fn read_unlock() -> bool {
    let slot = found();
    let is_in = slot.is_in_section();
    if is_in {
        slot.unlock(global());
    }
    is_in || unlock_late()
}

#[cold]
fn unlock_late() -> bool {
    left_open().map(|slot| slot.unlock(global())).is_some()
}

/// Returns `true` if this thread is in a section.
pub fn is_reading() -> bool {
    mine().or_else(left_open).is_some_and(Slot::is_in_section)
}

/// Calls C's `free` with the address `offset` bytes before `head`, after a grace period. Blocks as
/// [`call`](super::call) does. Panics if `offset` is not below [`NR_OFFSETS`].
///
/// # Safety
///
/// 1. The same as (1) of [`call_c`], and `free` may be called with that address.
pub unsafe fn free_c(head: *mut Head, offset: usize) {
    assert!(offset < NR_OFFSETS, "the offset of the head is too large");
    // SAFETY: the address is not null, and is never called, because `run_c` checks it first.
    let run = unsafe { std::mem::transmute::<usize, Function>(offset + 1) };
    // SAFETY: (1).
    unsafe { call_c(head, run) };
}

/// The address of data that the inlined read side uses: a pointer, laid out as in C.
///
/// The place of a thread records its sections. It contains the 64-bit word `ctr`, followed by the
/// 32-bit words `flags` and `nr_loops`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Place(*const ());

// SAFETY: the value is an address, and the data at that address is atomic.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// The place of a thread without a slot. The depth check rejects its maximum depth.
    pub const STAND_IN: Self = Self(stand_in().promised());

    /// The address of the 64-bit word `first_level`, which is the same for all threads.
    pub const FIRST_LEVEL: Self = Self(global().place_of_first_level());
}

/// The mask of the nesting depth in `ctr`, which is all set in the stand-in.
pub const NEST: u64 = NEST_MAX;
/// A bit of `flags`. If it is set, a section that has begun calls [`leave_parking`].
pub const PARK: u32 = slot::PARK;
/// Bits of `flags`. If any of them is set, an outermost section that has ended calls [`report`].
pub const AT_UNLOCK: u32 = slot::AT_UNLOCK;
/// Bits of `flags`. If any of them is set, a reader that has reported calls [`answer`].
pub const ASKED: u32 = slot::ASK | slot::COUNTED;

/// Returns the place that records this thread's sections. It is valid until the thread exits.
///
/// Returns `None` if the thread has had no section, is exiting, or if a section costs a fence.
pub fn place() -> Option<Place> {
    let slot = mine()?;
    sync::asym::init().then(|| Place(slot.promised()))
}

/// Makes grace periods wait for this thread again. It is a step of an inlined read side.
#[cold]
pub fn leave_parking() {
    if let Some(slot) = mine() {
        slot.leave_parking(global());
    }
}

/// Answers a grace period that waits for this thread. It is a step of an inlined read side. Does
/// nothing in a section.
///
/// Makes a system call if this is the last reader that a grace period waits for.
#[cold]
pub fn report() {
    if let Some(slot) = mine().filter(|slot| !slot.is_in_section()) {
        slot.report(global());
    }
}

/// Answers a grace period that waits for this thread, which has just reported.
///
/// Blocks as [`report`] does.
///
/// # Safety
///
/// 1. `ctr` was stored or already had the right value, as the module page describes, and references
///    that were read before are no longer used.
#[cold]
pub unsafe fn answer() {
    if let Some(slot) = mine().filter(|slot| slot.nesting() == 1) {
        slot.answer(global());
    }
}

/// Makes this thread an online reader, as [`qsbr::Reader::new`] does, until [`offline`].
///
/// Blocks and panics as [`qsbr::Reader::new`] does.
pub fn online() {
    qsbr::online();
}

/// Ends the reader that [`online`] began. Returns `false` and does nothing if this thread has no
/// such reader.
///
/// # Safety
///
/// 1. The reader was begun by [`online`], and references that were read under it are no longer
///    used.
pub unsafe fn offline() -> bool {
    let online = mine().filter(|slot| slot.nr_loops() > 0);
    online.map(qsbr::end).is_some()
}

/// Reports that this thread, which is [`online`], holds no reference. Does nothing if the thread is
/// also in another section.
///
/// Blocks as [`qsbr::Reader::quiescent`] does.
///
/// # Safety
///
/// 1. The reader was begun by [`online`], and references that were read under it are no longer
///    used.
pub unsafe fn quiescent() {
    if let Some(slot) = mine().filter(|slot| slot.nr_loops() > 0) {
        slot.renew(global());
    }
}

/// Makes grace periods skip this thread until its next section. Does nothing in a section.
pub use super::local::park_if_idle as park;

/// Calls `run` with `head` after a grace period, without an allocation, like the kernel's
/// `call_rcu`. If an exception or a panic leaves `run`, the process is aborted.
///
/// Blocks as [`call`](super::call) does.
///
/// # Safety
///
/// 1. `head` is valid until `run` is called, and no other code uses it until then.
/// 2. `run` may be called with `head`, once, on any thread.
pub unsafe fn call_c(head: *mut Head, run: Function) {
    // SAFETY: (1), (2).
    unsafe { head.write(Head { function: Some(run), ..Head::new() }) };
    callbacks().add_head(head);
}

/// Calls `run` as [`call_c`] does, unless too many callbacks are pending. Returns `true` if `run`
/// will be called.
///
/// # Safety
///
/// 1. If this returns `true`, the same as [`call_c`].
pub unsafe fn try_call_c(head: *mut Head, run: Function) -> bool {
    let is_full = callbacks().is_full();
    if !is_full {
        // SAFETY: (1).
        unsafe { call_c(head, run) };
    }
    !is_full
}

/// Begins a section of a domain. [`srcu_read_unlock`] ends it, on any thread. Pass it the returned
/// number, which is 0 or 1.
#[inline]
pub fn srcu_read_lock(domain: &Domain) -> u32 {
    domain.shared.enter().word()
}

/// Ends a section of a domain.
///
/// Makes a system call if a grace period sleeps for the section.
///
/// # Safety
///
/// 1. [`srcu_read_lock`] of this domain returned `index`, for a section that has not been ended.
#[inline]
pub unsafe fn srcu_read_unlock(domain: &Domain, index: u32) {
    domain.shared.leave(Parity::of(index));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate as rcu;

    #[test]
    fn a_section_ends_with_its_last_unlock() {
        assert!(!is_reading());
        read_lock();
        read_lock();
        assert_eq!(crate::local::nesting(), 2);
        // SAFETY: the section was begun above.
        assert!(unsafe { read_unlock() } && is_reading());
        // SAFETY: as above.
        assert!(unsafe { read_unlock() } && !is_reading());
        assert_eq!(crate::local::nesting(), 0);
        // SAFETY: no section is open, which is the case under test.
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
                // The first section protects until the second unlock, because the thread has no
                // second slot.
                let mut seen =
                    vec![is_reading(), global().roster.iter().filter(is_open).count() == 1];
                // SAFETY: the sections were begun above. At the last call no section is open, which
                // is the case under test.
                seen.extend((0..3).flat_map(|_| [unsafe { read_unlock() }, is_reading()]));
                self.0.take().map(|seen_by| seen_by.send(seen));
            }
        }
        // This value is initialized before the thread's first section, so it is destroyed after the
        // slot was released.
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
        // SAFETY: no section is open, which is the case under test.
        let ended = std::thread::spawn(|| unsafe { read_unlock() });
        assert!(!ended.join().unwrap());
    }

    #[test]
    fn thread_has_a_slot_once_it_has_read() {
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
            // SAFETY: no reader is online, which is the case under test.
            assert!(!unsafe { offline() } && !is_reading());
            online();
            assert!(is_reading());
            // SAFETY: the reader is online, and no reference is used.
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
        // SAFETY: no reader is online, so the call does nothing.
        unsafe { quiescent() };
        report();
        assert!(is_reading());
        // SAFETY: the section was begun above.
        assert!(unsafe { read_unlock() });
    }

    #[test]
    fn a_function_of_c_is_called_with_its_head() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NR_CALLED: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C-unwind" fn count(head: *mut Head) {
            // SAFETY: the head was leaked below for this callback.
            drop(unsafe { Box::from_raw(head) });
            NR_CALLED.fetch_add(1, Ordering::Relaxed);
        }
        for _ in 0..3 {
            // SAFETY: only the callback uses the head.
            unsafe { call_c(Box::into_raw(Box::new(Head::new())), count) };
        }
        rcu::barrier();
        assert_eq!(NR_CALLED.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn cookie_converts_to_a_number_and_back() {
        let bits = rcu::get_state().bits();
        rcu::synchronize();
        assert!(rcu::poll_state(rcu::GpCookie::of_bits(bits)));
    }

    #[test]
    fn a_section_of_a_domain_may_end_on_another_thread() {
        let domain = Domain::new();
        let index = srcu_read_lock(&domain);
        let there = domain.clone();
        // SAFETY: the section was begun above, and is ended only here.
        let ended = std::thread::spawn(move || unsafe { srcu_read_unlock(&there, index) });
        ended.join().unwrap();
        domain.synchronize();
    }
}
