//! Items in shared pointers.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};

use crate::link::{Link, Linked};
use crate::order;

/// A shared value that is in at most one queue at a time.
///
/// To push it, a thread first acquires the [`Claim`]. While the claim exists, in a queue or not,
/// [`claim`](Self::claim) returns `None`.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use afterwork_mpscq::{Pop, Queue, Shared};
///
/// let queue = Queue::<Shared<_>>::new();
/// let item = Arc::new(Shared::new("refresh"));
/// queue.push(Shared::claim(&item).unwrap());
/// assert!(Shared::claim(&item).is_none(), "pending already");
///
/// let mut consumer = queue.try_consumer().unwrap();
/// let Pop::Item(claim) = consumer.pop() else { panic!("one was pushed") };
/// // From here on it may be pushed again, even while we read it.
/// let same = claim.release();
/// assert!(Arc::ptr_eq(&item, &same));
/// assert!(Shared::claim(&item).is_some());
/// ```
#[repr(C)]
pub struct Shared<T> {
    // This is the first field, so that the item's address is the link's.
    link: Link<Shared<T>>,
    /// A: `true` while the claim exists.
    pending: AtomicBool,
    value: T,
}

/// The sole right to push a [`Shared`] item. Dropping it gives up the right.
pub struct Claim<T>(Arc<Shared<T>>);

impl<T> Shared<T> {
    sync::const_unless_model! {
        /// Creates an item that is not pending.
        pub fn new(value: T) -> Self {
            Self { link: Link::new(), pending: AtomicBool::new(false), value }
        }
    }

    /// Acquires the right to push the item. Returns `None` if a claim exists.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap.
    pub fn claim(this: &Arc<Self>) -> Option<Claim<T>> {
        // ORDER(mpscq-shared): hand-over of the link, other end in `set_free`.
        //   free:  last use of the link;             pending = false   Release
        //   claim: pending: false → true  Acquire;   next use of the link
        // If the release comes first, we get the claim, and the last use of the link happens before
        // ours. If our swap comes first, the item is pending, and we return `None`.
        // Test: loom shared_claim_needs_acquire
        let pending = this.pending.swap(true, order::shared_claim());
        (!pending).then(|| Claim(this.clone()))
    }

    /// Only the holder of the claim calls it.
    #[inline(always)]
    fn set_free(&self) {
        // ORDER(mpscq-shared): the release end; see `claim`, which has both outcomes.
        // Test: loom shared_release_needs_release
        self.pending.store(false, order::shared_release());
    }

    /// Returns `true` if the claim exists, in a queue or outside.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }
}

impl<T> Claim<T> {
    /// Gives up the right to push and returns the item.
    #[inline]
    pub fn release(self) -> Arc<Shared<T>> {
        let item = self.into_arc();
        item.set_free();
        item
    }

    /// Does not give up the right to push.
    #[inline(always)]
    fn into_arc(self) -> Arc<Shared<T>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the pointer is moved out of it once.
        unsafe { ptr::read(&this.0) }
    }
}

impl<T> Drop for Claim<T> {
    #[inline]
    fn drop(&mut self) {
        self.0.set_free();
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for Claim<T> {
    type Target = Shared<T>;

    fn deref(&self) -> &Shared<T> {
        &self.0
    }
}

// SAFETY: 1: the raw pointer keeps one count of the shared pointer, so the item stays alive. 2: the
// handle is the claim, and `pending` allows one at a time. 3: the link is a field, reached by
// pointer arithmetic. 4: it is private and used nowhere else. 5: none of the functions panics.
unsafe impl<T> Linked for Shared<T> {
    type Handle = Claim<T>;

    #[inline(always)]
    fn into_raw(handle: Claim<T>) -> NonNull<Self> {
        // SAFETY: a shared pointer is never null.
        unsafe { NonNull::new_unchecked(Arc::into_raw(handle.into_arc()).cast_mut()) }
    }

    #[inline(always)]
    unsafe fn from_raw(item: NonNull<Self>) -> Claim<T> {
        // SAFETY: (1): the pointer came from `Arc::into_raw` above, with its count.
        Claim(unsafe { Arc::from_raw(item.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>> {
        // SAFETY: (1) keeps the allocation alive, so the field's address is inside it.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).link) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("pending", &self.is_pending())
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Claim<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&**self.0).finish()
    }
}
