//! Items that one thread links, to be published with one swap.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use sync::atomic::Ordering;

use crate::link::{Linked, drop_all, next_of};

/// A first-in, first-out chain of owned items, for one thread. Appending an item costs two plain
/// stores, and [`Queue::push_chain`](crate::Queue::push_chain) one swap for all items.
///
/// # Examples
///
/// ```
/// use afterwork_mpscq::{Chain, Node, Queue};
///
/// let queue = Queue::<Node<_>>::new();
/// let mut chain = Chain::<Node<_>>::new();
/// for number in 0..32 {
///     chain.push_back(Node::new(number));
/// }
/// queue.push_chain(chain);
///
/// let mut consumer = queue.try_consumer().unwrap();
/// let numbers: Vec<i32> = consumer.drain(usize::MAX).map(Node::into_inner).collect();
/// assert_eq!(numbers, (0..32).collect::<Vec<_>>());
/// ```
pub struct Chain<T: Linked> {
    /// The first and the last item. Links lead from the first to the last, whose own link is stale.
    ends: Option<(NonNull<T>, NonNull<T>)>,
    len: usize,
    owned: PhantomData<T::Handle>,
}

impl<T: Linked> Chain<T> {
    /// Creates an empty chain.
    pub const fn new() -> Self {
        Self { ends: None, len: 0, owned: PhantomData }
    }

    /// Returns the number of items in the chain.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the chain is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    /// Appends an item.
    #[inline]
    pub fn push_back(&mut self, item: T::Handle) {
        let item = T::into_raw(item);
        // SAFETY: the handle, the sole right to the link (`Linked` 2), was just given up.
        unsafe { self.push_back_raw(item) }
    }

    /// Prepends an item.
    #[inline]
    pub fn push_front(&mut self, item: T::Handle) {
        let item = T::into_raw(item);
        let last = match self.ends {
            None => item,
            Some((first, last)) => {
                // SAFETY: the caller just gave up the handle.
                unsafe { next_of(item) }.store(first.as_ptr(), Ordering::Relaxed);
                last
            }
        };
        self.ends = Some((item, last));
        self.len += 1;
    }

    /// Appends an item that may already be linked behind the last one, which then is not written.
    #[inline]
    pub fn push_back_popped(&mut self, item: T::Handle) {
        let item = T::into_raw(item);
        if let Some((first, last)) = self.ends
            // SAFETY: the chain owns `last` until it is popped or published.
            && unsafe { next_of(last) }.load(Ordering::Relaxed) == item.as_ptr()
        {
            self.ends = Some((first, item));
            self.len += 1;
        } else {
            // SAFETY: as in `push_back`.
            unsafe { self.push_back_raw(item) }
        }
    }

    /// Appends an item by its pointer.
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`Linked::into_raw`] and has not been turned back into a handle.
    /// 2. It is in no other queue, chain or list.
    #[inline]
    pub unsafe fn push_back_raw(&mut self, item: NonNull<T>) {
        self.ends = Some(match self.ends {
            None => (item, item),
            Some((first, last)) => {
                // SAFETY: the chain owns `last` until it is popped or published.
                unsafe { next_of(last) }.store(item.as_ptr(), Ordering::Relaxed);
                (first, item)
            }
        });
        self.len += 1;
    }

    /// Removes and returns the first item.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T::Handle> {
        let (first, last) = self.ends?;
        self.ends = if first == last {
            None
        } else {
            // SAFETY: the chain owns `first` until the end of this function.
            let next = unsafe { next_of(first) }.load(Ordering::Relaxed);
            // SAFETY: every link before the last item's was stored with a pointer to an item, by
            // this type or by the caller of `from_raw_parts` (1).
            Some((unsafe { NonNull::new_unchecked(next) }, last))
        };
        self.len -= 1;
        // SAFETY: the item came from `into_raw`, and the chain no longer refers to it.
        Some(unsafe { T::from_raw(first) })
    }

    /// Appends the items of `other`.
    #[inline]
    pub fn append(&mut self, other: Self) {
        let Some((other_first, other_last, other_len)) = other.into_raw_parts() else {
            return;
        };
        self.ends = Some(match self.ends {
            None => (other_first, other_last),
            Some((first, last)) => {
                // SAFETY: the chain owns `last` until it is popped or published.
                unsafe { next_of(last) }.store(other_first.as_ptr(), Ordering::Relaxed);
                (first, other_last)
            }
        });
        self.len += other_len;
    }

    /// Splits the chain into its first item, its last item and its length; `None` if it is empty.
    #[inline]
    pub fn into_raw_parts(self) -> Option<(NonNull<T>, NonNull<T>, usize)> {
        let this = ManuallyDrop::new(self);
        this.ends.map(|(first, last)| (first, last, this.len))
    }

    /// Creates a chain from the parts that [`into_raw_parts`](Self::into_raw_parts) returned.
    ///
    /// # Safety
    ///
    /// 1. Links lead from `first` to `last` over `len` items, and this thread reads them without
    ///    races.
    /// 2. Each item came from [`Linked::into_raw`], has not been turned back into a handle, and is
    ///    in no other queue, chain or list.
    #[inline]
    pub unsafe fn from_raw_parts(first: NonNull<T>, last: NonNull<T>, len: usize) -> Self {
        Self { ends: Some((first, last)), len, owned: PhantomData }
    }

    /// Reverses the order of the items.
    pub fn reverse(&mut self) {
        let Some((first, last)) = self.ends else {
            return;
        };
        let (mut item, mut before) = (first, ptr::null_mut());
        loop {
            // SAFETY: the chain owns all of its items.
            let link = unsafe { next_of(item) };
            let next = link.load(Ordering::Relaxed);
            link.store(before, Ordering::Relaxed);
            if item == last {
                break;
            }
            before = item.as_ptr();
            // SAFETY: `item` is not the last, so its link leads to the next item.
            item = unsafe { NonNull::new_unchecked(next) };
        }
        self.ends = Some((last, first));
    }
}

// SAFETY: a chain represents the handles to its items.
unsafe impl<T: Linked> Send for Chain<T> where T::Handle: Send {}
// SAFETY: a shared reference only gives access to the length.
unsafe impl<T: Linked> Sync for Chain<T> where T::Handle: Send {}

impl<T: Linked> Default for Chain<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Drop for Chain<T> {
    fn drop(&mut self) {
        drop_all(self);
    }
}

impl<T: Linked> Iterator for Chain<T> {
    type Item = T::Handle;

    #[inline]
    fn next(&mut self) -> Option<T::Handle> {
        self.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<T: Linked> ExactSizeIterator for Chain<T> {}

impl<T: Linked> Extend<T::Handle> for Chain<T> {
    fn extend<I: IntoIterator<Item = T::Handle>>(&mut self, items: I) {
        for item in items {
            self.push_back(item);
        }
    }
}

impl<T: Linked> FromIterator<T::Handle> for Chain<T> {
    fn from_iter<I: IntoIterator<Item = T::Handle>>(items: I) -> Self {
        let mut chain = Self::new();
        chain.extend(items);
        chain
    }
}

impl<T: Linked> fmt::Debug for Chain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("len", &self.len).finish_non_exhaustive()
    }
}
