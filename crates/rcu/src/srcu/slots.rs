//! Counters of sections that began and ended: one cache line for each thread.
//!
//! # Counters
//!
//! A domain counts the sections that began (`locks`) and that ended (`unlocks`), for each of two
//! *parities*. Every thread has its own counters, so each end of a section is a plain increment.
//! The thread that counts the end may differ from the thread that counted the beginning, because a
//! grace period uses only the sums.
//!
//! ```text
//! reader                                       grace period
//!   p = parity            relaxed                fence; H: every line is OFF, or answers, or
//!                                                       heavy barrier
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
//! A thread finds its line by its thread index, in chunks that double in size and never move. Only
//! the thread with that index writes the line. A thread whose thread-locals have been destroyed has
//! no index, and counts in a shared line, with read-modify-writes.
//!
//! # Why no reader is missed
//!
//! For each line, H is the event that makes the sections that have begun visible to the driver
//! (`slot.rs`):
//!
//! - *The line is `OFF`.* Its next section leaves the parking, with a full fence. If the reader's
//!   fence comes first, the driver does not find `OFF`. If the driver's fence comes first, the
//!   section sees the unlinking.
//! - *The line has answered* since it was asked. Everything that its thread counted before the
//!   answer is visible to the driver, and everything that the thread reads after the answer sees
//!   the unlinking. The thread may have sections open, because the answer only publishes its
//!   counts.
//! - *Otherwise* the driver passes the heavy barrier. A line that has counted nothing since the
//!   last scan, because its thread sleeps, has exited or waits for a CPU, gets `PARK` before the
//!   barrier and `OFF` after it. As a result, only the first grace period after a reader has
//!   stopped needs the barrier, even while a guard is held.
//!
//! Consider a section that a grace period must wait for, because the section may have read a value
//! that was unlinked before the grace period began. Its light barrier therefore came before H. In
//! each of the three cases its increment of `locks[p]` is visible to every sum taken after H.
//! (A thread without an index counts with a read-modify-write and, like a thread whose line is
//! parked, then passes a full fence.)
//!
//! *If the sum of unlocks includes a section's unlock, the sum of locks includes its lock.* The
//! unlocks are added up first. An unlock is stored with release after its lock, and loaded with
//! acquire before the locks are loaded. Each unlock in the first sum therefore has its lock in the
//! second, and a visible section that has not ended makes the second sum greater by one.
//!
//! While our section runs, the sums of its parity are therefore never equal. The grace period has
//! seen equal sums of *both* parities, each after H, so the section is over. The acquire of its
//! unlock orders its accesses before the end of the grace period.
//!
//! # Why there are two parities, and both are drained
//!
//! A reader may sleep between the load of the parity and the increment, while any number of grace
//! periods pass. A grace period that drains only the parity that was current before its flip misses
//! that reader (the *single flip*). The other parity is therefore also drained, before the flip.
//!
//! The flip only ensures progress, because a stream of overlapping sections could keep the sums of
//! one parity unequal forever. After it, at most one late reader per thread can still enter the old
//! one. A domain whose sums are equal at once needs no flip.
//!
//! The counters have 64 bits and do not wrap: at one section per nanosecond, that would take 584
//! years.
//!
//! # Sleeping
//! A grace period that must wait stores the parity that it waits for in `asked`, passes a heavy
//! barrier, compares the sums once more and sleeps. The reader's side is in `Shared::leave`
//! (`ORDER(srcu-leave)`). Readers of the other parity wake no thread.

use std::ptr;

use base::internal::panics::die;
use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use sync::{identity, thread, twin};

use crate::domain::ANSWERS_AT_ONCE;
use crate::slot::{ASK, Flags, NrActive, PARK};

/// The number of lines in the first chunk. Each further chunk has twice the number.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// The number of chunks. They suffice for four million threads, the kernel's maximum.
const NR_CHUNKS: usize = if cfg!(any(loom, shuttle)) { 6 } else { 20 };

/// One of the two sets of counters: 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parity(u8);

pub(super) struct Line {
    /// A: sections that began. Written by the thread with this index.
    locks: [AtomicU64; 2],
    /// A: sections that ended. Written by the thread with this index.
    unlocks: [AtomicU64; 2],
    /// A: the flags; see `slot.rs` in the parent folder.
    flags: Flags,
    /// The number of sections that had begun at the last scan. Written by the driver.
    nr_seen: AtomicU64,
}

pub(super) struct Slots {
    /// A: the first line of each chunk, or null. It is set once and freed with the table.
    chunks: [AtomicPtr<CachePadded<Line>>; NR_CHUNKS],
    /// A: the line of all threads without an index.
    shared: CachePadded<Line>,
    /// The number of lines that are not `OFF`.
    nr_active: NrActive,
}

