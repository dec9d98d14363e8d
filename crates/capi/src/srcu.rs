//! `afterwork/srcu.h`.

use std::{
    ffi::{c_int, c_ulong},
    ptr,
};

use afterwork::rcu::{
    GpCookie, raw,
    srcu::{Cookie, Domain},
};
use sync::atomic::{AtomicPtr, Ordering};

use crate::{
    boundary::{ENOMEM, misuse, within},
    rcupdate::{Called, RcuFn, RcuHead},
};

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
    // SAFETY: the pointer is null, or `make` leaked its domain, which stays valid until the
    // cleanup.
    Some(unsafe { domain.as_ref() }.unwrap_or_else(|| make(srcu)))
}

#[cold]
fn make(srcu: &Srcu) -> &Domain {
    let ours = Box::into_raw(Box::new(Domain::new()));
    let null = ptr::null_mut();
    // ORDER(srcu-made): the other end; see `known`. A failed exchange acquires another thread's
    // domain.
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

/// # Safety
///
/// 1. `srcu` was initialized and has not been cleaned up.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_srcu_read_lock(srcu: *const Srcu) -> c_int {
    within("srcu_read_lock", || {
        // SAFETY: (1).
        let domain = unsafe { known("srcu_read_lock", srcu) };
        domain.map_or(0, |domain| raw::srcu_read_lock(domain) as c_int)
    })
}

/// # Safety
///
/// 1. `srcu` was initialized and has not been cleaned up.
/// 2. [`aw_srcu_read_lock`] returned `index` for a section that has not ended.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_srcu_read_unlock(srcu: *const Srcu, index: c_int) {
    within("srcu_read_unlock", || {
        if !(0..=1).contains(&index) {
            return misuse("srcu_read_unlock", &"the index belongs to no section", ());
        }
        // SAFETY: (1).
        if let Some(domain) = unsafe { known("srcu_read_unlock", srcu) } {
            // SAFETY: (2).
            unsafe { raw::srcu_read_unlock(domain, index as u32) };
        }
    });
}

/// Defines a function that waits for a domain.
macro_rules! waits {
    ($($name:ident = $kernel:literal: $wait:expr;)*) => { $(
        /// # Safety
        ///
        /// 1. `srcu` was initialized and has not been cleaned up.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(srcu: *const Srcu) {
            within($kernel, || {
                // SAFETY: (1).
                if let Some(domain) = unsafe { known($kernel, srcu) } {
                    $wait(domain);
                }
            });
        }
    )* };
}

waits! {
    aw_synchronize_srcu = "synchronize_srcu": Domain::synchronize;
    aw_synchronize_srcu_expedited = "synchronize_srcu_expedited": Domain::synchronize_expedited;
    aw_srcu_barrier = "srcu_barrier": Domain::barrier;
}

/// Defines a function that returns a cookie of a domain.
macro_rules! cookies {
    ($($name:ident = $kernel:literal: $take:expr;)*) => { $(
        /// # Safety
        ///
        /// 1. `srcu` was initialized and has not been cleaned up.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(srcu: *const Srcu) -> c_ulong {
            within($kernel, || {
                // SAFETY: (1).
                let domain = unsafe { known($kernel, srcu) };
                domain.map_or(0, |domain| $take(domain).0.bits())
            })
        }
    )* };
}

cookies! {
    aw_get_state_synchronize_srcu = "get_state_synchronize_srcu": Domain::get_state;
    aw_start_poll_synchronize_srcu = "start_poll_synchronize_srcu": Domain::start_poll;
}

/// # Safety
///
/// 1. `srcu` was initialized and has not been cleaned up.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_poll_state_synchronize_srcu(srcu: *const Srcu, cookie: c_ulong) -> bool {
    within("poll_state_synchronize_srcu", || {
        // SAFETY: (1).
        let domain = unsafe { known("poll_state_synchronize_srcu", srcu) };
        domain.is_none_or(|domain| domain.poll_state(Cookie(GpCookie::of_bits(cookie))))
    })
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
    within("call_srcu", || {
        // SAFETY: (1).
        let Some(domain) = (unsafe { known("call_srcu", srcu) }) else {
            return;
        };
        match func {
            Some(func) if !head.is_null() => {
                let called = Called(head, func);
                // SAFETY: (2): the second word is the function, for `rcu_head_after_call_rcu`.
                unsafe { head.cast::<RcuFn>().add(1).write(func) };
                // SAFETY: (2).
                domain.call(move || unsafe { called.run("callback of call_srcu") });
            }
            _ => misuse("call_srcu", &"the head or the function is NULL", ()),
        }
    });
}
