//! A lock that never poisons.

use std::ops::{Deref, DerefMut};

use crate::const_unless_model;

#[cfg(loom)]
use loom::sync as backend;
#[cfg(shuttle)]
use shuttle::sync as backend;
#[cfg(not(any(loom, shuttle)))]
use std::sync as backend;

/// A mutual-exclusion lock; a panic while it is held leaves it usable.
///
/// # Blocking
///
/// [`lock`](Self::lock) blocks while another thread holds it. Not for signal handlers.
#[derive(Debug, Default)]
pub struct Mutex<T>(backend::Mutex<T>);

/// The right to reach what a [`Mutex`] guards; unlocks when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(backend::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    const_unless_model! {
        /// Makes an unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self(backend::Mutex::new(value))
        }
    }

    /// Locks, waiting as long as another thread holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(
            self.0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// Locks if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(guard)),
            #[cfg(not(loom))]
            Err(backend::TryLockError::Poisoned(poisoned)) => {
                Some(MutexGuard(poisoned.into_inner()))
            }
            Err(_) => None,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
