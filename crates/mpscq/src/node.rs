//! Items in boxes.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use crate::link::{Link, Linked};

/// A value in a box together with its link: the simplest item. A popped box can be pushed again
/// without another allocation; see [`replace`](Self::replace).
#[derive(Debug)]
#[repr(C)]
pub struct Node<T> {
    // This is the first field, so that the item's address is the link's.
    link: Link<Node<T>>,
    value: T,
}

impl<T> Node<T> {
    /// Creates a node. This is its only allocation.
    // Returns a box because a node outside of a box cannot be pushed.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(value: T) -> Box<Self> {
        Box::new(Self { link: Link::new(), value })
    }

    /// Frees the node and returns its value.
    #[allow(clippy::boxed_local)]
    pub fn into_inner(self: Box<Self>) -> T {
        self.value
    }

    /// Puts `value` into the node and returns the previous value.
    pub fn replace(&mut self, value: T) -> T {
        core::mem::replace(&mut self.value, value)
    }
}

impl<T> Deref for Node<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Node<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

// SAFETY: 1: the box owns the allocation, and `into_raw` leaves it in place. 2: a box is the only
// handle to its node. 3: the link is a field, reached by pointer arithmetic. 4: it is private and
// used nowhere else. 5: none of the functions panics.
unsafe impl<T> Linked for Node<T> {
    type Handle = Box<Self>;

    #[inline(always)]
    fn into_raw(handle: Box<Self>) -> NonNull<Self> {
        // SAFETY: a box is never null.
        unsafe { NonNull::new_unchecked(Box::into_raw(handle)) }
    }

    #[inline(always)]
    unsafe fn from_raw(item: NonNull<Self>) -> Box<Self> {
        // SAFETY: (1): the pointer came from `Box::into_raw` above.
        unsafe { Box::from_raw(item.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>> {
        // SAFETY: (1) keeps the allocation alive, so the field's address is inside it.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).link) }
    }
}
