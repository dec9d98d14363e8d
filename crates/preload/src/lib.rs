//! The symbols of liburcu's flavor `memb`, implemented by afterwork. An unmodified program that
//! calls them loads this library through `LD_PRELOAD`. `cargo xtask capi --install` links it.
//!
//! ```console
//! $ cargo xtask capi --install /usr/local
//! $ LD_PRELOAD=/usr/local/lib/afterwork/preload/liburcu.so.8 knotd
//! ```
//!
//! The library is for programs that *call* liburcu's read side. A program that has inlined it
//! (`_LGPL_SOURCE`) records its sections in liburcu's own variables, which no other library can
//! maintain, so they are missing here. The file has the name under which the loader knows liburcu,
//! so the loader rejects such a program, and names the missing symbol.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_int, c_ulong, c_void};

use afterwork::rcu::raw;
use capi::inline;
use capi::rcupdate::{self, RcuFn, RcuHead};
use capi::urcu::{self, AtFork, Flavor, Helper, OfData};
use sync::atomic::{AtomicPtr, Ordering};

/// Begins a section. If sections nest too deeply, this function panics, which ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_read_lock() {
    raw::read_lock();
}

/// Ends the section that this thread began most recently.
///
/// # Safety
///
/// 1. The section was begun by [`urcu_memb_read_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn urcu_memb_read_unlock() {
    // SAFETY: (1).
    if !unsafe { raw::read_unlock() } {
        // The call reports the misuse.
        // SAFETY: there is no section to end.
        unsafe { inline::aw_rcu_read_unlock() };
    }
}

/// Does nothing: the library initializes itself at the first use.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_init() {}

/// Does nothing: [`aw_rcu_defer_barrier`](urcu::aw_rcu_defer_barrier) waits for deferred functions.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_defer_exit() {}

/// Returns 0, because any thread may defer a function.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_defer_register_thread() -> c_int {
    0
}

/// Defines functions that forward to others with the same contract.
macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? = $to:path;)*) => { $(
        #[doc = concat!("See [`", stringify!($to), "`].")]
        ///
        /// # Safety
        ///
        /// 1. The conditions of the other function.
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
    urcu_memb_defer_rcu(func: Option<OfData>, p: *mut c_void) = urcu::aw_defer_rcu;
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

/// The `struct urcu_gp_poll_state` of liburcu 0.14 and later.
#[repr(C)]
#[derive(Debug)]
pub struct PollState {
    grace_period_id: c_ulong,
}

/// Starts a grace period. Returns the argument for [`urcu_memb_poll_state_synchronize_rcu`].
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_start_poll_synchronize_rcu() -> PollState {
    PollState { grace_period_id: rcupdate::aw_start_poll_synchronize_rcu() }
}

/// Returns `true` if the grace period of `state` is over.
#[unsafe(no_mangle)]
pub extern "C" fn urcu_memb_poll_state_synchronize_rcu(state: PollState) -> bool {
    rcupdate::aw_poll_state_synchronize_rcu(state.grace_period_id)
}

/// The functions of the flavor that liburcu's hash table calls.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static urcu_memb_flavor: Flavor = urcu::FLAVOR;

/// Returns `p`, a pointer that the caller has loaded.
#[unsafe(no_mangle)]
pub extern "C" fn rcu_dereference_sym(p: *mut c_void) -> *mut c_void {
    // Pairs with the Release of `rcu_set_pointer_sym`: reads through `p` are ordered after the load
    // of `p`. (In liburcu the data dependency orders them.) No model: both ends are in C programs.
    sync::atomic::fence(Ordering::Acquire);
    p
}

/// Loads a pointer that readers follow. In releases of liburcu after 0.15, `rcu_dereference` calls
/// this function.
///
/// # Safety
///
/// 1. Only these functions access the pointer at `place` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_dereference_sym2(place: *mut *mut c_void) -> *mut c_void {
    // Pairs with the Release of `rcu_set_pointer_sym`.
    // SAFETY: (1).
    unsafe { AtomicPtr::from_ptr(place) }.load(Ordering::Acquire)
}

/// Stores a pointer, so that readers of the pointer see all earlier writes.
///
/// # Safety
///
/// 1. The same as for [`rcu_dereference_sym2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_set_pointer_sym(
    place: *mut *mut c_void,
    value: *mut c_void,
) -> *mut c_void {
    // Pairs with the fence of `rcu_dereference_sym`.
    // SAFETY: (1).
    unsafe { AtomicPtr::from_ptr(place) }.store(value, Ordering::Release);
    value
}

/// Exchanges a pointer, with a full barrier.
///
/// # Safety
///
/// 1. The same as for [`rcu_dereference_sym2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_xchg_pointer_sym(
    place: *mut *mut c_void,
    value: *mut c_void,
) -> *mut c_void {
    // liburcu promises a full barrier.
    // SAFETY: (1).
    unsafe { AtomicPtr::from_ptr(place) }.swap(value, Ordering::SeqCst)
}

/// Exchanges a pointer if it is `old`, with a full barrier. Returns its previous value.
///
/// # Safety
///
/// 1. The same as for [`rcu_dereference_sym2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcu_cmpxchg_pointer_sym(
    place: *mut *mut c_void,
    old: *mut c_void,
    value: *mut c_void,
) -> *mut c_void {
    // liburcu promises a full barrier.
    let order = Ordering::SeqCst;
    // SAFETY: (1).
    let seen = unsafe { AtomicPtr::from_ptr(place) }.compare_exchange(old, value, order, order);
    seen.unwrap_or_else(|now| now)
}
