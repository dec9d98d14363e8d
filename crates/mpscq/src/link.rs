//! The link of an item, and who owns the item while it is in a queue.

use core::fmt;
use core::ptr::{self, NonNull};

use sync::atomic::AtomicPtr;

/// The word that links an item to the next one.
///
/// Embed one in your type and return it in [`Linked::link`].
#[repr(transparent)]
pub struct Link<T> {
    /// A: the item pushed after this one. Written by the next producer, read by the consumer.
    pub(crate) next: AtomicPtr<T>,
}

/// A type whose values carry a [`Link`], so that they can be in a queue.
///
/// # Safety
///
/// 1. `into_raw` returns a pointer to an item that neither moves nor is freed until `from_raw` is called
///    with that pointer.
/// 2. While the pointer is out, nobody holds another handle of the same item that `into_raw` would accept:
///    a handle is the sole right to push the item.
/// 3. `link` returns the same link for the same item each time, valid as long as the item, without making a
///    reference to the item: other threads may look at it meanwhile.
/// 4. Nothing but this crate uses the link while the pointer is out.
/// 5. The three functions neither panic nor push or pop.
pub unsafe trait Linked: Sized {
    /// What owns an item outside of a queue, such as `Box<Self>` or `&'static Self`.
    type Handle;

    /// Gives up the handle for a pointer.
    fn into_raw(handle: Self::Handle) -> NonNull<Self>;

    /// Makes the pointer a handle again.
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`into_raw`](Self::into_raw), and was not made a handle since.
    unsafe fn from_raw(item: NonNull<Self>) -> Self::Handle;

    /// Returns where the link of `item` is.
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`into_raw`](Self::into_raw) and was not made a handle since.
    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>>;
}

impl<T> Link<T> {
    sync::const_unless_model! {
        /// Makes a link that is in no queue.
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
/// 1. As for [`Linked::link`].
/// 2. The borrow ends before the item is made a handle again.
#[inline(always)]
pub(crate) unsafe fn next_of<'a, T: Linked>(item: NonNull<T>) -> &'a AtomicPtr<T> {
    // SAFETY: (1) of this function is (1) of `link`.
    let link = unsafe { T::link(item) };
    // SAFETY: `Linked` (3) makes the link valid as long as the item, which is (2); it is only ever reached by
    // shared reference, by (4).
    unsafe { &(*link.as_ptr()).next }
}

/// Drops every handle of `items`. A panic of one drop is resumed when all others are dropped. A second panic ends the process,
/// as it does in the drop of a `Vec`.
pub(crate) fn drop_all(items: impl Iterator) {
    struct Rest<I: Iterator>(I);
    impl<I: Iterator> Drop for Rest<I> {
        fn drop(&mut self) {
            self.0.by_ref().for_each(drop);
        }
    }
    let mut rest = Rest(items);
    // If this unwinds, the drop of `rest` goes on.
    rest.0.by_ref().for_each(drop);
}
