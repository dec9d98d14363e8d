//! Work on a range that is cut into pieces while it is worked at.
//!
//! Each participant has a *share* of the range, in one word. It takes pieces from the front of its share; one whose share is
//! used up takes the back half of somebody else's. So nothing is split before somebody is there to take it, and a piece
//! that has been taken is done by who took it.
//!
//! The owner has all at first. It sends one ticket; a guest that finds a share to halve sends the next, up to the number of
//! workers. Guests that find nothing to take go, and do not come back: what is left then has been started.
//!
//! # How large a piece is
//!
//! What one element takes is not known, and may be anything. So a participant begins with one, and doubles or halves the next
//! piece as the last one took less or more than [`PIECE_US`]. Half of a share at most, so that there is something to take.

use std::ops::Range;

use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time, twin,
};

use super::{
    crew::{Crew, Ticket, Tickets, whole},
    first_panic::FirstPanic,
};
use crate::{panics::guarded_in_item, workqueue::queues::queue::Workqueue};

/// What a piece is to take, within a factor of two. To take one costs some 50 ns, which are then a fraction of a per cent;
/// at the end participants wait for each other for as long as one piece takes.
const PIECE_US: u64 = 20;

/// A share of the range, in units.
///
/// bits 0..32 its start | bits 32..64 its end
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share(u64);

impl Share {
    fn new(start: u32, end: u32) -> Self {
        Self(u64::from(end) << 32 | u64::from(start))
    }
    pub(super) fn start(self) -> u32 {
        self.0 as u32
    }
    pub(super) fn end(self) -> u32 {
        (self.0 >> 32) as u32
    }
    fn len(self) -> u32 {
        self.end().saturating_sub(self.start())
    }

    /// Returns a piece of `most` at most from the front, and what is left.
    fn front(self, most: u32) -> Option<(Share, Share)> {
        let len = most.min((self.len() / 2).max(1));
        let cut = self.start().checked_add(len)?;
        (self.len() > 0).then(|| (Self::new(self.start(), cut), Self::new(cut, self.end())))
    }

    /// Returns the back half, or all if it is but one, and what is left.
    fn back(self) -> Option<(Share, Share)> {
        let cut = self.start() + self.len() / 2;
        (self.len() > 0).then(|| (Self::new(cut, self.end()), Self::new(self.start(), cut)))
    }
}

/// The shares of all participants.
pub(super) struct Shares(Box<[CachePadded<AtomicU64>]>);

impl Shares {
    /// Gives all of `nr_units` to the first of `nr_seats` participants.
    pub(super) fn new(nr_seats: usize, nr_units: u32) -> Self {
        let seats = 0..nr_seats.max(1);
        let share = |seat| {
            let len = if seat == 0 { nr_units } else { 0 };
            CachePadded::new(AtomicU64::new(Share::new(0, len).0))
        };
        Self(seats.map(share).collect())
    }

    /// Takes a part of the share at `seat`: `cut` says which, and what is left.
    ///
    /// Nothing is handed over by this word but what it says: Relaxed.
    fn cut(&self, seat: usize, cut: impl Fn(Share) -> Option<(Share, Share)>) -> Option<Share> {
        let word = &self.0[seat];
        let mut from = Share(word.load(Ordering::Relaxed));
        loop {
            let (part, left) = cut(from)?;
            if twin::armed("pieces: a share is cut without looking") {
                word.store(left.0, Ordering::Relaxed);
                return Some(part);
            }
            let relaxed = Ordering::Relaxed;
            match word.compare_exchange_weak(from.0, left.0, relaxed, relaxed) {
                Ok(_) => return Some(part),
                Err(now) => from = Share(now),
            }
        }
    }

    /// Returns the next piece of the share at `seat`, which is the caller's.
    pub(super) fn next(&self, seat: usize, most: u32) -> Option<Share> {
        self.cut(seat, |share| share.front(most))
    }

