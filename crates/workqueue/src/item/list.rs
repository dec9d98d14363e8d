//! Lists of work items, linked through the items themselves.
//!
//! A link belongs to the list that holds the item (`LINKED` in its state), and a list to the lock of its pool, so
//! nothing here synchronizes. The injector is the exception and says how.
//!
//! The low bits of a link, which an item's alignment leaves free, hold the item's colour: written when the item is
//! adopted, and kept by every list until it is queued anew.

use std::ptr::{self, NonNull};

use mpscq::RawStack;
use sync::{
    atomic::{AtomicPtr, Ordering},
    time,
    unmodelled::AtomicU64,
};

use super::{
    colour::{Colour, NR_COLOURS},
    head::Head,
};

const COLOUR_MASK: usize = align_of::<Head>() - 1;
const _: () = assert!(NR_COLOURS <= align_of::<Head>());

/// A first-in first-out list of items that nobody else can reach.
#[derive(Debug)]
pub(crate) struct List {
    first: *mut Head,
    last: *mut Head,
    len: usize,
}

// SAFETY: the items are `Send`, and whoever holds the list alone holds their links.
unsafe impl Send for List {}

impl List {
    pub(crate) const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub(crate) fn first(&self) -> Option<NonNull<Head>> {
        NonNull::new(self.first)
    }

    pub(crate) fn push_back(&mut self, item: NonNull<Head>) {
        set_next(item, ptr::null_mut());
        match NonNull::new(self.last) {
            Some(last) => set_next(last, item.as_ptr()),
            None => self.first = item.as_ptr(),
        }
        self.last = item.as_ptr();
        self.len += 1;
    }

    pub(crate) fn push_front(&mut self, item: NonNull<Head>) {
        self.push_front_in(item, colour(item));
    }

    /// Puts an item first, and gives it a colour.
    fn push_front_in(&mut self, item: NonNull<Head>, colour: Colour) {
        set_link(item, self.first, usize::from(colour.0));
        if self.first.is_null() {
            self.last = item.as_ptr();
        }
        self.first = item.as_ptr();
        self.len += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<NonNull<Head>> {
        let item = NonNull::new(self.first)?;
        self.first = next(item);
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        self.len -= 1;
        Some(item)
    }

    /// Cuts the first item for which `chosen` holds out, looking at every item before it.
    pub(crate) fn pop_first(
        &mut self,
        mut chosen: impl FnMut(NonNull<Head>) -> bool,
    ) -> Option<NonNull<Head>> {
        let mut at = self.first();
        while let Some(item) = at.filter(|&item| !chosen(item)) {
            at = NonNull::new(next(item));
        }
        at.filter(|&item| self.remove(item))
    }

    /// Moves all of `other` behind the last item.
    pub(crate) fn append(&mut self, other: &mut List) {
        if let Some(first) = NonNull::new(other.first) {
            match NonNull::new(self.last) {
                Some(last) => set_next(last, first.as_ptr()),
                None => self.first = first.as_ptr(),
            }
            self.last = other.last;
            self.len += other.len;
            *other = List::new();
        }
    }

    /// Returns the items, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<Head>> {
        std::iter::successors(self.first(), |item| NonNull::new(next(*item)))
    }

    /// Returns `item`, which is only compared, if it is in this list, looking at every item before it.
    pub(crate) fn find(&self, item: *const Head) -> Option<NonNull<Head>> {
        let mut at = self.first();
        while let Some(here) = at.filter(|here| !ptr::eq(here.as_ptr(), item)) {
            at = NonNull::new(next(here));
        }
        at
    }

    /// Cuts out the items for which `keep` does not hold, which it may give to another list at once.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(NonNull<Head>) -> bool) {
        let mut kept: Option<NonNull<Head>> = None;
        let mut at = self.first();
        while let Some(item) = at {
            let after = next(item);
            at = NonNull::new(after);
            if keep(item) {
                kept = Some(item);
                continue;
            }
            match kept {
                Some(kept) => set_next(kept, after),
                None => self.first = after,
            }
            self.len -= 1;
        }
        self.last = kept.map_or(ptr::null_mut(), NonNull::as_ptr);
    }

    /// Cuts `item` out, looking at every item before it; false when it is not in this list.
    pub(crate) fn remove(&mut self, item: NonNull<Head>) -> bool {
        let mut before: Option<NonNull<Head>> = None;
        let mut at = self.first();
        while let Some(here) = at {
            let after = next(here);
            if here == item {
                match before {
                    Some(before) => set_next(before, after),
                    None => self.first = after,
                }
                if after.is_null() {
                    self.last = before.map_or(ptr::null_mut(), NonNull::as_ptr);
                }
                self.len -= 1;
                return true;
            }
            before = at;
            at = NonNull::new(after);
        }
        false
    }
}

