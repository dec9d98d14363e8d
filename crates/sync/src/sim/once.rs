//! A cell that is written once, in which another task may wait for the one that writes it.
//!
//! The standard library's would let the OS thread sleep, and with it the task that is to wake it.

use std::cell::{Cell, UnsafeCell};

/// Stands for `std::sync::OnceLock`.
pub struct OnceLock<T> {
    is_being_made: Cell<bool>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: all tasks run on one OS thread, and a value that is there never changes.
unsafe impl<T: Send> Send for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Makes an empty cell.
    pub const fn new() -> Self {
        Self {
            is_being_made: Cell::new(false),
            value: UnsafeCell::new(None),
        }
    }

    /// Returns the value, if there is one.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: written once, and no reference is given out before.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Writes the value.
    ///
    /// # Errors
    ///
    /// If there is one, or one is being made.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.get().is_some() || self.is_being_made.get() {
            return Err(value);
        }
        // SAFETY: empty, so no reference to it exists.
        unsafe { *self.value.get() = Some(value) };
        Ok(())
    }

    /// Returns the value, which `make` makes where there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        while self.get().is_none() {
            if self.is_being_made.replace(true) {
                super::thread::sleep(std::time::Duration::from_micros(1));
                continue;
            }
            let made = make();
            // SAFETY: empty, as only the one that makes it writes it.
            unsafe { *self.value.get() = Some(made) };
            break;
        }
        self.get().expect("made above")
    }

    /// Returns the value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}
