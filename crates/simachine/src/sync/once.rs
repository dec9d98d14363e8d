//! A cell that is written once. Tasks wait while another task writes it.
//!
//! The standard library's cell would block the OS thread, and with it the writing task.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Replaces `std::sync::OnceLock`.
pub struct OnceLock<T> {
    is_taken: AtomicBool,
    is_made: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: all tasks run on one OS thread, and a written value never changes.
unsafe impl<T: Send> Send for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Creates an empty cell.
    pub const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            is_made: AtomicBool::new(false),
            value: UnsafeCell::new(None),
        }
    }

    /// Returns the value, if there is one.
    pub fn get(&self) -> Option<&T> {
        if !self.is_made.load(Relaxed) {
            return None;
        }
        // SAFETY: the value has been written, and is not written again.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Writes the value, unless the cell has one, or another task is writing one.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.is_taken.swap(true, Relaxed) {
            return Err(value);
        }
        self.write(value);
        Ok(())
    }

    /// Returns the value. If there is none, writes the result of `make` first.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            if !self.is_taken.swap(true, Relaxed) {
                self.write(make());
            }
            while self.get().is_none() {
                crate::thread::sleep(std::time::Duration::from_micros(1));
            }
        }
        self.get().expect("made above")
    }

    fn write(&self, value: T) {
        // SAFETY: only the task that set `is_taken` gets here, once, and no reference exists yet.
        unsafe { *self.value.get() = Some(value) };
        self.is_made.store(true, Relaxed);
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

topology::impl_debug!(OnceLock[T], this => is_made: this.is_made);