/// Where producers leave items without a lock: a stack that is taken whole.
///
/// Pushing is one compare-exchange. Taking swaps the stack for an empty one and turns it round, so items come
/// out in the order of their pushes. Nothing is ever popped singly, so a head that went and came back (ABA) does
/// no harm: a push only needs the old head as its next.
#[derive(Debug)]
pub(crate) struct Injector {
    newest: RawStack<Head>,
    /// When the last push that found nothing was about to be made, in cycles. Shown, and nothing depends on it.
    since: AtomicU64,
    /// I: whether that is noted.
    is_timed: bool,
}

impl Injector {
    pub(crate) fn new(is_timed: bool) -> Self {
        Self {
            newest: RawStack::new(),
            since: AtomicU64::new(0),
            is_timed: is_timed && !cfg!(any(loom, shuttle)),
        }
    }

    /// Returns about when the first of the items came that the caller has just taken, in cycles; nothing where that is not
    /// noted. A push beside the taking may already have noted its own time, which is later by as much as it takes.
    pub(crate) fn since(&self) -> Option<u64> {
        self.is_timed.then(|| self.since.load(Ordering::Relaxed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.top().load(Ordering::Relaxed).is_null()
    }

    /// Pushes one item; returns `true` if the stack was empty.
    #[inline]
    pub(crate) fn push(&self, item: NonNull<Head>) -> bool {
        self.push_chain(item, item)
    }

    /// Pushes a chain that runs from its `newest` item down to its `oldest`, linked by `next`.
    #[inline]
    pub(crate) fn push_chain(&self, newest: NonNull<Head>, oldest: NonNull<Head>) -> bool {
        let before = self.newest.push(newest.as_ptr(), |before| {
            if before.is_null() && self.is_timed {
                // Before the push, which publishes it; on the cache line that the push writes.
                self.since.store(time::cycles(), Ordering::Relaxed);
            }
            set_fresh_next(oldest, before);
        });
        before.is_null()
    }

    /// Takes `item` back if nothing was pushed after it and nobody has taken it. Only for who has claimed it.
    ///
    /// While `item` is the newest, what it was pushed on is still below it: items leave either all at once or, by
    /// this very step, from the top; and a claimed item is not pushed again. So its `next` is right.
    pub(crate) fn take_back(&self, item: NonNull<Head>) -> bool {
        // ORDER(mpscq-stack): the other end is the push of `item`, which comes after the item could
        // be claimed. If we find the item, we see the link that its pusher wrote, and not one of an
        // earlier turn.
        // Test: an_item_that_is_taken_back_beside_its_push_tears_no_hole
        let order = sync::twin::order("inject: relaxed look", Ordering::Acquire);
        let top = self.newest.top();
        top.load(order) == item.as_ptr()
            && top
                .compare_exchange(
                    item.as_ptr(),
                    next(item),
                    // ORDER(mpscq-stack): what lies below was published by its pushers, and stays
                    // so.
                    // Test: injected_items_arrive_whole_and_in_order
                    // ORDER(taken-back): the helper's seat is published too; other end in `Inner::is_drained`.
                    // Test: a_queue_does_not_go_before_its_items_have_run
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Takes all items, oldest first, calling `meet` for each, newest first, which names its colour.
    #[inline]
    pub(crate) fn take(&self, mut meet: impl FnMut(NonNull<Head>) -> Colour) -> List {
        // Acquire, like the swap: who finds the stack empty because a helper took the last item back must see
        // the seat that the helper had taken before.
        if self.newest.top().load(Ordering::Acquire).is_null() {
            return List::new();
        }
        let mut at = self.newest.take_all();
        let mut list = List::new();
        while let Some(item) = NonNull::new(at) {
            at = next(item);
            list.push_front_in(item, meet(item));
        }
        list
    }
}

/// Returns the colour of an item that has been adopted and is counted in flight.
pub(crate) fn colour(item: NonNull<Head>) -> Colour {
    Colour((link(item).load(Ordering::Relaxed).addr() & COLOUR_MASK) as u8)
}

fn next(item: NonNull<Head>) -> *mut Head {
    link(item)
        .load(Ordering::Relaxed)
        .map_addr(|addr| addr & !COLOUR_MASK)
}

fn set_next(item: NonNull<Head>, next: *mut Head) {
    set_link(item, next, usize::from(colour(item).0));
}

fn set_link(item: NonNull<Head>, next: *mut Head, colour: usize) {
    link(item).store(next.map_addr(|addr| addr | colour), Ordering::Relaxed);
}

/// Links an item that is queued anew, and has no colour.
pub(crate) fn set_fresh_next(item: NonNull<Head>, next: *mut Head) {
    link(item).store(next, Ordering::Relaxed);
}

fn link<'a>(item: NonNull<Head>) -> &'a AtomicPtr<Head> {
    // SAFETY: an item in a list is alive: `LINKED` keeps it from being freed; who asks for its colour holds its count.
    unsafe { &(*item.as_ptr()).next }
}
