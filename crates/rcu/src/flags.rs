//! The requests of drivers to a reader: one word next to the reader's own, and the count of readers
//! that are not parked.
//!
//! Readers of the process have the word in their slot (`slot.rs`), readers of a sleepable domain in
//! their own cache line (`srcu/slots.rs`). Every change is a read-modify-write.
//!
//! | flag | set by | cleared by | means |
//! |---|---|---|---|
//! | `PARK` | driver, or reader | reader | the next outermost section begins by the slow path |
//! | `OFF` | driver, if `PARK` is still set; or reader | reader, with `PARK` | in an extended quiescent state: not counted in `nr_active`, skipped by scans |
//! | `ASK` | driver | reader at its next outermost unlock, or driver | report a quiescent state |
//! | `COUNTED` | driver, if `ASK` is still set | reader, with `ASK` | the driver waits: count down the tree, too |
//! | `BOOSTED` | driver, if `COUNTED` is still set | reader, with `COUNTED` | drop the priority after the report (`stall.rs`) |
//! | `LEAVING` | reader | reader | its thread is exiting: release the slot at the next outermost unlock |
//!
//! # Parking
//!
//! The reader marks the beginning of its section by a plain store, passes a light barrier, and then
//! loads `PARK`. It must not be tested before that store: a driver could park the reader in between
//! (twin `rcu: park is tested first`).
//!
//! The driver sets `PARK`, passes the heavy barrier, and sets `OFF` by compare-exchange if `PARK`
//! is still set. The reader clears both flags in one transition. All this happens to one word, so
//! either the reader finds `OFF` and counts itself in, or the driver finds `PARK` clear.
//!
//! A reader that leaves its parking passes a full fence before it reads. A driver that skips it
//! because of `OFF`, or because `nr_active` is zero, has passed a full fence after the removal and
//! before that load. If the reader's fence comes first, the driver does not skip it. If the
//! driver's fence comes first, the reader sees the removal.
//!
//! # Answers
//!
//! An answer to `ASK` needs no barrier of the driver. The reader's read-modify-write acquires
//! everything before the question, and releases everything that its sections did.

use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicU32, Ordering, fence},
    twin,
};

pub(super) const ASK: u32 = 1;
pub(super) const COUNTED: u32 = 1 << 1;
pub(super) const LEAVING: u32 = 1 << 2;
pub(super) const PARK: u32 = 1 << 3;
pub(super) const OFF: u32 = 1 << 4;
pub(super) const BOOSTED: u32 = 1 << 5;

#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Flags(AtomicU32);

/// Number of readers that are not in an extended quiescent state.
#[derive(Debug)]
pub(super) struct NrActive(CachePadded<AtomicU32>);

