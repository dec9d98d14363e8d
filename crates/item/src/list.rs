//! Lists of work items, linked through the items themselves.
//!
//! The link of an item is guarded like the list that holds the item (`LINKED` in its state), and a
//! list is guarded by the lock of its pool, so nothing here synchronizes. The injector is the
//! exception and documents its synchronization.
//!
//! The low bits of a link, which are free because of an item's alignment, hold the item's color.
//! The color is written when the item is adopted, and kept until the item is queued again.
//!
//! # Colors
//!
//! [`Colors`] counts the items of a pwq by color, so that a flush knows which items it waits for.
//!
//! A pwq gives every item that it adopts its current *color*, and counts the items of each color. A
//! flush closes the current color, so that later items get the next one. The flush has ended when
//! no item of its color, or of an older one, is in flight. Items that are queued after a flush
//! therefore do not delay it, no matter in which order items end.
//!
//! Colors are used in turn, as a ring. If all are in use, the current color stays open until the
//! oldest is free. Items adopted until then belong to every flush that would have closed the
//! current color. The first of these flushes to check again closes it for all of them, so a flush
//! waits for items of at most one ring, no matter how many other flushes begin. This corresponds to
//! the kernel's overflow list.
//!
//! An item's color is stored in its list link from its adoption until its in-flight count is
//! released. The counts are not shared: the pool lock guards them.

use std::ptr::{self, NonNull};

use mpscq::RawStack;
use sync::atomic::{AtomicPtr, Ordering};
use sync::time;
use sync::unmodelled::AtomicU64;

use super::head::Head;

const COLOR_MASK: usize = align_of::<Head>() - 1;
const _: () = assert!(NR_COLORS <= align_of::<Head>());

/// A first-in, first-out list of items that is not shared between threads.
pub struct List {
    first: *mut Head,
    last: *mut Head,
    len: usize,
}

// SAFETY: the items are `Send`, and the thread that owns the list owns their links.
unsafe impl Send for List {}

impl Default for List {
    fn default() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut(), len: 0 }
    }
}

impl List {
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    #[inline]
    pub fn first(&self) -> Option<NonNull<Head>> {
        NonNull::new(self.first)
    }

    #[inline]
    pub fn push_back(&mut self, item: NonNull<Head>) {
        set_next(item, ptr::null_mut());
        self.append(&mut List { first: item.as_ptr(), last: item.as_ptr(), len: 1 });
    }

    #[inline]
    pub fn push_front(&mut self, item: NonNull<Head>) {
        self.push_front_in(item, color(item));
    }

