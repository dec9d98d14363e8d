//! Bags whose closures have run, for the next thread that needs one.
//!
//! Bags are made by the threads that hand closures over, and end on the thread that runs them. In a
//! stream of calls each side would wait for the other in the allocator, which has a lock for that.
//!
//! Each place holds a bag or nothing, and each step on it is one exchange. So a bag goes to one
//! thread, a step that is cut short by a `fork` leaves nothing half-way, and no thread waits for
//! another one.

use std::{ptr, ptr::NonNull};

use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicPtr, Ordering},
    twin,
};

use super::bag::Bag;

/// The number of bags that are kept: 128 kilobytes, and as many as a flood fills before the sweeper
/// runs.
const MOST: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Bags that belong to no thread.
#[derive(Debug)]
pub(super) struct Spares(CachePadded<[AtomicPtr<Bag>; MOST]>);

sync::process_wide! {
    /// Returns the spare bags of this process.
    pub(super) fn spares() -> Spares = Spares::new()
}

impl Spares {
    #[cfg(not(any(loom, shuttle)))]
    pub(super) const fn new() -> Self {
        Self(CachePadded::new(
            [const { AtomicPtr::new(ptr::null_mut()) }; MOST],
        ))
    }

    #[cfg(any(loom, shuttle))]
    pub(super) fn new() -> Self {
        let nothing = |_| AtomicPtr::new(ptr::null_mut());
        Self(CachePadded::new(std::array::from_fn(nothing)))
    }

    /// Gives a bag away. Returns `false`, and leaves the bag to the caller, if there are enough.
    ///
    /// # Safety
    ///
    /// 1. The bag is the caller's alone, and holds no closure.
    pub(super) unsafe fn give(&self, bag: NonNull<Bag>) -> bool {
        let nothing = ptr::null_mut();
        // ORDER(spare): publish and consume, other end in `take`.
        //   here: reads of the closures;  place = bag Release
        //   take: place = null Acquire;   write closures
        // If our exchange comes first, the thread that takes the bag comes after all that we did
        // before. If that thread's exchange comes first, it does not find our bag.
        // Test: a_bag_given_away_needs_the_order_of_the_gift
        let order = twin::order("rcu: relaxed gift of a bag", Ordering::Release);
        self.0.iter().any(|place| {
            place.load(Ordering::Relaxed).is_null()
                && place
                    .compare_exchange(nothing, bag.as_ptr(), order, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Takes a bag, if there is one.
    pub(super) fn take(&self) -> Option<NonNull<Bag>> {
        // ORDER(spare): the other end; see `give`.
        // Test: a_bag_that_is_taken_needs_the_order_of_the_take
        let order = twin::order("rcu: relaxed take of a bag", Ordering::Acquire);
        let take = |place: &AtomicPtr<Bag>| {
            let bag = place.load(Ordering::Relaxed);
            if bag.is_null() {
                return None;
            }
            if twin::armed("rcu: two take a bag") {
                place.store(ptr::null_mut(), Ordering::Relaxed);
                return NonNull::new(bag);
            }
            NonNull::new(place.swap(ptr::null_mut(), order))
        };
        self.0.iter().find_map(take)
    }
}
