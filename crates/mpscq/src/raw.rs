//! The queue: its states, the writers of each word, and the order of their writes.
//!
//! ```text
//!            cursor                                    tail
//!              │                                        │
//!   stub ─►  item A ──next──► item B ──next──► item C ◄─┘      C.next = null
//!  (first)
//! ```
//!
//! # States
//!
//! The *stub* is an item that is never handed out. It has a link, `first`, but no address: a null
//! `tail` means that it is the newest item, and a null cursor that the consumer is there. An empty
//! queue is therefore all zeroes, can be a constant, and may be moved.
//!
//! | `tail` | cursor | meaning |
//! |---|---|---|
//! | null | null | empty |
//! | item | null | the queue was empty; `first` leads, or will soon lead, to the oldest item |
//! | item | item | the cursor's item is the oldest; stored `next` links lead to the newest |
//! | null | item | never: the consumer clears both when it takes the last item |
//!
//! # Writers
//!
//! - `tail`: a producer, by swap. The consumer, by compare-exchange from its last item to null.
//! - An item's link: its producer before the swap, to null. After that, the next producer, once.
//! - `first`: the producer whose swap returned null, once. The consumer resets it to null, after it
//!   has read the item there and before it clears `tail`.
//! - The cursor: the consumer.
//!
//! # What must never happen
//!
//! - *An item is handed out while a producer may still store to its link.* Only the producer whose
//!   swap returned the item stores there. The consumer has either read a link from the item, so
//!   that store has happened, or its compare-exchange found the item in `tail`, so there is none.
//! - *An item is lost.* A swap returns the newest item, so the items form one chain in the order of
//!   the swaps. The producer that extended the chain stores the link.
//! - *Empty is returned while the item of a completed push is in the queue.* The consumer returns
//!   *empty* only if `tail` is null, which it sets itself, after it has taken the last item.

use core::fmt;
use core::ptr::{self, NonNull};

use sync::atomic::{AtomicPtr, Ordering, fence};
use sync::{slice, twin};

use crate::link::{Linked, next_of};
use crate::order;

/// The producers' half of a queue: two words, all zeroes when empty.
///
/// This is the unsafe form, for embedding; [`Queue`](crate::Queue) is the safe one. Put it on a
/// different cache line from the [`RawCursor`]. The cursor is written for every popped item and
/// `tail` for every pushed one, so the two sides would contend for one line.
pub struct RawQueue<T> {
    /// A: the newest item, or null for the stub.
    tail: AtomicPtr<T>,
    /// A: the link of the stub.
    first: AtomicPtr<T>,
}

/// The consumer's half of a queue: the oldest item that has not been handed out.
pub struct RawCursor<T> {
    /// The oldest item, or null for the stub. Only the consumer writes it.
    head: *mut T,
}

/// The result of a pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pop<H> {
    /// The oldest item.
    Item(H),
    /// No item: every push that completed before this pop has been popped.
    Empty,
    /// The queue is not empty, but a producer, which may have been preempted, is in the middle of
    /// pushing the oldest item. Do something else and try again later, instead of spinning.
    /// Completed pushes may be behind its item.
    MidPush,
}

