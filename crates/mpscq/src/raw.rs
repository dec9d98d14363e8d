//! The queue itself: who may write which word, and in which order.
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
//! The *stub* is an item that is never handed out. It has a link, `first`, and no address: a null `tail` says
//! that the stub is the newest item, a null cursor that the consumer stands at the stub. So an empty queue
//! is all zeroes, may be a constant, and may be moved.
//!
//! | `tail` | cursor | what it means |
//! |---|---|---|
//! | null | null | empty |
//! | item | null | the queue was empty; `first` leads, or is about to lead, to the oldest item |
//! | item | item | the cursor's item is the oldest; `next` links lead to the newest, but for links about to be stored |
//! | null | item | never: the consumer clears both when it takes the last item |
//!
//! # Who may write
//!
//! - `tail`: a producer by swap, always; the consumer by compare-exchange from the item that it is about to
//!   hand out to null.
//! - an item's link: its pusher before the swap (to null); then only the producer whose swap returned the
//!   item, once. `first` likewise: the producer whose swap returned null, once; and the consumer back to null,
//!   after it has read the item there and before it clears `tail`.
//! - the cursor: the consumer.
//!
//! # What must never happen
//!
//! - An item handed out while somebody may still store to its link. A link is stored by the producer whose
//!   swap returned the item. The consumer hands an item out either after it has read a link from it (then
//!   the one store has happened) or after its compare-exchange found the item in `tail` (then no swap has
//!   returned it, and none will).
//! - An item lost. A swap returns the item that was newest, so the items form one chain in the order of the
//!   swaps; each link of it is stored by the producer that lengthened it.
//! - *Empty* while a completed push is inside: the consumer says it only when `tail` is null, and only the
//!   consumer sets it so, after it has taken the last item.

use core::fmt;
use core::ptr::{self, NonNull};

use sync::atomic::{AtomicPtr, Ordering, fence};
use sync::twin;

use crate::link::{Linked, next_of};
use crate::order;

/// The producers' half of a queue: two words, all zeroes when empty.
///
/// This is the unsafe, intrusive form; [`Queue`](crate::Queue) is the safe one. Put it on a cache line of its
/// own, apart from the [`RawCursor`]: the cursor is written for every item popped, `tail` for every item
/// pushed, and on one line each side would take the line from the other.
pub struct RawQueue<T> {
    /// A: the newest item, or null for the stub.
    tail: AtomicPtr<T>,
    /// A: the link of the stub.
    first: AtomicPtr<T>,
}

/// The consumer's half of a queue: the oldest item not handed out yet.
pub struct RawCursor<T> {
    /// The oldest item, or null for the stub. Written by the consumer alone.
    head: *mut T,
}

/// What a pop found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pop<H> {
    /// The oldest item.
    Item(H),
    /// Nothing: no push that completed before this pop is still inside.
    Empty,
    /// Not empty, and yet nothing to take: during this pop a producer was between the two steps of its push.
    ///
    /// It may have been preempted there, so do something else and come back, rather than spin; later items may
    /// wait behind its own.
    MidPush,
}

