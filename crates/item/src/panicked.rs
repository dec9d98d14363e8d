//! Panics of work items: reports to handlers, and payloads kept until they are requested.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;

use base::internal::panics::{Foreign, Payload, discard, guarded_in_item, text_of};
use sync::Mutex;
use sync::atomic::Ordering;
use sync::fork::PerProcess;
use sync::unmodelled::{Arc, AtomicUsize};

use crate::cleanups::Cleanup;

/// The last panic payload of each item, by address, until it is requested or the item is freed. It
/// is not stored in the item, because programs with many items pay for each byte of an item.
static KEPT: PerProcess<Mutex<HashMap<usize, Payload>>> = PerProcess::new();
/// The number of payloads, so that the table is locked only if needed. A child of `fork` has its
/// parent's count but an empty table.
static NR_KEPT: AtomicUsize = AtomicUsize::new(0);

/// The panic handler of a queue. Dropping it runs user code.
pub type Handler = Arc<Foreign<PanicHandler>>;

impl Cleanup for Handler {}

/// A handler that is called after an item has panicked.
pub type PanicHandler = Box<dyn Fn(&ItemPanic<'_>) + Send + Sync>;

/// Calls a queue's handler for a panic that no joiner receives.
pub fn report(handler: &PanicHandler, queue: &str, func: &'static str, payload: &(dyn Any + Send)) {
    let panic = ItemPanic { queue, func, payload };
    // FOREIGN(on-panic): a queue's handler, on the thread that ran the item, inside its run; a
    // panic is contained.
    guarded_in_item(|| handler(&panic)).unwrap_or_else(discard);
}

/// Stores the panic payload of the item at this address. Drops an earlier one; a panic in that drop
/// is contained.
pub fn keep(item: usize, payload: Payload) {
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
pub fn take(item: usize) -> Option<Payload> {
    // A request that comes after `keep` sees the count.
    if NR_KEPT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let payload = KEPT.get()?.lock().remove(&item)?;
    NR_KEPT.fetch_sub(1, Ordering::Relaxed);
    Some(payload)
}

/// An item's panic that no joiner receives, as passed to the queue's panic handler
/// ([`Builder::on_panic`](struct.Builder.html#method.on_panic)).
// The link is relative to the page of the re-export in `workqueue`.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ItemPanic<'a> {
    /// The name of the queue.
    pub queue: &'a str,
    /// The type of the item's function or future, as the compiler names it, with its path.
    pub func: &'static str,
    /// The payload of the panic. It is dropped after the handler has returned, unless it can
    /// still be received from the item.
    pub payload: &'a (dyn Any + Send),
}

impl<'a> ItemPanic<'a> {
    /// Returns the payload as text if it is a string, as for a `panic!` with a message.
    pub fn text(&self) -> Option<&'a str> {
        text_of(self.payload)
    }
}

/// Writes the panic on one line.
impl fmt::Display for ItemPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} panicked", self.func, self.queue)?;
        match self.text() {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

base::internal::impl_debug!(ItemPanic<'_>, it => queue: it.queue, func: it.func, text: it.text());
