//! The bound of a mailbox.

use sync::atomic::{AtomicUsize, Ordering};

/// Counts the items inside, if there is a bound.
#[derive(Debug)]
pub(super) struct Room {
    /// I: the bound.
    capacity: Option<usize>,
    /// A: items that are inside or about to be posted; never above `capacity`. Relaxed: it guards no memory.
    nr_inside: AtomicUsize,
}

impl Room {
    pub(super) fn new(capacity: Option<usize>) -> Self {
        Self {
            capacity,
            nr_inside: AtomicUsize::new(0),
        }
    }

    /// Returns the bound.
    pub(super) fn capacity(&self) -> Option<usize> {
        self.capacity
    }

    /// Reserves room for one item. Returns `false` if there is none.
    #[inline]
    pub(super) fn reserve(&self) -> bool {
        let Some(capacity) = self.capacity else {
            return true;
        };
        let more = |nr_inside| (nr_inside < capacity).then_some(nr_inside + 1);
        self.nr_inside
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Releases the room of `count` items.
    #[inline]
    pub(super) fn release(&self, count: usize) {
        if self.capacity.is_some() {
            self.nr_inside.fetch_sub(count, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn room_is_refused_at_the_bound_and_found_again_below_it() {
        let room = Room::new(Some(2));
        assert!(room.reserve() && room.reserve());
        assert!(!room.reserve());
        room.release(1);
        assert!(room.reserve());
        assert!(!room.reserve());
    }

    #[test]
    fn without_a_bound_there_is_always_room() {
        let room = Room::new(None);
        assert!((0..1000).all(|_| room.reserve()));
    }

    #[test]
    fn a_bound_of_zero_refuses_everything() {
        assert!(!Room::new(Some(0)).reserve());
    }
}