    /// Takes half of somebody else's share, for that at `seat`, which is the caller's and used up. Returns the first piece of it.
    ///
    /// That piece is never in the share: two participants could take the last unit from each other for ever.
    pub(super) fn steal(&self, seat: usize, most: u32) -> Option<Share> {
        let nr_seats = self.0.len();
        let others = (1..nr_seats).map(|ahead| (seat + ahead) % nr_seats);
        let stolen = others
            .filter_map(|other| self.cut(other, Share::back))
            .next()?;
        let (piece, left) = if twin::armed("pieces: what is taken can be taken away") {
            (Share::new(0, 0), stolen)
        } else {
            stolen.front(most)?
        };
        // An empty share is nobody's to cut, so a store will do.
        self.0[seat].store(left.0, Ordering::Relaxed);
        Some(piece)
    }

    /// Returns `true` if there is something to take from the share at `seat`.
    fn has_any(&self, seat: usize) -> bool {
        Share(self.0[seat].load(Ordering::Relaxed)).len() > 0
    }
}

/// A range that is being worked at.
struct Pieces<'a, F> {
    queue: &'a Workqueue,
    func: &'a F,
    range: Range<usize>,
    /// How many elements make a unit: one, if all can be counted in 32 bits.
    unit: usize,
    shares: Shares,
    /// A: how many participants there have been.
    nr_seated: AtomicU32,
    /// A: a piece has panicked.
    stopped: AtomicBool,
    first_panic: FirstPanic,
    tickets: Tickets,
}

impl<F: Fn(Range<usize>) + Sync> Pieces<'_, F> {
    /// # Safety
    ///
    /// 1. `work` points to one of this type, which stays until this returns.
    unsafe fn visit(work: *const (), ticket: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        let seat = this.nr_seated.fetch_add(1, Ordering::Relaxed) as usize;
        if seat >= this.shares.0.len() {
            return;
        }
        if let Some(piece) = this.shares.steal(seat, 1) {
            if this.shares.has_any(seat) && seat + 1 < this.shares.0.len() {
                this.tickets.send(this.queue, &ticket.crew);
            }
            this.serve(seat, Some(piece));
        }
    }

    /// Works at `piece`, and at all that nobody has started.
    fn serve(&self, seat: usize, mut piece: Option<Share>) {
        let mut most = 1;
        loop {
            let next = piece.take().or_else(|| self.shares.next(seat, most));
            let Some(next) = next.or_else(|| self.shares.steal(seat, most)) else {
                return;
            };
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let start = time::cycles();
            // FOREIGN(scope-run): the closure on a piece, on a guest or the owner; contained.
            if let Err(payload) = guarded_in_item(|| (self.func)(self.elements(next))) {
                self.stopped.store(true, Ordering::Relaxed);
                self.first_panic.note(&self.queue.inner.core, payload);
                return;
            }
            most = next_most(most, time::cycles().saturating_sub(start));
        }
    }

    fn elements(&self, piece: Share) -> Range<usize> {
        let at = |unit: u32| {
            let offset = (unit as usize).saturating_mul(self.unit);
            self.range.start + offset.min(self.range.len())
        };
        at(piece.start())..at(piece.end())
    }
}

/// Returns how large the next piece may be, after one of `most` took `cycles`.
fn next_most(most: u32, cycles: u64) -> u32 {
    let wanted = PIECE_US * time::cycles_per_us();
    if cycles < wanted / 2 {
        most.saturating_mul(2)
    } else if cycles > wanted * 2 {
        (most / 2).max(1)
    } else {
        most
    }
}

