//! Telling what was queued before all was cancelled from what came later, where an item's place in a list does not tell.
//!
//! A place has the colour of when it was adopted (`colour.rs`). An item that is queued into the place of a cancelled one, or
//! again while it is left to a run, is younger than that. Each cancel of all has a number, and such an item notes which was the
//! last when it was queued:
//!
//! ```text
//! queueing:  n = the last number, Acquire;  the item's state: as it was;  noted = max(noted, n);  the step that queues it
//! canceller: pool lock: the last number += 1, Release; the link keeps that number
//! put back:  pool lock: noted < the number that the link keeps?  cancelled
//! ```
//!
//! A canceller that comes after the step leaves a larger number than any that was noted by then. One that comes before a
//! call to queue is read by that. A thread that loses the step to another has read its number before it saw the state
//! from which the other went; so its number, which may be the larger, is no larger than one of a cancel before that step.
//!
//! No model goes red without the Acquire and the Release: that takes a run, a canceller, and two threads that queue. Models check
//! that what was noted is heeded.

use sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    fork::Inherited,
    twin,
};

use super::{handles::Handles, head::Head};

sync::process_wide! {
    /// How often all of a link was cancelled, in the whole process: items go from queue to queue.
    fn nr_cancels() -> AtomicU64 = AtomicU64::new(0)
}

/// Numbers a cancel of all that a link has. Call it with the pool locked.
pub(crate) fn next_cancel() -> u64 {
    // ORDER(revival): publish and consume, other end in `note`.
    //   here: what was queued before;  the number += 1, Release
    //   note: read the number, Acquire;  read the item's state
    // If the note reads our number, it reads a state that is no older than those that we came after.
    // Test: what_is_queued_anew_behind_a_run_is_cancelled
    nr_cancels().fetch_add(1, Ordering::Release) + 1
}

/// The first part of an item that may be queued into an older place: all but its closure, so that a small one fits beside it
/// into a cache line's length. A line and a quarter makes the fan-out of a million 6 % slower.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Revivable {
    pub(crate) head: Head,
    /// A: the number of the last cancel before it was queued so, its low half.
    noted: AtomicU32,
    /// A: which process has it.
    pub(crate) owner: Inherited,
    pub(crate) handles: Handles,
}

#[cfg(not(any(loom, shuttle, sim)))]
const _: () = assert!(size_of::<Revivable>() == 48);

/// Compares the low halves of two numbers, of which one is less than 2^31 cancels older than the other.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl Revivable {
    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            noted: AtomicU32::new(0),
            owner: Inherited::by_children(),
            handles: Handles::one(),
        }
    }

    /// Notes that the item is about to be queued into an older place, if `is_as_it_was`, which is returned.
    #[cold]
    pub(crate) fn note(&self, is_as_it_was: impl FnOnce() -> bool) -> bool {
        // ORDER(revival): other end in `next_cancel`.
        let number = nr_cancels().load(Ordering::Acquire);
        let is_as_it_was = is_as_it_was();
        if is_as_it_was {
            // Relaxed: whoever reads it does so after the step that follows.
            let _ = self
                .noted
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |noted| {
                    is_before(noted, number as u32).then_some(number as u32)
                });
        }
        is_as_it_was
    }

    /// Returns `true` if the item, which was queued into an older place, was so before the cancel of this number.
    pub(crate) fn is_older(&self, cancel: u64) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        is_before(noted, cancel as u32) && !twin::armed("revival: is always younger")
    }
}
