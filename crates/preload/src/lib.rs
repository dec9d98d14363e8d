//! The symbols of liburcu's flavor `memb`, over afterwork: a program that calls them is given this library by `LD_PRELOAD`, and
//! need not be compiled again. `cargo xtask capi --install` links it.
//!
//! ```console
//! $ cargo xtask capi --install /usr/local
//! $ LD_PRELOAD=/usr/local/lib/afterwork/preload/liburcu.so.8 knotd
//! ```
//!
//! It is for programs that *call* liburcu's read side. One that has inlined it (`_LGPL_SOURCE`) has liburcu's own notes of
//! sections in its code, which no other library can keep: it wants `urcu_memb_gp` and `urcu_memb_reader`, which are not here. The
//! file has the name by which the loader knows liburcu, so that liburcu itself is not loaded, and such a program is refused with
//! the name of the symbol rather than served by halves.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_int, c_ulong, c_void};

use afterwork::rcu::raw;
use capi::{
    inline, rcupdate,
    rcupdate::{RcuFn, RcuHead},
    urcu,
    urcu::{AtFork, Flavor, Helper},
};
use sync::atomic::{AtomicPtr, Ordering};

/// Begins a section. A panic, where sections nest too deep, ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_read_lock() {
    raw::read_lock();
}

/// Ends the section that this thread began last.
///
/// # Safety
///
/// 1. The section that ends is one that [`urcu_memb_read_lock`] began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn urcu_memb_read_unlock() {
    // SAFETY: (1).
    if !unsafe { raw::read_unlock() } {
        // Tells of it.
        // SAFETY: there is no section to end.
        unsafe { inline::aw_rcu_read_unlock() };
    }
}

/// Does nothing: the library makes ready what it needs when it is needed.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_init() {}

/// Does nothing: [`aw_rcu_defer_barrier`](urcu::aw_rcu_defer_barrier) is what waits.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_defer_exit() {}

/// Returns 0: any thread may defer.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_defer_register_thread() -> c_int {
    0
}

/// Defines functions that others of the same contract stand behind.
macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? = $to:path;)*) => { $(
        #[doc = concat!("See [`", stringify!($to), "`].")]
        ///
        /// # Safety
        ///
        /// 1. As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $answer)? {
            #[allow(unused_unsafe, reason = "some need not be")]
            // SAFETY: (1).
            unsafe {
                $to($($arg),*)
            }
        }
    )* };
}

forward! {
    urcu_memb_read_ongoing() -> c_int = inline::aw_rcu_read_lock_held;
    urcu_memb_register_thread() = urcu::aw_urcu_register_thread;
    urcu_memb_unregister_thread() = urcu::aw_urcu_unregister_thread;
    urcu_memb_synchronize_rcu() = rcupdate::aw_synchronize_rcu;
    urcu_memb_call_rcu(head: *mut RcuHead, func: Option<RcuFn>) = rcupdate::aw_call_rcu;
    urcu_memb_barrier() = rcupdate::aw_rcu_barrier;
    urcu_memb_defer_rcu(func: Option<unsafe extern "C-unwind" fn(*mut c_void)>, p: *mut c_void) = urcu::aw_defer_rcu;
    urcu_memb_defer_unregister_thread() = urcu::aw_rcu_defer_barrier;
    urcu_memb_defer_barrier() = urcu::aw_rcu_defer_barrier;
    urcu_memb_defer_barrier_thread() = urcu::aw_rcu_defer_barrier;
    urcu_memb_create_call_rcu_data(flags: c_ulong, cpu: c_int) -> *mut Helper = urcu::aw_create_call_rcu_data;
    urcu_memb_call_rcu_data_free(helper: *mut Helper) = urcu::aw_call_rcu_data_free;
    urcu_memb_get_default_call_rcu_data() -> *mut Helper = urcu::aw_get_default_call_rcu_data;
    urcu_memb_get_cpu_call_rcu_data(cpu: c_int) -> *mut Helper = urcu::aw_get_cpu_call_rcu_data;
    urcu_memb_get_thread_call_rcu_data() -> *mut Helper = urcu::aw_get_thread_call_rcu_data;
    urcu_memb_get_call_rcu_data() -> *mut Helper = urcu::aw_get_call_rcu_data;
    urcu_memb_get_call_rcu_thread(helper: *mut Helper) -> c_ulong = urcu::aw_get_call_rcu_thread;
    urcu_memb_set_thread_call_rcu_data(helper: *mut Helper) = urcu::aw_set_thread_call_rcu_data;
    urcu_memb_set_cpu_call_rcu_data(cpu: c_int, helper: *mut Helper) -> c_int = urcu::aw_set_cpu_call_rcu_data;
    urcu_memb_create_all_cpu_call_rcu_data(flags: c_ulong) -> c_int = urcu::aw_create_all_cpu_call_rcu_data;
    urcu_memb_free_all_cpu_call_rcu_data() = urcu::aw_free_all_cpu_call_rcu_data;
    urcu_memb_call_rcu_before_fork() = urcu::aw_call_rcu_before_fork;
    urcu_memb_call_rcu_after_fork_parent() = urcu::aw_call_rcu_after_fork_parent;
    urcu_memb_call_rcu_after_fork_child() = urcu::aw_call_rcu_after_fork_child;
    urcu_memb_register_rculfhash_atfork(handler: *mut AtFork) = urcu::aw_urcu_register_rculfhash_atfork;
    urcu_memb_unregister_rculfhash_atfork(handler: *mut AtFork) = urcu::aw_urcu_unregister_rculfhash_atfork;
}

