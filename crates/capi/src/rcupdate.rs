//! `afterwork/rcupdate.h`.

use std::ffi::c_ulong;

use afterwork::rcu::{self, raw};

use crate::boundary::{misuse, within};

/// What C gives for a callback: `struct rcu_head`.
pub type RcuHead = rcu::Head;

/// What is called after a grace period, with the address of the head.
pub type RcuFn = unsafe extern "C-unwind" fn(*mut RcuHead);

// As the header promises; it asserts the same. Cookies are 64 bits, as is C's `unsigned long` on the machines we run on.
const _: () = assert!(size_of::<RcuHead>() == 16 && align_of::<RcuHead>() == 8);

/// A head and its function, which a closure carries to another thread.
pub(crate) struct Called(pub(crate) *mut RcuHead, pub(crate) RcuFn);

// SAFETY: handed over by C, to be called on any thread.
unsafe impl Send for Called {}

impl Called {
    /// # Safety
    ///
    /// 1. Its grace period is over, and this is called once.
    pub(crate) unsafe fn run(self, what: &str) {
        let Self(head, func) = self;
        // SAFETY: (1).
        raw::of_c(what, func as usize, || unsafe { func(head) });
    }
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

/// Waits until all sections that run now have ended.
#[unsafe(no_mangle)]
pub extern "C" fn aw_synchronize_rcu() {
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

/// Waits until all that [`aw_call_rcu`] was given before has been called.
#[unsafe(no_mangle)]
pub extern "C" fn aw_rcu_barrier() {
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
pub unsafe extern "C" fn aw_call_rcu(head: *mut RcuHead, func: Option<RcuFn>) {
    within("call_rcu", || {
        match func {
            // SAFETY: (1).
            Some(func) if !head.is_null() => unsafe { raw::call_c(head, func) },
            _ => misuse("call_rcu", &"the head or the function is NULL", ()),
        }
    });
}

/// Has what lies `offset` bytes before `head` freed after a grace period.
///
/// # Safety
///
/// 1. `head` is memory of a head's size and alignment, the library's from here on, and `free` may be called `offset` bytes before it.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_kfree_rcu(head: *mut RcuHead, offset: usize) {
    within("kfree_rcu", || {
        if head.is_null() || offset >= raw::NR_OFFSETS {
            let what = "the head is NULL, or 4096 bytes or more behind the beginning";
            return misuse("kfree_rcu", &what, ());
        }
        // SAFETY: (1).
        unsafe { raw::free_c(head, offset) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn aw_get_state_synchronize_rcu() -> c_ulong {
    within("get_state_synchronize_rcu", || {
        raw::cookie_to_bits(rcu::get_state())
    })
}

/// Begins a grace period, and returns its cookie.
#[unsafe(no_mangle)]
pub extern "C" fn aw_start_poll_synchronize_rcu() -> c_ulong {
    within("start_poll_synchronize_rcu", || {
        raw::cookie_to_bits(rcu::start_poll())
    })
}

/// Returns `true` if the grace period of `cookie` is over.
#[unsafe(no_mangle)]
pub extern "C" fn aw_poll_state_synchronize_rcu(cookie: c_ulong) -> bool {
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
