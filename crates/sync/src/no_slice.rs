//! Critical sections on a back end whose kernel extends no time slice; see `slice.rs`.

/// A critical section.
#[must_use]
#[derive(Debug)]
pub struct Section(());

impl Section {
    /// Does nothing.
    #[inline(always)]
    pub fn enter() -> Self {
        Self(())
    }
}

/// A wait, perhaps inside a section.
#[must_use]
#[derive(Debug)]
pub struct Wait(());

impl Wait {
    /// Does nothing.
    #[inline(always)]
    pub fn begin() -> Self {
        Self(())
    }
}

/// Returns `false`.
#[inline(always)]
pub fn is_on() -> bool {
    false
}

/// Returns `false`.
pub fn turn_on() -> bool {
    false
}

/// Does nothing.
#[doc(hidden)]
pub fn enable_thread() {}
