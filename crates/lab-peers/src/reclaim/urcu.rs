//! liburcu's flavors, which this module calls through the shim in `liburcu/`.

use std::any::TypeId;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{Calls, Flavor, Reader, Value};

/// Reads a value. The shim calls it.
type Look = unsafe extern "C" fn(*const c_void, usize) -> u64;

/// The functions of a flavor; see `liburcu/flavor.h`.
#[derive(Clone, Copy)]
struct Functions {
    register: unsafe extern "C" fn(),
    unregister: unsafe extern "C" fn(),
    offline: unsafe extern "C" fn(),
    online: unsafe extern "C" fn(),
    synchronize: unsafe extern "C" fn(),
    barrier: unsafe extern "C" fn(),
    read: unsafe extern "C" fn(*const c_void, usize) -> u64,
    look: unsafe extern "C" fn(*const c_void, usize, Look) -> u64,
    call: unsafe extern "C" fn(*const AtomicU64, usize) -> i32,
}

macro_rules! functions {
    ($register:ident $unregister:ident $offline:ident $online:ident $synchronize:ident $barrier:ident $read:ident $look:ident $call:ident) => {{
        unsafe extern "C" {
            fn $register();
            fn $unregister();
            fn $offline();
            fn $online();
            fn $synchronize();
            fn $barrier();
            fn $read(place: *const c_void, count: usize) -> u64;
            fn $look(place: *const c_void, count: usize, look: Look) -> u64;
            fn $call(counter: *const AtomicU64, count: usize) -> i32;
        }
        Functions {
            register: $register,
            unregister: $unregister,
            offline: $offline,
            online: $online,
            synchronize: $synchronize,
            barrier: $barrier,
            read: $read,
            look: $look,
            call: $call,
        }
    }};
}

struct Urcu<T> {
    functions: Functions,
    place: AtomicPtr<T>,
}

/// A registered thread. The raw pointer prevents this value from being sent to another thread.
struct Registered<'a, T> {
    urcu: &'a Urcu<T>,
    place: *const c_void,
    is_resting: bool,
}

pub(super) fn flavor<T: Value>(name: &str, value: T) -> Box<dyn Flavor<T>> {
    let functions = match name {
        "urcu-memb" => {
            functions!(aw_urcu_memb_register aw_urcu_memb_unregister aw_urcu_memb_offline
            aw_urcu_memb_online aw_urcu_memb_synchronize aw_urcu_memb_barrier aw_urcu_memb_read aw_urcu_memb_look aw_urcu_memb_call)
        }
        "urcu-qsbr" => {
            functions!(aw_urcu_qsbr_register aw_urcu_qsbr_unregister aw_urcu_qsbr_offline
            aw_urcu_qsbr_online aw_urcu_qsbr_synchronize aw_urcu_qsbr_barrier aw_urcu_qsbr_read aw_urcu_qsbr_look aw_urcu_qsbr_call)
        }
        "urcu-mb" => functions!(aw_urcu_mb_register aw_urcu_mb_unregister aw_urcu_mb_offline
            aw_urcu_mb_online aw_urcu_mb_synchronize aw_urcu_mb_barrier aw_urcu_mb_read aw_urcu_mb_look aw_urcu_mb_call),
        "urcu-bp" => functions!(aw_urcu_bp_register aw_urcu_bp_unregister aw_urcu_bp_offline
            aw_urcu_bp_online aw_urcu_bp_synchronize aw_urcu_bp_barrier aw_urcu_bp_read aw_urcu_bp_look aw_urcu_bp_call),
        _ => panic!("unknown flavor {name}"),
    };
    Box::new(Urcu { functions, place: AtomicPtr::new(Box::into_raw(Box::new(value))) })
}

/// Reads the value to which `value` points.
///
/// # Safety
///
/// 1. `value` points to a `T` for the whole call.
unsafe extern "C" fn look<T: Value>(value: *const c_void, turn: usize) -> u64 {
    // SAFETY: (1).
    let value = unsafe { &*value.cast::<T>() };
    value.look(turn)
}

impl<T> Urcu<T> {
    fn register(&self) -> Registered<'_, T> {
        // SAFETY: this registers the calling thread. `Registered` is `!Send`. `reader` and `call`
        // do not nest, so they create only one `Registered` per thread.
        unsafe { (self.functions.register)() };
        Registered { urcu: self, place: (&raw const self.place).cast(), is_resting: false }
    }
}

impl<T: Value> Flavor<T> for Urcu<T> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self.register())
    }

    fn replace(&self, value: T) {
        let new = Box::into_raw(Box::new(value));
        let old = self.place.swap(new, Ordering::AcqRel);
        // SAFETY: the thread is not in a section, because sections begin and end within `read`.
        unsafe { (self.functions.synchronize)() };
        // SAFETY: only this thread took the value out, and all sections that saw it have ended.
        drop(unsafe { Box::from_raw(old) });
    }

    fn calls(&self) -> Option<&dyn Calls> {
        Some(self)
    }
}

impl<T: Value> Calls for Urcu<T> {
    fn call(&self, counter: &'static AtomicU64, count: usize) {
        let registered = self.register();
        // SAFETY: the thread is registered, as `call_rcu` requires. The counter is static.
        let failed = unsafe { (self.functions.call)(counter, count) };
        assert_eq!(failed, 0, "out of memory");
        drop(registered);
    }

    fn barrier(&self) -> Option<()> {
        let registered = self.register();
        // SAFETY: the thread is registered and not in a section.
        unsafe { (self.functions.barrier)() };
        drop(registered);
        Some(())
    }
}

impl<T> Drop for Urcu<T> {
    fn drop(&mut self) {
        // SAFETY: `flavor` or `replace` leaked the value. Readers borrow the flavor, so there are
        // no readers.
        drop(unsafe { Box::from_raw(*self.place.get_mut()) });
    }
}

impl<T: Value> Reader for Registered<'_, T> {
    fn read(&mut self, count: usize) -> u64 {
        if std::mem::take(&mut self.is_resting) {
            // SAFETY: the thread is registered and offline.
            unsafe { (self.urcu.functions.online)() };
        }
        if TypeId::of::<T>() == TypeId::of::<u64>() {
            // If the value is a number, the shim reads it itself, so that the C compiler sees the
            // whole read.
            // SAFETY: the thread is registered. `place` belongs to the flavor, which is borrowed,
            // and points to a number that `replace` frees only after a grace period.
            return unsafe { (self.urcu.functions.read)(self.place, count) };
        }
        // SAFETY: as above. The shim passes the `T` to `look` inside a section.
        unsafe { (self.urcu.functions.look)(self.place, count, look::<T>) }
    }

    fn rest(&mut self) {
        if !std::mem::replace(&mut self.is_resting, true) {
            // SAFETY: the thread is registered, online and not in a section.
            unsafe { (self.urcu.functions.offline)() };
        }
    }
}

impl<T> Drop for Registered<'_, T> {
    fn drop(&mut self) {
        if self.is_resting {
            // SAFETY: as in `read`. Unregistering requires a thread that is online.
            unsafe { (self.urcu.functions.online)() };
        }
        // SAFETY: `Urcu::register` registered this thread, and a raw pointer in `self` prevents it
        // from moving to another thread.
        unsafe { (self.urcu.functions.unregister)() };
    }
}
