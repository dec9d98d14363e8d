//! A cell that is written once, without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A cell for a `static`. Its value is never freed or changed.
///
/// There is no lock, because in a child of `fork` it could be held by a thread that does not exist.
#[derive(Debug)]
pub(crate) struct SetOnce<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> SetOnce<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the Release in `set`: a loaded pointer leads to a whole value.
        // SAFETY: the pointer is null, or was leaked by `set`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the value, or returns `value` if there already is one.
    pub fn set(&self, value: T) -> Result<(), Box<T>> {
        let ours = Box::into_raw(Box::new(value));
        let (order, failed) = (Ordering::Release, Ordering::Relaxed);
        match self.0.compare_exchange(ptr::null_mut(), ours, order, failed) {
            Ok(_) => Ok(()),
            // SAFETY: the box was created above, and no other thread has seen it.
            Err(_) => Err(unsafe { Box::from_raw(ours) }),
        }
    }
}
