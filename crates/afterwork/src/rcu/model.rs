//! Functions for models, which users do not have: compiled under `--cfg loom` and `--cfg shuttle` only.

use super::{
    callback::{callbacks, idle_slot},
    local::global,
    node::Tree,
};

/// Sweeps callbacks, as the library's thread does outside of models.
pub fn sweep() {
    callbacks().sweep();
}

/// Returns `true` if a sweep by this thread would have to wait for a reader.
pub fn sweep_waits() -> bool {
    !global().nobody_reads(idle_slot())
}

/// Waits until there is something to sweep, and sweeps.
pub fn sweep_when_wanted() {
    callbacks().sweep_when_wanted();
}

/// The tree on which holdouts report, without readers.
#[derive(Debug)]
pub struct Reports(Tree);

impl Reports {
    /// Makes a tree of `nr_leaves` leaves, two children a node.
    pub fn new(nr_leaves: usize) -> Self {
        Self(Tree::new(nr_leaves, Box::new([])))
    }

    /// Begins a count.
    pub fn init(&self) {
        self.0.init();
    }

    /// Counts a holdout.
    pub fn mark(&self, leaf: usize) {
        self.0.mark(leaf);
    }

    /// Ends the marking; returns `true` if no report is missing.
    pub fn all_marked(&self) -> bool {
        self.0.all_marked()
    }

    /// Reports; returns `true` if that was the last.
    pub fn report(&self, leaf: usize) -> bool {
        self.0.report(leaf)
    }

    /// Returns `true` if all have reported.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
