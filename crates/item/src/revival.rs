//! Distinguishes items queued before a bulk cancel from later ones, if an item's position in a list
//! does not show it.
//!
//! A position has the color of its adoption (`list.rs`). An item that is queued into the position
//! of a cancelled item, or that is queued again while its link is handed to a run, is newer than
//! its position suggests. Each bulk cancel has a number, and such an item records the number of the
//! latest bulk cancel when it is queued:
//!
//! ```text
//! enqueue:   n = latest number, Acquire;  is the item's state unchanged?  noted = max(noted, n);
//!            the transition that queues the item
//! canceller: pool lock:  latest number += 1, Release;  the pwq stores that number
//! put back:  pool lock:  noted < the number stored in the pwq?  cancelled
//! ```
//!
//! - A cancel after the transition gets a larger number than any recorded before, so the item is
//!   cancelled.
//! - If a cancel comes before the call that queues the item, that call reads its number, so the
//!   item is not cancelled.
//! - A thread that loses the transition to another thread may have recorded the larger number. It
//!   read that number before it saw the state that the winning transition replaced. The number
//!   therefore does not exceed the number of the last cancel before the winning transition.
//!
//! No model fails without the Acquire and the Release, because a failure requires a run, a
//! canceller and two enqueuers. Models check that the recorded number is compared.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::fork::Inherited;
use sync::twin;

use super::head::{Handles, Head};

sync::process_wide! {
    /// The number of bulk cancels in the whole process, because items move between queues.
    fn nr_cancels() -> AtomicU64 = AtomicU64::new(0)
}

/// Returns the number of a new bulk cancel of a pwq. Call it with the pool locked.
pub fn next_cancel() -> u64 {
    // ORDER(revival): publish and consume, other end in `note`.
    //   here: earlier enqueues;  the number += 1, Release
    //   note: read the number, Acquire;  read the item's state
    // If `note` reads our number, it reads a state at least as new as the one that we acted on. If
    // it reads an older number, we cancel the item.
    // Test: item_requeued_during_its_run_is_cancelled
    nr_cancels().fetch_add(1, Ordering::Release) + 1
}

/// The first part of an item that can be queued into an older position. It contains everything but
/// the closure, so that an item with a small closure fits into a cache line. If an item occupies a
/// cache line and a quarter, the fan-out of a million items is 6 % slower.
#[repr(C)]
pub struct Revivable {
    pub head: Head,
    /// A: the low half of the recorded number.
    noted: AtomicU32,
    /// A: the process that owns the item.
    pub owner: Inherited,
    pub handles: Handles,
}

#[cfg(not(any(loom, shuttle, sim)))]
const _: () = assert!(size_of::<Revivable>() == 48);

/// Compares the low halves of two numbers that differ by less than 2^31.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl Revivable {
    pub fn new(head: Head) -> Self {
        Self {
            head,
            noted: AtomicU32::new(0),
            owner: Inherited::by_children(),
            handles: Handles::one(),
        }
    }

    /// If `is_as_it_was` returns `true`, records that the item is about to be queued into an older
    /// position. Returns the result of `is_as_it_was`.
    #[cold]
    pub fn note(&self, is_as_it_was: impl FnOnce() -> bool) -> bool {
        // ORDER(revival): other end in `next_cancel`.
        let number = nr_cancels().load(Ordering::Acquire);
        let is_as_it_was = is_as_it_was();
        if is_as_it_was {
            // Relaxed suffices, because the number is read only after the transition that follows.
            let _ = self.noted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |noted| {
                is_before(noted, number as u32).then_some(number as u32)
            });
        }
        is_as_it_was
    }

    /// Returns `true` if the item, which was queued into an older position, was queued before the
    /// cancel with this number.
    pub fn is_older(&self, cancel: u64) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        is_before(noted, cancel as u32) && !twin::armed("revival: is always younger")
    }
}
