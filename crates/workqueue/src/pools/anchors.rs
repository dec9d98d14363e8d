//! Counts the futures that hold an in-flight count of a pwq, by kind.
//!
//! A future that has waited keeps its in-flight count until it completes. It is counted by its
//! vtable, so that a thread that waits for the queue can report its kind. This costs one atomic
//! operation when a future first waits and one when it completes. An entry is assigned to a kind
//! once and never released, so both operations find the same entry. If all entries are assigned,
//! further kinds share `nr_others`.

use std::ptr;

use item::internal::head::VTable;
use sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The number of kinds that can be distinguished. The value is a guess: few programs have more
/// kinds of futures in one queue.
const NR_KINDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

#[derive(Debug, Default)]
pub(crate) struct Anchors {
    kinds: [Kind; NR_KINDS],
    nr_others: AtomicU32,
}

#[derive(Debug, Default)]
struct Kind {
    /// A: written once.
    table: AtomicPtr<VTable>,
    count: AtomicU32,
}

impl Anchors {
    pub(crate) fn add(&self, table: &'static VTable) {
        self.count_of(table).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, table: &'static VTable) {
        self.count_of(table).fetch_sub(1, Ordering::Relaxed);
    }

    fn count_of(&self, table: &'static VTable) -> &AtomicU32 {
        let table = ptr::from_ref(table).cast_mut();
        // Vtables are dozens of bytes apart.
        let first = (table.addr() >> 6).rem_euclid(NR_KINDS);
        for nr_before in 0..NR_KINDS {
            let kind = &self.kinds[(first + nr_before).rem_euclid(NR_KINDS)];
            let mut found = kind.table.load(Ordering::Relaxed);
            if found.is_null() {
                let take = |null| {
                    let order = Ordering::Relaxed;
                    kind.table.compare_exchange(null, table, order, order)
                };
                found = match take(found) {
                    Ok(_) => table,
                    Err(other) => other,
                };
            }
            if found == table {
                return &kind.count;
            }
        }
        &self.nr_others
    }

    /// Returns the number of futures of each kind. The kinds that share an entry have no vtable.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (Option<&'static VTable>, u32)> {
        let kinds = self.kinds.iter().map(|kind| {
            // SAFETY: the pointer is null, or points to a table that is never freed.
            let table = unsafe { kind.table.load(Ordering::Relaxed).as_ref() };
            (table, kind.count.load(Ordering::Relaxed))
        });
        let others = (None, self.nr_others.load(Ordering::Relaxed));
        kinds.chain([others])
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use item::internal::head::VTable;

    use super::*;

    fn table() -> &'static VTable {
        Box::leak(Box::new(VTable::plain(
            |_| unreachable!("never run"),
            |_, _| unreachable!("never cancelled"),
            |_| unreachable!("never run"),
            || "kind",
            |_| unreachable!("never freed"),
        )))
    }

    #[test]
    fn kinds_are_counted_apart_until_there_are_too_many() {
        let anchors = Anchors::default();
        let tables: Vec<_> = (0..NR_KINDS + 2).map(|_| table()).collect();
        for _ in 0..2 {
            tables.iter().for_each(|table| anchors.add(table));
        }
        let counts: Vec<_> = anchors.kinds().collect();
        assert!(counts[..NR_KINDS].iter().all(|(table, count)| table.is_some() && *count == 2));
        assert!(counts[NR_KINDS].0.is_none());
        assert_eq!(counts[NR_KINDS].1, 4);
        for _ in 0..2 {
            tables.iter().rev().for_each(|table| anchors.remove(table));
        }
        assert!(anchors.kinds().all(|(_, count)| count == 0));
    }
}