/// `struct urcu_gp_poll_state`, of liburcu from 0.14 on.
#[repr(C)]
#[derive(Debug)]
pub struct PollState {
    grace_period_id: c_ulong,
}

/// Begins a grace period, and returns what [`urcu_memb_poll_state_synchronize_rcu`] is asked with.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_start_poll_synchronize_rcu() -> PollState {
    PollState {
        grace_period_id: rcupdate::aw_start_poll_synchronize_rcu(),
    }
}

/// Returns `true` if that grace period is over.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_poll_state_synchronize_rcu(state: PollState) -> bool {
    rcupdate::aw_poll_state_synchronize_rcu(state.grace_period_id)
}

/// What liburcu's hash table asks of the flavor.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static urcu_memb_flavor: Flavor = urcu::FLAVOR;

/// Returns `p`, which the caller has loaded.
#[unsafe(no_mangle)]
pub extern "C" fn rcu_dereference_sym(p: *mut c_void) -> *mut c_void {
    // Pairs with the Release of `rcu_set_pointer_sym`: what the caller reads through `p`, which it has loaded, comes after. (With
    // liburcu the dependency sees to that.) No model: both ends are in a program of C's.
    sync::atomic::fence(Ordering::Acquire);
    p
}

/// Loads a pointer that readers follow. Called by liburcu's `rcu_dereference` in releases after
/// 0.15.
///
/// # Safety
///
/// 1. as for `atomic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_dereference_sym2(place: *mut *mut c_void) -> *mut c_void {
    // Pairs with the Release of `rcu_set_pointer_sym`.
    // SAFETY: (1).
    unsafe { atomic(place) }.load(Ordering::Acquire)
}

/// Returns the place as an atomic one.
///
/// # Safety
///
/// 1. `place` is a pointer that is accessed by these functions alone, for as long as the answer is used.
unsafe fn atomic<'a>(place: *mut *mut c_void) -> &'a AtomicPtr<c_void> {
    // SAFETY: (1).
    unsafe { AtomicPtr::from_ptr(place) }
}

/// Stores a pointer so that readers see all that was written before.
///
/// # Safety
///
/// 1. As of `atomic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_set_pointer_sym(
    place: *mut *mut c_void,
    value: *mut c_void,
) -> *mut c_void {
    // Pairs with the fence of `rcu_dereference_sym`.
    // SAFETY: (1).
    unsafe { atomic(place) }.store(value, Ordering::Release);
    value
}

/// Exchanges a pointer; a full barrier.
///
/// # Safety
///
/// 1. As of `atomic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_xchg_pointer_sym(
    place: *mut *mut c_void,
    value: *mut c_void,
) -> *mut c_void {
    // A full barrier, as liburcu promises.
    // SAFETY: (1).
    unsafe { atomic(place) }.swap(value, Ordering::SeqCst)
}

/// Exchanges a pointer that is `old`, and returns what it was; a full barrier.
///
/// # Safety
///
/// 1. As of `atomic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_cmpxchg_pointer_sym(
    place: *mut *mut c_void,
    old: *mut c_void,
    value: *mut c_void,
) -> *mut c_void {
    // A full barrier, as liburcu promises.
    let order = Ordering::SeqCst;
    // SAFETY: (1).
    let seen = unsafe { atomic(place) }.compare_exchange(old, value, order, order);
    seen.unwrap_or_else(|now| now)
}
