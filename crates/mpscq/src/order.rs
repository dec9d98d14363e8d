//! The orderings of the queue, each with the fault that weakens it in a model. The arguments are at
//! the uses, under the `ORDER` tag named here, and in `docs/orderings.md`.

use sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use sync::twin;

/// A push's swap of the newest item: `mpscq-tail` and `mpscq-stub`.
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

/// The store that links an item behind the previous one: `mpscq-link`.
#[inline(always)]
pub(crate) fn link_store() -> Ordering {
    if twin::armed("link: relaxed store") || kernel() { Relaxed } else { Release }
}

/// A pop's load of the oldest item behind the stub: `mpscq-link`.
#[inline(always)]
pub(crate) fn first_load() -> Ordering {
    if twin::armed("link: relaxed load of the first item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// A pop's load of the item behind the oldest: `mpscq-link`.
#[inline(always)]
pub(crate) fn next_load() -> Ordering {
    if twin::armed("link: relaxed load of the next item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// The exchange by which a pop replaces the last item by the stub: `mpscq-stub`.
#[inline(always)]
pub(crate) fn stub_back() -> Ordering {
    twin::order("stub: relaxed compare-exchange", Release)
}

/// A push onto the LIFO list: `mpscq-stack`.
#[inline(always)]
pub(crate) fn stack_push() -> Ordering {
    twin::order("stack: relaxed push", Release)
}

/// The swap that takes the whole LIFO list: `mpscq-stack`.
#[inline(always)]
pub(crate) fn stack_take() -> Ordering {
    twin::order("stack: relaxed take", Acquire)
}

/// A consumer takes over from the previous one: `mpscq-consumer`.
#[inline(always)]
pub(crate) fn consumer_claim() -> Ordering {
    twin::order("consumer: relaxed claim", Acquire)
}

/// A consumer releases the queue to the next one: `mpscq-consumer`.
#[inline(always)]
pub(crate) fn consumer_leave() -> Ordering {
    twin::order("consumer: relaxed leave", Release)
}

#[cfg(feature = "alloc")]
/// A shared item's link becomes free for its next push: `mpscq-shared`.
#[inline(always)]
pub(crate) fn shared_release() -> Ordering {
    twin::order("shared: relaxed release", Release)
}

#[cfg(feature = "alloc")]
/// A thread acquires the right to push a shared item: `mpscq-shared`.
#[inline(always)]
pub(crate) fn shared_claim() -> Ordering {
    twin::order("shared: relaxed claim", Acquire)
}

/// The model stores links as the kernel's documentation describes: plainly after a full barrier.
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