impl<T> RawQueue<T> {
    sync::const_unless_model! {
        /// Makes an empty queue.
        pub fn new() -> Self {
            Self {
                tail: AtomicPtr::new(ptr::null_mut()),
                first: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    /// Returns `true` if every item pushed so far was handed out; callable from any thread.
    ///
    /// `true` means that no push which completed before this call is still inside. `false` does not promise
    /// that a pop would find an item at once: see [`Pop::MidPush`].
    ///
    /// # Blocking
    ///
    /// Never: one relaxed load. Safe in a signal handler.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        // Relaxed is enough for the claim: a push that happened before this load is at or before what it
        // reads in the order of `tail`'s values, and null only comes after when the consumer took it.
        self.tail.load(Ordering::Relaxed).is_null()
    }
}

impl<T: Linked> RawQueue<T> {
    /// Appends `item` and says whether the queue was empty.
    ///
    /// "Was empty" means that every item before this one has been handed out. Of all the producers that push
    /// while the consumer takes nothing, the first alone is told so.
    ///
    /// # Blocking
    ///
    /// Never: one swap, one store, whatever other threads do. Safe in a signal handler.
    ///
    /// # Safety
    ///
    /// 1. `item` came from [`Linked::into_raw`] and was not made a handle since.
    /// 2. It hangs in no queue or list, and is not pushed by anyone else at the same time.
    /// 3. `self` does not move, and is not freed, while an item is inside.
    #[inline(always)]
    pub unsafe fn push(&self, item: NonNull<T>) -> bool {
        // SAFETY: (1), (2): the item is ours alone, as a chain of one.
        unsafe { self.push_chain(item, item) }
    }

    /// Appends a chain of items with one swap and says whether the queue was empty.
    ///
    /// The items are popped in the order of the chain, with none of another producer's between them.
    ///
    /// # Blocking
    ///
    /// As [`push`](Self::push), whatever the length of the chain.
    ///
    /// # Safety
    ///
    /// 1. The links of the items lead from `first` to `last`.
    /// 2. [`push`](Self::push) (1) and (2) hold for each of them, and (3).
    #[inline(always)]
    pub unsafe fn push_chain(&self, first: NonNull<T>, last: NonNull<T>) -> bool {
        // SAFETY: (2): the item is not handed out before the swap below, and the borrow ends here.
        unsafe { next_of(last) }.store(ptr::null_mut(), Ordering::Relaxed);

        // ORDER(mpscq-tail): message passing from producer to the next producer, both ends on this line.
        //   one:  last.next = null;   swap(tail, last)      Release
        //   next: swap(tail) = last   Acquire;              last.next = its first item
        // Else the null could land after the link, and the items behind it would be lost.
        // Test: loom tail_swap_needs_acquire, tail_swap_needs_release
        //
        // ORDER(mpscq-stub): the acquire end; see `put_stub_back`.
        let before = self.tail.swap(last.as_ptr(), order::tail_swap());
        if order::kernel() {
            fence(Ordering::SeqCst);
        }

        // ORDER(mpscq-link): message passing from producer to consumer, other end in `pop`.
        //   push: contents, inner links of the chain;   link = first        Release
        //   pop:  link = item   Acquire;                reads contents and inner links
        // Else the consumer could read an item before its contents are there. A full barrier in the swap
        // would not do in this memory model without an acquire at the other end; see docs/orderings.md.
        // Test: loom link_store_needs_release
        match NonNull::new(before) {
            None => {
                self.first.store(first.as_ptr(), order::link_store());
                true
            }
            Some(before) => {
                // SAFETY: `before` was pushed under (2) and its link has not been stored (that is ours to do),
                // so the consumer has not handed it out: it waits for this very store.
                unsafe { next_of(before) }.store(first.as_ptr(), order::link_store());
                false
            }
        }
    }

    /// Takes the oldest item.
    ///
    /// # Blocking
    ///
    /// Never: no loop, and a compare-exchange only for the last item.
    ///
    /// # Safety
    ///
    /// 1. `cursor` is this queue's and no other's: made new when the queue was, and used with it since.
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
        // ORDER(mpscq-link): the acquire end; see `push_chain`.
        // Test: loom next_load_needs_acquire
        //
        // SAFETY: `head` was pushed and not handed out yet; only this consumer would.
        let next = unsafe { next_of(head) }.load(order::next_load());
        if !next.is_null() {
            cursor.head = next;
            return Pop::Item(head);
        }
        self.put_stub_back(cursor, head)
    }

    /// Looks at the oldest item without taking it.
    ///
    /// It stays inside: the next pop takes the same. Meanwhile the consumer may use what of it nobody else writes.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Safety
    ///
    /// As [`pop`](Self::pop).
    #[inline(always)]
    pub unsafe fn peek(&self, cursor: &mut RawCursor<T>) -> Pop<NonNull<T>> {
        match NonNull::new(cursor.head) {
            Some(head) => Pop::Item(head),
            None => self.leave_stub(cursor),
        }
    }

    /// Looks for the item behind `item`, which is inside.
    ///
    /// [`Pop::Empty`] says that `item` is the newest: no push that completed before this call came after it.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Safety
    ///
    /// 1. [`peek`](Self::peek) or this function returned `item` to this consumer, which has not popped it since.
    #[inline(always)]
    pub unsafe fn after(&self, item: NonNull<T>) -> Pop<NonNull<T>> {
        // ORDER(mpscq-link): the acquire end; see `push_chain`.
        // Test: loom after_load_needs_acquire
        //
        // SAFETY: (1): the item is inside, and only this consumer would hand it out.
        let next = unsafe { next_of(item) }.load(order::next_load());
        match NonNull::new(next) {
            Some(next) => Pop::Item(next),
            None if self.is_newest(item) => Pop::Empty,
            None => Pop::MidPush,
        }
    }

    /// Returns `true` if no push came after that of `item`; callable from any thread.
    ///
    /// `true` means that none which completed before this call did. `false` for an item that is not inside.
    ///
    /// # Blocking
    ///
    /// Never: one relaxed load, for the reason given at [`is_empty`](Self::is_empty).
    #[inline(always)]
    pub fn is_newest(&self, item: NonNull<T>) -> bool {
        self.tail.load(Ordering::Relaxed) == item.as_ptr()
    }

    /// Finds the oldest item behind the stub and moves the cursor there.
    #[inline(always)]
    fn leave_stub(&self, cursor: &mut RawCursor<T>) -> Pop<NonNull<T>> {
        // ORDER(mpscq-link): the acquire end; see `push_chain`.
        // Test: loom first_load_needs_acquire
        let Some(head) = NonNull::new(self.first.load(order::first_load())) else {
            // The missing link proves nothing: the first producer may be held up between swap and store while the
            // push of a second one has completed behind it.
            return if self.is_empty() || twin::armed("empty: no look at the tail") {
                Pop::Empty
            } else {
                Pop::MidPush
            };
        };
        // Nobody else stores here before `put_stub_back` clears `tail`.
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        cursor.head = head.as_ptr();
        Pop::Item(head)
    }

    /// Hands out the last item, if it still is the last, and leaves the stub in its place.
    #[inline(always)]
    fn put_stub_back(&self, cursor: &mut RawCursor<T>, head: NonNull<T>) -> Pop<NonNull<T>> {
        // ORDER(mpscq-stub): message passing from consumer to producer, other end in `push_chain`.
        //   pop:  first = null;         compare-exchange(tail, head → null)  Release
        //   push: swap(tail) = null     Acquire;                             first = item
        // Else the consumer's null could land after the producer's link, and the queue would never again be
        // found to hold anything. No acquire: whatever the consumer reads of `head` was published by the link
        // it came by.
        // Test: loom stub_back_needs_release
        let found = self.tail.compare_exchange(
            head.as_ptr(),
            ptr::null_mut(),
            order::stub_back(),
            Ordering::Relaxed,
        );
        if found.is_err() {
            // A producer came in behind `head`. It may have linked itself by now, but to look again is for the
            // caller to decide.
            return Pop::MidPush;
        }
        cursor.head = ptr::null_mut();
        Pop::Item(head)
    }
}

impl<T> RawCursor<T> {
    /// Makes the cursor of a new queue.
    pub const fn new() -> Self {
        Self {
            head: ptr::null_mut(),
        }
    }

    /// Returns `true` if the last pop took the last item, so that the queue was empty at that moment.
    ///
    /// Costs nothing shared: it looks at the cursor alone. True also before the first pop, and after a pop
    /// that found nothing behind the stub.
    #[inline(always)]
    pub fn emptied(&self) -> bool {
        self.head.is_null()
    }

    /// Two copies of a cursor must not both be popped with, unless each pop writes the other on.
    #[inline(always)]
    pub(crate) fn copy(&self) -> Self {
        Self { head: self.head }
    }
}

// SAFETY: the cursor stands for the items that it can reach, and taking them elsewhere is what sending their
// handles would be. That one thread at a time uses it is (2) of `pop`.
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
        f.debug_struct("RawQueue")
            .field("empty", &self.is_empty())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RawCursor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCursor")
            .field("emptied", &self.emptied())
            .finish_non_exhaustive()
    }
}
