//! `afterwork/urcu.h`: liburcu's names.
//!
//! All flavors share grace periods. The readers of `memb`, `mb` and `bp` use sections
//! (`inline.rs`), and the readers of `qsbr` report (`qsbr.rs`). Helper threads exist only as
//! objects that are stored and returned. One thread runs all callbacks.

use std::cell::Cell;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;

use afterwork::rcu::{self, raw};
use sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use sync::unmodelled::Arc;

use crate::boundary::{EINVAL, misuse, within};
use crate::rcupdate::{self, Called, RcuFn, RcuHead};
use crate::{inline, qsbr};

const EEXIST: c_int = 17;

/// A function of a program, which receives the program's data.
pub type OfData = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C" {
    /// Returns the C library's ID of the calling thread.
    safe fn pthread_self() -> c_ulong;
}

// ---- threads ----

/// Makes this thread a reader before its first section, so that its sections do not allocate.
#[unsafe(no_mangle)]
pub extern "C" fn aw_urcu_register_thread() {
    within("rcu_register_thread", || {
        raw::read_lock();
        // SAFETY: the section was begun above.
        unsafe { raw::read_unlock() };
    });
}

/// Removes this thread from grace periods until its next section.
#[unsafe(no_mangle)]
pub extern "C" fn aw_urcu_unregister_thread() {
    if raw::is_reading() {
        return misuse("rcu_unregister_thread", &"inside a read-side critical section", ());
    }
    raw::park();
}

/// Does nothing. A flavor uses it for operations that it does not need.
extern "C" fn nothing() {}

// ---- defer_rcu ----

/// Calls `func` with `p` after a grace period.
///
/// # Safety
///
/// 1. `func` may be called with `p` on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_defer_rcu(func: Option<OfData>, p: *mut c_void) {
    within("defer_rcu", || match func {
        Some(func) => {
            let called = Called(p, func);
            // SAFETY: (1). A callback runs once.
            rcu::call(move || unsafe { called.run("function of defer_rcu") });
        }
        None => misuse("defer_rcu", &"the function is NULL", ()),
    });
}

/// Waits until all functions that were deferred earlier have been called.
#[unsafe(no_mangle)]
pub extern "C" fn aw_rcu_defer_barrier() {
    qsbr::while_offline("rcu_defer_barrier", rcu::barrier);
}

// ---- call_rcu_data ----

/// `struct call_rcu_data`: the identity of a helper. One thread serves all helpers.
#[derive(Debug)]
pub struct Helper {
    /// Gives the type a size, so that each helper has a distinct address.
    _flags: c_ulong,
}

static DEFAULT: Helper = Helper { _flags: 0 };

/// The number of CPUs that can have a helper. No kernel supports more CPUs.
const NR_CPUS: usize = 8192;

/// A: the helper of each CPU, or null.
static HELPERS: [AtomicPtr<Helper>; NR_CPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; NR_CPUS];

sync::thread_local! {
    /// The helper that was set for this thread, or null.
    static MINE: Cell<*mut Helper> = Cell::new(ptr::null_mut())
}

fn of_cpu(cpu: c_int) -> Option<&'static AtomicPtr<Helper>> {
    usize::try_from(cpu).ok().and_then(|cpu| HELPERS.get(cpu))
}

/// Returns a new helper.
#[unsafe(no_mangle)]
pub extern "C" fn aw_create_call_rcu_data(flags: c_ulong, _cpu_affinity: c_int) -> *mut Helper {
    Box::into_raw(Box::new(Helper { _flags: flags }))
}

/// Frees a helper. Ignores `NULL` and the default helper.
///
/// # Safety
///
/// 1. `helper` is null, the default helper, or an unused one of [`aw_create_call_rcu_data`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_call_rcu_data_free(helper: *mut Helper) {
    if !helper.is_null() && !ptr::eq(helper, &DEFAULT) {
        // SAFETY: (1).
        drop(unsafe { Box::from_raw(helper) });
    }
}

/// Returns the default helper.
#[unsafe(no_mangle)]
pub extern "C" fn aw_get_default_call_rcu_data() -> *mut Helper {
    ptr::from_ref(&DEFAULT).cast_mut()
}

/// Returns the helper of a CPU, or `NULL`.
#[unsafe(no_mangle)]
pub extern "C" fn aw_get_cpu_call_rcu_data(cpu: c_int) -> *mut Helper {
    // Acquire pairs with the exchanges below, so that the helper's contents are visible.
    of_cpu(cpu).map_or(ptr::null_mut(), |helper| helper.load(Ordering::Acquire))
}