impl Parity {
    #[inline(always)]
    pub(crate) fn of(word: u32) -> Self {
        Self((word & 1) as u8)
    }

    pub(super) fn other(self) -> Self {
        Self(self.0 ^ 1)
    }

    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        u32::from(self.0)
    }

    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self.0 & 1)
    }
}

/// Returns the chunk of the line for the thread index `seat`, from 1, and the index in that chunk.
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

    #[inline(always)]
    pub(super) fn mine(&self) -> Option<&Line> {
        let (chunk, at) = place(identity::seat()?.get());
        // Acquire pairs with `grow`, in which another thread may have created the chunk.
        let first = self.chunks[chunk].load(Ordering::Acquire);
        let first = if first.is_null() { self.grow(chunk) } else { first };
        // SAFETY: `place` returns an index below `lines_in(chunk)`. Only `drop` frees the chunk.
        Some(unsafe { &*first.add(at) })
    }

    /// Makes drivers scan `line` again if it was parked. Its section has been counted.
    #[inline(always)]
    pub(super) fn leave_parking(&self, line: &Line) {
        if line.flags.has(PARK) {
            line.flags.leave_parking(&self.nr_active);
        }
    }

    /// Counts a section of a thread without an index, which drivers do not ask.
    #[cold]
    pub(super) fn lock_shared(&self, parity: Parity) {
        self.shared.locks[parity.index()].fetch_add(1, Ordering::Relaxed);
        // This replaces the light barrier in `Shared::enter` and an answer to the driver.
        fence(Ordering::SeqCst);
    }

    /// Counts the end of a section on a thread without an index.
    #[cold]
    pub(super) fn unlock_shared(&self, parity: Parity) {
        // This releases as in `Line::unlock`.
        self.shared.unlocks[parity.index()].fetch_add(1, Ordering::Release);
        // This replaces the light barrier in `Shared::leave`.
        fence(Ordering::SeqCst);
    }

    // ---- for waiters ----

    /// Parks the line of this thread, which waits for another driver and will not answer it.
    pub(super) fn park_mine(&self) {
        if let Some(line) = self.mine_if_made()
            && !line.flags.is_off()
        {
            line.flags.park(0, &self.nr_active);
        }
    }

    /// Scans the lines, and asks those that may be running. Returns `true` if each of them has
    /// passed a barrier since the driver's full fence. Otherwise the driver passes the heavy
    /// barrier, and calls [`confirm`](Self::confirm).
    pub(super) fn have_all_answered(&self) -> bool {
        if self.nr_active.get() == 0 {
            return true;
        }
        let (mut nr_asked, mut nr_quiet) = (0, 0);
        for line in self.others() {
            // The line is asked first, so that the cache line is transferred only once.
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
        self.others().all(|line| line.flags.answers_soon())
    }

    /// Parks the lines that have `PARK`, after the heavy barrier, and withdraws questions.
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

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.chunks.iter().enumerate().flat_map(|(chunk, lines)| {
            // Acquire pairs with `grow`, so that a visible chunk contains its initial zeros. If the
            // reader that created it passed its full fence before ours, we find the chunk.
            // Otherwise its section sees the unlinking.
            let first = lines.load(Ordering::Acquire);
            let nr = if first.is_null() { 0 } else { lines_in(chunk) };
            // SAFETY: `grow` created a chunk of `lines_in` lines, and only `drop` frees it.
            (0..nr).map(move |at| unsafe { &**first.add(at) })
        })
    }

    /// Returns the lines that are not `OFF`, except this thread's.
    fn others(&self) -> impl Iterator<Item = &Line> {
        let mine = self.mine_if_made().map(ptr::from_ref);
        self.lines().filter(move |line| mine != Some(ptr::from_ref(*line)) && !line.flags.is_off())
    }

    fn mine_if_made(&self) -> Option<&Line> {
        let (chunk, at) = place(identity::seat()?.get());
        // This acquires as in `lines`.
        let first = self.chunks[chunk].load(Ordering::Acquire);
        // SAFETY: as in `mine`.
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
        self.are_equal(
            |line, order| line.unlocks[0].load(order).wrapping_add(line.unlocks[1].load(order)),
            |line, order| line.locks[0].load(order).wrapping_add(line.locks[1].load(order)),
        )
    }

    /// Sums up `ends` and then `beginnings` over all lines, and compares the sums.
    fn are_equal(
        &self,
        ends: impl Fn(&Line, Ordering) -> u64,
        beginnings: impl Fn(&Line, Ordering) -> u64,
    ) -> bool {
        let sum = |count: &dyn Fn(&Line, Ordering) -> u64, order| -> u64 {
            let shared = count(&self.shared, order);
            self.lines().fold(shared, |sum, line| sum.wrapping_add(count(line, order)))
        };
        // ORDER(srcu-count): other end in `unlock`. The unlocks are summed first; see the top.
        // Test: srcu_reader_protects_its_data
        let (nr_locks, nr_unlocks);
        if twin::armed("srcu: locks summed first") {
            nr_locks = sum(&beginnings, Ordering::Relaxed);
            nr_unlocks = sum(&ends, Ordering::Acquire);
        } else {
            nr_unlocks = sum(&ends, Ordering::Acquire);
            nr_locks = sum(&beginnings, Ordering::Relaxed);
        }
        let nr_open = nr_locks.wrapping_sub(nr_unlocks);
        // This is never true, see the top of the file, except for a model's twin.
        if nr_open > u64::MAX / 2 && !cfg!(any(loom, shuttle)) {
            ended_too_often();
        }
        nr_open == 0
    }

    #[cold]
    fn grow(&self, chunk: usize) -> *mut CachePadded<Line> {
        let lines: Box<[CachePadded<Line>]> =
            (0..lines_in(chunk)).map(|_| CachePadded::new(Line::new())).collect();
        let lines = Box::into_raw(lines).cast();
        let place = &self.chunks[chunk];
        let (empty, release, acquire) = (ptr::null_mut(), Ordering::Release, Ordering::Acquire);
        // If our exchange comes first, Release publishes our lines. If another thread's comes
        // first, Acquire makes its lines visible, and we free ours.
        match place.compare_exchange(empty, lines, release, acquire) {
            Ok(_) => lines,
            Err(theirs) => {
                // SAFETY: `lines` came from `into_raw` above, and no other thread has seen it.
                unsafe { free(lines, chunk) };
                theirs
            }
        }
    }
}

