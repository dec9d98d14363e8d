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
//!   p = parity            relaxed                fence; H: every line is OFF, or answers, or heavy barrier
//!   locks[p] += 1         relaxed                drained(both)?           over
//!   light barrier                                drained(1 - parity)?     wait
//!   PARK? leave parking                          parity = 1 - parity; drained(before)?   wait
//!   … the section …
//!   unlocks[p] += 1       release              drained(p): u = sum of unlocks[p]   acquire
//!   light barrier                                          sum of locks[p] == u    relaxed
//!   ASK? answer
//!   asked for p? wake
//! ```
//!
//! A thread finds its line by its seat, a small number, in chunks that double in size and never move. Only the thread in
//! that seat writes the line. The seat's next thread goes on from the counts that it finds. A thread whose thread-locals
//! have been destroyed has no seat: it counts in a shared line, by read-modify-writes.
//!
//! # Why no reader is missed
//!
//! H stands for what makes visible to the driver which sections have begun, line by line (`flags.rs`):
//!
//! - *The line is `OFF`.* Its next section leaves the parking, with a full fence. If the reader's fence comes first, the
//!   driver does not find `OFF`. If the driver's fence comes first, the section sees what was unlinked.
//! - *The line has answered* since it was asked. What its thread counted before the answer is visible to the driver; what it
//!   reads after the answer was unlinked for it. The thread may have sections open: it only says what it has counted.
//! - *Else* the driver passes the heavy barrier. A line that has counted nothing since the last scan, because its thread
//!   sleeps, has ended or waits for a CPU, gets `PARK` before the barrier and `OFF` behind it. So the barrier is for the first
//!   grace period after a reader has stopped, and the next one does without, also while a guard is held.
//!
//! Take a section that must be waited for: it may have read a value that was unlinked before the grace period began. So its
//! light barrier came before H. By one of the three its increment of `locks[p]` is visible to every sum that is taken after
//! H. (Threads without a seat count by a read-modify-write and pass a full fence, as lines do that leave their parking.)
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
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
    hint, identity, thread, twin,
};

use crate::{
    panics::die,
    rcu::{
        flags::{ASK, Flags, NrActive, PARK},
        gp::{ANSWER_SPINS, ANSWERS_AT_ONCE},
    },
};

/// Lines in the first chunk. Each further chunk has twice as many as the one before.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// Enough chunks for four million threads, the kernel's largest number of threads.
const NR_CHUNKS: usize = if cfg!(any(loom, shuttle)) { 6 } else { 20 };

/// One of the two sets of counters: 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parity(u8);

#[derive(Debug)]
pub(super) struct Line {
    /// A: sections that began. Written by the seat's thread.
    locks: [AtomicU64; 2],
    /// A: sections that ended. Written by the seat's thread.
    unlocks: [AtomicU64; 2],
    /// A: see `flags.rs`.
    flags: Flags,
    /// How many sections had begun at the last scan. Written by the driver.
    nr_seen: AtomicU64,
}

