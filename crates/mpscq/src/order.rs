//! The orderings of the queue, one function each, with the bug that weakens it.
//!
//! They stand here so that a model can weaken them one at a time; the argument for each stands where it is
//! used, under an `ORDER` tag, and in `docs/orderings.md`. On the real machine every function is a constant.

use sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use sync::twin;

/// A push takes the place of the newest item.
#[inline(always)]
pub(crate) fn tail_swap() -> Ordering {
    if twin::armed("tail: swap without acquire") {
        Release
    } else if twin::armed("tail: swap without release") {
        Acquire
    } else {
        AcqRel
    }
}

/// A push hangs its item behind the one before.
#[inline(always)]
pub(crate) fn link_store() -> Ordering {
    if twin::armed("link: relaxed store") || kernel() {
        Relaxed
    } else {
        Release
    }
}

/// A pop looks for the oldest item behind the stub.
#[inline(always)]
pub(crate) fn first_load() -> Ordering {
    if twin::armed("link: relaxed load of the first item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// A pop looks for the item behind the oldest.
#[inline(always)]
pub(crate) fn next_load() -> Ordering {
    if twin::armed("link: relaxed load of the next item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// A pop puts the stub back where the last item was.
#[inline(always)]
pub(crate) fn stub_back() -> Ordering {
    twin::order("stub: relaxed compare-exchange", Release)
}

/// A push onto the LIFO list.
#[inline(always)]
pub(crate) fn stack_push() -> Ordering {
    twin::order("stack: relaxed push", Release)
}

/// Whoever takes the whole LIFO list.
#[inline(always)]
pub(crate) fn stack_take() -> Ordering {
    twin::order("stack: relaxed take", Acquire)
}

/// A consumer takes over from the one before.
#[inline(always)]
pub(crate) fn consumer_claim() -> Ordering {
    twin::order("consumer: relaxed claim", Acquire)
}

/// A consumer leaves the queue to the next one.
#[inline(always)]
pub(crate) fn consumer_leave() -> Ordering {
    twin::order("consumer: relaxed leave", Release)
}

#[cfg(feature = "alloc")]
/// A shared item's link becomes free for its next push.
#[inline(always)]
pub(crate) fn shared_release() -> Ordering {
    twin::order("shared: relaxed release", Release)
}

#[cfg(feature = "alloc")]
/// Somebody takes the right to push a shared item.
#[inline(always)]
pub(crate) fn shared_claim() -> Ordering {
    twin::order("shared: relaxed claim", Acquire)
}

/// The published kernel form: a full barrier after the swap, a plain link store, dependent loads.
#[inline(always)]
pub(crate) fn kernel() -> bool {
    twin::armed("kernel: full barrier, plain link, dependent loads")
        || twin::armed("kernel: full barrier, plain link, acquire loads")
}

#[inline(always)]
fn dependent() -> bool {
    twin::armed("kernel: full barrier, plain link, dependent loads")
        || twin::armed("kernel: release link, dependent loads")
}
