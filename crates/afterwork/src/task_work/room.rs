//! How many items a bounded mailbox may still take.

use sync::atomic::{AtomicUsize, Ordering};

/// Counts what is inside, if there is a bound.
#[derive(Debug)]
pub(super) struct Room {
    /// I
    capacity: Option<usize>,
    /// A: items posted or about to be, and not received; never above `capacity`. Relaxed: it guards no memory.
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

    /// Takes room for one item; false when there is none.
    #[inline]
    pub(super) fn take(&self) -> bool {
        let Some(capacity) = self.capacity else {
            return true;
        };
        let more = |nr_inside| (nr_inside < capacity).then_some(nr_inside + 1);
        self.nr_inside
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Gives the room of `count` items back.
    #[inline]
    pub(super) fn give(&self, count: usize) {
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
        assert!(room.take() && room.take());
        assert!(!room.take());
        room.give(1);
        assert!(room.take());
        assert!(!room.take());
    }

    #[test]
    fn without_a_bound_there_is_always_room() {
        let room = Room::new(None);
        assert!((0..1000).all(|_| room.take()));
    }

    #[test]
    fn a_bound_of_zero_refuses_everything() {
        assert!(!Room::new(Some(0)).take());
    }
}
