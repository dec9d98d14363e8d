//! liburcu's flavors, which this module calls through the shim in `liburcu/`.

use std::any::TypeId;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{Flavor, Reader, Value};

/// Reads a value. The shim calls it.
type Look = unsafe extern "C" fn(*const c_void, usize) -> u64;

/// The functions of a flavor; see `liburcu/flavor.h`.
#[repr(C)]
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

// SAFETY: each file of the shim defines its table as a constant with these fields.
unsafe extern "C" {
    safe static aw_urcu_memb: Functions;
    safe static aw_urcu_qsbr: Functions;
    safe static aw_urcu_mb: Functions;
    safe static aw_urcu_bp: Functions;
}

struct Urcu<T> {
    functions: &'static Functions,
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
        "urcu-memb" => &aw_urcu_memb,
        "urcu-qsbr" => &aw_urcu_qsbr,
        "urcu-mb" => &aw_urcu_mb,
        "urcu-bp" => &aw_urcu_bp,
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

    fn call(&self, counter: &'static AtomicU64, count: usize) -> bool {
        let registered = self.register();
        // SAFETY: the thread is registered, as `call_rcu` requires. The counter is static.
        let failed = unsafe { (self.functions.call)(counter, count) };
        assert_eq!(failed, 0, "out of memory");
        drop(registered);
        true
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
