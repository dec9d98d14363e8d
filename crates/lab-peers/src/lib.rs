//! Peers of the lab whose interface asks for unsafe code, made safe to use.
//!
//! The lab forbids itself unsafe code, and an intrusive queue is used by implementing an unsafe trait, memory
//! reclamation by freeing what the compiler cannot know to be unused. So what the lab needs of them stands here, alone.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod reclaim;

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;

use cordyceps::Linked;
use cordyceps::mpsc_queue::Links;

/// A value in a box with cordyceps' links beside it; an item of [`cordyceps::MpscQueue`].
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
    /// Makes an item.
    // A node outside of a box could not be pushed.
    #[allow(clippy::new_ret_no_self)]
    #[must_use]
    pub fn new(value: T) -> Pin<Box<Self>> {
        Box::pin(Self {
            links: Links::new(),
            value,
        })
    }

    /// Makes the item that a queue is made with and never hands out.
    #[must_use]
    pub fn stub(value: T) -> Pin<Box<Self>> {
        Box::pin(Self {
            links: Links::new_stub(),
            value,
        })
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

// SAFETY: the trait asks that an item stays where it is while it is in a queue, and is not reached by anything else.
// The pinned box owns the item and is given up in `into_ptr` until `from_ptr`; `links` is a private field that
// nothing here reads or writes, reached by pointer arithmetic without a reference to the item.
unsafe impl<T> Linked<Links<Self>> for CordycepsNode<T> {
    type Handle = Pin<Box<Self>>;

    #[inline(always)]
    fn into_ptr(handle: Self::Handle) -> NonNull<Self> {
        // SAFETY: the pointer leads back into a pinned box and is never moved out of: `from_ptr` below is the only
        // way back.
        let handle = unsafe { Pin::into_inner_unchecked(handle) };
        NonNull::from(Box::leak(handle))
    }

    #[inline(always)]
    unsafe fn from_ptr(item: NonNull<Self>) -> Self::Handle {
        // SAFETY: the caller hands in what `into_ptr` returned, once; that was the pointer of a box.
        let handle = unsafe { Box::from_raw(item.as_ptr()) };
        Box::into_pin(handle)
    }

    #[inline(always)]
    unsafe fn links(item: NonNull<Self>) -> NonNull<Links<Self>> {
        // SAFETY: the caller keeps the item alive, so the field's address lies inside its allocation.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).links) }
    }
}
