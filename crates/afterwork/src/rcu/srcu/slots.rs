//! Counters of sections that began and that ended: one cache line for each thread.
//!
//! # Counters
//!
//! A domain counts the sections that began (`locks`) and that ended (`unlocks`), for each of two *parities*. Every thread
//! has counters of its own, so both ends of a section are a plain increment. Another thread may count the end than the
//! beginning: a grace period uses the sums only.
//!
//! ```text
//! reader                                       grace period
//!   p = parity            relaxed                H: heavy barrier
//!   locks[p] += 1         relaxed                drained(1 - parity)?     wait
//!   light barrier                                drained(parity)?         no: parity = 1 - parity, wait
//!   … the section …
//!   unlocks[p] += 1       release              drained(p): u = sum of unlocks[p]   acquire
//!   light barrier                                          sum of locks[p] == u    relaxed
//!   asked for p? wake
//! ```
//!
//! A thread finds its line by its seat, a small number, in chunks that double in size and never move. Only the thread in
//! that seat writes the line. The seat's next thread goes on from the counts that it finds. A thread whose thread-locals
//! have been destroyed has no seat: it counts in a shared line, by read-modify-writes.
//!
//! # Why no reader is missed
//!
//! Take a section that must be waited for: it may have read a value that was unlinked before the grace period began. So its
//! light barrier came before H. By the pairing of the two (`ORDER(srcu-enter)`) its increment of `locks[p]` is visible to
//! every sum that is taken after H.
//!
//! *If the sum of unlocks has a section's unlock, the sum of locks has its lock.* The unlocks are added up first. An unlock
//! is stored with release after its lock, and loaded with acquire before the locks are loaded. So each unlock in the first
//! sum has its lock in the second, and a visible section that has not ended makes the second sum greater by one.
//!
//! So while our section runs, the sums of its parity are never equal. The grace period has seen equal sums of *both*
//! parities, each after H. Whichever parity the section was counted under, it is over. The acquire of its unlock orders all
//! that it did before the end of the grace period.
//!
//! # Why both parities, and why two
//!
//! A reader may count under an old parity: it may sleep between the load of the parity and the increment while any number
//! of grace periods pass. A grace period that flips the parity and drains only the one that was current misses that reader
//! (the *single flip*). So the other parity is drained, too, and first.
//!
//! The flip is for progress only. If new readers used the counters that are compared, a stream of overlapping sections could
//! keep the sums unequal for ever. After the flip new readers count under the other parity, and at most one late reader a
//! thread can still enter the old one. A domain whose sums are equal at once needs no flip.
//!
//! Counters have 64 bits and do not wrap: at one section a nanosecond, that takes 584 years.
//!
//! # Sleeping
//!
//! A grace period that must wait stores the parity that it waits for in `asked`, passes a heavy barrier, adds up once more
//! and sleeps. A reader counts its end, passes a light barrier and loads `asked` (`ORDER(srcu-leave)`). If the reader's
//! barrier comes first, the sums have its end. If the heavy barrier comes first, the reader sees `asked` and wakes the
//! driver. Readers of the other parity wake nobody.

use std::ptr;

use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicPtr, AtomicU64, Ordering},
    identity, thread, twin,
};

/// Lines in the first chunk. Each further chunk has twice as many as the one before.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// Enough chunks for four million threads, the kernel's largest number of threads.
const NR_CHUNKS: usize = if cfg!(any(loom, shuttle)) { 6 } else { 20 };

/// One of the two sets of counters: 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parity(u8);

#[derive(Debug, Default)]
struct Line {
    /// A: sections that began. Written by the seat's thread.
    locks: [AtomicU64; 2],
    /// A: sections that ended. Written by the seat's thread.
    unlocks: [AtomicU64; 2],
}

/// All lines of a domain.
#[derive(Debug)]
pub(super) struct Slots {
    /// A: null, or the first line of the chunk. Set once, freed with the table.
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

    /// Counts a section that ended, and releases what it did to the driver that reads the count.
    #[inline(always)]
    pub(super) fn unlock(&self, parity: Parity) {
        // ORDER(srcu-count): publish and consume, other end in `drained`.
        //   reader:  the section's lock and reads;  unlocks += 1 Release
        //   drained: sum of unlocks Acquire;        sum of locks, then free
        // If our store comes first, the driver has our lock in its sums and our reads before it frees. If its load comes
        // first, the sums are unequal, and it waits. Without the pair the sum could have our unlock and miss our lock.
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

    /// Returns `true` if every section that was counted under `parity` before this call has ended.
    pub(super) fn drained(&self, parity: Parity) -> bool {
        let sum = |counter: fn(&Line) -> &[AtomicU64; 2], order| {
            let mut sum = counter(&self.shared)[parity.index()].load(order);
            for (chunk, lines) in self.chunks.iter().enumerate() {
                // Acquire pairs with `grow`: a chunk comes with its zeroes. If the reader that made it passed its light
                // barrier before our heavy one, we find the chunk; else its section sees what was unlinked.
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
        // ORDER(srcu-count): other end in `unlock`. The unlocks are summed first: see the top of the file.
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
        // Acquire pairs with `grow`, in which another thread may have made the chunk.
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
        // If our exchange comes first, Release publishes our lines. If another thread's comes first, Acquire gives us its
        // lines, and we free ours.
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
    // Release for an unlock, as in `Slots::unlock`. A lock does not need it.
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
