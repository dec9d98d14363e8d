//! Work on a range that is cut into pieces as threads take them.
//!
//! A participant takes the next piece from the front of the untaken elements, with one atomic
//! update to a counter. Each element is therefore in one piece, and the participant that took a
//! piece works on it. The owner sends one ticket. Each guest that finds untaken elements sends
//! another one, up to the number of workers. A guest that finds none returns to its pool.
//!
//! # The size of a piece
//!
//! The time that one element takes is not known in advance. A participant therefore begins with one
//! element, and doubles or halves the next piece if the last one took less or more than
//! [`PIECE_US`]. A piece has at most half of an equal share of the untaken elements, so that
//! participants end at about the same time.

use std::ops::Range;

use base::internal::panics::{Foreign, guarded_in_item};
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, time, twin};

use super::crew::{Crew, FirstPanic, Ticket, Tickets, whole};
use crate::queues::queue::Workqueue;

/// The target duration of a piece, within a factor of two. Taking a piece costs about 50 ns, a
/// fraction of a percent. At the end, participants wait about this long for each other.
const PIECE_US: u64 = 20;

/// The elements that no participant has taken: those at index `nr_taken` and above.
pub(super) struct Untaken {
    /// A
    nr_taken: AtomicUsize,
    /// I
    len: usize,
    /// I: the maximum number of participants.
    nr_seats: usize,
}

impl Untaken {
    pub(super) fn new(len: usize, nr_seats: usize) -> Self {
        Self { nr_taken: AtomicUsize::new(0), len, nr_seats }
    }

    /// Takes a piece of at most `most` elements from the front; `None` if no element is left.
    ///
    /// Relaxed suffices, because the counter publishes only its own value.
    pub(super) fn take(&self, most: usize) -> Option<Range<usize>> {
        let end = |start: usize| {
            let left = self.len - start;
            let len = most.min(left / (2 * self.nr_seats)).max(1);
            (left > 0).then(|| start + len)
        };
        let relaxed = Ordering::Relaxed;
        let start = if twin::armed("pieces: a piece is taken without a check") {
            let start = self.nr_taken.load(relaxed);
            self.nr_taken.store(end(start)?, relaxed);
            start
        } else {
            self.nr_taken.fetch_update(relaxed, relaxed, end).ok()?
        };
        Some(start..end(start)?)
    }

    fn is_empty(&self) -> bool {
        self.nr_taken.load(Ordering::Relaxed) == self.len
    }
}

struct Pieces<'a, F> {
    queue: &'a Workqueue,
    func: &'a F,
    start: usize,
    untaken: Untaken,
    /// A: set after a piece has panicked.
    stopped: AtomicBool,
    first_panic: FirstPanic,
    tickets: Tickets,
}

impl<F: Fn(Range<usize>) + Sync> Pieces<'_, F> {
    /// # Safety
    ///
    /// 1. `work` points to a `Self` that is valid until this returns.
    unsafe fn visit(work: *const (), ticket: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        this.call_next(&ticket.crew);
        this.serve();
    }

    fn call_next(&self, crew: &Arc<Crew>) {
        if !self.untaken.is_empty() {
            self.tickets.send(self.queue, crew);
        }
    }

    fn serve(&self) {
        let mut most = 1;
        while !self.stopped.load(Ordering::Relaxed)
            && let Some(piece) = self.untaken.take(most)
        {
            let start = time::cycles();
            let piece = self.start + piece.start..self.start + piece.end;
            // FOREIGN(scope-run): the closure on a piece, on a guest or the owner; a panic is
            // contained.
            if let Err(payload) = guarded_in_item(|| (self.func)(piece)) {
                self.stopped.store(true, Ordering::Relaxed);
                return self.first_panic.note(&self.queue.inner.core, payload);
            }
            most = next_most(most, time::cycles().saturating_sub(start));
        }
    }
}

