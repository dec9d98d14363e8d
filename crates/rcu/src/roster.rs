//! The list of all readers' slots, which only grows.
//!
//! A slot is pushed once and never removed. So a driver walks the list without a lock while threads
//! start and exit. An exiting thread frees its slot for the next one. The list is as long as the
//! largest number of readers at any time.

use std::ptr;

use mpscq::RawStack;
use sync::{atomic::Ordering, twin};

use super::slot::Slot;

/// All slots of a domain.
#[derive(Debug)]
pub(super) struct Roster {
    /// Entries are never popped.
    entries: RawStack<Entry>,
}

#[derive(Debug)]
struct Entry {
    slot: Slot,
    /// I: constant after the push.
    next: *mut Entry,
}

impl Roster {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self { entries: RawStack::new() }
        }
    }

    /// Claims a free slot for this thread, or creates one.
    ///
    /// Allocates, and walks over all slots in use. Called once per thread.
    pub(super) fn join(&self) -> &Slot {
        if let Some(slot) = self.iter().find(|slot| slot.take()) {
            return slot;
        }
        let entry = Box::new(Entry {
            slot: Slot::new(),
            next: ptr::null_mut(),
        });
        let taken = entry.slot.take();
        debug_assert!(taken, "no other thread can reach the slot yet");
        let entry = Box::into_raw(entry);
        // SAFETY: `entry` came from `into_raw` above, and no other thread can reach it until the
        // push succeeds.
        let link = |below| unsafe { (*entry).next = below };
        self.entries.push(entry, link);
        // SAFETY: pushed entries are freed only with the roster, which `self` keeps alive.
        unsafe { &(*entry).slot }
    }

    /// Returns all slots, used and free.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        // ORDER(mpscq-stack): the other end of the push in `join`. If the push comes first, we walk
        // over its slot. If our load comes first, we do not know the slot, which is OFF like a
        // parked one: its first section leaves that and sees what was removed, ORDER(parked).
        // Test: threads_come_and_go
        let mut next = self.entries.top().load(Ordering::Acquire);
        if twin::armed("rcu: the newest reader is skipped") {
            // SAFETY: as below.
            next = unsafe { next.as_ref() }.map_or(next, |entry| entry.next);
        }
        std::iter::from_fn(move || {
            // SAFETY: null, or an entry that was fully initialized before its push (ORDER above)
            // and is freed only with the roster.
            let entry = unsafe { next.as_ref() }?;
            next = entry.next;
            Some(&entry.slot)
        })
    }
}

// SAFETY: entries are shared as `&Slot`, which is `Sync`; `next` does not change after the push.
unsafe impl Send for Roster {}
// SAFETY: as above.
unsafe impl Sync for Roster {}

impl Drop for Roster {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        // Every push happened before, because we have exclusive access. Acquire is stronger than
        // needed.
        let mut next = self.entries.top().load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: from `into_raw` in `join`; exclusive access, so no thread walks the list.
            let entry = unsafe { Box::from_raw(next) };
            next = entry.next;
        }
    }
}
