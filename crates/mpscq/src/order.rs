//! The orderings of the queue, one function each, with the bug that weakens it.
//!
//! They are functions so that a model can weaken them one at a time. The argument for each is where it is used, under the
//! `ORDER` tag named here, and in `docs/orderings.md`. On the real machine every function is a constant.

use sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use sync::twin;

/// A push takes the place of the newest item: `mpscq-tail` and `mpscq-stub`.
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

/// A push links its item behind the one before: `mpscq-link`.
#[inline(always)]
pub(crate) fn link_store() -> Ordering {
    if twin::armed("link: relaxed store") || kernel() {
        Relaxed
    } else {
        Release
    }
}

/// A pop loads the oldest item behind the stub: `mpscq-link`.
#[inline(always)]
pub(crate) fn first_load() -> Ordering {
    if twin::armed("link: relaxed load of the first item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// A pop loads the item behind the oldest: `mpscq-link`.
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
    // Argument: `mpscq-stub`, in `RawQueue::put_stub_back`.
    twin::order("stub: relaxed compare-exchange", Release)
}

/// A push onto the LIFO list.
#[inline(always)]
pub(crate) fn stack_push() -> Ordering {
    // Argument: `mpscq-stack`, in `RawStack::push`.
    twin::order("stack: relaxed push", Release)
}

/// A thread takes the whole LIFO list.
#[inline(always)]
pub(crate) fn stack_take() -> Ordering {
    // Argument: `mpscq-stack`, in `RawStack::take_all`.
    twin::order("stack: relaxed take", Acquire)
}

/// A consumer takes over from the one before.
#[inline(always)]
pub(crate) fn consumer_claim() -> Ordering {
    // Argument: `mpscq-consumer`, in `Queue::try_consumer`.
    twin::order("consumer: relaxed claim", Acquire)
}

/// A consumer leaves the queue to the next one.
#[inline(always)]
pub(crate) fn consumer_leave() -> Ordering {
    // Argument: `mpscq-consumer`, in the drop of a `Consumer`.
    twin::order("consumer: relaxed leave", Release)
}

#[cfg(feature = "alloc")]
/// A shared item's link becomes free for its next push.
#[inline(always)]
pub(crate) fn shared_release() -> Ordering {
    // Argument: `mpscq-shared`, in `Shared::set_free`.
    twin::order("shared: relaxed release", Release)
}

#[cfg(feature = "alloc")]
/// A thread takes the right to push a shared item.
#[inline(always)]
pub(crate) fn shared_claim() -> Ordering {
    // Argument: `mpscq-shared`, in `Shared::claim`.
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
