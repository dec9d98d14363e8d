//! `afterwork/rcupdate.h`.

use std::ffi::c_ulong;

use afterwork::rcu::{self, GpCookie, raw};

use crate::boundary::{misuse, within};

/// The head of a callback: `struct rcu_head`.
pub type RcuHead = rcu::Head;

/// A callback, which receives the address of its head.
pub type RcuFn = unsafe extern "C-unwind" fn(*mut RcuHead);

// These are the sizes that the header also asserts. Cookies have 64 bits, like C's `unsigned long`.
const _: () = assert!(size_of::<RcuHead>() == 16 && align_of::<RcuHead>() == 8);

/// A function of C and its argument. A closure can move them to another thread.
pub(crate) struct Called<T>(pub(crate) *mut T, pub(crate) unsafe extern "C-unwind" fn(*mut T));

// SAFETY: C passed the function so that any thread may call it.
unsafe impl<T> Send for Called<T> {}

impl<T> Called<T> {
    /// # Safety
    ///
    /// 1. The grace period of the function is over, and this is called only once.
    pub(crate) unsafe fn run(self, what: &str) {
        let Self(argument, func) = self;
        // SAFETY: (1).
        raw::of_c(what, func as usize, || unsafe { func(argument) });
    }
}

/// Runs `body`, which waits for a grace period. In a read section, reports misuse of the function
/// `name` instead.
pub(crate) fn waits(name: &str, body: impl FnOnce()) {
    within(name, || match raw::is_reading() {
        true => {
            let what = "inside a read-side critical section it would wait for itself";
            misuse(name, &what, ());
        }
        false => body(),
    });
}

/// Returns the function of a callback. If it or the head is null, reports misuse.
pub(crate) fn callback(name: &str, head: *mut RcuHead, func: Option<RcuFn>) -> Option<RcuFn> {
    let func = func.filter(|_| !head.is_null());
    func.or_else(|| misuse(name, &"the head or the function is NULL", None))
}

/// Waits until all current sections have ended.
#[unsafe(no_mangle)]
pub extern "C" fn aw_synchronize_rcu() {
    waits("synchronize_rcu", rcu::synchronize);
}

#[unsafe(no_mangle)]
extern "C" fn aw_synchronize_rcu_expedited() {
    waits("synchronize_rcu_expedited", rcu::synchronize_expedited);
}

/// Waits until all callbacks of earlier calls to [`aw_call_rcu`] have run.
#[unsafe(no_mangle)]
pub extern "C" fn aw_rcu_barrier() {
    waits("rcu_barrier", rcu::barrier);
}

/// Calls `func` with `head` after a grace period, on any thread.
///
/// # Safety
///
/// 1. `head` points to memory for a head, which the library owns until it calls `func`, on any
///    thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_call_rcu(head: *mut RcuHead, func: Option<RcuFn>) {
    within("call_rcu", || {
        if let Some(func) = callback("call_rcu", head, func) {
            // SAFETY: (1).
            unsafe { raw::call_c(head, func) };
        }
    });
}

/// Does the same as [`aw_call_rcu`], unless `rcu.qhimark` callbacks or more are pending.
///
/// # Safety
///
/// 1. The same as for [`aw_call_rcu`], if this returns `true`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_try_call_rcu(head: *mut RcuHead, func: Option<RcuFn>) -> bool {
    within("try_call_rcu", || {
        let func = callback("try_call_rcu", head, func);
        // SAFETY: (1).
        func.is_some_and(|func| unsafe { raw::try_call_c(head, func) })
    })
}

/// Frees the memory `offset` bytes before `head` after a grace period.
///
/// # Safety
///
/// 1. `head` points to memory with the size and alignment of a head. The library owns it from this
///    call on, and may pass the address `offset` bytes before it to `free`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_kfree_rcu(head: *mut RcuHead, offset: usize) {
    within("kfree_rcu", || {
        if head.is_null() || offset >= raw::NR_OFFSETS {
            let what = "the head is NULL, or 4096 bytes or more after the start";
            return misuse("kfree_rcu", &what, ());
        }
        // SAFETY: (1).
        unsafe { raw::free_c(head, offset) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn aw_get_state_synchronize_rcu() -> c_ulong {
    within("get_state_synchronize_rcu", || rcu::get_state().bits())
}

/// Starts a grace period, and returns its cookie.
#[unsafe(no_mangle)]
pub extern "C" fn aw_start_poll_synchronize_rcu() -> c_ulong {
    within("start_poll_synchronize_rcu", || rcu::start_poll().bits())
}

/// Returns `true` if the grace period of `cookie` is over.
#[unsafe(no_mangle)]
pub extern "C" fn aw_poll_state_synchronize_rcu(cookie: c_ulong) -> bool {
    within("poll_state_synchronize_rcu", || rcu::poll_state(GpCookie::of_bits(cookie)))
}

#[unsafe(no_mangle)]
extern "C" fn aw_cond_synchronize_rcu(cookie: c_ulong) {
    waits("cond_synchronize_rcu", || rcu::cond_synchronize(GpCookie::of_bits(cookie)));
}
