//! Functions for models, which users do not have: compiled under `--cfg loom` and `--cfg shuttle` only.

use std::ptr::NonNull;

use super::{
    bag::Bag,
    callback::{callbacks, idle_slot},
    local::global,
    node::Tree,
    slot::Slot,
    spares::Spares,
    srcu,
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

/// Runs a grace period of `domain` if each of its readers is parked or has answered, and none is in a section; returns `true`
/// if it did. Passes no heavy barrier. Once in a run: if it did not, the grace period never ends.
pub fn passes_unaided(domain: &srcu::Domain) -> bool {
    domain.passes_unaided()
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

/// A slot that threads take, and give back.
#[derive(Debug)]
pub struct Seat(Slot);

impl Seat {
    /// Makes one that this thread has, and gives back at once.
    pub fn left() -> Self {
        let seat = Self(Slot::new());
        assert!(seat.0.take());
        seat.0.leave(global());
        seat
    }

    /// Takes it, if it is free, and begins a section.
    pub fn read(&self) -> bool {
        self.0.take() && self.0.lock(global())
    }

    /// Returns `true` if this thread finds that it has a section open here.
    pub fn is_open_of_mine(&self) -> bool {
        self.0.is_mine() && self.0.is_in_section()
    }
}

/// Two spare bags.
#[derive(Debug)]
pub struct Stock {
    spares: Spares,
    bags: [NonNull<Bag>; 2],
}

// SAFETY: bags are touched in `give` and `take` alone.
unsafe impl Send for Stock {}
// SAFETY: as above.
unsafe impl Sync for Stock {}

impl Stock {
    /// Makes a stock of two, which leak.
    #[expect(clippy::new_without_default, reason = "a stock is not a value")]
    pub fn new() -> Self {
        let bag = |_| NonNull::from(Box::leak(Box::new(Bag::new())));
        let stock = Self {
            spares: Spares::new(),
            bags: [0, 1].map(bag),
        };
        stock.give(0);
        stock.give(1);
        stock
    }

    /// Gives one back that was taken.
    pub fn give(&self, which: usize) {
        // SAFETY: the model's alone: it has taken it, or this is `new`.
        assert!(unsafe { self.spares.give(self.bags[which]) });
    }

    /// Takes one.
    pub fn take(&self) -> Option<usize> {
        let bag = self.spares.take()?;
        self.bags.iter().position(|&it| it == bag)
    }
}
