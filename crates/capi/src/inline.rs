//! `afterwork/rcu_inline.h`: the read side as C compiles it, and its slow ways.
//!
//! C reads and writes this thread's slot by itself (`afterwork::rcu::raw` says how). It finds the slot through one
//! thread-local variable, which is C's to read and ours to write:
//!
//! | the variable | set by | until |
//! |---|---|---|
//! | the stand-in | the loader | the thread's first slow way: a section, or its registration |
//! | the thread's slot | `adopt` | the thread ends |
//! | the stand-in | the destructor below, before the library's own gives the slot back | for ever: sections of later destructors are calls |
//!
//! It stays the stand-in where a section costs a fence, and for a program that was compiled for another layout.

use std::{
    cell::Cell,
    ffi::{c_int, c_uint},
    ptr,
};

use afterwork::rcu::raw::{self, Place};

use crate::{
    boundary::{misuse, within},
    qsbr,
};

/// `AFTERWORK_RCU_LAYOUT`: the version of what the header promises.
const LAYOUT: c_uint = 2;

// As the header promises; the library asserts where the three words are.
const _: () = assert!(size_of::<Place>() == 8 && align_of::<Place>() == 8);
const _: () = assert!(raw::NEST == 0xffff && raw::PARK == 0x8);
const _: () = assert!(raw::AT_UNLOCK == 0x7 && raw::ASKED == 0x3);

/// `struct afterwork_reader`. Read by C alone, on its thread, and written by the functions that C gives its address.
///
/// The section's name makes it thread-local, to the linker and to C, whose compiler knows it as such. Rust has no stable word
/// for a thread-local variable that C can name, so no code here may use this name: it would be the address of the initial
/// value.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".tdata")]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_rcu_reader: Place = Place::STAND_IN;

/// Where the present grace period's number is, as sections note it.
///
/// A constant: a compiler reads it once for a whole loop of sections. A program that is linked to a fixed address may have a copy
/// of it, which is as good.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_rcu_first_level: Place = Place::FIRST_LEVEL;

sync::thread_local! {
    /// Where this thread's variable is, once it is not the stand-in.
    static READER: Cell<*mut Place> = Cell::new(ptr::null_mut())
}

sync::thread_local! {
    /// Touched by a thread that C knows.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        let reader = READER.try_with(Cell::take).unwrap_or(ptr::null_mut());
        if !reader.is_null() {
            // SAFETY: this thread's variable, by (1) of `adopt`; it lives as long as the thread.
            unsafe { reader.write(Place::STAND_IN) };
        }
        qsbr::leave_at_exit();
    }
}

/// Has this thread's end undo what C was given. Returns `false` if the thread is ending already.
pub(crate) fn watch_exit() -> bool {
    AT_EXIT.try_with(|_| ()).is_ok()
}

/// Lets C use this thread's slot from here on, if it has one, and if the layouts agree.
///
/// # Safety
///
/// 1. `reader` is null or the address of this thread's `aw_rcu_reader`.
pub(crate) unsafe fn adopt(reader: *mut Place, layout: c_uint) {
    if reader.is_null() || layout != LAYOUT {
        return;
    }
    // The library's destructor is registered by now: that of this thread, being later, runs before it.
    if let Some(place) = raw::place()
        && watch_exit()
    {
        READER.with(|known| known.set(reader));
        // SAFETY: (1).
        unsafe { reader.write(place) };
    }
}

/// # Safety
///
/// 1. As of `adopt`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_rcu_lock_slowly(reader: *mut Place, layout: c_uint) {
    within("rcu_read_lock", || {
        raw::read_lock();
        // SAFETY: (1).
        unsafe { adopt(reader, layout) };
    });
}

/// Begins a section, for those who do not inline it.
#[unsafe(no_mangle)]
pub extern "C" fn aw_rcu_read_lock() {
    within("rcu_read_lock", raw::read_lock);
}

/// Ends the section that this thread began last.
///
/// # Safety
///
/// 1. The section that ends is one that [`aw_rcu_read_lock`] began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_rcu_read_unlock() {
    // SAFETY: (1).
    if !unsafe { raw::read_unlock() } {
        misuse(
            "rcu_read_unlock",
            &"this thread is in no read-side critical section",
            (),
        );
    }
}

/// Returns 1 if this thread is in a section, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn aw_rcu_read_lock_held() -> c_int {
    c_int::from(raw::is_reading())
}

#[unsafe(no_mangle)]
extern "C" fn aw_rcu_leave_parking() {
    raw::leave_parking();
}

#[unsafe(no_mangle)]
extern "C" fn aw_rcu_report() {
    raw::report();
}
