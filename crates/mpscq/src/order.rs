//! The orderings of the queue: one function for each, with the fault that weakens it.
//!
//! Separate functions let a model weaken the orderings one at a time. The arguments are at the
//! uses, under the `ORDER` tag named here, and in `docs/orderings.md`. In normal builds the
//! functions are constant.

use sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use sync::twin;

/// The ordering of a push's swap of the newest item: `mpscq-tail` and `mpscq-stub`.
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

/// The ordering of the store that links an item behind the previous one: `mpscq-link`.
#[inline(always)]
pub(crate) fn link_store() -> Ordering {
    if twin::armed("link: relaxed store") || kernel() { Relaxed } else { Release }
}

/// The ordering of a pop's load of the oldest item behind the stub: `mpscq-link`.
#[inline(always)]
pub(crate) fn first_load() -> Ordering {
    if twin::armed("link: relaxed load of the first item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// The ordering of a pop's load of the item behind the oldest: `mpscq-link`.
#[inline(always)]
pub(crate) fn next_load() -> Ordering {
    if twin::armed("link: relaxed load of the next item") || dependent() {
        Relaxed
    } else {
        Acquire
    }
}

/// The ordering of the exchange by which a pop replaces the last item by the stub.
#[inline(always)]
pub(crate) fn stub_back() -> Ordering {
    // Argument: `mpscq-stub`, in `RawQueue::put_stub_back`.
    twin::order("stub: relaxed compare-exchange", Release)
}

/// The ordering of a push onto the LIFO list.
#[inline(always)]
pub(crate) fn stack_push() -> Ordering {
    // Argument: `mpscq-stack`, in `RawStack::push`.
    twin::order("stack: relaxed push", Release)
}

/// The ordering of the swap that takes the whole LIFO list.
#[inline(always)]
pub(crate) fn stack_take() -> Ordering {
    // Argument: `mpscq-stack`, in `RawStack::take_all`.
    twin::order("stack: relaxed take", Acquire)
}

/// The ordering with which a consumer takes over from the previous one.
#[inline(always)]
pub(crate) fn consumer_claim() -> Ordering {
    // Argument: `mpscq-consumer`, in `Queue::try_consumer`.
    twin::order("consumer: relaxed claim", Acquire)
}

/// The ordering with which a consumer releases the queue to the next one.
#[inline(always)]
pub(crate) fn consumer_leave() -> Ordering {
    // Argument: `mpscq-consumer`, in the drop of a `Consumer`.
    twin::order("consumer: relaxed leave", Release)
}

#[cfg(feature = "alloc")]
/// The ordering with which a shared item's link becomes free for its next push.
#[inline(always)]
pub(crate) fn shared_release() -> Ordering {
    // Argument: `mpscq-shared`, in `Shared::set_free`.
    twin::order("shared: relaxed release", Release)
}

#[cfg(feature = "alloc")]
/// The ordering with which a thread acquires the right to push a shared item.
#[inline(always)]
pub(crate) fn shared_claim() -> Ordering {
    // Argument: `mpscq-shared`, in `Shared::claim`.
    twin::order("shared: relaxed claim", Acquire)
}

/// Returns `true` if the model stores links as the kernel's documentation describes: by a plain
/// store after a full barrier.
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