    #[inline]
    fn push_front_in(&mut self, item: NonNull<Head>, color: Color) {
        set_link(item, self.first, usize::from(color.0));
        if self.first.is_null() {
            self.last = item.as_ptr();
        }
        self.first = item.as_ptr();
        self.len += 1;
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<NonNull<Head>> {
        let item = NonNull::new(self.first)?;
        self.unlink(None, next(item));
        Some(item)
    }

    /// Removes the item between `before` and `after`. `before` is `None` if the item is the first,
    /// and `after` is null if it is the last.
    #[inline]
    fn unlink(&mut self, before: Option<NonNull<Head>>, after: *mut Head) {
        match before {
            Some(before) => set_next(before, after),
            None => self.first = after,
        }
        if after.is_null() {
            self.last = before.map_or(ptr::null_mut(), NonNull::as_ptr);
        }
        self.len -= 1;
    }

    /// Removes up to `most` items that have the same home and color as `like` from the front.
    /// Returns their number. Calls `hold` with the index and the address of each.
    pub fn pop_alike(
        &mut self,
        like: NonNull<Head>,
        most: usize,
        hold: impl Fn(usize, NonNull<Head>),
    ) -> usize {
        // SAFETY: at each call, the item was just taken off the list or is in it, so it is alive.
        let home = |item: NonNull<Head>| unsafe { item.as_ref() }.home.load(Ordering::Relaxed);
        let (first, color) = (home(like), color(like));
        let mut nr_popped = 0;
        while nr_popped < most
            && let Some(item) = NonNull::new(self.first)
            && ptr::eq(home(item), first)
        {
            let link = link(item).load(Ordering::Relaxed);
            let has_other = link.addr() & COLOR_MASK != usize::from(color.0);
            if has_other && !sync::twin::armed("batch: mixes colors") {
                break;
            }
            self.first = link.map_addr(|addr| addr & !COLOR_MASK);
            hold(nr_popped, item);
            nr_popped += 1;
        }
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        self.len -= nr_popped;
        nr_popped
    }

    /// Walks the list to `item` and removes it. Returns `false` if it is not in this list.
    pub fn remove(&mut self, item: NonNull<Head>) -> bool {
        let mut before: Option<NonNull<Head>> = None;
        let mut at = self.first();
        while at != Some(item) {
            let Some(other) = at else { return false };
            before = at;
            at = NonNull::new(next(other));
        }
        self.unlink(before, next(item));
        true
    }

    #[inline]
    pub fn append(&mut self, other: &mut List) {
        if let Some(first) = NonNull::new(other.first) {
            match NonNull::new(self.last) {
                Some(last) => set_next(last, first.as_ptr()),
                None => self.first = first.as_ptr(),
            }
            self.last = other.last;
            self.len += other.len;
            *other = List::default();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = NonNull<Head>> {
        std::iter::successors(self.first(), |item| NonNull::new(next(*item)))
    }

    /// Removes the items for which `keep` returns `false`; `keep` may add these to another list.
    pub fn retain(&mut self, mut keep: impl FnMut(NonNull<Head>) -> bool) {
        let mut kept: Option<NonNull<Head>> = None;
        let mut at = self.first();
        while let Some(item) = at {
            let after = next(item);
            at = NonNull::new(after);
            if keep(item) {
                kept = Some(item);
            } else {
                self.unlink(kept, after);
            }
        }
    }
}

/// A stack to which producers push items without a lock, and which is always taken as a whole.
///
/// A push is one compare-exchange. Taking swaps the stack for an empty one and reverses it, so
/// items are returned in push order. Items are not popped one by one, so a top that changes and
/// changes back (ABA) is harmless: a push only needs the old top as its `next`.
pub struct Injector {
    newest: RawStack<Head>,
    /// The time of the last push to an empty injector, in cycles. Used only for statistics.
    since: AtomicU64,
    /// I: set if that time is recorded.
    is_timed: bool,
}

impl Injector {
    pub fn new(is_timed: bool) -> Self {
        Self {
            newest: RawStack::new(),
            since: AtomicU64::new(0),
            is_timed: is_timed && !cfg!(any(loom, shuttle)),
        }
    }

    /// Returns approximately when the first of the items that the caller has just taken was pushed,
    /// in cycles, or `None` if that is not recorded. A push that overlaps with that call may
    /// already have overwritten the time with its own, slightly later one.
    #[inline]
    pub fn since(&self) -> Option<u64> {
        self.is_timed.then(|| self.since.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.top().load(Ordering::Relaxed).is_null()
    }

    /// Returns `true` if the stack was empty.
    #[inline]
    pub fn push(&self, item: NonNull<Head>) -> bool {
        self.push_chain(item, item)
    }

    /// Pushes a chain that is linked by `next` from its `newest` item to its `oldest`.
    #[inline]
    pub fn push_chain(&self, newest: NonNull<Head>, oldest: NonNull<Head>) -> bool {
        let before = self.newest.push(newest.as_ptr(), |before| {
            if before.is_null() && self.is_timed {
                // The push publishes the time, and writes the same cache line.
                self.since.store(time::cycles(), Ordering::Relaxed);
            }
            set_fresh_next(oldest, before);
        });
        before.is_null()
    }

    /// Removes `item` if nothing was pushed after it and it was not taken. Only the thread that has
    /// claimed the item calls this.
    ///
    /// While `item` is on top, the item below it is still the same: items leave the stack all at
    /// once or, through this function, from the top, and a claimed item is not pushed again. Its
    /// `next` is therefore valid.
    #[inline]
    pub fn take_back(&self, item: NonNull<Head>) -> bool {
        // ORDER(mpscq-stack): the other end is the push of `item`, which comes after the item could
        // be claimed. If we find the item on top, we see the link that this push wrote, and not one
        // of an earlier push.
        // Test: item_recalled_during_its_push_leaves_no_gap
        let order = sync::twin::order("inject: relaxed read", Ordering::Acquire);
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
                    // Test: queue_is_not_destroyed_before_its_items_have_run
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Takes all items, oldest first. Calls `meet` for each item, newest first, to get its color.
    #[inline]
    pub fn take(&self, mut meet: impl FnMut(NonNull<Head>) -> Color) -> List {
        // Acquire, like the swap: if the stack is empty because a helper removed the last item, we
        // must see the seat that the helper had acquired before that.
        if self.newest.top().load(Ordering::Acquire).is_null() {
            return List::default();
        }
        let mut at = self.newest.take_all();
        let mut list = List::default();
        while let Some(item) = NonNull::new(at) {
            at = next(item);
            list.push_front_in(item, meet(item));
        }
        list
    }
}

/// Returns the color of an item that was adopted and is counted in flight.
#[inline]
pub fn color(item: NonNull<Head>) -> Color {
    Color((link(item).load(Ordering::Relaxed).addr() & COLOR_MASK) as u8)
}

#[inline]
fn next(item: NonNull<Head>) -> *mut Head {
    link(item).load(Ordering::Relaxed).map_addr(|addr| addr & !COLOR_MASK)
}

#[inline]
fn set_next(item: NonNull<Head>, next: *mut Head) {
    set_link(item, next, usize::from(color(item).0));
}

#[inline]
fn set_link(item: NonNull<Head>, next: *mut Head, color: usize) {
    link(item).store(next.map_addr(|addr| addr | color), Ordering::Relaxed);
}

/// Links an item that is queued again and has no color.
pub fn set_fresh_next(item: NonNull<Head>, next: *mut Head) {
    link(item).store(next, Ordering::Relaxed);
}

#[inline]
fn link<'a>(item: NonNull<Head>) -> &'a AtomicPtr<Head> {
    // SAFETY: an item in a list is alive, because `LINKED` keeps it from being freed; a caller that
    // reads the color holds the item's count.
    unsafe { &(*item.as_ptr()).next }
}

/// The number of colors of a pwq. A color fits into the bits of a list link that are free because
/// items are aligned to 8 bytes, as the kernel's items are.
///
/// Differs from Linux: `WORK_NR_COLORS` is 16 there. With fewer colors, more overlapping flushes
/// share a color.
pub const NR_COLORS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Color(pub u8);

/// The in-flight items of one pwq, counted by color.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Colors {
    nr_all: usize,
    /// The current color, and the oldest color that may have items in flight. Both only grow, and
    /// differ by less than the size of the ring. The colors before the current one are closed.
    present_seq: u64,
    oldest_seq: u64,
    /// Items of a color before this one are cancelled.
    cancelled_seq: u64,
    /// The first count is on the cache line of the fields above; without flushes, no other is used.
    nr_in_flight: [usize; NR_COLORS],
}

/// The newest color that a flush waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpTo {
    /// The sequence number after that of this color.
    end_seq: u64,
}

impl Colors {
    fn place(seq: u64) -> usize {
        (seq % NR_COLORS as u64) as usize
    }

    /// Returns the color for items that are adopted now.
    #[inline]
    pub fn present(&self) -> Color {
        Color(Self::place(self.present_seq) as u8)
    }

    #[inline]
    pub fn nr_in_flight(&self) -> usize {
        self.nr_all
    }

    /// Counts `count` items of the current color.
    #[inline]
    pub fn adopt(&mut self, count: usize) {
        self.nr_in_flight[Self::place(self.present_seq)] += count;
        self.nr_all += count;
    }

    /// Releases the counts of `count` items; returns `true` if a closed color became empty.
    #[inline]
    pub fn retire(&mut self, color: Color, count: usize) -> bool {
        let nr_left = &mut self.nr_in_flight[usize::from(color.0)];
        debug_assert!(*nr_left >= count, "retired more than was adopted");
        *nr_left -= count;
        self.nr_all -= count;
        *nr_left == 0 && self.advance()
    }

    /// Closes the current color, unless it has no item in flight. If no other color is free, the
    /// current one is closed later.
    #[inline]
    pub fn close(&mut self) -> UpTo {
        let is_used = self.nr_in_flight[Self::place(self.present_seq)] > 0;
        let up_to = UpTo { end_seq: self.present_seq + u64::from(is_used) };
        self.close_for(up_to);
        up_to
    }

    /// Closes the current color, and marks its items and those of older colors as cancelled. If
    /// all colors are in use, the current one stays open, and its items are not marked.
    pub fn cancel(&mut self) {
        self.close();
        self.cancelled_seq = self.present_seq;
    }

    /// Returns `true` if `color`, which has an item in flight, has been cancelled.
    #[inline]
    pub fn is_cancelled(&self, color: Color) -> bool {
        let ring = NR_COLORS as u64;
        let nr_behind = (self.present_seq + ring - u64::from(color.0)) % ring;
        self.present_seq < self.cancelled_seq + nr_behind
    }

    /// Returns `true` if no item that the flush waits for is in flight.
    #[inline]
    pub fn has_reached(&mut self, up_to: UpTo) -> bool {
        self.close_for(up_to);
        self.oldest_seq >= up_to.end_seq || self.nr_all == 0
    }

    /// Closes the current color if this flush still has to do so and another color is free.
    fn close_for(&mut self, up_to: UpTo) {
        let nr_used = self.present_seq - self.oldest_seq + 1;
        if self.present_seq < up_to.end_seq && nr_used < NR_COLORS as u64 {
            self.present_seq += 1;
            // If the closed colors are empty, no later `retire` would advance past them.
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
        let mut colors = Colors::default();
        let up_to = colors.close();
        assert!(colors.has_reached(up_to));
    }

    #[test]
    fn later_items_do_not_delay_a_flush() {
        let mut colors = Colors::default();
        colors.adopt(1);
        let before = colors.present();
        let up_to = colors.close();
        colors.adopt(1);
        assert!(!colors.has_reached(up_to));
        assert!(colors.retire(before, 1));
        assert!(colors.has_reached(up_to));
        assert_eq!(colors.nr_in_flight(), 1);
    }

    fn full_ring() -> (Colors, Vec<Color>) {
        let mut colors = Colors::default();
        let used = (0..NR_COLORS).map(|_| {
            colors.close();
            colors.adopt(1);
            colors.present()
        });
        let used = used.collect();
        (colors, used)
    }

    #[test]
    fn flush_waits_for_the_oldest_color_if_all_are_in_use() {
        let (mut colors, used) = full_ring();
        let up_to = colors.close();
        assert_eq!(Some(&colors.present()), used.last(), "closed nothing");
        // This is not the oldest color, so no color becomes free.
        assert!(!colors.retire(used[1], 1));
        assert!(!colors.has_reached(up_to));
        assert_eq!(Some(&colors.present()), used.last(), "closed nothing");
        assert!(colors.retire(used[0], 1));
        assert!(!colors.has_reached(up_to));
        assert_eq!(colors.present(), used[0], "closed it");
    }

    #[test]
    fn flush_that_found_all_colors_in_use_precedes_later_ones() {
        let (mut colors, used) = full_ring();
        let first = colors.close();
        assert!(colors.retire(used[0], 1));
        // This flush uses the color that became free.
        let second = colors.close();
        colors.adopt(1);
        for &color in &used[1..] {
            colors.retire(color, 1);
        }
        assert!(colors.has_reached(first) && colors.has_reached(second));
        assert_eq!(colors.nr_in_flight(), 1);
    }

    #[test]
    fn a_flush_whose_color_was_never_closed_ends_with_all_items() {
        let (mut colors, used) = full_ring();
        let up_to = colors.close();
        for &color in used.iter().rev() {
            assert!(!colors.has_reached(up_to));
            colors.retire(color, 1);
        }
        assert!(colors.has_reached(up_to));
    }

    #[test]
    fn cancel_covers_items_adopted_before_it_and_no_later_ones() {
        let mut colors = Colors::default();
        for _ in 0..3 * NR_COLORS {
            colors.adopt(1);
            let before = colors.present();
            assert!(!colors.is_cancelled(before));
            colors.cancel();
            colors.adopt(1);
            let after = colors.present();
            assert!(colors.is_cancelled(before) && !colors.is_cancelled(after));
            colors.retire(before, 1);
            colors.close();
            assert!(!colors.is_cancelled(after));
            colors.retire(after, 1);
        }
        // If all colors are in use, the current one is shared with later items.
        let (mut colors, used) = full_ring();
        colors.cancel();
        let [older @ .., present] = &used[..] else { panic!() };
        assert!(older.iter().all(|&color| colors.is_cancelled(color)));
        assert!(!colors.is_cancelled(*present));
    }

    proptest! {
        /// Compares the colors with a model that records, for each item, the flushes that wait for
        /// it: those that began after it was adopted, and those whose color was still open.
        #[test]
        fn flush_waits_only_for_items_adopted_before_it(
            steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 1..300),
        ) {
            let mut colors = Colors::default();
            let mut items: Vec<(Color, u64, usize)> = Vec::new();
            let mut flushes: Vec<UpTo> = Vec::new();
            for (step, index) in steps {
                match step {
                    0 => {
                        items.push((colors.present(), colors.present_seq, flushes.len()));
                        colors.adopt(1);
                    }
                    1 if !items.is_empty() => {
                        let (color, ..) = items.swap_remove(index.index(items.len()));
                        colors.retire(color, 1);
                    }
                    _ => flushes.push(colors.close()),
                }
                for (number, up_to) in flushes.iter().enumerate() {
                    let held_up = items
                        .iter()
                        .any(|(_, seq, nr_before)| *nr_before <= number || *seq < up_to.end_seq);
                    prop_assert_eq!(colors.has_reached(*up_to), !held_up);
                }
                prop_assert_eq!(colors.nr_in_flight(), items.len());
            }
        }
    }
}
