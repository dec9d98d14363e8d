//! The door through which models reach what users do not: compiled under `--cfg loom` and `--cfg shuttle` alone.

use super::{
    callback::{callbacks, idle_slot},
    local::global,
    node::Tree,
};

/// Sweeps callbacks, as the thread of the library would, which a model does not have.
pub fn sweep() {
    callbacks().sweep();
}

/// Returns `true` if a sweep by this thread would have somebody to wait for.
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

    /// Ends the marking; returns `true` if nobody is left to report.
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
