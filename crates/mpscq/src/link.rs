//! The link of an item, and the ownership of an item while it is in a queue.

use core::fmt;
use core::ptr::{self, NonNull};

use sync::atomic::AtomicPtr;

/// The word that links an item to the next one.
///
/// Embed one in your type and return it from [`Linked::link`].
#[repr(transparent)]
pub struct Link<T> {
    /// A: the item pushed after this one. Written by the next producer, read by the consumer.
    pub(crate) next: AtomicPtr<T>,
}

/// A type whose values carry a [`Link`], so that they can be in a queue.
///
/// # Safety
///
/// 1. The item of a pointer from `into_raw` neither moves nor is freed until `from_raw`.
/// 2. Between `into_raw` and `from_raw` no other handle to the same item exists that `into_raw`
///    would accept: a handle is the sole right to push the item.
/// 3. `link` returns the same link for the same item each time, valid as long as the item. It
///    creates no reference to the item, because other threads may access it at the same time.
/// 4. Only this crate uses the link between `into_raw` and `from_raw`.
/// 5. The three functions neither panic nor push or pop.
pub unsafe trait Linked: Sized {
    /// The owner of an item outside of a queue, such as `Box<Self>` or `&'static Self`.
    type Handle;

    /// Converts the handle to a pointer.
    fn into_raw(handle: Self::Handle) -> NonNull<Self>;

    /// Converts the pointer back to a handle.
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`into_raw`](Self::into_raw) and has not been turned back into a handle.
    unsafe fn from_raw(item: NonNull<Self>) -> Self::Handle;

    /// Returns the address of the link of `item`.
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`into_raw`](Self::into_raw) and has not been turned back into a handle.
    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>>;
}

impl<T> Link<T> {
    sync::const_unless_model! {
        /// Creates a link that is in no queue.
        pub fn new() -> Self {
            Self { next: AtomicPtr::new(ptr::null_mut()) }
        }
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

/// Borrows the link word of an item that is in a queue, or about to be.
///
/// # Safety
///
/// 1. The same as for [`Linked::link`].
/// 2. The borrow ends before the item is turned back into a handle.
#[inline(always)]
pub(crate) unsafe fn next_of<'a, T: Linked>(item: NonNull<T>) -> &'a AtomicPtr<T> {
    // SAFETY: (1) of this function is (1) of `link`.
    let link = unsafe { T::link(item) };
    // SAFETY: By `Linked` (3) the link is valid as long as the item, and by (2) the borrow ends
    // before. By `Linked` (4) the link is reached by shared reference only.
    unsafe { &(*link.as_ptr()).next }
}

/// Drops every handle in `items`. If a drop panics, the other handles are still dropped before the
/// panic resumes. A second panic ends the process, as in the drop of a `Vec`.
pub(crate) fn drop_all(items: impl Iterator) {
    struct Rest<I: Iterator>(I);
    impl<I: Iterator> Drop for Rest<I> {
        fn drop(&mut self) {
            self.0.by_ref().for_each(drop);
        }
    }
    let mut rest = Rest(items);
    rest.0.by_ref().for_each(drop);
}
