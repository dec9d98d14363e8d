//! A lock that never poisons.
//!
//! A debug build counts the locks that a thread holds. Code that calls foreign code asserts that
//! there are none ([`assert_none_held`]), and so does the allocator of a test ([`is_any_held`]).

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use std::sync::TryLockError;

use crate::backend::sync as backend;
use crate::{const_unless_model, slice};

/// A mutual-exclusion lock, usable after its holder panics. Signal handlers must not acquire it.
#[derive(Debug, Default)]
pub struct Mutex<T>(backend::Mutex<T>);

/// Access to the data that a [`Mutex`] guards. Unlocks when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: backend::MutexGuard<'a, T>,
    _held: Held,
}

/// Panics in a debug build if this thread holds a [`Mutex`]. Does nothing in a release build.
#[inline(always)]
#[track_caller]
pub fn assert_none_held() {
    assert!(!is_any_held(), "foreign code runs under a lock");
}

/// Returns `true` if this thread holds a [`Mutex`], but never in a release build or a model.
#[inline(always)]
pub fn is_any_held() -> bool {
    COUNTS && NR_HELD.get() > 0
}

/// `true` if held locks are counted.
const COUNTS: bool = cfg!(all(debug_assertions, not(any(loom, shuttle, sim))));

std::thread_local!(static NR_HELD: Cell<u32> = const { Cell::new(0) });

/// One held lock of this thread, counted until it is dropped.
#[derive(Debug)]
struct Held;

impl Held {
    #[inline(always)]
    fn new() -> Self {
        if COUNTS {
            NR_HELD.set(NR_HELD.get() + 1);
        }
        Self
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        if COUNTS {
            NR_HELD.set(NR_HELD.get() - 1);
        }
    }
}

impl<T> Mutex<T> {
    const_unless_model! {
        /// Creates an unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self(backend::Mutex::new(value))
        }
    }

    /// Acquires the lock. Blocks while another thread holds it.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // To a model, a failed attempt would be one more access.
        let is_model = cfg!(any(loom, shuttle, sim));
        match (!is_model).then(|| self.try_lock()).flatten() {
            Some(guard) => guard,
            None => self.wait_and_lock(),
        }
    }

    #[cold]
    #[cfg_attr(sim, track_caller)]
    fn wait_and_lock(&self) -> MutexGuard<'_, T> {
        let _wait = slice::Wait::begin();
        let guard = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        MutexGuard { guard, _held: Held::new() }
    }

    /// Acquires the lock if no thread holds it.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            #[cfg(not(loom))]
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(_) => return None,
        };
        Some(MutexGuard { guard, _held: Held::new() })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle, sim))))]
mod tests {
    use super::*;

    #[test]
    fn held_lock_is_seen_until_it_is_released() {
        let lock = Mutex::new(());
        assert_none_held();
        let guard = lock.lock();
        assert!(is_any_held() && lock.try_lock().is_none());
        assert!(std::panic::catch_unwind(assert_none_held).is_err());
        drop(guard);
        assert_none_held();
    }
}
