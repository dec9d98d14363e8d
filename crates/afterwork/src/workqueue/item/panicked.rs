//! What a work item panicked with.

use std::{any::Any, collections::HashMap, fmt};

use sync::{Mutex, atomic::Ordering, fork::PerProcess, unmodelled::AtomicUsize};

use crate::panics::{Payload, discard, text_of};

/// What a work item panicked with.
///
/// A reference may be shared between threads although what it carries need not allow that: it shows only values of types
/// that do.
pub struct PanicPayload(Payload);

// SAFETY: a shared reference leads to what is inside by `downcast_ref` alone, which asks the value for its type (that
// reads nothing of it), and gives a reference of a type that is `Sync`.
unsafe impl Sync for PanicPayload {}

impl PanicPayload {
    pub(crate) fn new(payload: Payload) -> Self {
        Self(payload)
    }

    /// Returns it as [`std::panic::catch_unwind`] does, and `std::thread`'s `join`.
    pub fn into_inner(self) -> Box<dyn Any + Send + 'static> {
        self.0
    }

    /// Returns it if it is a `T`.
    pub fn downcast_ref<T: Any + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    pub(crate) fn as_any(&self) -> &(dyn Any + Send) {
        &*self.0
    }

    /// Returns it as text, if it is such: what `panic!` with a message carries.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{JoinError, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let Err(JoinError::Panicked(payload)) = queue.spawn(|| panic!("disk {} is gone", 3)).join() else {
    ///     unreachable!("it panicked");
    /// };
    /// assert_eq!(payload.text(), Some("disk 3 is gone"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn text(&self) -> Option<&str> {
        text_of(self.as_any())
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PanicPayload").field(&self.text()).finish()
    }
}

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
