//! The safe queue: owned handles, and one consumer at a time.

use core::fmt;
use core::marker::PhantomData;

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicBool, Ordering};
use sync::cell::UnsafeCell;

use crate::chain::Chain;
use crate::link::{Linked, drop_all};
use crate::order;
use crate::raw::{Pop, RawCursor, RawQueue};

/// A queue of owned items that any thread may push to and one thread at a time may pop from.
///
/// # Guarantees
///
/// - Items of a producer are popped in the order of their pushes, and those of a chain
///   consecutively.
/// - If one push completed before another began, its item is popped first.
/// - Items that are in the queue when it is dropped are dropped with it.
///
/// # Examples
///
/// ```
/// use afterwork_mpscq::{Node, Pop, Queue};
///
/// static QUEUE: Queue<Node<u64>> = Queue::new();
///
/// assert!(QUEUE.push(Node::new(1)), "it was empty");
/// assert!(!QUEUE.push(Node::new(2)));
///
/// let mut consumer = QUEUE.try_consumer().unwrap();
/// assert!(QUEUE.try_consumer().is_none(), "one at a time");
/// let Pop::Item(oldest) = consumer.pop() else { panic!("two were pushed") };
/// assert_eq!(oldest.into_inner(), 1);
/// ```
pub struct Queue<T: Linked> {
    raw: CachePadded<RawQueue<T>>,
    consumer: CachePadded<Side<T>>,
    owned: PhantomData<T::Handle>,
}

/// The words that the consumer writes.
struct Side<T> {
    /// A: `true` while a [`Consumer`] exists.
    taken: AtomicBool,
    /// Written by the only [`Consumer`], or through a `&mut` to the queue.
    cursor: UnsafeCell<RawCursor<T>>,
}

/// The right to pop from a [`Queue`]. There is at most one. Dropping it leaves the items in the
/// queue, and another thread may become the consumer.
pub struct Consumer<'q, T: Linked> {
    queue: &'q Queue<T>,
}

/// An iterator that pops items up to a bound; created by [`Consumer::drain`].
pub struct Drain<'c, 'q, T: Linked> {
    consumer: &'c mut Consumer<'q, T>,
    /// A copy of the queue's cursor, which can stay in a register.
    cursor: RawCursor<T>,
    /// 0 once a pop found no item.
    left: usize,
    stopped: Stopped,
}

/// The reason why a [`Drain`] stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The bound was reached, or the iteration has not ended.
    Bound,
    /// The queue was empty; see [`Pop::Empty`].
    Empty,
    /// A producer is between the two steps of its push; see [`Pop::MidPush`].
    MidPush,
}

impl<T: Linked> Queue<T> {
    sync::const_unless_model! {
        /// Creates an empty queue.
        pub fn new() -> Self {
            Self {
                raw: CachePadded::new(RawQueue::new()),
                consumer: CachePadded::new(Side {
                    taken: AtomicBool::new(false),
                    cursor: UnsafeCell::new(RawCursor::new()),
                }),
                owned: PhantomData,
            }
        }
    }

    /// Appends an item. Returns `true` if the queue was empty. A producer that wakes the consumer
    /// only after `true` wakes it once for all items that are pushed until it pops.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap and one store, no matter what other threads do. Safe in a
    /// signal handler, even if the signal interrupts a push or a pop on the same thread, at any
    /// instruction. An interrupted pop may return [`Pop::MidPush`] although the push has completed.
    #[inline]
    pub fn push(&self, item: T::Handle) -> bool {
        let item = T::into_raw(item);
        // SAFETY: 1, 2: the handle, the sole right to the item, was just given up. 3: `self` is
        // borrowed. A queue with items may be moved, because neither half stores its own address.
        unsafe { self.raw.push(item) }
    }

    /// Appends the items of `chain` with one swap. Returns `true` if the queue was empty and the
    /// chain was not.
    #[inline]
    pub fn push_chain(&self, chain: Chain<T>) -> bool {
        match chain.into_raw_parts() {
            None => false,
            // SAFETY: 1: a chain's links lead from its first item to its last. 2: the chain gave up
            // its items. The rest is as in `push`.
            Some((first, last, _)) => unsafe { self.raw.push_chain(first, last) },
        }
    }

    /// Returns `true` if every item pushed so far was popped; see [`RawQueue::is_empty`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Acquires the right to pop. Returns `None` if a consumer exists.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap.
    pub fn try_consumer(&self) -> Option<Consumer<'_, T>> {
        // ORDER(mpscq-consumer): hand-over of the cursor, other end in `Consumer::drop`.
        //   drop: last pop;                     taken = false   Release
        //   here: taken: false → true Acquire;  first pop
        // If the last consumer's store comes first, we become the consumer, and its pops happen
        // before ours. If our swap comes first, a consumer exists, and we return `None`.
        // Test: loom consumer_claim_needs_acquire
        let taken = self.consumer.taken.swap(true, order::consumer_claim());
        (!taken).then_some(Consumer { queue: self })
    }
}

