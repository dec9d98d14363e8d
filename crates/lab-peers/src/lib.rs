//! Peers of the lab that require unsafe code, with safe interfaces.
//!
//! The lab forbids unsafe code in its own crate. But an intrusive queue requires an unsafe trait,
//! and memory reclamation frees memory that the compiler cannot prove to be unused. This crate
//! contains only the parts that the lab needs.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod reclaim;

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;

use cordyceps::Linked;
use cordyceps::mpsc_queue::Links;

/// An item of [`cordyceps::MpscQueue`]: a value in a box, together with cordyceps' links.
///
/// # Examples
///
/// ```
/// use afterwork_lab_peers::CordycepsNode;
/// use cordyceps::MpscQueue;
///
/// let queue = MpscQueue::<CordycepsNode<i32>>::new_with_stub(CordycepsNode::stub(0));
/// queue.enqueue(CordycepsNode::new(7));
/// assert_eq!(**queue.dequeue().unwrap(), 7);
/// ```
pub struct CordycepsNode<T> {
    links: Links<Self>,
    value: T,
}

impl<T> CordycepsNode<T> {
    /// Creates an item.
    // This returns a box, because a node outside a box cannot be pushed.
    #[allow(clippy::new_ret_no_self)]
    #[must_use]
    pub fn new(value: T) -> Pin<Box<Self>> {
        Box::pin(Self { links: Links::new(), value })
    }

    /// Creates the stub of a queue, which the queue never returns.
    #[must_use]
    pub fn stub(value: T) -> Pin<Box<Self>> {
        Box::pin(Self { links: Links::new_stub(), value })
    }
}

impl<T> Deref for CordycepsNode<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for CordycepsNode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CordycepsNode").field(&self.value).finish()
    }
}

// SAFETY: the trait requires that an item does not move while it is in a queue, and that no other
// code accesses it. The pinned box owns the item, and no box exists between `into_ptr` and
// `from_ptr`. `links` is a private field that this module neither reads nor writes. Its address is
// computed without a reference to the item.
unsafe impl<T> Linked<Links<Self>> for CordycepsNode<T> {
    type Handle = Pin<Box<Self>>;

    #[inline(always)]
    fn into_ptr(handle: Self::Handle) -> NonNull<Self> {
        // SAFETY: the item is never moved out of its box. `from_ptr` below restores the box.
        let handle = unsafe { Pin::into_inner_unchecked(handle) };
        NonNull::from(Box::leak(handle))
    }

    #[inline(always)]
    unsafe fn from_ptr(item: NonNull<Self>) -> Self::Handle {
        // SAFETY: the caller passes the pointer that `into_ptr` returned, and passes it only once.
        // The pointer came from a box.
        let handle = unsafe { Box::from_raw(item.as_ptr()) };
        Box::into_pin(handle)
    }

    #[inline(always)]
    unsafe fn links(item: NonNull<Self>) -> NonNull<Links<Self>> {
        // SAFETY: the caller keeps the item valid, so the address of the field is inside the item's
        // allocation.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).links) }
    }
}