/// Returns the maximum length of the next piece, after a piece of at most `most` took `cycles`.
fn next_most(most: usize, cycles: u64) -> usize {
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
    /// Calls `func` on pieces that together cover `range`, on this thread and this queue's workers.
    ///
    /// The size of a piece depends on the time that earlier pieces took. A piece takes about 20
    /// microseconds, and has at least one element. Its size is therefore arbitrary; for chunks of a
    /// given size, use [`for_each_chunk`](Self::for_each_chunk).
    ///
    /// # Guarantees
    ///
    /// - When this returns, `func` has been called once for each element, and no call is running.
    /// - The caller runs only pieces of this range while it waits. It needs no worker and no seat:
    ///   see [`scope`](Self::scope). The number of helping workers is bounded by `max_active`, and
    ///   by the number of workers that run at once on one pod.
    /// - If `func` panics, no further piece starts, and the first panic is resumed at the end.
    ///
    /// # Blocking
    ///
    /// Blocks until all pieces have ended. If an item calls this, its pool can start another
    /// worker.
    ///
    /// # Panics
    ///
    /// Resumes the first panic from `func`; otherwise panics as [`scope`](Self::scope) does.
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
        let home = self.here();
        let nr_guests = home.gate.max().min(home.pool.target());
        let nr_guests = nr_guests.min(u32::try_from(range.len() - 1).unwrap_or(u32::MAX));
        let pieces = Pieces {
            queue: self,
            func: &func,
            start: range.start,
            untaken: Untaken::new(range.len(), nr_guests as usize + 1),
            stopped: AtomicBool::new(false),
            first_panic: FirstPanic::default(),
            tickets: Tickets::new(nr_guests),
        };
        // SAFETY: `pieces` is not moved or dropped until the crew has been closed below.
        let crew = unsafe { Crew::new((&raw const pieces).cast(), Pieces::<F>::visit) };
        pieces.call_next(&crew);
        whole(|| {
            pieces.serve();
            crew.close(home.rules.one_cpu);
        });
        pieces.tickets.take_back();
        pieces.first_panic.go_on(Ok(()));
    }

    /// Calls `func` with the number and the elements of each chunk of `slice`, on this thread and
    /// this queue's workers. A chunk has `size` elements; the last one may be shorter.
    ///
    /// The chunks are those of [`slice::chunks`] with `enumerate`, in any order. Threads take
    /// several chunks at a time if these are short, so a small `size` costs little. Panics if
    /// `size` is 0. Everything else is the same as for [`for_each_range`](Self::for_each_range).
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
    /// queue.for_each_chunk(&numbers, 100, |y, row| {
    ///     assert_eq!(row[0], 100 * y as u64);
    ///     sum.fetch_add(row.iter().sum(), Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 49_995_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("par_chunks", "par_iter"))]
    pub fn for_each_chunk<T: Sync>(
        &self,
        slice: &[T],
        size: usize,
        func: impl Fn(usize, &[T]) + Sync,
    ) {
        self.for_each_part(slice.len(), size, |number, range| func(number, &slice[range]));
    }

    /// Divides `0..len` into parts of `size` elements, and calls `func` with each number and range.
    fn for_each_part(&self, len: usize, size: usize, func: impl Fn(usize, Range<usize>) + Sync) {
        assert!(size > 0, "a chunk has at least one element");
        self.for_each_range(0..len.div_ceil(size), |numbers| {
            for number in numbers {
                let start = number * size;
                func(number, start..len.min(start.saturating_add(size)));
            }
        });
    }

    /// Maps pieces that together cover `range`, on this thread and this queue's workers, and
    /// reduces the results to one; `None` if the range is empty.
    ///
    /// Pieces have arbitrary sizes, and results are reduced in any order and grouping, so `reduce`
    /// must be associative and commutative. Resumes the first panic from `map` or `reduce`.
    /// Everything else is the same as for [`for_each_range`](Self::for_each_range).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let numbers: Vec<u64> = (0..10_000).collect();
    /// let sum = queue.map_reduce(
    ///     0..numbers.len(),
    ///     |range| numbers[range].iter().sum(),
    ///     |a: u64, b| a + b,
    /// );
    /// assert_eq!(sum, Some(49_995_000));
    /// // Over whole chunks: the range is that of the chunks.
    /// let rows: Vec<&[u64]> = numbers.chunks(100).collect();
    /// let last = |rows: &[&[u64]]| rows.iter().map(|row| row[99]).max();
    /// let last = queue.map_reduce(0..rows.len(), |range| last(&rows[range]), Ord::max);
    /// assert_eq!(last, Some(Some(9_999)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("fold", "par_bridge", "sum"))]
    pub fn map_reduce<R: Send>(
        &self,
        range: Range<usize>,
        map: impl Fn(Range<usize>) -> R + Sync,
        reduce: impl Fn(R, R) -> R + Sync,
    ) -> Option<R> {
        // FOREIGN(scope-run): the drop of a partial result, on the owner, while it resumes the
        // panic of a piece; a panic in the drop is contained by `Foreign`.
        let result = Foreign::new(Mutex::new(None));
        self.for_each_range(range, |piece| {
            let mut part = map(piece);
            loop {
                // No user code runs under the lock: the slot is empty when a part is stored.
                let mut slot = result.lock();
                let Some(other) = slot.take() else {
                    *slot = Some(part);
                    return;
                };
                drop(slot);
                part = reduce(other, part);
            }
        });
        result.lock().take()
    }

    /// Calls `func` with the number and the elements of each mutable chunk of `slice`, as
    /// [`for_each_chunk`](Self::for_each_chunk) does.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// const WIDTH: usize = 30;
    /// let mut picture = vec![0; WIDTH * 100];
    /// queue.for_each_chunk_mut(&mut picture, WIDTH, |y, row| row.fill(y));
    /// assert_eq!(picture[WIDTH * 99 - 1], 98);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "par_chunks_mut")]
    pub fn for_each_chunk_mut<T: Send>(
        &self,
        slice: &mut [T],
        size: usize,
        func: impl Fn(usize, &mut [T]) + Sync,
    ) {
        /// The start of a slice, each element of which is accessed by one thread.
        struct Start<T>(*mut T);
        // SAFETY: the elements are `Send`, and one thread accesses each of them.
        unsafe impl<T: Send> Sync for Start<T> {}
        impl<T> Start<T> {
            /// # Safety
            ///
            /// 1. `range` is in the slice, borrowed for `'a`, and disjoint from those of other
            ///    calls.
            unsafe fn part<'a>(&self, range: Range<usize>) -> &'a mut [T] {
                // SAFETY: (1).
                unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
            }
        }
        let (len, start) = (slice.len(), Start(slice.as_mut_ptr()));
        self.for_each_part(len, size, |number, range| {
            // SAFETY: (1): `for_each_part` passes each element to one call, within the borrow.
            func(number, unsafe { start.part(range) });
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_contiguous_and_leave_some_for_others() {
        let untaken = Untaken::new(100, 2);
        assert_eq!(untaken.take(1), Some(0..1));
        assert_eq!(untaken.take(usize::MAX), Some(1..25));
        assert!(!untaken.is_empty());
        let rest: Vec<_> = std::iter::from_fn(|| untaken.take(5)).collect();
        let ends = rest.iter().map(|it| it.end);
        assert!(ends.eq(rest.iter().skip(1).map(|it| it.start).chain([100])));
        assert!(untaken.is_empty() && untaken.take(1).is_none());
        let all = Untaken::new(usize::MAX, 1);
        assert_eq!(all.take(usize::MAX), Some(0..usize::MAX / 2));
    }

    #[test]
    fn pieces_grow_while_short_and_shrink_when_long() {
        let us = time::cycles_per_us();
        assert_eq!(next_most(4, 0), 8);
        assert_eq!(next_most(4, PIECE_US * us), 4);
        assert_eq!(next_most(4, 100 * PIECE_US * us), 2);
        assert_eq!(next_most(1, u64::MAX), 1);
        assert_eq!(next_most(usize::MAX, 0), usize::MAX);
    }
}