/// Returns the helper that was set for this thread, or `NULL`.
#[unsafe(no_mangle)]
pub extern "C" fn aw_get_thread_call_rcu_data() -> *mut Helper {
    MINE.try_with(Cell::get).unwrap_or(ptr::null_mut())
}

/// Returns this thread's helper, or else the helper of its CPU, or else the default one.
#[unsafe(no_mangle)]
pub extern "C" fn aw_get_call_rcu_data() -> *mut Helper {
    let mine = aw_get_thread_call_rcu_data();
    if !mine.is_null() {
        return mine;
    }
    let of_cpu = aw_get_cpu_call_rcu_data(sync::cpu::current().index() as c_int);
    if of_cpu.is_null() { aw_get_default_call_rcu_data() } else { of_cpu }
}

/// Sets this thread's helper. `NULL` removes it.
#[unsafe(no_mangle)]
pub extern "C" fn aw_set_thread_call_rcu_data(helper: *mut Helper) {
    MINE.try_with(|mine| mine.set(helper)).ok();
}

/// Sets a CPU's helper, or removes it if `helper` is `NULL`. Returns 0, `-EINVAL` for an invalid
/// CPU, or `-EEXIST` if the CPU already has a helper.
#[unsafe(no_mangle)]
pub extern "C" fn aw_set_cpu_call_rcu_data(cpu: c_int, helper: *mut Helper) -> c_int {
    let Some(place) = of_cpu(cpu) else {
        return -EINVAL;
    };
    if helper.is_null() {
        place.swap(helper, Ordering::AcqRel);
        return 0;
    }
    // If our exchange comes first, others find our helper. If another comes first, ours fails.
    let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
    match place.compare_exchange(ptr::null_mut(), helper, order, failed) {
        Ok(_) => 0,
        Err(_) => -EEXIST,
    }
}

/// Sets a new helper for each CPU that has none. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn aw_create_all_cpu_call_rcu_data(flags: c_ulong) -> c_int {
    within("create_all_cpu_call_rcu_data", || {
        let nr_cpus = sync::cpu::topology().map_or(1, |machine| machine.nr_cpus());
        for cpu in 0..nr_cpus as c_int {
            let helper = aw_create_call_rcu_data(flags, cpu);
            if aw_set_cpu_call_rcu_data(cpu, helper) != 0 {
                // SAFETY: the helper was created above, and has not been published.
                unsafe { aw_call_rcu_data_free(helper) };
            }
        }
        0
    })
}

/// Frees the helpers of all CPUs, after a grace period.
#[unsafe(no_mangle)]
pub extern "C" fn aw_free_all_cpu_call_rcu_data() {
    let taken = HELPERS.iter().map(|place| place.swap(ptr::null_mut(), Ordering::AcqRel));
    let taken: Vec<_> = taken.filter(|helper| !helper.is_null()).collect();
    if taken.is_empty() {
        return;
    }
    qsbr::while_offline("free_all_cpu_call_rcu_data", rcu::synchronize);
    for helper in taken {
        // SAFETY: `aw_create_call_rcu_data` created the helper. Only this thread took it, above,
        // and all sections that found it have ended.
        unsafe { aw_call_rcu_data_free(helper) };
    }
}

/// Returns the thread that runs callbacks, after a grace period, or 0 if it cannot wait.
#[unsafe(no_mangle)]
pub extern "C" fn aw_get_call_rcu_thread(_helper: *mut Helper) -> c_ulong {
    let thread = Arc::new(AtomicU64::new(0));
    let found = thread.clone();
    qsbr::while_offline("get_call_rcu_thread", || {
        // The barrier makes the store visible.
        rcu::call(move || found.store(pthread_self(), Ordering::Relaxed));
        rcu::barrier();
    });
    thread.load(Ordering::Relaxed)
}

// ---- forks ----

/// `struct urcu_atfork`: the functions that liburcu's hash table runs around a fork.
#[repr(C)]
#[derive(Debug)]
pub struct AtFork {
    before: Option<OfData>,
    parent: Option<OfData>,
    child: Option<OfData>,
    private: *mut c_void,
}

/// A: the handler of the hash tables, or null. All tables have the same handler.
static AT_FORK: AtomicPtr<AtFork> = AtomicPtr::new(ptr::null_mut());
/// A: the number of tables that have registered the handler. liburcu-cds changes it under a lock.
static NR_AT_FORK: AtomicU32 = AtomicU32::new(0);

/// Registers `handler`, which the three functions below call.
///
/// # Safety
///
/// 1. `handler` stays valid until all registrations have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_urcu_register_rculfhash_atfork(handler: *mut AtFork) {
    if NR_AT_FORK.fetch_add(1, Ordering::AcqRel) == 0 {
        AT_FORK.store(handler, Ordering::Release);
    }
}

