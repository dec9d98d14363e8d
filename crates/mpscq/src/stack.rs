//! A lock-free LIFO list whose items are taken all at once.
//!
//! A push is a compare-exchange loop. The consumer takes all items with one swap, which has no ABA
//! problem, and reverses them if it needs their order. The list serves as a free list and as a
//! baseline.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use sync::atomic::{AtomicPtr, Ordering};

use crate::chain::Chain;
use crate::link::{Linked, drop_all, next_of};
use crate::order;

/// A last-in, first-out list. Any thread may push, and any thread may take all items.
///
/// # Examples
///
/// ```
/// use afterwork_mpscq::{Node, Stack};
///
/// let stack = Stack::<Node<_>>::new();
/// assert!(stack.push(Node::new(1)));
/// assert!(!stack.push(Node::new(2)));
/// let newest_first: Vec<i32> = stack.take_all().map(Node::into_inner).collect();
/// assert_eq!(newest_first, [2, 1]);
/// ```
pub struct Stack<T: Linked> {
    /// The links lead from the newest item to the oldest, whose link is null.
    raw: RawStack<T>,
    owned: PhantomData<T::Handle>,
}

impl<T: Linked> Stack<T> {
    sync::const_unless_model! {
        /// Creates an empty list.
        pub fn new() -> Self {
            Self { raw: RawStack::new(), owned: PhantomData }
        }
    }

    /// Returns `true` if the list is empty at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.raw.top().load(Ordering::Relaxed).is_null()
    }

    /// Adds an item. Returns `true` if the list was empty.
    ///
    /// # Blocking
    ///
    /// Never blocks. It is lock-free, but not wait-free: the loop repeats each time another thread
    /// changes the list first.
    #[inline]
    #[doc(alias("llist_add", "cds_wfs_push"))]
    pub fn push(&self, item: T::Handle) -> bool {
        let item = T::into_raw(item);
        // SAFETY: the caller just gave up the handle.
        unsafe { self.push_raw(item, item) }
    }

    /// Adds a chain of items, its first item on top. Returns `true` if the list was empty and the
    /// chain was not.
    #[inline]
    pub fn push_chain(&self, chain: Chain<T>) -> bool {
        match chain.into_raw_parts() {
            None => false,
            // SAFETY: a chain's links lead from its first item to its last, and the chain gave up
            // its items.
            Some((first, last, _)) => unsafe { self.push_raw(first, last) },
        }
    }

    /// Takes every item, newest first.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap, or one load if the list is empty.
    #[inline]
    #[doc(alias("llist_del_all", "cds_wfs_pop_all_blocking"))]
    pub fn take_all(&self) -> Taken<T> {
        if self.is_empty() {
            return Taken::new();
        }
        Taken { head: self.raw.take_all(), owned: PhantomData }
    }

    /// Takes every item, oldest first. Walks over them once, to reverse the links.
    pub fn take_all_fifo(&self) -> Chain<T> {
        let taken = ManuallyDrop::new(self.take_all());
        let Some(newest) = NonNull::new(taken.head) else {
            return Chain::new();
        };
        let (mut item, mut after, mut len) = (newest, ptr::null_mut(), 1);
        loop {
            // SAFETY: `taken` owns every item that the links lead to, and gives them up here.
            let link = unsafe { next_of(item) };
            let older = link.load(Ordering::Relaxed);
            link.store(after, Ordering::Relaxed);
            let Some(older) = NonNull::new(older) else {
                break;
            };
            after = item.as_ptr();
            item = older;
            len += 1;
        }
        // SAFETY: 1: the items were just linked. 2: each item's handle was given up by the thread
        // that pushed it.
        unsafe { Chain::from_raw_parts(item, newest, len) }
    }

    /// # Safety
    ///
    /// 1. The same as for [`Chain::from_raw_parts`].
    #[inline]
    unsafe fn push_raw(&self, first: NonNull<T>, last: NonNull<T>) -> bool {
        let below = self.raw.push(first.as_ptr(), |below| {
            // SAFETY: (1): the items are ours until the push ends, and the borrow ends here.
            unsafe { next_of(last) }.store(below, Ordering::Relaxed);
        });
        below.is_null()
    }
}

/// The word of a [`Stack`], for types that keep their links themselves. It reads and writes no
/// item, so its functions are safe, and the caller follows the links.
pub struct RawStack<T> {
    /// A: the newest item; null if there is none.
    top: AtomicPtr<T>,
}

