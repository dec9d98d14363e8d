//! `afterwork/rcu_inline.h`: the read side, which a C compiler compiles, and its slow paths.
//!
//! C code reads and writes this thread's slot directly (see `afterwork::rcu::raw`). It finds the
//! slot through one thread-local variable, which C reads and this module writes:
//!
//! | variable | set by | until |
//! |---|---|---|
//! | the stand-in | the loader | the thread's first slow path (a section, or its registration) |
//! | the thread's slot | `adopt` | the thread ends |
//! | the stand-in | the destructor below | forever |
//!
//! The destructor runs before the library's own destructor frees the slot. The variable also keeps
//! the stand-in if a section requires a fence, or if the program has a different layout.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::ptr;

use afterwork::rcu::raw::{self, Place};

use crate::boundary::{misuse, within};
use crate::qsbr;

/// `AFTERWORK_RCU_LAYOUT`: the version of the layout that the header promises.
const LAYOUT: c_uint = 2;

// These are the sizes that the header promises. The library asserts the offsets of the three words.
const _: () = assert!(size_of::<Place>() == 8 && align_of::<Place>() == 8);
const _: () = assert!(raw::NEST == 0xffff && raw::PARK == 0x8);
const _: () = assert!(raw::AT_UNLOCK == 0x7 && raw::ASKED == 0x3);

/// `struct afterwork_reader`. Only C reads it, on its own thread. Writers receive its address.
///
/// The section's name makes the variable thread-local for the linker and for C, because stable Rust
/// cannot declare a thread-local variable that C can name. In Rust code the name would refer to the
/// initial value.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".tdata")]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_rcu_reader: Place = Place::STAND_IN;

/// The address of the current grace period's number, in the form in which sections record it.
///
/// It is constant, so that a compiler reads it only once for a whole loop of sections. A program
/// may have a copy of it, which is equivalent.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_rcu_first_level: Place = Place::FIRST_LEVEL;

sync::thread_local! {
    /// The address of this thread's variable, or null while the variable contains the stand-in.
    static READER: Cell<*mut Place> = Cell::new(ptr::null_mut());
    /// A value whose destructor runs on each thread whose variable or state it must reset.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        let reader = READER.try_with(Cell::take).unwrap_or(ptr::null_mut());
        if !reader.is_null() {
            // SAFETY: the thread's variable, by (1) of `adopt`, is valid until it ends.
            unsafe { reader.write(Place::STAND_IN) };
        }
        qsbr::leave_at_exit();
    }
}

/// Ensures that C's variable is reset when this thread ends. Returns `false` if it is ending.
pub(crate) fn watch_exit() -> bool {
    AT_EXIT.try_with(|_| ()).is_ok()
}

/// Lets C use this thread's slot from now on, if the thread has one and the layouts agree.
///
/// # Safety
///
/// 1. `reader` is null or the address of this thread's `aw_rcu_reader`.
pub(crate) unsafe fn adopt(reader: *mut Place, layout: c_uint) {
    if reader.is_null() || layout != LAYOUT {
        return;
    }
    // This destructor is registered after the library's, so it runs first.
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
/// 1. The same as for `adopt`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_rcu_lock_slowly(reader: *mut Place, layout: c_uint) {
    within("rcu_read_lock", || {
        raw::read_lock();
        // SAFETY: (1).
        unsafe { adopt(reader, layout) };
    });
}

/// Begins a section, for callers that do not inline it.
#[unsafe(no_mangle)]
pub extern "C" fn aw_rcu_read_lock() {
    within("rcu_read_lock", raw::read_lock);
}

/// Ends the section that this thread began most recently.
///
/// # Safety
///
/// 1. [`aw_rcu_read_lock`] began the section that this call ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_rcu_read_unlock() {
    // SAFETY: (1).
    if !unsafe { raw::read_unlock() } {
        misuse("rcu_read_unlock", &"this thread is not in a read-side critical section", ());
    }
}

/// Returns 1 if this thread is in a section, otherwise 0.
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
