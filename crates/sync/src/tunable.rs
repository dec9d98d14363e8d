//! A number that a user may change at any time and that no protocol depends on.

use core::sync::atomic::{AtomicU32, Ordering};

/// A process-wide tunable. It is invisible to a model, so no protocol may depend on its value.
#[derive(Debug)]
pub struct Tunable(AtomicU32);

impl Tunable {
    /// Creates a tunable with an initial value.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// Returns the current value.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Changes the value.
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}
