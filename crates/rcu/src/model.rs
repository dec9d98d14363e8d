//! Functions for models, compiled only under `--cfg loom` and `--cfg shuttle`.

use std::ptr::NonNull;

use super::bag::{Bag, Spares};
use super::callback::{callbacks, idle_slot};
use super::local::global;
pub use super::node::Tree;
use super::slot::Slot;
use super::srcu;

/// Sweeps callbacks, as the library's thread does outside of models.
pub fn sweep() {
    callbacks().sweep();
}

/// Returns `true` if a sweep by this thread would have to wait for a reader.
pub fn sweep_waits() -> bool {
    !global().nobody_reads(idle_slot())
}

pub fn sweep_when_wanted() {
    callbacks().sweep_when_wanted();
}

/// Runs a grace period of `domain` if each of its readers is parked or has answered, and none is in
/// a section. Returns `true` if a grace period was run. Passes no heavy barrier. Call it at most
/// once per run, because the grace period never ends if it returns `false`.
pub fn passes_unaided(domain: &srcu::Domain) -> bool {
    domain.shared.passes_unaided()
}

pub struct Seat(Slot);

impl Seat {
    /// Creates a slot that this thread has claimed and released.
    pub fn left() -> Self {
        let seat = Self(Slot::new());
        assert!(seat.0.take());
        seat.0.leave(global());
        seat
    }

    /// Claims the slot, if it is free, and begins a section.
    pub fn read(&self) -> bool {
        self.0.take() && self.0.lock(global())
    }

    /// Returns `true` if this thread has a section open in the slot.
    pub fn is_open_of_mine(&self) -> bool {
        self.0.is_mine() && self.0.is_in_section()
    }
}

pub struct Stock {
    spares: Spares,
    bags: [NonNull<Bag>; 2],
}

// SAFETY: bags are accessed only in `give` and `take`.
unsafe impl Send for Stock {}
// SAFETY: as above.
unsafe impl Sync for Stock {}

impl Stock {
    /// Creates a stock of two bags, which are leaked.
    #[expect(clippy::new_without_default, reason = "a stock is not a value")]
    pub fn new() -> Self {
        let bag = |_| NonNull::from(Box::leak(Box::new(Bag::new())));
        let stock = Self { spares: Spares::new(), bags: [0, 1].map(bag) };
        stock.give(0);
        stock.give(1);
        stock
    }

    /// Returns the bag `which`, which must have been taken, to the stock.
    pub fn give(&self, which: usize) {
        // SAFETY: the model owns the bag, because it has taken the bag or this is `new`.
        assert!(unsafe { self.spares.give(self.bags[which]) });
    }

    pub fn take(&self) -> Option<usize> {
        let bag = self.spares.take()?;
        self.bags.iter().position(|&it| it == bag)
    }
}
