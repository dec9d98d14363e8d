//! Panic payloads of work items, kept until they are requested.

use std::collections::HashMap;

use base::internal::panics::{Payload, discard};
use sync::{Mutex, atomic::Ordering, fork::PerProcess, unmodelled::AtomicUsize};

/// The last panic payload of each item, by address, until it is requested or the item is freed. It
/// is not stored in the item, because programs with many items pay for each byte of an item.
static KEPT: PerProcess<Mutex<HashMap<usize, Payload>>> = PerProcess::new();
/// The number of payloads, so that the table is locked only if needed. A child of `fork` has its
/// parent's count but an empty table.
static NR_KEPT: AtomicUsize = AtomicUsize::new(0);

/// Stores the panic payload of the item at this address. Drops an earlier one; a panic in that drop
/// is contained.
pub(crate) fn keep(item: usize, payload: Payload) {
    if cfg!(any(loom, shuttle)) {
        // Models do not request payloads.
        return discard(payload);
    }
    let before = KEPT.get_or_set(Mutex::default()).lock().insert(item, payload);
    match before {
        Some(before) => discard(before),
        None => _ = NR_KEPT.fetch_add(1, Ordering::Relaxed),
    }
}

/// Takes the payload of the item at this address. Only the first request gets it.
#[inline]
pub(crate) fn take(item: usize) -> Option<Payload> {
    // A request that comes after `keep` sees the count.
    if NR_KEPT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let payload = KEPT.get()?.lock().remove(&item)?;
    NR_KEPT.fetch_sub(1, Ordering::Relaxed);
    Some(payload)
}
