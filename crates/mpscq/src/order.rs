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

/// Declares functions that return an ordering.
macro_rules! orders {
    ($($(#[$attribute:meta])* $name:ident = $order:expr;)+) => {$(
        $(#[$attribute])*
        #[inline(always)]
        pub(crate) fn $name() -> Ordering {
            $order
        }
    )+};
}

orders! {
    /// The store that links an item behind the previous one: `mpscq-link`.
    link_store = twin::order("link: relaxed store", if kernel() { Relaxed } else { Release });
    /// A pop's load of the oldest item behind the stub: `mpscq-link`.
    first_load = twin::order("link: relaxed load of the first item", link_load());
    /// A pop's load of the item behind the oldest: `mpscq-link`.
    next_load = twin::order("link: relaxed load of the next item", link_load());
    /// The exchange by which a pop replaces the last item by the stub: `mpscq-stub`.
    stub_back = twin::order("stub: relaxed compare-exchange", Release);
    /// A push onto the LIFO list: `mpscq-stack`.
    stack_push = twin::order("stack: relaxed push", Release);
    /// The swap that takes the whole LIFO list: `mpscq-stack`.
    stack_take = twin::order("stack: relaxed take", Acquire);
    /// The exchange with which a consumer takes over from the previous one: `mpscq-consumer`.
    consumer_claim = twin::order("consumer: relaxed claim", Acquire);
    /// The store with which a consumer releases the queue to the next one: `mpscq-consumer`.
    consumer_leave = twin::order("consumer: relaxed leave", Release);
    /// The store that frees a shared item's link for its next push: `mpscq-shared`.
    #[cfg(feature = "alloc")]
    shared_release = twin::order("shared: relaxed release", Release);
    /// The swap with which a thread acquires the right to push a shared item: `mpscq-shared`.
    #[cfg(feature = "alloc")]
    shared_claim = twin::order("shared: relaxed claim", Acquire);
}

/// Returns `true` if a model stores links as the kernel's documentation describes: by a plain store
/// after a full barrier.
#[inline(always)]
pub(crate) fn kernel() -> bool {
    twin::armed("kernel: full barrier, plain link, dependent loads")
        || twin::armed("kernel: full barrier, plain link, acquire loads")
}

#[inline(always)]
fn link_load() -> Ordering {
    let is_dependent = twin::armed("kernel: full barrier, plain link, dependent loads")
        || twin::armed("kernel: release link, dependent loads");
    if is_dependent { Relaxed } else { Acquire }
}
