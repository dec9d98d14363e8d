//! The orderings of the queue: one function for each, with the fault that weakens it.
//!
//! Separate functions let a model weaken the orderings one at a time. The arguments are at the
//! uses, under the `ORDER` tag named here, and in `docs/orderings.md`. In normal builds the
//! functions are constant.

use sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use sync::twin;

/// A push replaces the newest item: `mpscq-tail` and `mpscq-stub`.
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

/// A push links its item behind the previous one: `mpscq-link`.
#[inline(always)]
pub(crate) fn link_store() -> Ordering {
    if twin::armed("link: relaxed store") || kernel() { Relaxed } else { Release }
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

/// A pop puts the stub back in place of the last item.
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

/// A consumer takes over from the previous one.
#[inline(always)]
pub(crate) fn consumer_claim() -> Ordering {
    // Argument: `mpscq-consumer`, in `Queue::try_consumer`.
    twin::order("consumer: relaxed claim", Acquire)
}

/// A consumer releases the queue to the next one.
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
/// A thread acquires the right to push a shared item.
#[inline(always)]
pub(crate) fn shared_claim() -> Ordering {
    // Argument: `mpscq-shared`, in `Shared::claim`.
    twin::order("shared: relaxed claim", Acquire)
}

/// The form that the kernel's documentation describes: a full barrier, a plain link store,
/// dependent loads.
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