impl<'q, T: Linked> Consumer<'q, T> {
    /// Pops the oldest item.
    ///
    /// # Blocking
    ///
    /// Never blocks. Has no loop, not even while a producer is in mid-push.
    #[inline]
    pub fn pop(&mut self) -> Pop<T::Handle> {
        let mut cursor = self.load();
        self.pop_at(&mut cursor)
    }

    /// Returns an iterator that pops at most `max` items, so that the consumer can do other things
    /// while producers keep pushing. The rest stays in the queue, in order. It also ends when it
    /// finds no item to pop; [`Drain::stopped`] returns the reason.
    #[inline]
    pub fn drain(&mut self, max: usize) -> Drain<'_, 'q, T> {
        let cursor = self.load();
        Drain { consumer: self, cursor, left: max, stopped: Stopped::Bound }
    }

    /// Returns `true` if the last pop took the last item: the queue was empty at that moment.
    /// Unlike [`Queue::is_empty`], this reads nothing that producers write.
    #[inline]
    pub fn emptied(&self) -> bool {
        self.load().emptied()
    }

    #[inline(always)]
    fn load(&self) -> RawCursor<T> {
        // SAFETY: `taken` allows one `Consumer`, and writing the cursor borrows it by `&mut`.
        self.queue.consumer.cursor.with(|cursor| unsafe { (*cursor).copy() })
    }

    #[inline(always)]
    fn pop_at(&mut self, cursor: &mut RawCursor<T>) -> Pop<T::Handle> {
        // SAFETY: 1: the two halves were created together, and while this `&mut` keeps others from
        // popping, a copy equals the cursor. 2: the same borrow; an earlier consumer's pops
        // happened before, by ORDER(mpscq-consumer).
        let found = unsafe { self.queue.raw.pop(cursor) };
        // SAFETY: as in `load`. The cursor is written back for every item, before its handle is
        // created, because a `Drain` may be forgotten and the owner of a handle may panic.
        self.queue.consumer.cursor.with_mut(|own| unsafe { *own = cursor.copy() });
        match found {
            // SAFETY: a pop returns each item once, and `push` gave up its handle.
            Pop::Item(item) => Pop::Item(unsafe { T::from_raw(item) }),
            Pop::Empty => Pop::Empty,
            Pop::MidPush => Pop::MidPush,
        }
    }
}

impl<T: Linked> Drain<'_, '_, T> {
    /// Returns the reason why the iteration ended.
    pub fn stopped(&self) -> Stopped {
        self.stopped
    }
}

impl<T: Linked> Iterator for Drain<'_, '_, T> {
    type Item = T::Handle;

    #[inline]
    fn next(&mut self) -> Option<T::Handle> {
        if self.left == 0 {
            return None;
        }
        match self.consumer.pop_at(&mut self.cursor) {
            Pop::Item(item) => {
                self.left -= 1;
                return Some(item);
            }
            Pop::Empty => self.stopped = Stopped::Empty,
            Pop::MidPush => self.stopped = Stopped::MidPush,
        }
        self.left = 0;
        None
    }
}

// A drain that found no item stays ended, even if items arrive.
impl<T: Linked> core::iter::FusedIterator for Drain<'_, '_, T> {}

// SAFETY: only handles move from the pushing to the popping thread. `taken` guards the cursor.
unsafe impl<T: Linked> Send for Queue<T> where T::Handle: Send {}
// SAFETY: as above.
unsafe impl<T: Linked> Sync for Queue<T> where T::Handle: Send {}

impl<T: Linked> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Drop for Queue<T> {
    fn drop(&mut self) {
        // A forgotten `Consumer` may have left `taken` set; `&mut self` proves that none exists.
        let mut consumer = core::mem::ManuallyDrop::new(Consumer { queue: self });
        // A push borrows the queue, so with `&mut self` none is in progress. All items are drained.
        drop_all(consumer.drain(usize::MAX));
    }
}

impl<T: Linked> Drop for Consumer<'_, T> {
    fn drop(&mut self) {
        // ORDER(mpscq-consumer): the release end; see `try_consumer`, which has both outcomes.
        // Test: loom consumer_leave_needs_release
        self.queue.consumer.taken.store(false, order::consumer_leave());
    }
}

impl<T: Linked> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("empty", &self.is_empty())
            .field("consumer", &self.consumer.taken.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<T: Linked> fmt::Debug for Consumer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("emptied", &self.emptied()).finish_non_exhaustive()
    }
}

impl<T: Linked> fmt::Debug for Drain<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("left", &self.left)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}
