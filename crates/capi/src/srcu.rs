//! `afterwork/srcu.h`.

use std::ffi::{c_int, c_ulong};
use std::ptr;

use afterwork::rcu::srcu::{Cookie, Domain};
use afterwork::rcu::{GpCookie, raw};
use sync::atomic::{AtomicPtr, Ordering};

use crate::boundary::{ENOMEM, misuse, within};
use crate::rcupdate::{Called, RcuFn, RcuHead, callback};

/// A domain with the layout of `struct srcu_struct`. A domain of all zeroes has not been used.
#[repr(C)]
#[derive(Debug)]
pub struct Srcu {
    /// Null before the first use and after the cleanup.
    domain: AtomicPtr<Domain>,
}

const _: () = assert!(size_of::<Srcu>() == 8 && align_of::<Srcu>() == 8);

/// Returns the domain of an `srcu_struct`. Creates the domain at the first use.
///
/// # Safety
///
/// 1. `srcu` is null, or was initialized and has not been cleaned up.
#[inline]
unsafe fn known<'a>(name: &str, srcu: *const Srcu) -> Option<&'a Domain> {
    // SAFETY: (1).
    let Some(srcu) = (unsafe { srcu.as_ref() }) else {
        return misuse(name, &"the srcu_struct is NULL", None);
    };
    // ORDER(srcu-made): publish and consume, other end in `make`.
    //   make: creates a domain;  pointer = domain  Release
    //   here: pointer  Acquire;  uses the domain
    // If the exchange comes first, we see the whole domain. If our load comes first, it reads null,
    // and we call `make`.
    // Test: the_suite_passes
    let domain = srcu.domain.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or `make` leaked its domain, valid until the cleanup.
    Some(unsafe { domain.as_ref() }.unwrap_or_else(|| make(srcu)))
}

/// Calls `body` with the domain that C passed. Reports misuse and returns `none` if it is null.
///
/// # Safety
///
/// 1. The same as for [`known`].
#[inline]
unsafe fn with_domain<R>(
    name: &str,
    srcu: *const Srcu,
    none: R,
    body: impl FnOnce(&Domain) -> R,
) -> R {
    // SAFETY: (1).
    within(name, || unsafe { known(name, srcu) }.map_or(none, body))
}

#[cold]
fn make(srcu: &Srcu) -> &Domain {
    let ours = Box::into_raw(Box::new(Domain::new()));
    let null = ptr::null_mut();
    // ORDER(srcu-made): the other end; see `known`. A failed exchange acquires the other domain.
    let (made, failed) = (Ordering::AcqRel, Ordering::Acquire);
    match srcu.domain.compare_exchange(null, ours, made, failed) {
        // SAFETY: the domain was leaked above.
        Ok(_) => unsafe { &*ours },
        Err(theirs) => {
            // SAFETY: the box was created above, and has not been published.
            drop(unsafe { Box::from_raw(ours) });
            // SAFETY: the thread whose exchange came first leaked the domain.
            unsafe { &*theirs }
        }
    }
}

/// # Safety
///
/// 1. `srcu` points to memory with the size and alignment of an [`Srcu`] that is not in use.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_init_srcu_struct(srcu: *mut Srcu) -> c_int {
    within("init_srcu_struct", || {
        if srcu.is_null() {
            return misuse("init_srcu_struct", &"the srcu_struct is NULL", -ENOMEM);
        }
        let domain = AtomicPtr::new(Box::into_raw(Box::new(Domain::new())));
        // SAFETY: (1).
        unsafe { srcu.write(Srcu { domain }) };
        0
    })
}

/// # Safety
///
/// 1. `srcu` is null, or was initialized and is no longer used.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_cleanup_srcu_struct(srcu: *mut Srcu) {
    within("cleanup_srcu_struct", || {
        // SAFETY: (1).
        let Some(srcu) = (unsafe { srcu.as_ref() }) else {
            return;
        };
        let domain = srcu.domain.swap(ptr::null_mut(), Ordering::AcqRel);
        if !domain.is_null() {
            // SAFETY: the domain was leaked from a box, and only one caller takes it.
            drop(unsafe { Box::from_raw(domain) });
        }
    });
}

/// Defines functions that take a domain, each with its result for a null pointer.
macro_rules! of_domain {
    ($($name:ident = $kernel:literal -> $answer:ty = $none:expr => |$domain:ident| $call:expr;)*) => { $(
        /// # Safety
        ///
        /// 1. `srcu` was initialized and has not been cleaned up.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(srcu: *const Srcu) -> $answer {
            // SAFETY: (1).
            unsafe { with_domain($kernel, srcu, $none, |$domain| $call) }
        }
    )* };
}

of_domain! {
    aw_srcu_read_lock = "srcu_read_lock" -> c_int = 0 => |domain| raw::srcu_read_lock(domain) as c_int;
    aw_synchronize_srcu = "synchronize_srcu" -> () = () => |domain| domain.synchronize();
    aw_synchronize_srcu_expedited = "synchronize_srcu_expedited" -> () = ()
        => |domain| domain.synchronize_expedited();
    aw_srcu_barrier = "srcu_barrier" -> () = () => |domain| domain.barrier();
    aw_get_state_synchronize_srcu = "get_state_synchronize_srcu" -> c_ulong = 0
        => |domain| domain.get_state().0.bits();
    aw_start_poll_synchronize_srcu = "start_poll_synchronize_srcu" -> c_ulong = 0
        => |domain| domain.start_poll().0.bits();
}

/// # Safety
///
/// 1. `srcu` was initialized and has not been cleaned up.
/// 2. [`aw_srcu_read_lock`] returned `index` for a section that has not ended.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_srcu_read_unlock(srcu: *const Srcu, index: c_int) {
    const NAME: &str = "srcu_read_unlock";
    if !(0..=1).contains(&index) {
        return misuse(NAME, &"the index belongs to no section", ());
    }
    // SAFETY: (2).
    let unlock = |domain: &Domain| unsafe { raw::srcu_read_unlock(domain, index as u32) };
    // SAFETY: (1).
    unsafe { with_domain(NAME, srcu, (), unlock) };
}

/// # Safety
///
/// 1. `srcu` was initialized and has not been cleaned up.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_poll_state_synchronize_srcu(srcu: *const Srcu, cookie: c_ulong) -> bool {
    let poll = |domain: &Domain| domain.poll_state(Cookie(GpCookie::of_bits(cookie)));
    // SAFETY: (1).
    unsafe { with_domain("poll_state_synchronize_srcu", srcu, true, poll) }
}

/// Calls `func` with `head` after a grace period of the domain, on any thread.
///
/// # Safety
///
/// 1. `srcu` was initialized and has not been cleaned up.
/// 2. `head` points to memory for a head, which the library owns until it calls `func`, on any
///    thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_call_srcu(srcu: *const Srcu, head: *mut RcuHead, func: Option<RcuFn>) {
    let call = |domain: &Domain| {
        if let Some(func) = callback("call_srcu", head, func) {
            let called = Called(head, func);
            // SAFETY: (2): the second word is the function, for `rcu_head_after_call_rcu`.
            unsafe { head.cast::<RcuFn>().add(1).write(func) };
            // SAFETY: (2).
            domain.call(move || unsafe { called.run("callback of call_srcu") });
        }
    };
    // SAFETY: (1).
    unsafe { with_domain("call_srcu", srcu, (), call) };
}
