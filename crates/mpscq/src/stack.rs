//! The lock-free LIFO list, taken all at once.
//!
//! This is what kernels and runtimes used before a FIFO: push is a compare-exchange loop, the consumer takes
//! everything with one swap and has to turn it round. It stays here to be measured against, and because it is
//! the right shape for a free list, where nobody asks for an order: taking *all* knows no ABA problem.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use sync::atomic::{AtomicPtr, Ordering};

use crate::chain::Chain;
use crate::link::{Linked, next_of};
use crate::order;

/// A list that any thread may push to and any thread may empty; last in, first out.
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
    /// A: the newest item; the links lead to the oldest, whose own is null.
    head: AtomicPtr<T>,
    owned: PhantomData<T::Handle>,
}

impl<T: Linked> Stack<T> {
    sync::const_unless_model! {
        /// Makes an empty list.
        pub fn new() -> Self {
            Self { head: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
        }
    }

    /// Says whether the list holds nothing at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Adds an item and says whether the list was empty.
    ///
    /// # Blocking
    ///
    /// Lock-free, not wait-free: the loop runs again whenever another thread got in between.
    #[inline]
    pub fn push(&self, item: T::Handle) -> bool {
        let item = T::into_raw(item);
        // SAFETY: the handle was just given up to us.
        unsafe { self.push_raw(item, item) }
    }

    /// Adds a chain of items, its first on top, and says whether the list was empty.
    ///
    /// An empty chain adds nothing and answers `false`.
    #[inline]
    pub fn push_chain(&self, chain: Chain<T>) -> bool {
        match chain.into_raw_parts() {
            None => false,
            // SAFETY: a chain's links lead from its first item to its last, and it gave up owning them.
            Some((first, last, _)) => unsafe { self.push_raw(first, last) },
        }
    }

    /// Takes every item, newest first.
    ///
    /// # Blocking
    ///
    /// Never for the taking; then it walks the list once, to find its end.
    pub fn take_all(&self) -> Chain<T> {
        if self.is_empty() {
            return Chain::new();
        }
        // ORDER(mpscq-stack): the acquire end; see `push_raw`.
        // Test: loom stack_take_needs_acquire
        let head = self.head.swap(ptr::null_mut(), order::stack_take());
        let Some(first) = NonNull::new(head) else {
            return Chain::new();
        };
        let (mut last, mut len) = (first, 1);
        // SAFETY: the swap made this thread the owner of every item that the links lead to.
        while let Some(next) = NonNull::new(unsafe { next_of(last) }.load(Ordering::Relaxed)) {
            last = next;
            len += 1;
        }
        // SAFETY: just walked; each item's handle was given up by whoever pushed it.
        unsafe { Chain::from_raw_parts(first, last, len) }
    }

    /// Takes every item, oldest first.
    pub fn take_all_fifo(&self) -> Chain<T> {
        let mut chain = self.take_all();
        chain.reverse();
        chain
    }

    /// # Safety
    ///
    /// 1. As [`Chain::from_raw_parts`].
    #[inline]
    unsafe fn push_raw(&self, first: NonNull<T>, last: NonNull<T>) -> bool {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: (1): ours until the exchange below succeeds, and the borrow ends here.
            unsafe { next_of(last) }.store(head, Ordering::Relaxed);
            // ORDER(mpscq-stack): message passing, other end in `take_all`.
            //   push: contents and links;       compare-exchange(head)      Release
            //   take: swap(head)   Acquire;     reads them
            // Pushes that land in between are read-modify-writes, so they carry this release on.
            // Test: loom stack_push_needs_release
            match self.head.compare_exchange_weak(
                head,
                first.as_ptr(),
                order::stack_push(),
                Ordering::Relaxed,
            ) {
                Ok(_) => return head.is_null(),
                Err(found) => head = found,
            }
        }
    }
}

// SAFETY: sending or sharing the list moves handles between threads and does nothing else.
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
        f.debug_struct("Stack")
            .field("empty", &self.is_empty())
            .finish_non_exhaustive()
    }
}
