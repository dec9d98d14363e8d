//! Counters of begun and ended sections, a line for each thread.
//!
//! A thread finds its line by its seat, a small number, in chunks that double in size and never move. A line is
//! written by the thread in that seat alone; the seat's next thread goes on counting where it stopped. A thread whose
//! own data is being destroyed has no seat any more: it counts in a line that is shared, by read-modify-writes.

use std::ptr;

use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicPtr, AtomicU64, Ordering},
    identity, thread, twin,
};

/// Lines in the first chunk; each further one has as many as all before it together, and this many more.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// Enough chunks for four million threads, as many as a kernel has numbers for.
const NR_CHUNKS: usize = if cfg!(any(loom, shuttle)) { 6 } else { 20 };

/// Which of the two sets of counters: 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parity(u8);

#[derive(Debug, Default)]
struct Line {
    /// A: sections that began, written by the seat's thread.
    locks: [AtomicU64; 2],
    /// A: sections that ended, as above.
    unlocks: [AtomicU64; 2],
}

/// All lines of a domain.
#[derive(Debug)]
pub(super) struct Slots {
    /// A: null, or the first line of the chunk; set once, freed with the table.
    chunks: [AtomicPtr<CachePadded<Line>>; NR_CHUNKS],
    /// A: for threads without a seat.
    shared: CachePadded<Line>,
}

impl Parity {
    #[inline(always)]
    pub(super) fn of(word: u32) -> Self {
        Self((word & 1) as u8)
    }

    pub(super) fn other(self) -> Self {
        Self(self.0 ^ 1)
    }

    #[inline(always)]
    pub(super) fn word(self) -> u32 {
        u32::from(self.0)
    }

    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self.0 & 1)
    }
}

/// Returns the chunk and the place in it of the line for seat `seat`, which counts from 1.
#[inline(always)]
fn place(seat: u32) -> (usize, usize) {
    let number = seat - 1 + FIRST;
    let chunk = number.ilog2() - FIRST.ilog2();
    (chunk as usize, (number - (FIRST << chunk)) as usize)
}

fn lines_in(chunk: usize) -> usize {
    (FIRST as usize) << chunk
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            shared: CachePadded::default(),
        }
    }

    /// Counts a section that begins.
    #[inline(always)]
    pub(super) fn lock(&self, parity: Parity) {
        match identity::seat() {
            Some(seat) => count(
                &self.line(seat.get()).locks[parity.index()],
                Ordering::Relaxed,
            ),
            None => count_shared(&self.shared.locks[parity.index()]),
        }
    }

    /// Counts a section that ended; releases what it did to whoever sees the count.
    #[inline(always)]
    pub(super) fn unlock(&self, parity: Parity) {
        // ORDER(srcu-count): publish and consume, other end in `drained`.
        //   reader:  the section's lock and reads;  unlocks += 1 Release
        //   drained: sum of unlocks Acquire;        sum of locks, then free
        // Without it the lock could be missing beside its unlock, or the section's reads come after the freeing.
        // Test: srcu_unlock_needs_release
        let order = twin::order("srcu: relaxed unlock", Ordering::Release);
        match identity::seat() {
            Some(seat) => count(&self.line(seat.get()).unlocks[parity.index()], order),
            None => count_shared(&self.shared.unlocks[parity.index()]),
        }
        if twin::armed("srcu: relaxed unlock") {
            // The fence that follows would hide it: loom lets nobody run between a store and a fence.
            thread::yield_now();
        }
    }

    /// Returns `true` if at some moment of this call no section of `parity` was running that had begun before it.
    pub(super) fn drained(&self, parity: Parity) -> bool {
        let sum = |counter: fn(&Line) -> &[AtomicU64; 2], order| {
            let mut sum = counter(&self.shared)[parity.index()].load(order);
            for (chunk, lines) in self.chunks.iter().enumerate() {
                let first = lines.load(Ordering::Acquire);
                if first.is_null() {
                    continue;
                }
                for at in 0..lines_in(chunk) {
                    // SAFETY: `grow` made a chunk of `lines_in` lines, and `drop` alone frees it.
                    let line = unsafe { &*first.add(at) };
                    sum += counter(line)[parity.index()].load(order);
                }
            }
            sum
        };
        // ORDER(srcu-count): other end in `unlock`. The unlocks first: see the module's page.
        // Test: srcu_unlock_needs_release
        let (nr_locks, nr_unlocks);
        if twin::armed("srcu: locks summed first") {
            nr_locks = sum(|line| &line.locks, Ordering::Relaxed);
            nr_unlocks = sum(|line| &line.unlocks, Ordering::Acquire);
        } else {
            nr_unlocks = sum(|line| &line.unlocks, Ordering::Acquire);
            nr_locks = sum(|line| &line.locks, Ordering::Relaxed);
        }
        nr_locks == nr_unlocks
    }

    #[inline(always)]
    fn line(&self, seat: u32) -> &Line {
        let (chunk, at) = place(seat);
        let first = self.chunks[chunk].load(Ordering::Acquire);
        let first = if first.is_null() {
            self.grow(chunk)
        } else {
            first
        };
        // SAFETY: `place` stays below `lines_in(chunk)`; the chunk lives as long as the table, see `drop`.
        unsafe { &*first.add(at) }
    }

    #[cold]
    fn grow(&self, chunk: usize) -> *mut CachePadded<Line> {
        let lines: Box<[CachePadded<Line>]> = (0..lines_in(chunk))
            .map(|_| CachePadded::default())
            .collect();
        let lines = Box::into_raw(lines).cast();
        let empty = ptr::null_mut();
        match self.chunks[chunk].compare_exchange(
            empty,
            lines,
            Ordering::Release,
            Ordering::Acquire,
        ) {
            Ok(_) => lines,
            Err(theirs) => {
                // SAFETY: `lines` came from `into_raw` above, and nobody else has seen it.
                unsafe { free(lines, chunk) };
                theirs
            }
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        for (chunk, lines) in self.chunks.iter().enumerate() {
            let lines = lines.load(Ordering::Relaxed);
            if !lines.is_null() {
                // SAFETY: `grow` stored what it made for this chunk, once; we have the table alone.
                unsafe { free(lines, chunk) };
            }
        }
    }
}

/// Frees a chunk.
///
/// # Safety
///
/// 1. `lines` came from `grow` for this chunk, and is not used again.
unsafe fn free(lines: *mut CachePadded<Line>, chunk: usize) {
    // SAFETY: (1).
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(lines, lines_in(chunk))) });
}

/// Adds one to a counter that this thread alone writes.
#[inline(always)]
fn count(counter: &AtomicU64, order: Ordering) {
    counter.store(counter.load(Ordering::Relaxed) + 1, order);
}

#[cold]
#[inline(never)]
fn count_shared(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Release);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_seat_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for seat in 1..10_000 {
            assert_eq!(place(seat), expected);
            expected.1 += 1;
            if expected.1 == lines_in(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        // As many as the kernel's `PID_MAX_LIMIT`.
        assert!(place(4 << 20).0 < NR_CHUNKS);
    }

    #[test]
    fn a_section_keeps_its_parity_alone_undrained() {
        let slots = Slots::new();
        let (even, odd) = (Parity::of(0), Parity::of(1));
        slots.lock(odd);
        assert!(slots.drained(even) && !slots.drained(odd));
        std::thread::scope(|scope| scope.spawn(|| slots.unlock(odd)).join().unwrap());
        assert!(slots.drained(odd));
    }
}