impl NrActive {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self(CachePadded::new(AtomicU32::new(0)))
        }
    }

    /// Counts a reader that leaves its extended quiescent state.
    fn count_in(&self) {
        // The fence in `Flags::leave_parking` orders this before the reads of the section:
        // ORDER(parked). As a read-modify-write it continues the release sequence of every earlier
        // `count_out`.
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a reader that has entered an extended quiescent state. The caller has set its flag
    /// `OFF`.
    fn count_out(&self) {
        // Release pairs with the Acquire in `get`; later read-modify-writes continue the release
        // sequence. If a driver reads our count, our sections happened before. If it reads an older
        // count, it checks our flags.
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the count. The caller has passed a full fence since the removal.
    pub(super) fn get(&self) -> u32 {
        // Acquire pairs with `count_out`. The sections of every reader that was counted out
        // happened before, or see the removals (ORDER(parked)).
        self.0.load(Ordering::Acquire)
    }

    /// Returns `true` if no reader but `me` is active. Passes a full fence.
    pub(super) fn is_nobody(&self, me: Option<&Flags>) -> bool {
        // ORDER(parked): the other end; see `Flags::leave_parking`.
        // If our fence comes first, a reader that leaves its parking later sees the removals made
        // before this call. If the reader's fence comes first, we read it in the count.
        // Test: a_parked_reader_comes_back, leaving_a_parking_needs_its_fence
        fence(Ordering::SeqCst);
        match self.get() {
            0 => true,
            // The single reader may be us. Our flag is read after the count: a driver that counts
            // us out sets OFF before.
            1 => me.is_some_and(|flags| !flags.is_off()),
            _ => false,
        }
    }

    /// Sets the count, in a child of `fork`.
    pub(super) fn inherit(&self, nr_active: u32) {
        self.0.store(nr_active, Ordering::Relaxed);
    }
}

impl Flags {
    sync::const_unless_model! {
        /// Creates the flags of a parked reader.
        pub(super) fn new() -> Self {
            Self(AtomicU32::new(PARK | OFF))
        }
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    // ---- the reader's side ----

    /// Returns `true` if any of `which` is set.
    #[inline(always)]
    pub(super) fn has(&self, which: u32) -> bool {
        self.0.load(Ordering::Relaxed) & which != 0
    }

    /// Makes drivers count and scan this reader again. Its section has begun.
    #[cold]
    pub(super) fn leave_parking(&self, nr_active: &NrActive) {
        // The count is incremented first, and perhaps once too often: if a signal handler
        // interrupts this, the reader must be counted as soon as it is not parked.
        nr_active.count_in();
        // Against `confirm_parked`, on one word. If the driver's OFF comes first, it has counted us
        // out, and our count remains. If our exchange comes first, the driver finds no PARK and
        // changes no count, so we undo our count.
        let before = self.0.fetch_and(!(PARK | OFF), Ordering::AcqRel);
        if before & OFF == 0 {
            nr_active.count_out();
        }
        // ORDER(parked): store buffering, other end in `Periods::start` and `NrActive::is_nobody`.
        //   reader: nr_active += 1, flags &= !OFF;  fence;  load the protected data
        //   driver: (the data was removed);  fence;  load nr_active, flags
        // If our fence comes first, the driver reads us as active and checks our word. If the
        // driver's fence comes first, we see the removals.
        // Test: a_parked_reader_comes_back, leaving_a_parking_needs_its_fence
        twin::fence("rcu: no fence after parking");
    }

    /// Clears the requests of drivers. Returns the flags before.
    pub(super) fn answer(&self) -> u32 {
        // ORDER(ask): publish and consume both ways, other end in `ask` and `has_answered`.
        //   driver: (saw the removal);  flags |= ASK  Release
        //   reader: a section;  flags &= !ASK  AcqRel;  another section
        //   driver: load flags without ASK  Acquire;  the waiter may free
        // If the driver's ASK comes first, we clear it: our past sections are released to it, and
        // our next ones see the removals. If our exchange comes first, ASK stays for the next
        // unlock. The same holds for COUNTED against `count_on`: if it comes first, we count down
        // the tree; otherwise the driver does.
        // Test: an_answer_stands_for_a_quiescent_state, an_answer_needs_both_orders, a_srcu_answer_needs_both_orders
        let order = twin::order("rcu: relaxed answer", Ordering::AcqRel);
        self.0.fetch_and(!(ASK | COUNTED | BOOSTED), order)
    }

    /// Puts this reader into an extended quiescent state, which also answers a driver, and retains
    /// the flags `keep`. Returns the flags before.
    pub(super) fn park(&self, keep: u32, nr_active: &NrActive) -> u32 {
        // Release pairs with the Acquire in `is_off` and, through the count that follows, in
        // `NrActive::get`. A driver that finds OFF may free the data that this thread's sections
        // saw; otherwise the driver checks the reader's word. Acquire: as in `answer`.
        let before = self.0.swap(keep | PARK | OFF, Ordering::AcqRel);
        if before & OFF == 0 {
            nr_active.count_out();
        }
        before
    }

    // ---- the driver's side ----

    /// Returns `true` if the reader is in an extended quiescent state.
    pub(super) fn is_off(&self) -> bool {
        // Acquire pairs with `park` and `confirm_parked`: the sections of a skipped reader happened
        // before the driver's load.
        self.0.load(Ordering::Acquire) & OFF != 0
    }

    /// Asks the reader to report.
    pub(super) fn ask(&self) {
        // ORDER(ask): the other end; see `answer`.
        // If our ASK comes first, the reader's answer acquires the removals that we saw. If an
        // answer comes first, it answered an earlier question, and ASK stays for the next one.
        // Test: an_answer_stands_for_a_quiescent_state, an_answer_needs_both_orders, a_srcu_answer_needs_both_orders
        self.0.fetch_or(ASK, Ordering::Release);
    }

    /// Returns `true` if the reader has reported since it was asked.
    pub(super) fn has_answered(&self) -> bool {
        // ORDER(ask): the other end; see `answer`. Without ASK the sections before the answer
        // happened before us; with it the driver waits.
        // Test: an_answer_stands_for_a_quiescent_state, an_answer_needs_both_orders, a_srcu_answer_needs_both_orders
        self.0.load(Ordering::Acquire) & ASK == 0
    }

    /// Withdraws a question whose answer is known.
    pub(super) fn withdraw(&self) {
        self.0.fetch_and(!ASK, Ordering::Relaxed);
    }

    /// Makes the reader begin its next section by the slow path.
    pub(super) fn want_parked(&self) {
        self.0.fetch_or(PARK, Ordering::Relaxed);
    }

    /// Parks the reader if `PARK` is still set. The caller has passed the heavy barrier since it
    /// set `PARK`, and has read the reader's word after the barrier.
    pub(super) fn confirm_parked(&self, nr_active: &NrActive) {
        let still_wanted = |flags| (flags & PARK != 0).then_some(flags | OFF);
        // Against `leave_parking`, on one word. If ours comes first, the reader finds OFF and
        // counts itself in. If the reader's comes first, PARK is clear, and we change nothing.
        // Release pairs with `is_off`: the sections that the caller acquired are released to later
        // drivers.
        let before = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, still_wanted);
        if before.is_ok_and(|before| before & OFF == 0) {
            nr_active.count_out();
        }
    }
}
