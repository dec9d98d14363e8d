//! Lists of work items, linked through the items themselves.
//!
//! The link of an item is guarded like the list that holds the item (`LINKED` in its state), and a
//! list is guarded by the lock of its pool, so nothing here synchronizes. The injector is the
//! exception and documents its synchronization.
//!
//! The low bits of a link, which are free because of an item's alignment, hold the item's colour.
//! The colour is written at the adoption, and kept until the item is queued again.
//!
//! # Colours
//!
//! [`Colours`] counts the items of a pwq by colour, so that a flush knows which items it waits for.
//!
//! A pwq gives every item that it adopts its current *colour*, and counts the items of each colour.
//! A flush closes the current colour, so that later items get the next one. The flush has ended
//! when no item of its colour, or of an older one, is in flight. Items that are queued after a
//! flush therefore do not delay it, in whatever order items end.
//!
//! Colours are used in turn, as a ring. If all are in use, the current colour stays open until the
//! oldest is free. Items adopted until then belong to every flush that would have closed the
//! current colour. The first of these flushes to check again closes it for all of them, so a flush
//! waits for the items of at most one ring, whatever other flushes begin. This is the kernel's
//! overflow list.
//!
//! An item's colour is stored in its list link from its adoption until its in-flight count is
//! released. The counts are not shared: the pool lock guards them.

use std::ptr::{self, NonNull};

use mpscq::RawStack;
use sync::{
    atomic::{AtomicPtr, Ordering},
    time,
    unmodelled::AtomicU64,
};

use super::head::Head;

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

/// The number of colours of a pwq. A colour fits into the bits of a list link that are free because
/// items are aligned to 8 bytes, as the kernel's items are.
///
/// Differs from Linux: `WORK_NR_COLORS` is 16 there. With fewer colours, more overlapping flushes
/// share a colour.
pub(crate) const NR_COLOURS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

/// An index in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Colour(pub(crate) u8);

/// The in-flight items of one pwq, counted by colour.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Colours {
    nr_all: usize,
    /// The current colour, and the oldest colour that may have items in flight. Both only grow, and
    /// differ by less than the size of the ring. The colours before the current one are closed.
    present_seq: u64,
    oldest_seq: u64,
    /// Items of a colour before this one are cancelled.
    cancelled_seq: u64,
    /// The first count is on the cache line of the fields above; without flushes, no other is used.
    nr_in_flight: [usize; NR_COLOURS],
}

/// The newest colour that a flush waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UpTo {
    /// The sequence number after that of this colour.
    end_seq: u64,
}

impl Colours {
    fn place(seq: u64) -> usize {
        (seq % NR_COLOURS as u64) as usize
    }

    /// Returns the colour for items that are adopted now.
    pub(crate) fn present(&self) -> Colour {
        Colour(Self::place(self.present_seq) as u8)
    }

    /// Returns the number of items in flight, of all colours.
    pub(crate) fn nr_in_flight(&self) -> usize {
        self.nr_all
    }

    /// Counts `count` items of the current colour.
    pub(crate) fn adopt(&mut self, count: usize) {
        self.nr_in_flight[Self::place(self.present_seq)] += count;
        self.nr_all += count;
    }

    /// Releases the counts of `count` items; returns `true` if a closed colour became empty.
    pub(crate) fn retire(&mut self, colour: Colour, count: usize) -> bool {
        let nr_left = &mut self.nr_in_flight[usize::from(colour.0)];
        debug_assert!(*nr_left >= count, "retired more than was adopted");
        *nr_left -= count;
        self.nr_all -= count;
        *nr_left == 0 && self.advance()
    }

    /// Closes the current colour, unless it has no item in flight. If no other colour is free, the
    /// current one is closed later.
    pub(crate) fn close(&mut self) -> UpTo {
        let is_used = self.nr_in_flight[Self::place(self.present_seq)] > 0;
        let up_to = UpTo {
            end_seq: self.present_seq + u64::from(is_used),
        };
        self.close_for(up_to);
        up_to
    }

    /// Closes the current colour, and marks its items and those of older colours as cancelled. If
    /// all colours are in use, the current one stays open, and its items are not marked.
    pub(crate) fn cancel(&mut self) {
        self.close();
        self.cancelled_seq = self.present_seq;
    }

    /// Returns `true` if `colour`, which has an item in flight, was cancelled.
    pub(crate) fn is_cancelled(&self, colour: Colour) -> bool {
        let ring = NR_COLOURS as u64;
        let nr_behind = (self.present_seq + ring - u64::from(colour.0)) % ring;
        self.present_seq < self.cancelled_seq + nr_behind
    }

    /// Returns `true` if no item is in flight that the flush waits for.
    pub(crate) fn has_reached(&mut self, up_to: UpTo) -> bool {
        self.close_for(up_to);
        self.oldest_seq >= up_to.end_seq || self.nr_all == 0
    }

    /// Closes the current colour if that is still to be done and another colour is free.
    fn close_for(&mut self, up_to: UpTo) {
        let nr_used = self.present_seq - self.oldest_seq + 1;
        if self.present_seq < up_to.end_seq && nr_used < NR_COLOURS as u64 {
            self.present_seq += 1;
            // If the closed colours are empty, no later `retire` would advance past them.
            self.advance();
        }
    }