/// Ends one registration by [`aw_urcu_register_rculfhash_atfork`].
#[unsafe(no_mangle)]
pub extern "C" fn aw_urcu_unregister_rculfhash_atfork(_handler: *mut AtFork) {
    if NR_AT_FORK.fetch_sub(1, Ordering::AcqRel) == 1 {
        AT_FORK.store(ptr::null_mut(), Ordering::Release);
    }
}

fn at_fork(name: &str, part: impl FnOnce(&AtFork) -> Option<OfData>) {
    within(name, || {
        // Acquire pairs with the store that registered the handler.
        // SAFETY: (1) of `aw_urcu_register_rculfhash_atfork`.
        let handler = unsafe { AT_FORK.load(Ordering::Acquire).as_ref() };
        if let Some(handler) = handler
            && let Some(function) = part(handler)
        {
            // SAFETY: as above; `private` is the handler's own argument.
            let call = || unsafe { function(handler.private) };
            raw::of_c("handler of a fork", function as usize, call);
        }
    });
}

/// A program calls this before it forks. The library itself does not need this call.
#[unsafe(no_mangle)]
pub extern "C" fn aw_call_rcu_before_fork() {
    at_fork("call_rcu_before_fork", |handler| handler.before);
}

/// A program calls this in the parent after it has forked.
#[unsafe(no_mangle)]
pub extern "C" fn aw_call_rcu_after_fork_parent() {
    at_fork("call_rcu_after_fork_parent", |handler| handler.parent);
}

/// A program calls this in the child after it has forked.
#[unsafe(no_mangle)]
pub extern "C" fn aw_call_rcu_after_fork_child() {
    at_fork("call_rcu_after_fork_child", |handler| handler.child);
}

// ---- flavors ----

/// `struct rcu_flavor_struct`: the functions of a flavor, which liburcu's hash table calls.
#[repr(C)]
#[derive(Debug)]
pub struct Flavor {
    read_lock: extern "C" fn(),
    read_unlock: unsafe extern "C" fn(),
    read_ongoing: extern "C" fn() -> c_int,
    read_quiescent_state: extern "C" fn(),
    update_call_rcu: unsafe extern "C" fn(*mut RcuHead, Option<RcuFn>),
    update_synchronize_rcu: extern "C" fn(),
    update_defer_rcu: unsafe extern "C" fn(Option<OfData>, *mut c_void),
    thread_offline: extern "C" fn(),
    thread_online: extern "C" fn(),
    register_thread: extern "C" fn(),
    unregister_thread: extern "C" fn(),
    barrier: extern "C" fn(),
    register_rculfhash_atfork: unsafe extern "C" fn(*mut AtFork),
    unregister_rculfhash_atfork: extern "C" fn(*mut AtFork),
}

const _: () = assert!(size_of::<Flavor>() == 14 * 8);

/// The flavors with sections, which share one implementation.
pub const FLAVOR: Flavor = Flavor {
    read_lock: inline::aw_rcu_read_lock,
    read_unlock: inline::aw_rcu_read_unlock,
    read_ongoing: inline::aw_rcu_read_lock_held,
    read_quiescent_state: nothing,
    update_call_rcu: rcupdate::aw_call_rcu,
    update_synchronize_rcu: rcupdate::aw_synchronize_rcu,
    update_defer_rcu: aw_defer_rcu,
    thread_offline: nothing,
    thread_online: nothing,
    register_thread: aw_urcu_register_thread,
    unregister_thread: aw_urcu_unregister_thread,
    barrier: rcupdate::aw_rcu_barrier,
    register_rculfhash_atfork: aw_urcu_register_rculfhash_atfork,
    unregister_rculfhash_atfork: aw_urcu_unregister_rculfhash_atfork,
};

/// `urcu_memb_flavor`, `urcu_mb_flavor` and `urcu_bp_flavor`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_urcu_flavor: Flavor = FLAVOR;

/// `urcu_qsbr_flavor`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_qsbr_flavor: Flavor = Flavor {
    read_lock: nothing,
    read_unlock: nothing,
    read_ongoing: qsbr::aw_qsbr_read_ongoing,
    read_quiescent_state: qsbr::aw_qsbr_quiescent_state,
    update_call_rcu: qsbr::aw_qsbr_call_rcu,
    update_synchronize_rcu: qsbr::aw_qsbr_synchronize_rcu,
    thread_offline: qsbr::aw_qsbr_thread_offline,
    thread_online: qsbr::aw_qsbr_thread_online,
    register_thread: qsbr::aw_qsbr_register_thread,
    unregister_thread: qsbr::aw_qsbr_unregister_thread,
    barrier: qsbr::aw_qsbr_barrier,
    ..FLAVOR
};
