//! What work items panicked with, kept until somebody asks.

use std::collections::HashMap;

use base::internal::panics::{Payload, discard};
use sync::{Mutex, atomic::Ordering, fork::PerProcess, unmodelled::AtomicUsize};

/// What items last panicked with, by address, until somebody asks or the item goes. An item has no room for it: each byte of it
/// costs who makes many.
static KEPT: PerProcess<Mutex<HashMap<usize, Payload>>> = PerProcess::new();
/// How many there are, so that nobody locks the table for nothing. A child has its parent's count and none of those.
static NR_KEPT: AtomicUsize = AtomicUsize::new(0);

/// Keeps what the item at this address panicked with, and drops what was kept before, contained.
pub(crate) fn keep(item: usize, payload: Payload) {
    if cfg!(any(loom, shuttle)) {
        // No model asks.
        return discard(payload);
    }
    let before = KEPT
        .get_or_set(Mutex::default())
        .lock()
        .insert(item, payload);
    match before {
        Some(before) => discard(before),
        None => _ = NR_KEPT.fetch_add(1, Ordering::Relaxed),
    }
}

/// Returns what is kept of the item at this address, to the first who asks.
#[inline]
pub(crate) fn take(item: usize) -> Option<Payload> {
    // Whoever comes after `keep` sees it counted.
    if NR_KEPT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let payload = KEPT.get()?.lock().remove(&item)?;
    NR_KEPT.fetch_sub(1, Ordering::Relaxed);
    Some(payload)
}