/// All lines of a domain.
#[derive(Debug)]
pub(super) struct Slots {
    /// A: null, or the first line of the chunk. Set once, freed with the table.
    chunks: [AtomicPtr<CachePadded<Line>>; NR_CHUNKS],
    /// A: for threads without a seat.
    shared: CachePadded<Line>,
    /// How many lines are not `OFF`.
    nr_active: NrActive,
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
            shared: CachePadded::new(Line::new()),
            nr_active: NrActive::new(),
        }
    }

    /// Returns the line of this thread, or `None` if the thread has no seat.
    #[inline(always)]
    pub(super) fn mine(&self) -> Option<&Line> {
        identity::seat().map(|seat| self.line(seat.get()))
    }

    /// Has drivers look at `line` again if it was parked. Its section has been counted.
    #[inline(always)]
    pub(super) fn leave_parking(&self, line: &Line) {
        if line.flags.has(PARK) {
            line.flags.leave_parking(&self.nr_active);
        }
    }

    /// Counts a section of a thread without a seat. Passes a full fence: such a thread is not asked.
    #[cold]
    pub(super) fn lock_shared(&self, parity: Parity) {
        self.shared.locks[parity.index()].fetch_add(1, Ordering::Relaxed);
        // Stands for the light barrier in `Shared::enter`, and for an answer.
        fence(Ordering::SeqCst);
    }

    /// Counts the end of a section on a thread without a seat. Passes a full fence.
    #[cold]
    pub(super) fn unlock_shared(&self, parity: Parity) {
        // Release as in `Line::unlock`.
        self.shared.unlocks[parity.index()].fetch_add(1, Ordering::Release);
        // Stands for the light barrier in `Shared::leave`.
        fence(Ordering::SeqCst);
    }

    // ---- for those who wait ----

    /// Parks the line of this thread, which waits for another one that drives: it will answer nobody.
    pub(super) fn park_mine(&self) {
        if let Some(line) = self.mine_if_made()
            && !line.flags.is_off()
        {
            line.flags.park(0, &self.nr_active);
        }
    }

    /// Scans the lines, and asks those that may be running. Returns `true` if each of them has passed a barrier since, so
    /// that the driver needs none. Else the driver passes the heavy barrier, and calls [`confirm`](Self::confirm).
    ///
    /// The driver has passed a full fence since its grace period began.
    pub(super) fn have_all_answered(&self) -> bool {
        if self.nr_active.get() == 0 {
            return true;
        }
        let (mut nr_asked, mut nr_quiet) = (0, 0);
        for line in self.others() {
            // First, so that its cache line comes over once.
            line.flags.ask();
            nr_asked += 1;
            let nr_begun = line.nr_begun();
            if line.nr_seen.load(Ordering::Relaxed) == nr_begun {
                line.flags.want_parked();
                nr_quiet += 1;
            }
            line.nr_seen.store(nr_begun, Ordering::Relaxed);
        }
        if nr_quiet > 0 || nr_asked > ANSWERS_AT_ONCE {
            return false;
        }
        let mut nr_left = ANSWER_SPINS;
        self.others().all(|line| {
            while nr_left > 0 && !line.flags.has_answered() {
                nr_left -= 1;
                hint::spin_loop();
            }
            line.flags.has_answered()
        })
    }

    /// Parks the lines that are to be parked, behind the heavy barrier, and takes questions back.
    pub(super) fn confirm(&self) {
        for line in self.others() {
            if line.flags.has(PARK) {
                line.flags.confirm_parked(&self.nr_active);
            }
            if line.flags.has(ASK) {
                line.flags.withdraw();
            }
        }
    }

    /// Returns all lines.
    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.chunks.iter().enumerate().flat_map(|(chunk, lines)| {
            // Acquire pairs with `grow`: a chunk comes with its zeroes. If the reader that made it passed its full fence
            // before ours, we find the chunk; else its section sees what was unlinked.
            let first = lines.load(Ordering::Acquire);
            let nr = if first.is_null() { 0 } else { lines_in(chunk) };
            // SAFETY: `grow` made a chunk of `lines_in` lines, and `drop` alone frees it.
            (0..nr).map(move |at| unsafe { &**first.add(at) })
        })
    }

    /// Returns the lines that are not `OFF`, but this thread's.
    fn others(&self) -> impl Iterator<Item = &Line> {
        let mine = self.mine_if_made().map(ptr::from_ref);
        self.lines()
            .filter(move |line| mine != Some(ptr::from_ref(*line)) && !line.flags.is_off())
    }

    /// Returns the line of this thread if it has been made.
    fn mine_if_made(&self) -> Option<&Line> {
        let (chunk, at) = place(identity::seat()?.get());
        // Acquire as in `lines`.
        let first = self.chunks[chunk].load(Ordering::Acquire);
        // SAFETY: as in `line`.
        (!first.is_null()).then(|| unsafe { &**first.add(at) })
    }

    /// Returns `true` if every section that was counted under `parity` before this call has ended.
    pub(super) fn drained(&self, parity: Parity) -> bool {
        let at = parity.index();
        self.are_equal(
            |line, order| line.unlocks[at].load(order),
            |line, order| line.locks[at].load(order),
        )
    }

    /// Returns `true` if every section that was counted before this call has ended.
    pub(super) fn all_drained(&self) -> bool {
        // One sum over both parities: an unlock that it has, has its lock in the sum of locks, and so has each of its parity.
        self.are_equal(
            |line, order| {
                line.unlocks[0]
                    .load(order)
                    .wrapping_add(line.unlocks[1].load(order))
            },
            |line, order| {
                line.locks[0]
                    .load(order)
                    .wrapping_add(line.locks[1].load(order))
            },
        )
    }

    /// Sums `ends` and then `beginnings` over all lines, and compares.
    fn are_equal(
        &self,
        ends: impl Fn(&Line, Ordering) -> u64,
        beginnings: impl Fn(&Line, Ordering) -> u64,
    ) -> bool {
        let sum = |count: &dyn Fn(&Line, Ordering) -> u64, order| -> u64 {
            let shared = count(&self.shared, order);
            self.lines()
                .fold(shared, |sum, line| sum.wrapping_add(count(line, order)))
        };
        // ORDER(srcu-count): other end in `unlock`. The unlocks are summed first: see the top of the file.
        // Test: srcu_unlock_needs_release
        let (nr_locks, nr_unlocks);
        if twin::armed("srcu: locks summed first") {
            nr_locks = sum(&beginnings, Ordering::Relaxed);
            nr_unlocks = sum(&ends, Ordering::Acquire);
        } else {
            nr_unlocks = sum(&ends, Ordering::Acquire);
            nr_locks = sum(&beginnings, Ordering::Relaxed);
        }
        let nr_open = nr_locks.wrapping_sub(nr_unlocks);
        // By the top of the file never in a model; a twin of one would end here instead of where it is looked for.
        if nr_open > u64::MAX / 2 && !cfg!(any(loom, shuttle)) {
            ended_too_often();
        }
        nr_open == 0
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
            .map(|_| CachePadded::new(Line::new()))
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

impl Line {
    fn new() -> Self {
        Self {
            locks: Default::default(),
            unlocks: Default::default(),
            flags: Flags::new(),
            nr_seen: AtomicU64::new(0),
        }
    }

    /// Counts a section that begins.
    #[inline(always)]
    pub(super) fn lock(&self, parity: Parity) {
        count(&self.locks[parity.index()], Ordering::Relaxed);
    }

    /// Counts a section that ended, and releases what it did to the driver that reads the count.
    #[inline(always)]
    pub(super) fn unlock(&self, parity: Parity) {
        // ORDER(srcu-count): publish and consume, other end in `are_equal`.
        //   reader:    the section's lock and reads;  unlocks += 1 Release
        //   are_equal: sum of unlocks Acquire;        sum of locks, then free
        // If our store comes first, the driver has our lock in its sums and our reads before it frees. If its load comes
        // first, the sums are unequal, and it waits. Without the pair the sum could have our unlock and miss our lock.
        // Test: srcu_unlock_needs_release
        let order = twin::order("srcu: relaxed unlock", Ordering::Release);
        count(&self.unlocks[parity.index()], order);
        if twin::armed("srcu: relaxed unlock") {
            // The fence that follows would hide it: loom lets nobody run between a store and a fence.
            thread::yield_now();
        }
    }

    /// Answers a driver that has asked.
    #[inline(always)]
    pub(super) fn answer(&self) {
        // No bug, but what models of answers need: of the loads of a word loom remembers the last, and that is the driver's own
        // (`others`). So it would never run a driver between the barrier of `leave` and this load.
        if self.flags.has(ASK) || twin::armed("srcu: answers unasked") {
            self.answer_now();
        }
    }

    #[cold]
    fn answer_now(&self) {
        self.flags.answer();
    }

    fn nr_begun(&self) -> u64 {
        let nr = |parity: usize| self.locks[parity].load(Ordering::Relaxed);
        nr(0).wrapping_add(nr(1))
    }
}

/// Adds one to a counter that this thread alone writes.
#[inline(always)]
fn count(counter: &AtomicU64, order: Ordering) {
    counter.store(counter.load(Ordering::Relaxed) + 1, order);
}

/// Ends the process: no sum of ends and beginnings would be equal again, and no grace period of the domain end.
#[cold]
fn ended_too_often() -> ! {
    die("srcu_read_unlock: a domain has more ends of sections than it had sections")
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use sync::asym;

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
        slots.mine().unwrap().lock(odd);
        assert!(slots.drained(even) && !slots.drained(odd));
        std::thread::scope(|scope| {
            scope
                .spawn(|| slots.mine().unwrap().unlock(odd))
                .join()
                .unwrap()
        });
        assert!(slots.drained(odd));
    }

    #[test]
    fn a_reader_that_has_stopped_takes_one_barrier_and_no_more() {
        let slots = Slots::new();
        assert!(slots.have_all_answered(), "nobody has read");
        let (begin, ended) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let line = slots.mine().unwrap();
                line.lock(Parity::of(0));
                slots.leave_parking(line);
                begin.wait();
                ended.wait();
                line.unlock(Parity::of(0));
            });
            begin.wait();
            for expected in [false, false, true] {
                // The first asks, the second finds that nothing has begun since, and parks.
                assert_eq!(slots.have_all_answered(), expected);
                asym::heavy();
                slots.confirm();
            }
            assert!(!slots.all_drained(), "its section is open all the same");
            ended.wait();
        });
        assert!(slots.have_all_answered() && slots.all_drained());
    }
}