impl Workqueue {
    /// Calls `func` with pieces of `range` that together are all of it, on this thread and this queue's workers.
    ///
    /// A worker that helps splits off a piece. The size of the piece follows from the time that
    /// earlier pieces took: a piece takes about 20 microseconds, and has at least one element.
    /// Pieces can therefore have any size and start at any element.
    ///
    /// # Guarantees
    ///
    /// - When this returns, `func` has been called for each element once, and runs no more.
    /// - The caller works at this range and at nothing else while it waits; it needs no worker and no seat: see
    ///   [`scope`](Self::scope). As many workers come as run on one pod at once, and no more than `max_active`.
    /// - If `func` panics, no further piece is started, and the first panic goes on here when those that have been have ended.
    ///
    /// # Blocking
    ///
    /// Until then. Called from a work item it lets the pool get another worker meanwhile.
    ///
    /// # Panics
    ///
    /// With what `func` panicked with, and as [`scope`](Self::scope).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let sum = AtomicU64::new(0);
    /// queue.for_each_range(0..1000, |range| {
    ///     let part = range.map(|i| i as u64).sum();
    ///     sum.fetch_add(part, Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 499_500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each_range<F: Fn(Range<usize>) + Sync>(&self, range: Range<usize>, func: F) {
        self.must_be_free_to_own();
        if range.is_empty() {
            return;
        }
        let reach = self.reach();
        let unit = range.len().div_ceil(u32::MAX as usize);
        let nr_units = range.len().div_ceil(unit) as u32;
        let nr_guests = reach.max_active.min(reach.nr_workers).min(nr_units - 1);
        let pieces = Pieces {
            queue: self,
            func: &func,
            range,
            unit,
            shares: Shares::new(nr_guests as usize + 1, nr_units),
            nr_seated: AtomicU32::new(1),
            stopped: AtomicBool::new(false),
            first_panic: FirstPanic::default(),
            tickets: Tickets::new(nr_guests),
        };
        // SAFETY: the pieces stay where they are until the crew has been closed below.
        let crew = unsafe { Crew::new((&raw const pieces).cast(), Pieces::<F>::visit) };
        pieces.tickets.send(self, &crew);
        whole(|| {
            pieces.serve(0, None);
            crew.close(reach.on_one_cpu);
        });
        pieces.tickets.take_back();
        pieces.first_panic.go_on(Ok(()));
    }

    /// Calls `func` with pieces of `slice` that together are all of it, on this thread and this queue's workers.
    ///
    /// The pieces have arbitrary sizes, start at arbitrary elements and come in any order, because
    /// their sizes follow from the time that earlier pieces took. If chunks of a given size must
    /// stay whole, pass the chunks as the elements: see
    /// [`for_each_chunk_mut`](Self::for_each_chunk_mut). Everything else is as for
    /// [`for_each_range`](Self::for_each_range).
    ///
    /// # Blocking
    ///
    /// As [`for_each_range`](Self::for_each_range).
    ///
    /// # Panics
    ///
    /// As [`for_each_range`](Self::for_each_range).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let numbers: Vec<u64> = (0..10_000).collect();
    /// let sum = AtomicU64::new(0);
    /// queue.for_each_chunk(&numbers, |chunk| {
    ///     sum.fetch_add(chunk.iter().sum(), Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 49_995_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each_chunk<T: Sync>(&self, slice: &[T], func: impl Fn(&[T]) + Sync) {
        self.for_each_range(0..slice.len(), |range| func(&slice[range]));
    }

    /// Calls `func` with pieces of `slice`, to be changed, that together are all of it, on this thread and this queue's
    /// workers.
    ///
    /// The pieces have arbitrary sizes, start at arbitrary elements and come in any order, because
    /// their sizes follow from the time that earlier pieces took. If chunks of a given size must
    /// stay whole, pass the chunks as the elements, as in the second example. Everything else is as
    /// for [`for_each_range`](Self::for_each_range).
    ///
    /// # Blocking
    ///
    /// As [`for_each_range`](Self::for_each_range).
    ///
    /// # Panics
    ///
    /// As [`for_each_range`](Self::for_each_range).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let mut numbers: Vec<u64> = (0..10_000).collect();
    /// queue.for_each_chunk_mut(&mut numbers, |chunk| chunk.iter_mut().for_each(|it| *it *= 2));
    /// assert_eq!(numbers[9_999], 19_998);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// To keep each row of a picture whole, pass the rows as the elements:
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// # let queue = Workqueue::builder("example").build()?;
    /// const WIDTH: usize = 30;
    /// let mut picture = vec![0; WIDTH * 100];
    /// let mut rows: Vec<(usize, &mut [usize])> = picture.chunks_mut(WIDTH).enumerate().collect();
    /// queue.for_each_chunk_mut(&mut rows, |piece| {
    ///     for (y, row) in piece {
    ///         row.fill(*y);
    ///     }
    /// });
    /// assert_eq!(picture[WIDTH * 99 - 1], 98);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each_chunk_mut<T: Send>(&self, slice: &mut [T], func: impl Fn(&mut [T]) + Sync) {
        /// The start of a slice, of which each element goes to one thread.
        struct Start<T>(*mut T);
        // SAFETY: it leads to elements that are `Send`, each of which one thread has.
        unsafe impl<T: Send> Sync for Start<T> {}
        impl<T> Start<T> {
            /// # Safety
            ///
            /// 1. `range` lies in the slice, which is borrowed for `'a`, and nobody else gets any of it.
            unsafe fn part<'a>(&self, range: Range<usize>) -> &'a mut [T] {
                // SAFETY: (1).
                unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
            }
        }
        let (len, start) = (slice.len(), Start(slice.as_mut_ptr()));
        // SAFETY: `for_each_range` gives each element to one call, and has ended when the borrow does.
        self.for_each_range(0..len, |range| func(unsafe { start.part(range) }));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_cut_at_the_front_by_its_owner_and_halved_at_the_back_by_others() {
        let share = Share::new(10, 20);
        assert_eq!(
            share.front(3),
            Some((Share::new(10, 13), Share::new(13, 20)))
        );
        assert_eq!(
            share.front(100),
            Some((Share::new(10, 15), Share::new(15, 20)))
        );
        assert_eq!(share.back(), Some((Share::new(15, 20), Share::new(10, 15))));
        let one = Share::new(7, 8);
        assert_eq!(one.front(5), Some((one, Share::new(8, 8))));
        assert_eq!(one.back(), Some((one, Share::new(7, 7))));
        assert_eq!(Share::new(0, 0).front(1), None);
        assert_eq!(Share::new(9, 9).back(), None);
        let last = Share::new(u32::MAX - 1, u32::MAX);
        assert_eq!(last.front(1), Some((last, Share::new(u32::MAX, u32::MAX))));
    }

    #[test]
    fn shares_give_each_unit_once() {
        let shares = Shares::new(3, 100);
        let mut given = [0; 100];
        let mut give = |piece: Share| {
            (piece.start()..piece.end()).for_each(|unit| given[unit as usize] += 1);
        };
        assert_eq!(shares.next(1, 1), None);
        give(shares.next(0, 4).unwrap());
        assert_eq!(shares.steal(1, 1), Some(Share::new(52, 53)));
        give(Share::new(52, 53));
        assert_eq!(shares.steal(2, 5), Some(Share::new(28, 33)));
        give(Share::new(28, 33));
        for seat in [2, 1, 0] {
            while let Some(piece) = shares.next(seat, 5) {
                give(piece);
            }
        }
        assert!((0..3).all(|seat| shares.steal(seat, 1).is_none()));
        assert!(given.iter().all(|&times| times == 1), "{given:?}");
    }

    #[test]
    fn pieces_grow_while_they_are_short_and_shrink_when_they_are_long() {
        let us = time::cycles_per_us();
        assert_eq!(next_most(4, 0), 8);
        assert_eq!(next_most(4, PIECE_US * us), 4);
        assert_eq!(next_most(4, 100 * PIECE_US * us), 2);
        assert_eq!(next_most(1, u64::MAX), 1);
        assert_eq!(next_most(u32::MAX, 0), u32::MAX);
    }
}