impl<T> RawStack<T> {
    sync::const_unless_model! {
        /// Creates an empty list.
        pub fn new() -> Self {
            Self { top: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Returns the word with the address of the newest item. A caller may exchange any value for
    /// another one; [`push`](Self::push) still publishes its items, because both are
    /// read-modify-writes.
    #[inline]
    pub fn top(&self) -> &AtomicPtr<T> {
        &self.top
    }

    /// Puts `newest` on top, and returns the previous top, or null. Before each attempt, `link`
    /// writes the present top into the link of the oldest of the new items.
    ///
    /// # Blocking
    ///
    /// The same as [`Stack::push`].
    #[inline]
    pub fn push(&self, newest: *mut T, mut link: impl FnMut(*mut T)) -> *mut T {
        let mut below = self.top.load(Ordering::Relaxed);
        loop {
            link(below);
            // ORDER(mpscq-stack): message passing, other end in `take_all`.
            //   push: contents and links;       compare-exchange(top)       Release
            //   take: swap(top)    Acquire;     reads them
            // If our exchange comes first, the taker gets our items with their contents. If its
            // swap comes first, our exchange fails, and we try again. Pushes in between are
            // read-modify-writes, so they continue our release sequence.
            // Test: loom stack_push_needs_release
            let order = order::stack_push();
            match (self.top).compare_exchange_weak(below, newest, order, Ordering::Relaxed) {
                Ok(_) => return below,
                Err(found) => below = found,
            }
        }
    }

    /// Empties the list, and returns the item that was on top, or null.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap.
    #[inline]
    pub fn take_all(&self) -> *mut T {
        // ORDER(mpscq-stack): the acquire end; see `push`.
        // Test: loom stack_take_needs_acquire
        self.top.swap(ptr::null_mut(), order::stack_take())
    }
}

impl<T> Default for RawStack<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for RawStack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawStack").field(&self.top).finish()
    }
}

/// The items that [`Stack::take_all`] took, newest first. Dropping it drops the remaining items.
pub struct Taken<T: Linked> {
    /// The newest item, or null. The links lead to the oldest, whose link is null.
    head: *mut T,
    owned: PhantomData<T::Handle>,
}

impl<T: Linked> Taken<T> {
    /// Creates an iterator without items.
    pub const fn new() -> Self {
        Self { head: ptr::null_mut(), owned: PhantomData }
    }

    /// Returns `true` if no item is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Prepends an item, as the newest.
    #[inline]
    pub fn put_back(&mut self, item: T::Handle) {
        let item = T::into_raw(item);
        // SAFETY: the handle was just given up to us.
        unsafe { next_of(item) }.store(self.head, Ordering::Relaxed);
        self.head = item.as_ptr();
    }

    /// Returns the address of the next item so that a caller can prefetch it. Null if none is left.
    #[inline]
    pub fn peek(&self) -> *const T {
        self.head
    }
}

impl<T: Linked> Iterator for Taken<T> {
    type Item = T::Handle;

    #[inline]
    fn next(&mut self) -> Option<T::Handle> {
        let item = NonNull::new(self.head)?;
        // SAFETY: `self` owns every item that the links lead to.
        self.head = unsafe { next_of(item) }.load(Ordering::Relaxed);
        // SAFETY: the item came from `into_raw` when it was pushed, and was just unlinked.
        Some(unsafe { T::from_raw(item) })
    }
}

impl<T: Linked> core::iter::FusedIterator for Taken<T> {}

// SAFETY: the value represents the handles to its items.
unsafe impl<T: Linked> Send for Taken<T> where T::Handle: Send {}
// SAFETY: a shared reference only shows whether items are left.
unsafe impl<T: Linked> Sync for Taken<T> where T::Handle: Send {}

impl<T: Linked> Default for Taken<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Drop for Taken<T> {
    fn drop(&mut self) {
        drop_all(self);
    }
}

impl<T: Linked> fmt::Debug for Taken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}

// SAFETY: sending or sharing the list only moves handles between threads.
unsafe impl<T: Linked> Send for Stack<T> where T::Handle: Send {}
// SAFETY: as above.
unsafe impl<T: Linked> Sync for Stack<T> where T::Handle: Send {}

impl<T: Linked> Default for Stack<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Drop for Stack<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

impl<T: Linked> fmt::Debug for Stack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}
