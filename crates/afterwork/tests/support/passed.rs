//! Models that pass, and fail if a bug is put back.

use sync::twin::{must_deadlock, must_fail};

/// A model that has passed.
pub struct Passed<M>(M);

impl<M: Fn()> Passed<M> {
    pub fn run(model: M) -> Self {
        model();
        Self(model)
    }

    /// Asserts that the model fails with each of the bugs.
    pub fn detects<const N: usize>(self, bugs: [&'static str; N]) -> Self {
        bugs.into_iter().for_each(|bug| _ = must_fail(bug, &self.0));
        self
    }

    /// Asserts that the model deadlocks with each of the bugs.
    pub fn deadlocks_with<const N: usize>(self, bugs: [&'static str; N]) -> Self {
        bugs.into_iter().for_each(|bug| must_deadlock(bug, &self.0));
        self
    }
}