impl<T> RawQueue<T> {
    sync::const_unless_model! {
        /// Creates an empty queue.
        pub fn new() -> Self {
            Self {
                tail: AtomicPtr::new(ptr::null_mut()),
                first: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    /// Returns `true` if every push that completed before this call was popped. After `false` a pop
    /// may still find no item: see [`Pop::MidPush`]. Any thread may call it.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one relaxed load. Safe in a signal handler.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        // Relaxed is enough: in the modification order of `tail`, null follows a push that happened
        // before this load only if the consumer took the item.
        self.tail.load(Ordering::Relaxed).is_null()
    }
}

impl<T: Linked> RawQueue<T> {
    /// Appends `item`. Returns `true` if the queue was empty. Of all producers that push while the
    /// consumer takes no item, only the first gets `true`.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap and one store, no matter what other threads do. Safe in a
    /// signal handler, like [`Queue::push`](crate::Queue::push).
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`Linked::into_raw`] and has not been turned back into a handle.
    /// 2. It is in no queue or list, and no other thread pushes it at the same time.
    /// 3. `self` does not move, and is not freed, while an item is in it.
    #[inline(always)]
    pub unsafe fn push(&self, item: NonNull<T>) -> bool {
        // SAFETY: (1), (2): the item is exclusively ours, as a chain of one.
        unsafe { self.push_chain(item, item) }
    }

    /// Appends a chain of items, which are popped consecutively, with one swap. Returns `true` if
    /// the queue was empty.
    ///
    /// # Blocking
    ///
    /// The same as [`push`](Self::push), regardless of the length of the chain.
    ///
    /// # Safety
    ///
    /// 1. The links of the items lead from `first` to `last`.
    /// 2. [`push`](Self::push) (1) and (2) hold for each of them, and (3).
    #[inline(always)]
    pub unsafe fn push_chain(&self, first: NonNull<T>, last: NonNull<T>) -> bool {
        // SAFETY: (2): the item is not handed out before the swap below, and the borrow ends here.
        unsafe { next_of(last) }.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: (1), (2) and (3) are the same.
        unsafe {
            if slice::is_on() {
                self.append_in_section(first, last)
            } else {
                self.append(first, last)
            }
        }
    }

    /// Appends a chain while the kernel may extend the time slice.
    ///
    /// # Safety
    ///
    /// 1. The same as for [`append`](Self::append).
    #[cold]
    #[inline(never)]
    unsafe fn append_in_section(&self, first: NonNull<T>, last: NonNull<T>) -> bool {
        let _section = slice::Section::enter();
        // SAFETY: (1).
        unsafe { self.append(first, last) }
    }

    /// Appends a chain whose last link is null. If this thread is preempted before the store of the
    /// link, the consumer finds neither these items nor later ones.
    ///
    /// # Safety
    ///
    /// 1. The same as for [`push_chain`](Self::push_chain).
    #[inline(always)]
    unsafe fn append(&self, first: NonNull<T>, last: NonNull<T>) -> bool {
        // ORDER(mpscq-tail): message passing from producer to the next producer, both ends on this
        // line.
        //   one:  last.next = null;   swap(tail, last)      Release
        //   next: swap(tail) = last   Acquire;              last.next = its first item
        // If our swap comes first, the next producer gets `last`, and stores its link after our
        // null. If its swap comes first, we get its last item, and store our link after its null.
        // Without the pair the null could overwrite the link, and the items behind it would be
        // lost.
        // Test: loom tail_swap_needs_acquire, tail_swap_needs_release
        //
        // ORDER(mpscq-stub): the acquire end; see `put_stub_back`, which has both outcomes.
        let before = self.tail.swap(last.as_ptr(), order::tail_swap());
        if order::kernel() {
            fence(Ordering::SeqCst);
        }

        // ORDER(mpscq-link): message passing from producer to consumer, other end in `pop`.
        //   push: contents, inner links of the chain;   link = first        Release
        //   pop:  link = item   Acquire;                reads contents and inner links
        // If our store comes first, the pop gets the item with its contents. If the pop's load
        // comes first, it finds no link and returns MidPush. In this memory model a full barrier in
        // the swap would also need an acquire at the other end; see docs/orderings.md.
        // Test: loom link_store_needs_release
        //
        // The address is selected without a branch, which would be unpredictable.
        let before = NonNull::new(before);
        let link = match before {
            None => &self.first,
            // SAFETY: by (1), `before` was pushed in the same way. Only this thread stores its
            // link, and the consumer hands `before` out only after it has seen that store.
            Some(before) => unsafe { next_of(before) },
        };
        link.store(first.as_ptr(), order::link_store());
        before.is_none()
    }

    /// Pops the oldest item.
    ///
    /// # Blocking
    ///
    /// Never blocks. Has no loop, and a compare-exchange only for the last item.
    ///
    /// # Safety
    ///
    /// 1. `cursor` belongs to this queue: it was created with the queue, and used only with it.
    /// 2. No other thread is inside a pop of this queue, and earlier pops happened before this one.
    #[inline(always)]
    pub unsafe fn pop(&self, cursor: &mut RawCursor<T>) -> Pop<NonNull<T>> {
        let head = match NonNull::new(cursor.head) {
            Some(head) => head,
            None => match self.leave_stub(cursor) {
                Pop::Item(head) => head,
                nothing => return nothing,
            },
        };
        // ORDER(mpscq-link): the acquire end; see `append`. Without a link either `head` is the
        // last item or its successor is in mid-push; `put_stub_back` finds out which.
        // Test: loom next_load_needs_acquire
        //
        // SAFETY: `head` was pushed and not handed out; only this consumer hands items out.
        let next = unsafe { next_of(head) }.load(order::next_load());
        if !next.is_null() {
            cursor.head = next;
            return Pop::Item(head);
        }
        self.put_stub_back(cursor, head)
    }

    /// Returns the oldest item without taking it. Until the next pop, the consumer may use the
    /// parts of the item that no other thread writes.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Safety
    ///
    /// The same as for [`pop`](Self::pop).
    #[inline(always)]
    pub unsafe fn peek(&self, cursor: &mut RawCursor<T>) -> Pop<NonNull<T>> {
        match NonNull::new(cursor.head) {
            Some(head) => Pop::Item(head),
            None => self.leave_stub(cursor),
        }
    }

    /// Returns the item behind `item`, without taking it, or [`Pop::Empty`] if no push that has
    /// completed came after `item`.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Safety
    ///
    /// 1. [`peek`](Self::peek) or this function returned `item`, which has not been popped since.
    #[inline(always)]
    pub unsafe fn after(&self, item: NonNull<T>) -> Pop<NonNull<T>> {
        // ORDER(mpscq-link): the acquire end; see `append`. If there is no link, `is_newest`
        // distinguishes the end from a mid-push.
        // Test: loom after_load_needs_acquire
        //
        // SAFETY: (1): the item is in the queue, and only this consumer hands items out.
        let next = unsafe { next_of(item) }.load(order::next_load());
        match NonNull::new(next) {
            Some(next) => Pop::Item(next),
            None if self.is_newest(item) => Pop::Empty,
            None => Pop::MidPush,
        }
    }

    /// Returns `true` if no completed push came after that of `item`, and `item` is in the queue.
    /// Any thread may call it.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one relaxed load.
    #[inline(always)]
    pub fn is_newest(&self, item: NonNull<T>) -> bool {
        self.tail.load(Ordering::Relaxed) == item.as_ptr()
    }

    /// Finds the oldest item behind the stub and moves the cursor there.
    #[inline(always)]
    fn leave_stub(&self, cursor: &mut RawCursor<T>) -> Pop<NonNull<T>> {
        // ORDER(mpscq-link): the acquire end; see `append`. Without a link the tail
        // distinguishes *empty* from a mid-push.
        // Test: loom first_load_needs_acquire
        let Some(head) = NonNull::new(self.first.load(order::first_load())) else {
            // The first producer may be between swap and store, with a completed push behind it.
            return if self.is_empty() || twin::armed("empty: no check of the tail") {
                Pop::Empty
            } else {
                Pop::MidPush
            };
        };
        // Relaxed: no other thread stores here before `put_stub_back` clears `tail`.
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        cursor.head = head.as_ptr();
        Pop::Item(head)
    }

    /// Hands out the last item, and puts the stub in its place, or returns `MidPush`.
    #[inline(always)]
    fn put_stub_back(&self, cursor: &mut RawCursor<T>, head: NonNull<T>) -> Pop<NonNull<T>> {
        // ORDER(mpscq-stub): message passing from consumer to producer, other end in `append`.
        //   pop:  first = null;         compare-exchange(tail, head → null)  Release
        //   push: swap(tail) = null     Acquire;                             first = item
        // If our exchange comes first, the producer swaps out null, and stores `first` after our
        // null. If its swap comes first, our exchange fails, and the producer links its item behind
        // `head`. Without the pair our null could overwrite `first`, and no later item would ever
        // be found. No acquire is needed: the link that led to `head` published everything that the
        // consumer reads of it.
        // Test: loom stub_back_needs_release
        let found = self.tail.compare_exchange(
            head.as_ptr(),
            ptr::null_mut(),
            order::stub_back(),
            Ordering::Relaxed,
        );
        if found.is_err() {
            // A producer has pushed behind `head`. The caller decides whether to try again.
            return Pop::MidPush;
        }
        cursor.head = ptr::null_mut();
        Pop::Item(head)
    }
}

impl<T> RawCursor<T> {
    /// Creates the cursor of a new queue.
    pub const fn new() -> Self {
        Self { head: ptr::null_mut() }
    }

    /// Returns `true` if the last pop took the last item, or found none, or there was none. Reads
    /// only the cursor.
    #[inline(always)]
    pub fn emptied(&self) -> bool {
        self.head.is_null()
    }

    /// Copies the cursor. If both copies are used for pops, each pop must be written to both.
    #[inline(always)]
    pub(crate) fn copy(&self) -> Self {
        Self { head: self.head }
    }
}

// SAFETY: the cursor gives access to the items that it can reach, so sending it is like sending
// their handles. One thread at a time uses it, by (2) of `pop`.
unsafe impl<T: Linked> Send for RawCursor<T> where T::Handle: Send {}

impl<T> Default for RawQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Default for RawCursor<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for RawQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawQueue").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RawCursor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCursor").field("emptied", &self.emptied()).finish_non_exhaustive()
    }
}
