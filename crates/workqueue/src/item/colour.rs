//! Counts the items of a pwq by colour, so that a flush knows which items it waits for.
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
//! An item's colour is stored in its list link (`list.rs`) from its adoption until its in-flight
//! count is released. Nothing here is shared: the pool lock guards it.

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