    fn advance(&mut self) -> bool {
        let before = self.oldest_seq;
        while self.oldest_seq < self.present_seq
            && self.nr_in_flight[Self::place(self.oldest_seq)] == 0
        {
            self.oldest_seq += 1;
        }
        self.oldest_seq != before
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flush_of_nothing_has_ended() {
        let mut colours = Colours::default();
        let up_to = colours.close();
        assert!(colours.has_reached(up_to));
    }

    #[test]
    fn what_comes_after_a_flush_does_not_hold_it_up() {
        let mut colours = Colours::default();
        colours.adopt(1);
        let before = colours.present();
        let up_to = colours.close();
        colours.adopt(1);
        assert!(!colours.has_reached(up_to));
        assert!(colours.retire(before, 1));
        assert!(colours.has_reached(up_to));
        assert_eq!(colours.nr_in_flight(), 1);
    }

    /// Adopts an item of each colour, and closes all but the last; returns the colours.
    fn full_ring() -> (Colours, Vec<Colour>) {
        let mut colours = Colours::default();
        let mut used = Vec::new();
        for _ in 1..NR_COLOURS {
            colours.adopt(1);
            used.push(colours.present());
            colours.close();
        }
        colours.adopt(1);
        used.push(colours.present());
        (colours, used)
    }

    #[test]
    fn when_all_colours_are_in_use_a_flush_waits_until_the_oldest_is_free() {
        let (mut colours, used) = full_ring();
        let up_to = colours.close();
        assert_eq!(Some(&colours.present()), used.last(), "closed nothing");
        // Not the oldest colour, so no colour becomes free.
        assert!(!colours.retire(used[1], 1));
        assert!(!colours.has_reached(up_to));
        assert_eq!(Some(&colours.present()), used.last(), "closed nothing");
        assert!(colours.retire(used[0], 1));
        assert!(!colours.has_reached(up_to));
        assert_eq!(colours.present(), used[0], "closed it");
    }

    #[test]
    fn a_flush_that_found_all_colours_in_use_goes_before_later_ones() {
        let (mut colours, used) = full_ring();
        let first = colours.close();
        assert!(colours.retire(used[0], 1));
        // This flush uses the colour that became free.
        let second = colours.close();
        colours.adopt(1);
        for &colour in &used[1..] {
            colours.retire(colour, 1);
        }
        assert!(colours.has_reached(first) && colours.has_reached(second));
        assert_eq!(colours.nr_in_flight(), 1);
    }

    #[test]
    fn a_flush_whose_colour_was_never_closed_ends_with_all_items() {
        let (mut colours, used) = full_ring();
        let up_to = colours.close();
        for &colour in used.iter().rev() {
            assert!(!colours.has_reached(up_to));
            colours.retire(colour, 1);
        }
        assert!(colours.has_reached(up_to));
    }

    #[test]
    fn what_was_adopted_before_a_cancel_is_cancelled_and_nothing_later() {
        let mut colours = Colours::default();
        for _ in 0..3 * NR_COLOURS {
            colours.adopt(1);
            let before = colours.present();
            assert!(!colours.is_cancelled(before));
            colours.cancel();
            colours.adopt(1);
            let after = colours.present();
            assert!(colours.is_cancelled(before) && !colours.is_cancelled(after));
            colours.retire(before, 1);
            colours.close();
            assert!(!colours.is_cancelled(after));
            colours.retire(after, 1);
        }
        // If all colours are in use, the current one is shared with later items.
        let (mut colours, used) = full_ring();
        colours.cancel();
        let [older @ .., present] = &used[..] else {
            panic!()
        };
        assert!(older.iter().all(|&colour| colours.is_cancelled(colour)));
        assert!(!colours.is_cancelled(*present));
    }

    proptest! {
        /// Compares with a model that records for each item which flushes wait for it: the flushes
        /// after it, and the flushes whose colour was still open.
        #[test]
        fn a_flush_waits_for_just_what_was_adopted_before_it(
            steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 1..300),
        ) {
            let mut colours = Colours::default();
            let mut items: Vec<(Colour, u64, usize)> = Vec::new();
            let mut flushes: Vec<UpTo> = Vec::new();
            for (step, index) in steps {
                match step {
                    0 => {
                        items.push((colours.present(), colours.present_seq, flushes.len()));
                        colours.adopt(1);
                    }
                    1 if !items.is_empty() => {
                        let (colour, ..) = items.swap_remove(index.index(items.len()));
                        colours.retire(colour, 1);
                    }
                    _ => flushes.push(colours.close()),
                }
                for (number, up_to) in flushes.iter().enumerate() {
                    let held_up = items
                        .iter()
                        .any(|(_, seq, nr_before)| *nr_before <= number || *seq < up_to.end_seq);
                    prop_assert_eq!(colours.has_reached(*up_to), !held_up);
                }
                prop_assert_eq!(colours.nr_in_flight(), items.len());
            }
        }
    }
}