sync::on_drop!(Slots, it => for (chunk, lines) in it.chunks.iter().enumerate() {
    let lines = lines.load(Ordering::Relaxed);
    if !lines.is_null() {
        // SAFETY: `grow` stored this chunk once, and we have exclusive access to the table.
        unsafe { free(lines, chunk) };
    }
});

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

    #[inline(always)]
    pub(super) fn lock(&self, parity: Parity) {
        count(&self.locks[parity.index()], Ordering::Relaxed);
    }

    /// Counts a section that ended, and releases its accesses to the driver that reads the count.
    #[inline(always)]
    pub(super) fn unlock(&self, parity: Parity) {
        // ORDER(srcu-count): publish and consume, other end in `are_equal`.
        //   reader:    the section's lock and reads;  unlocks += 1 Release
        //   are_equal: sum of unlocks Acquire;        sum of locks, then free
        // If our store comes first, the driver's sums include our lock, and our reads happen before
        // it frees. If its load comes first, the sums are unequal, and it waits. Without the pair
        // the sum could include our unlock and miss our lock.
        // Test: srcu_reader_protects_its_data
        let order = twin::order("srcu: relaxed unlock", Ordering::Release);
        count(&self.unlocks[parity.index()], order);
        if twin::armed("srcu: relaxed unlock") {
            // The fence that follows would hide the bug: loom runs no other thread between a store
            // and a fence.
            thread::yield_now();
        }
    }

    /// Answers a driver that has asked.
    #[inline(always)]
    pub(super) fn answer(&self) {
        // This twin is not a bug. Models of answers need it, because loom remembers only the last
        // load of a word, which is the driver's own (`others`). Loom would therefore never run a
        // driver between the barrier of `leave` and this load.
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

/// Adds one to a counter that only this thread writes.
#[inline(always)]
fn count(counter: &AtomicU64, order: Ordering) {
    counter.store(counter.load(Ordering::Relaxed) + 1, order);
}

/// Aborts the process, because no grace period of the domain would end.
#[cold]
fn ended_too_often() -> ! {
    die("srcu_read_unlock: the domain has more unlocks than locks")
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use sync::asym;

    use super::*;

    #[test]
    fn every_thread_index_has_its_own_slot() {
        let mut expected = (0, 0);
        for seat in 1..10_000 {
            assert_eq!(place(seat), expected);
            expected.1 += 1;
            if expected.1 == lines_in(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        // The number is the kernel's `PID_MAX_LIMIT`.
        assert!(place(4 << 20).0 < NR_CHUNKS);
    }

    #[test]
    fn a_section_keeps_its_parity_alone_undrained() {
        let slots = Slots::new();
        let (even, odd) = (Parity::of(0), Parity::of(1));
        slots.mine().unwrap().lock(odd);
        assert!(slots.drained(even) && !slots.drained(odd));
        std::thread::scope(|scope| {
            scope.spawn(|| slots.mine().unwrap().unlock(odd)).join().unwrap()
        });
        assert!(slots.drained(odd));
    }

    #[test]
    fn stopped_reader_costs_one_barrier() {
        let slots = Slots::new();
        assert!(slots.have_all_answered(), "no thread has read");
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
                // The first scan asks. The second one finds that no section has begun since the
                // first, and parks.
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
