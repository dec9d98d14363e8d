//! `afterwork/rcupdate.h`.

use std::{
    ffi::{c_int, c_ulong},
    mem::offset_of,
};

use afterwork::rcu::{self, raw};
use sync::process::die;

use crate::boundary::{misuse, within};

/// What C gives for a callback: `struct rcu_head`.
#[repr(C)]
#[derive(Debug)]
pub struct RcuHead {
    head: rcu::Head,
    func: Option<RcuFn>,
}

/// What is called after a grace period, with the address of the head.
pub(crate) type RcuFn = unsafe extern "C-unwind" fn(*mut RcuHead);

// As the header promises; it asserts the same. Cookies are 64 bits, as is C's `unsigned long` on the machines we run on.
const _: () = assert!(size_of::<RcuHead>() == 24 && align_of::<RcuHead>() == 8);
const _: () = assert!(offset_of!(RcuHead, head) == 0);

#[unsafe(no_mangle)]
extern "C" fn aw_rcu_read_lock() {
    within("rcu_read_lock", raw::read_lock);
}

/// # Safety
///
/// 1. The section that ends is one that [`aw_rcu_read_lock`] began.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_rcu_read_unlock() {
    // SAFETY: (1).
    if !unsafe { raw::read_unlock() } {
        misuse(
            "rcu_read_unlock",
            &"this thread is in no read-side critical section",
            (),
        );
    }
}

#[unsafe(no_mangle)]
extern "C" fn aw_rcu_read_lock_held() -> c_int {
    c_int::from(raw::is_reading())
}

/// Returns `true` if the caller may wait for a grace period; what else he would do is misuse.
fn may_wait(name: &str) -> bool {
    let waits_for_itself = raw::is_reading();
    if waits_for_itself {
        let what = "inside a read-side critical section it would wait for itself";
        misuse(name, &what, ());
    }
    !waits_for_itself
}

#[unsafe(no_mangle)]
extern "C" fn aw_synchronize_rcu() {
    within("synchronize_rcu", || {
        if may_wait("synchronize_rcu") {
            rcu::synchronize();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn aw_synchronize_rcu_expedited() {
    within("synchronize_rcu_expedited", || {
        if may_wait("synchronize_rcu_expedited") {
            rcu::synchronize_expedited();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn aw_rcu_barrier() {
    within("rcu_barrier", || {
        if may_wait("rcu_barrier") {
            rcu::barrier();
        }
    });
}

/// Has `func` called with `head` after a grace period.
///
/// # Safety
///
/// 1. `head` is memory of a head's size and alignment, the library's until `func` is called, which may be on any thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_call_rcu(head: *mut RcuHead, func: Option<RcuFn>) {
    within("call_rcu", || {
        if head.is_null() || func.is_none() {
            return misuse("call_rcu", &"the head or the function is NULL", ());
        }
        // SAFETY: (1).
        unsafe { (&raw mut (*head).func).write(func) };
        // SAFETY: (1), and `run` calls what was written above.
        unsafe { rcu::call_head(head.cast(), run) };
    });
}

/// # Safety
///
/// 1. `head` was handed over by [`aw_call_rcu`], and its grace period is over.
unsafe fn run(head: *mut rcu::Head) {
    let head = head.cast::<RcuHead>();
    // SAFETY: (1): it is the first part of one.
    if let Some(func) = unsafe { (*head).func } {
        // SAFETY: (1).
        unsafe { called_back(head, func) };
    }
}

/// Calls `func` with `head`; should it leave a section open, or end one of another's, the process ends: no grace period would.
///
/// # Safety
///
/// 1. `head` was handed over with `func`, and its grace period is over.
pub(crate) unsafe fn called_back(head: *mut RcuHead, func: RcuFn) {
    let nesting = raw::nesting();
    // SAFETY: (1).
    unsafe { func(head) };
    if raw::nesting() != nesting {
        die(&format!(
            "the callback {:#x} returned in another read-side critical section than it was called in",
            func as usize
        ));
    }
}

#[unsafe(no_mangle)]
extern "C" fn aw_get_state_synchronize_rcu() -> c_ulong {
    within("get_state_synchronize_rcu", || {
        raw::cookie_to_bits(rcu::get_state())
    })
}

#[unsafe(no_mangle)]
extern "C" fn aw_start_poll_synchronize_rcu() -> c_ulong {
    within("start_poll_synchronize_rcu", || {
        raw::cookie_to_bits(rcu::start_poll())
    })
}

#[unsafe(no_mangle)]
extern "C" fn aw_poll_state_synchronize_rcu(cookie: c_ulong) -> bool {
    within("poll_state_synchronize_rcu", || {
        rcu::poll_state(raw::cookie_from_bits(cookie))
    })
}

#[unsafe(no_mangle)]
extern "C" fn aw_cond_synchronize_rcu(cookie: c_ulong) {
    within("cond_synchronize_rcu", || {
        if may_wait("cond_synchronize_rcu") {
            rcu::cond_synchronize(raw::cookie_from_bits(cookie));
        }
    });
}
