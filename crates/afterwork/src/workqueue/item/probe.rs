//! How long items wait in a queue, by samples.
//!
//! Reading the clock for every item would cost more than queueing it, and an item has no room for a time. So a link
//! has one *probe*: its pool asks for a sample, the next enqueuer who sees that notes the time and his item, and the
//! worker that takes this item reads the clock again. The pool asks again at the earliest
//! [`wait_sample`](crate::params::Params::wait_sample) items later. Where nothing is asked an enqueuer reads a word of
//! a line that he reads anyway, and a worker compares some pointers.
//!
//! Whoever takes an item out of its list in another way, a helper or a canceller, forgets the sample.
//! Models have no probes.

use std::ptr::{self, NonNull};

use sync::{
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
    time,
};

use super::head::Head;

/// Nobody wants a sample.
const IDLE: u32 = 0;
/// The next enqueuer is to note the time.
const WANTED: u32 = 1;
/// An enqueuer is noting it.
const NOTING: u32 = 2;
/// The item is on its way.
const NOTED: u32 = 3;

/// The sample of one link.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    state: AtomicU32,
    /// Written by who moved the state to `NOTING`.
    since: AtomicU64,
    /// Only ever compared.
    item: AtomicPtr<Head>,
}

impl Probe {
    /// Takes the time for `item`, which is about to be pushed, if a sample is wanted.
    #[inline]
    pub(crate) fn note(&self, item: NonNull<Head>) {
        if !cfg!(any(loom, shuttle)) && self.state.load(Ordering::Relaxed) == WANTED {
            self.take_time(item);
        }
    }

    #[cold]
    fn take_time(&self, item: NonNull<Head>) {
        if self.step(WANTED, NOTING) {
            self.since.store(time::cycles(), Ordering::Relaxed);
            self.item.store(item.as_ptr(), Ordering::Relaxed);
            // Pairs with the Acquire in `sought`, and in `step`: who finds NOTED sees the item and the time.
            self.state.store(NOTED, Ordering::Release);
        }
    }

    /// Returns the item that is on its way, only to be compared.
    #[inline]
    pub(crate) fn sought(&self) -> *const Head {
        // Other end in `take_time`. If its store comes later, there is no item to compare with yet.
        if self.state.load(Ordering::Acquire) == NOTED {
            self.item.load(Ordering::Relaxed)
        } else {
            ptr::null()
        }
    }

    /// Ends the sample of an item that has been taken; returns how long it waited, in cycles.
    pub(crate) fn read(&self) -> Option<u64> {
        let since = self.since.load(Ordering::Relaxed);
        self.step(NOTED, IDLE)
            .then(|| time::cycles().saturating_sub(since))
    }

    /// Takes note that nobody will take `item` off its list.
    #[inline]
    pub(crate) fn forget(&self, item: NonNull<Head>) {
        if ptr::eq(self.sought(), item.as_ptr()) {
            self.step(NOTED, IDLE);
        }
    }

    /// Asks for a sample, unless one is on its way; returns `true` if it did.
    pub(crate) fn want(&self) -> bool {
        !cfg!(any(loom, shuttle)) && self.step(IDLE, WANTED)
    }

    fn step(&self, from: u32, to: u32) -> bool {
        // Of two threads that make the same step one succeeds. Acquire: see `take_time`.
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn item(number: usize) -> NonNull<Head> {
        NonNull::new(ptr::without_provenance_mut(number * 64)).unwrap()
    }

    #[test]
    fn a_sample_is_of_the_first_item_after_it_was_wanted() {
        let probe = Probe::default();
        probe.note(item(1));
        assert!(probe.sought().is_null(), "nobody wanted one");
        assert!(probe.want());
        assert!(!probe.want());
        probe.note(item(2));
        probe.note(item(3));
        assert!(ptr::eq(probe.sought(), item(2).as_ptr()));
        assert!(!probe.want(), "one is on its way");
        assert!(probe.read().is_some());
        assert_eq!(probe.read(), None);
        assert!(probe.want());
    }

    #[test]
    fn an_item_that_leaves_by_another_way_ends_its_sample() {
        let probe = Probe::default();
        assert!(probe.want());
        probe.note(item(2));
        probe.forget(item(3));
        assert!(!probe.sought().is_null());
        probe.forget(item(2));
        assert!(probe.sought().is_null());
        assert!(probe.want());
    }
}
