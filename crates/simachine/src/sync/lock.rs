//! A mutex of one futex word, like the standard library's on Linux.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};

use super::atomic::{AtomicU32, Ordering};
use crate::engine::with;
use crate::{futex, memory};

/// Replaces `std::sync::Mutex`.
#[derive(Default)]
pub struct Mutex<T> {
    word: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: as for the standard library's mutex, one thread at a time accesses the value.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to the data that the lock guards.
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    since: u64,
}

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;
/// The number of polls before a sleep, as in the standard library.
const NR_SPINS: u32 = 100;

fn now() -> u64 {
    with(|e| e.now()).unwrap_or(0)
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(UNLOCKED), data: UnsafeCell::new(value) }
    }

    #[track_caller]
    fn try_word(&self) -> Result<u32, u32> {
        // Acquire pairs with the guard's Release; the simulated machine does not reorder.
        let (acquire, failed) = (Ordering::Acquire, Ordering::Relaxed);
        self.word.compare_exchange(UNLOCKED, LOCKED, acquire, failed)
    }

    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let start = now();
        let is_contended = self.try_word().is_err();
        if is_contended {
            self.lock_contended();
        }
        Ok(self.guard(start, is_contended))
    }

    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let start = now();
        match self.try_word() {
            Ok(_) => Ok(self.guard(start, false)),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    #[track_caller]
    fn guard(&self, start: u64, is_contended: bool) -> MutexGuard<'_, T> {
        let site = std::panic::Location::caller();
        with(|e| {
            let waited_ps = e.now() - start;
            e.lock_stat(std::any::type_name::<T>()).note_taken(is_contended, waited_ps);
        });
        memory::touch_guarded(self.data.get() as usize, size_of::<T>(), site);
        MutexGuard { lock: self, since: now() }
    }

    #[track_caller]
    fn spin(&self) -> u32 {
        for _ in 0..NR_SPINS {
            let state = self.word.load(Ordering::Relaxed);
            if state != LOCKED {
                return state;
            }
            crate::pause();
        }
        self.word.load(Ordering::Relaxed)
    }

    #[cold]
    #[track_caller]
    fn lock_contended(&self) {
        let mut state = self.spin();
        if state == UNLOCKED {
            match self.try_word() {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        // Acquire, as in `try_word`.
        while state == CONTENDED || self.word.swap(CONTENDED, Ordering::Acquire) != UNLOCKED {
            // SAFETY: (1): the word is borrowed.
            unsafe { futex::wait(self.word.as_ptr(), CONTENDED, None) };
            state = self.spin();
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        let word = &self.lock.word;
        let (key, since) = (word.as_ptr(), self.since);
        with(|e| {
            let held_ps = e.now().saturating_sub(since);
            e.lock_stat(std::any::type_name::<T>()).held_ps += held_ps;
        });
        // Release pairs with the Acquire in `try_word`.
        if word.swap(UNLOCKED, Ordering::Release) == CONTENDED {
            futex::wake(key, 1);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.lock.data.get() }
    }
}

topology::impl_debug! {
    impl[T] Mutex<T>;
    impl[T] MutexGuard<'_, T>;
}
