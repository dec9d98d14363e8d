//! Lists of work items, linked through the items themselves.
//!
//! The link of an item is guarded like the list that holds the item (`LINKED` in its state), and a
//! list is guarded by the lock of its pool, so nothing here synchronizes. The injector is the
//! exception and documents its synchronization.
//!
//! The low bits of a link, which are free because of an item's alignment, hold the item's colour.
//! The colour is written at the adoption, and kept until the item is queued again.

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

/// A first-in first-out list of items that is not shared between threads.
#[derive(Debug)]
pub(crate) struct List {
    first: *mut Head,
    last: *mut Head,
    len: usize,
}

// SAFETY: the items are `Send`, and the thread that owns the list owns their links.
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

    /// Inserts an item at the front and sets its colour.
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

    /// Removes the first item for which `chosen` returns `true`, after a walk over the items before
    /// it.
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

    /// Moves all items of `other` to the end of this list.
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

    /// Returns `item`, which is only compared, if it is in this list, after a walk up to it.
    pub(crate) fn find(&self, item: *const Head) -> Option<NonNull<Head>> {
        let mut at = self.first();
        while let Some(here) = at.filter(|here| !ptr::eq(here.as_ptr(), item)) {
            at = NonNull::new(next(here));
        }
        at
    }

    /// Removes the items for which `keep` returns `false`; `keep` may add these to another list.
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

    /// Removes `item` after a walk up to it; returns `false` if it is not in this list.
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

/// A stack to which producers push items without a lock, and which is always taken as a whole.
///
/// A push is one compare-exchange. Taking swaps the stack for an empty one and reverses it, so
/// items are returned in push order. Items are not popped one by one, so a top that changes and
/// changes back (ABA) is harmless: a push only needs the old top as its next.
#[derive(Debug)]
pub(crate) struct Injector {
    newest: RawStack<Head>,
    /// The time of the last push to an empty injector, in cycles. For statistics only.
    since: AtomicU64,
    /// I: set if that time is recorded.
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

    /// Returns approximately when the first of the items that the caller has just taken was pushed,
    /// in cycles, or `None` if that is not recorded. A push at the same time as the taking may
    /// already have overwritten the time with its own, slightly later one.
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

    /// Pushes a chain that is linked by `next` from its `newest` item to its `oldest`.
    #[inline]
    pub(crate) fn push_chain(&self, newest: NonNull<Head>, oldest: NonNull<Head>) -> bool {
        let before = self.newest.push(newest.as_ptr(), |before| {
            if before.is_null() && self.is_timed {
                // The push publishes it, and writes the same cache line.
                self.since.store(time::cycles(), Ordering::Relaxed);
            }
            set_fresh_next(oldest, before);
        });
        before.is_null()
    }

    /// Removes `item` if nothing was pushed after it and it was not taken. Only for the thread that
    /// has claimed the item.
    ///
    /// While `item` is on top, the item below it is still the same: items leave the stack all at
    /// once or, through this function, from the top, and a claimed item is not pushed again. Its
    /// `next` is therefore valid.
    pub(crate) fn take_back(&self, item: NonNull<Head>) -> bool {
        // ORDER(mpscq-stack): the other end is the push of `item`, which comes after the item could
        // be claimed. If we find the item on top, we see the link that this push wrote, and not one
        // of an earlier push.
        // Test: an_item_that_is_taken_back_beside_its_push_tears_no_hole
        let order = sync::twin::order("inject: relaxed look", Ordering::Acquire);
        let top = self.newest.top();
        top.load(order) == item.as_ptr()
            && top
                .compare_exchange(
                    item.as_ptr(),
                    next(item),
                    // ORDER(mpscq-stack): the items below stay published by their pushes.
                    // Test: injected_items_arrive_whole_and_in_order
                    // ORDER(taken-back): the helper's seat is published too; other end in
                    // `Inner::is_drained`.
                    // Test: a_queue_does_not_go_before_its_items_have_run
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Takes all items, oldest first. Calls `meet` for each, newest first, which returns its
    /// colour.
    #[inline]
    pub(crate) fn take(&self, mut meet: impl FnMut(NonNull<Head>) -> Colour) -> List {
        // Acquire, like the swap: if the stack is empty because a helper removed the last item, we
        // must see the seat that the helper acquired before.
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

/// Returns the colour of an item that was adopted and is counted in flight.
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

/// Links an item that is queued again and has no colour.
pub(crate) fn set_fresh_next(item: NonNull<Head>, next: *mut Head) {
    link(item).store(next, Ordering::Relaxed);
}

fn link<'a>(item: NonNull<Head>) -> &'a AtomicPtr<Head> {
    // SAFETY: an item in a list is alive, because `LINKED` keeps it from being freed; a caller that
    // reads the colour holds the item's count.
    unsafe { &(*item.as_ptr()).next }
}
