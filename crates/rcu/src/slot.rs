//! One reader's cache line: the state of its sections, and the requests from drivers.
//!
//! # The words
//!
//! `ctr` is the state of the reader: its depth of nesting, and the `gp_seq` at which its outermost
//! section began (`periods.rs`). Only the reader stores it, and never with a read-modify-write.
//! `flags` contains the requests between the two sides; see "The flags" below.
//!
//! # Why no section is missed
//!
//! A reader that begins a section stores `ctr`, passes a light barrier, and then loads `flags`. A
//! driver sets `PARK` or `ASK`, passes the heavy barrier, and then loads `ctr`.
//!
//! - If the reader's barrier comes first, the driver sees the section.
//! - If the driver's barrier comes first, the section sees all that was removed before the grace
//!   period. The reader also sees `PARK`, and leaves its extended quiescent state before it reads
//!   anything.
//!
//! `PARK` cannot be a bit of `ctr`: a reader that is preempted between its load and its store of
//! `ctr` would overwrite it.
//!
//! # Readers that report
//!
//! An online [`qsbr::Reader`](super::qsbr::Reader) is a section of its thread that has not ended. A
//! report ends that section and begins the next one with a single store of the current `gp_seq`
//! (`Slot::renew`):
//!
//! ```text
//! reader: (its accesses);  load gp_seq  Acquire;  ctr = nested, gp_seq  Release;  asked? answer
//! driver: gp_seq = odd  Release;  ask;  heavy;  load ctr  Acquire: nested, older:
//!         count it, wait for the answer
//! ```
//!
//! The driver always finds the word nested. It therefore passes the reader for one of two reasons:
//!
//! - *The reader answered.* Its read-modify-write releases the accesses before the report. It
//!   acquires the question, and with it the removals.
//! - *The word has the driver's own number.* The store of the word released the accesses before the
//!   report. The load of the number acquired the removals.
//!
//! For each reason there is a twin without the ordering. If a report is too early to see the
//! question, the next report answers. A reader that will not report for a long time goes offline,
//! which is like the end of a guard.
//!
//! # The flags
//!
//! The flags of a reader of the process are in its slot, and those of a reader of a sleepable
//! domain in its own cache line (`srcu/slots.rs`). Every change is a read-modify-write.
//!
//! | flag | set by | cleared by | means |
//! |---|---|---|---|
//! | `PARK` | driver, or reader | reader | the next outermost section begins by the slow path |
//! | `OFF` | driver if `PARK` is set; or reader | reader, with `PARK` | extended quiescent state |
//! | `ASK` | driver | reader at its next outermost unlock, or driver | report a quiescent state |
//! | `COUNTED` | driver if `ASK` is set | reader, with `ASK` | the driver waits for the tree |
//! | `BOOSTED` | driver if `COUNTED` is set | reader, with `COUNTED` | drop the priority |
//! | `LEAVING` | reader | reader | its thread exits: release the slot at the outermost unlock |
//!
//! A reader with `OFF` is not counted in `nr_active`, and scans skip it. A reader that answers with
//! `COUNTED` counts down the tree, and then drops its raised priority if `BOOSTED` is set
//! (`stall.rs`).
//!
//! # Parking
//!
//! The reader must not load `PARK` before it stores `ctr`, because a driver could park the reader
//! in between (twin `rcu: park is tested first`).
//!
//! The driver sets `PARK`, passes the heavy barrier, and sets `OFF` by compare-exchange if `PARK`
//! is still set. The reader clears both flags in one transition. All of these change one word, so
//! either the reader finds `OFF` and counts itself in, or the driver finds `PARK` clear.
//!
//! A reader that leaves its parking passes a full fence before it reads, and a driver that skips it
//! has passed one between the removal and its load. If the reader's fence comes first, the driver
//! does not skip it. If the driver's fence comes first, the reader sees the removal.
//!
//! A driver whose `ASK` was answered needs no barrier: the reader's read-modify-write acquires
//! everything before the question, and releases everything that its sections did.

#[cfg(not(any(loom, shuttle)))]
use std::{mem::offset_of, ptr};

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use sync::thread::{self, ThreadId};
use sync::{asym, cpu, hint, identity, twin};

use super::domain::{ANSWER_SPINS, Domain};
use super::periods::{self, NEST_MAX};

pub(super) const ASK: u32 = 1;
pub(super) const COUNTED: u32 = 1 << 1;
pub(super) const LEAVING: u32 = 1 << 2;
pub(super) const PARK: u32 = 1 << 3;
pub(super) const OFF: u32 = 1 << 4;
pub(super) const BOOSTED: u32 = 1 << 5;

/// The flags on which an outermost unlock acts.
pub(super) const AT_UNLOCK: u32 = ASK | COUNTED | LEAVING;

/// A reader as drivers see it, on its own cache line, in a list that only grows (`Roster`).
pub(super) struct Slot(CachePadded<Words>);

/// The words of a slot. The first three fields have a fixed layout, for code in other languages
/// that inlines the read side (`raw.rs`).
#[repr(C)]
struct Words {
    ctr: AtomicU64,
    /// A: see the top of the file.
    flags: Flags,
    /// The number of online `qsbr::Reader`s of the thread. Stored only by the reader.
    nr_loops: AtomicU32,
    /// The CPU on which the reader registered. Stored only by the reader.
    cpu: AtomicU32,
    /// The leaf of the tree on which the reader reports. Stored by a driver before `COUNTED`. First
    /// it is no leaf, so that models find an early read.
    leaf: AtomicU32,
    /// The kernel's thread ID of the reader. Stored only by the reader.
    thread: AtomicU32,
    /// The reader's thread index (`sync::identity`), which a child of `fork` inherits, or 0 if the
    /// slot is free. Stored only by the reader.
    owner: AtomicU64,
    /// A: `true` while a thread owns this slot.
    is_taken: AtomicBool,
}

impl Slot {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self::with_ctr(0)
        }

        /// Creates the stand-in for threads without a slot, which the fast path's depth check
        /// rejects.
        pub(super) fn stand_in() -> Self {
            Self::with_ctr(NEST_MAX)
        }

        fn with_ctr(ctr: u64) -> Self {
            Self(CachePadded::new(Words {
                ctr: AtomicU64::new(ctr),
                flags: Flags::new(),
                nr_loops: AtomicU32::new(0),
                cpu: AtomicU32::new(0),
                leaf: AtomicU32::new(u32::MAX),
                thread: AtomicU32::new(0),
                owner: AtomicU64::new(0),
                is_taken: AtomicBool::new(false),
            }))
        }
    }

    pub(super) fn flags(&self) -> &Flags {
        &self.0.flags
    }

    // ---- the reader's side: only for the thread that owns the slot ----

    /// Begins a section. Returns `false` if this thread has no slot or the depth is at its limit.
    #[inline(always)]
    pub(super) fn lock(&self, domain: &Domain) -> bool {
        let words = &*self.0;
        let ctr = words.ctr.load(Ordering::Relaxed);
        if ctr & NEST_MAX != 0 {
            debug_assert!(
                ctr & NEST_MAX == NEST_MAX || !self.0.flags.is_off(),
                "a signal handler began a section by `read`: it needs `read_in_signal_handler`"
            );
            let is_free = ctr & NEST_MAX < NEST_MAX - 1;
            if is_free {
                words.ctr.store(ctr + 1, Ordering::Relaxed);
            }
            return is_free;
        }
        let parked_before = twin::armed("rcu: park is tested first") && words.flags.has(PARK);
        words.ctr.store(domain.first_level(), Ordering::Relaxed);
        // ORDER(reader): store buffering through the asymmetric barrier, other end in
        // `Domain::confirm` (domain.rs).
        //   reader: ctr = nested;   light;   load flags, then the protected data
        //   driver: flags |= PARK or ASK (the data was removed before);   heavy;   load ctr
        // If our barrier comes first, the driver sees the section, and waits for it unless it has
        // the driver's own number. If the driver's barrier comes first, we see PARK below, and the
        // section sees everything that was removed.
        // Test: section_protects_the_version_it_read
        if !twin::armed("rcu: no light barrier at lock") {
            asym::light();
        }
        let is_tested = twin::armed("rcu: park is tested first");
        if parked_before || !is_tested && words.flags.has(PARK) {
            self.leave_parking(domain);
        }
        true
    }

    /// Begins a section in a signal handler, which may have interrupted this thread anywhere.
    /// Returns `false` if the depth is at its limit.
    ///
    /// If the handler interrupted `lock`, the word may already be nested while `OFF` is still set.
    /// This function therefore checks the flags at any depth. Both functions may then call
    /// `leave_parking`, which counts the reader only once.
    pub(super) fn lock_in_handler(&self, domain: &Domain) -> bool {
        let words = &*self.0;
        let ctr = words.ctr.load(Ordering::Relaxed);
        let nest = ctr & NEST_MAX;
        if nest >= NEST_MAX - 1 {
            return false;
        }
        let next = if nest == 0 { domain.first_level() } else { ctr + 1 };
        words.ctr.store(next, Ordering::Relaxed);
        // ORDER(reader): as in `lock`. This is a full fence, because the handler may have
        // interrupted `leave_parking` before its own fence.
        // Test: grace_period_waits_for_a_section_in_a_signal_handler
        fence(Ordering::SeqCst);
        if words.flags.has(PARK) {
            self.leave_parking(domain);
        }
        true
    }

    #[inline(always)]
    pub(super) fn unlock(&self, domain: &Domain) {
        let words = &*self.0;
        let ctr = words.ctr.load(Ordering::Relaxed);
        // ORDER(section): publish and consume, other end in `Slot::ctr`.
        //   reader: the section's accesses;  ctr = not nested  Release
        //   driver: load ctr  Acquire;  the waiter may free
        // If our store comes first, the driver passes us, and our accesses happen before that. If
        // its load comes first, it finds us nested and waits. (Loom cannot distinguish it from
        // Relaxed: it treats the store and the fence after it as one step, and any two full fences
        // as synchronization.)
        // Test: section_protects_the_version_it_read
        words.ctr.store(ctr - 1, Ordering::Release);
        if ctr & NEST_MAX == 1 {
            // ORDER(holdout): store buffering through the asymmetric barrier, other end in
            // `Domain::confirm` (domain.rs).
            //   reader: ctr = not nested;  light;  load flags
            //   driver: flags |= ASK;      heavy;  load ctr, count it in where it is nested
            // If our barrier comes first, the driver sees that the section is over. If the driver's
            // barrier comes first, we see ASK below, and answer.
            // Test: section_protects_the_version_it_read
            if !twin::armed("rcu: no light barrier at unlock") {
                asym::light();
            }
            if words.flags.has(AT_UNLOCK) {
                self.report(domain);
            }
        }
    }

    /// Ends the section and begins the next one in a single store, which needs no barrier; see
    /// "Readers that report" above. Does nothing if another section is open around it.
    #[inline(always)]
    pub(super) fn renew(&self, domain: &Domain) {
        let words = &*self.0;
        let ctr = words.ctr.load(Ordering::Relaxed);
        let next = domain.first_level();
        if ctr != next {
            if ctr & NEST_MAX != 1 && !twin::armed("qsbr: reports inside a section") {
                return;
            }
            // ORDER(renew): publish and consume, other end in `Slot::ctr`.
            //   reader: the section's accesses;  ctr = the present number  Release
            //   driver: load ctr  Acquire, its own number: passed;  the waiter may free
            // If our store comes first, the driver finds its own number and passes us, and our
            // accesses happen before that. If its load comes first, it finds an older number, and
            // waits for an answer.
            // Test: a_report_ends_a_section, a_report_needs_release
            let order = twin::order("qsbr: relaxed report", Ordering::Release);
            words.ctr.store(next, order);
        }
        let is_asked = words.flags.has(ASK | COUNTED);
        if is_asked && !twin::armed("qsbr: reports without an answer") {
            self.answer(domain);
        }
    }

    pub(super) fn leave_parking(&self, domain: &Domain) {
        self.0.flags.leave_parking(&domain.nr_active);
    }

    /// Answers a driver, and releases the slot if the thread is exiting. This thread must be in no
    /// section.
    #[cold]
    pub(super) fn report(&self, domain: &Domain) {
        if self.answer(domain) & LEAVING != 0 {
            self.give_back(domain);
        }
    }

    /// Answers a driver between two sections. Returns the previous flags.
    #[cold]
    pub(super) fn answer(&self, domain: &Domain) -> u32 {
        let before = self.0.flags.answer();
        self.after_report(before, domain);
        before
    }

    fn after_report(&self, before: u32, domain: &Domain) {
        if before & COUNTED != 0 {
            domain.report(self.0.leaf.load(Ordering::Relaxed) as usize);
        }
        if before & BOOSTED != 0 {
            // This comes after the report, because the thread may lose its CPU at once.
            thread::unboost(thread::current());
        }
    }

    /// Puts this thread into an extended quiescent state, and answers a driver.
    pub(super) fn park(&self, domain: &Domain) {
        debug_assert!(!self.is_in_section(), "a section cannot be parked");
        let keep = self.0.flags.word().load(Ordering::Relaxed) & LEAVING;
        let before = self.0.flags.park(keep, &domain.nr_active);
        self.after_report(before, domain);
    }

    /// Claims the slot for this thread, if it is free.
    pub(super) fn take(&self) -> bool {
        // ORDER(slot): publish and consume, other end in `give_back`. If the last owner's store
        // comes first, our exchange succeeds, and we see the words that it wrote. If our load or
        // exchange comes first, the slot is in use, and the caller tries another one.
        // Test: threads_start_and_exit
        let words = &*self.0;
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = !words.is_taken.load(relaxed)
            && words.is_taken.compare_exchange(false, true, acquire, relaxed).is_ok();
        if taken {
            words.cpu.store(cpu::current().index() as u32, Ordering::Relaxed);
            words.thread.store(thread::current().0, Ordering::Relaxed);
            words.owner.store(identity::mine().get(), Ordering::Relaxed);
        }
        taken
    }

    /// Releases the slot when this thread exits: now, or with its outermost section.
    pub(super) fn leave(&self, domain: &Domain) {
        if self.is_in_section() {
            self.0.flags.word().fetch_or(LEAVING, Ordering::Relaxed);
        } else {
            self.give_back(domain);
        }
        // Once this returns, the thread may exit and its number may be reused; see `boost`.
        thread::while_named(|| ());
    }

    fn give_back(&self, domain: &Domain) {
        self.park(domain);
        self.0.flags.word().fetch_and(!LEAVING, Ordering::Relaxed);
        // The next owner writes its own number; see `is_mine`.
        if !twin::armed("rcu: a slot keeps its owner") {
            self.0.owner.store(0, Ordering::Relaxed);
        }
        // ORDER(slot): the other end; see `take`.
        self.0.is_taken.store(false, Ordering::Release);
    }

    pub(super) fn count_loops(&self, by: i32) {
        let nr_loops = self.0.nr_loops.load(Ordering::Relaxed);
        self.0.nr_loops.store(nr_loops.wrapping_add_signed(by), Ordering::Relaxed);
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn nr_loops(&self) -> u32 {
        self.0.nr_loops.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_in_section(&self) -> bool {
        self.nesting() != 0
    }

    #[inline]
    pub(super) fn nesting(&self) -> u64 {
        match self.0.ctr.load(Ordering::Relaxed) & NEST_MAX {
            NEST_MAX => 0,
            depth => depth,
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) const fn promised(&self) -> *const () {
        const {
            assert!(offset_of!(Words, ctr) == 0);
            assert!(offset_of!(Words, flags) == 8 && offset_of!(Words, nr_loops) == 12);
        }
        ptr::from_ref(&self.0).cast()
    }

    /// Returns `true` if this is the slot of this thread, even if the thread has left it with a
    /// section open. Only the thread itself writes its number, and clears it before it releases the
    /// slot.
    pub(super) fn is_mine(&self) -> bool {
        self.0.owner.load(Ordering::Relaxed) == identity::mine().get()
    }

    // ---- in a child of `fork`, which has no other thread ----

    /// Frees the slot of a thread that does not exist in the child.
    pub(super) fn vacate(&self) {
        self.0.ctr.store(0, Ordering::Relaxed);
        self.0.flags.word().store(PARK | OFF, Ordering::Relaxed);
        self.0.nr_loops.store(0, Ordering::Relaxed);
        self.0.owner.store(0, Ordering::Relaxed);
        self.0.is_taken.store(false, Ordering::Relaxed);
    }

    /// Restores the state of this thread's slot at `gp_seq`, before any driver asked. Returns
    /// `true` if the slot is not in an extended quiescent state.
    pub(super) fn inherit(&self, gp_seq: u64) -> bool {
        self.0.thread.store(thread::current().0, Ordering::Relaxed);
        let ctr = self.0.ctr.load(Ordering::Relaxed);
        self.0.ctr.store(periods::no_later(ctr, gp_seq), Ordering::Relaxed);
        let asked = ASK | COUNTED | BOOSTED;
        let before = self.0.flags.word().fetch_and(!asked, Ordering::Relaxed);
        if before & BOOSTED != 0 {
            thread::unboost(self.thread());
        }
        before & OFF == 0
    }

    // ---- the driver's side ----

    pub(super) fn ctr(&self) -> u64 {
        // ORDER(section): the other end; see `unlock`.
        // ORDER(renew): the other end; see `renew`.
        self.0.ctr.load(Ordering::Acquire)
    }

    /// Makes the reader count down `leaf` when it answers. Returns `false` if it has already
    /// answered.
    pub(super) fn count_on(&self, leaf: usize) -> bool {
        self.0.leaf.store(leaf as u32, Ordering::Relaxed);
        let unanswered = |flags| (flags & ASK != 0).then_some(flags | COUNTED);
        // This competes with `answer` on one word. If our COUNTED comes first, the answer acquires
        // it with the leaf and the tree, and the reader counts down. Otherwise ASK is clear, so we
        // acquire the reader's sections, and the driver counts down.
        self.0.flags.word().fetch_update(Ordering::AcqRel, Ordering::Acquire, unanswered).is_ok()
    }

    /// Returns `true` if the driver still waits for this reader's report.
    pub(super) fn is_counted(&self) -> bool {
        self.0.flags.word().load(Ordering::Relaxed) & COUNTED != 0
    }

    /// Raises the reader's priority for the rest of its section, if a driver waits for it and the
    /// system allows it. Does not boost a thread with a `qsbr::Reader`, whose sections may last as
    /// long as the program, or a thread that is exiting.
    pub(super) fn boost(&self) {
        if self.0.nr_loops.load(Ordering::Relaxed) > 0 {
            return;
        }
        // An exiting thread sets LEAVING or frees its slot, and then waits for this lock. The
        // thread named here therefore still exists.
        thread::while_named(|| {
            let thread = self.thread();
            if !self.mark_boosted() {
                return;
            }
            if !thread::boost(thread) {
                self.0.flags.word().fetch_and(!BOOSTED, Ordering::Relaxed);
            } else if self.0.flags.word().load(Ordering::Acquire) & BOOSTED == 0 {
                // This competes with `answer` on one word. If the answer came first, the reader may
                // have dropped its priority before we raised it, so we drop it. If our load came
                // first, the answer finds BOOSTED, and the reader drops it.
                thread::unboost(thread);
            }
        });
    }

    /// Marks the reader as boosted if the driver waits for it and the thread is not exiting.
    fn mark_boosted(&self) -> bool {
        let still_counted =
            |flags| (flags & (COUNTED | LEAVING) == COUNTED).then_some(flags | BOOSTED);
        let flags = self.0.flags.word();
        flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, still_counted).is_ok()
    }

    pub(super) fn thread(&self) -> ThreadId {
        ThreadId(self.0.thread.load(Ordering::Relaxed))
    }

    /// The CPU on which the reader registered.
    pub(super) fn cpu(&self) -> usize {
        self.0.cpu.load(Ordering::Relaxed) as usize
    }
}

#[repr(transparent)]
pub(super) struct Flags(AtomicU32);

/// The number of readers that are not in an extended quiescent state.
pub(super) struct NrActive(CachePadded<AtomicU32>);

impl NrActive {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self(CachePadded::new(AtomicU32::new(0)))
        }
    }

    /// Counts a reader that has entered an extended quiescent state and set `OFF`.
    fn count_out(&self) {
        // Release pairs with the Acquire in `get`; later read-modify-writes continue the release
        // sequence. If a driver reads our count, our sections happened before its load. If it reads
        // an older count, it checks our flags.
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the count. The caller has passed a full fence since the removal.
    pub(super) fn get(&self) -> u32 {
        // Acquire pairs with `count_out`. The sections of every reader that was counted out
        // happened before this load, or see the removals (ORDER(parked)).
        self.0.load(Ordering::Acquire)
    }

    /// Returns `true` if no other reader is active. Passes a full fence.
    pub(super) fn is_nobody(&self, me: Option<&Flags>) -> bool {
        // ORDER(parked): the other end; see `Flags::leave_parking`.
        fence(Ordering::SeqCst);
        match self.get() {
            0 => true,
            // The single reader may be this thread. Its flag is read after the count, because a
            // driver that counts it out sets OFF first.
            1 => me.is_some_and(|flags| !flags.is_off()),
            _ => false,
        }
    }

    pub(super) fn inherit(&self, nr_active: u32) {
        self.0.store(nr_active, Ordering::Relaxed);
    }
}

impl Flags {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self(AtomicU32::new(PARK | OFF))
        }
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    // ---- the reader's side ----

    #[inline(always)]
    pub(super) fn has(&self, which: u32) -> bool {
        self.0.load(Ordering::Relaxed) & which != 0
    }

    /// Makes drivers count and scan this reader again. Its section has begun.
    #[cold]
    pub(super) fn leave_parking(&self, nr_active: &NrActive) {
        // The count is incremented first, and possibly once too often. The reader must be counted
        // as soon as it is not parked, even if a signal handler interrupts this function. As a
        // read-modify-write this continues the release sequence of every earlier `count_out`. See
        // ORDER(parked) below.
        nr_active.0.fetch_add(1, Ordering::AcqRel);
        // This competes with `confirm_parked` on one word. If the driver's OFF comes first, the
        // driver counts us out, and our count remains. If our exchange comes first, the driver
        // finds no PARK and changes no count, so we undo our count.
        let before = self.0.fetch_and(!(PARK | OFF), Ordering::AcqRel);
        if before & OFF == 0 {
            nr_active.count_out();
        }
        // ORDER(parked): store buffering, other end in `Periods::start` and `NrActive::is_nobody`.
        //   reader: nr_active += 1, flags &= !OFF;  fence;  load the protected data
        //   driver: (the data was removed);  fence;  load nr_active, flags
        // If our fence comes first, the driver reads us as active and checks our word. If the
        // driver's fence comes first, we see the removals.
        // Test: parked_reader_resumes
        twin::fence("rcu: no fence after parking");
    }

    /// Clears the requests from drivers. Returns the previous flags.
    pub(super) fn answer(&self) -> u32 {
        // ORDER(ask): publish and consume both ways, other end in `ask` and `has_answered`.
        //   driver: (saw the removal);  flags |= ASK  Release
        //   reader: a section;  flags &= !ASK  AcqRel;  another section
        //   driver: load flags without ASK  Acquire;  the waiter may free
        // If the driver's ASK comes first, we clear it: our past sections are released to it, and
        // our next ones see the removals. If our exchange comes first, ASK stays for the next
        // unlock. The same holds for COUNTED against `count_on`.
        // Test: answer_counts_as_a_quiescent_state, section_protects_the_version_it_read,
        // parked_srcu_reader_resumes
        let order = twin::order("rcu: relaxed answer", Ordering::AcqRel);
        self.0.fetch_and(!(ASK | COUNTED | BOOSTED), order)
    }

    /// Puts this reader into an extended quiescent state, which also answers a driver. Retains the
    /// flags `keep`. Returns the previous flags.
    pub(super) fn park(&self, keep: u32, nr_active: &NrActive) -> u32 {
        // Release pairs with the Acquire in `is_off` and, through the count that follows, in
        // `NrActive::get`. A driver that finds OFF may free the data that this thread's sections
        // saw; otherwise the driver checks the reader's word. The Acquire is as in `answer`.
        let before = self.0.swap(keep | PARK | OFF, Ordering::AcqRel);
        if before & OFF == 0 {
            nr_active.count_out();
        }
        before
    }

    // ---- the driver's side ----

    pub(super) fn is_off(&self) -> bool {
        // Acquire pairs with `park` and `confirm_parked`: the sections of a skipped reader happened
        // before the driver's load.
        self.0.load(Ordering::Acquire) & OFF != 0
    }

    pub(super) fn ask(&self) {
        // ORDER(ask): the other end; see `answer`.
        self.0.fetch_or(ASK, Ordering::Release);
    }

    pub(super) fn has_answered(&self) -> bool {
        // ORDER(ask): the other end; see `answer`.
        self.0.load(Ordering::Acquire) & ASK == 0
    }

    /// Waits a microsecond for the reader's report. Returns `true` if it has reported.
    pub(super) fn answers_soon(&self) -> bool {
        hint::spin_until(ANSWER_SPINS, || self.has_answered())
    }

    pub(super) fn withdraw(&self) {
        self.0.fetch_and(!ASK, Ordering::Relaxed);
    }

    pub(super) fn want_parked(&self) {
        self.0.fetch_or(PARK, Ordering::Relaxed);
    }

    /// Parks the reader if `PARK` is still set. The caller has passed the heavy barrier since it
    /// set `PARK`, and has then read the reader's word.
    pub(super) fn confirm_parked(&self, nr_active: &NrActive) {
        let still_wanted = |flags| (flags & PARK != 0).then_some(flags | OFF);
        // This competes with `leave_parking` on one word. If ours comes first, the reader finds OFF
        // and counts itself in. If the reader's comes first, PARK is clear, and we change nothing.
        // Release pairs with `is_off`: the sections that the caller acquired are released to later
        // drivers.
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, still_wanted);
        if before.is_ok_and(|before| before & OFF == 0) {
            nr_active.count_out();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn released_slot_has_no_owner_until_its_next_thread() {
        let (domain, slot) = (Domain::new(), Slot::new());
        assert!(slot.take() && slot.is_mine());
        slot.leave(&domain);
        // This is the first step of `take` in another thread.
        slot.0.is_taken.store(true, Ordering::Relaxed);
        assert!(!slot.is_mine());
    }

    #[test]
    fn a_reader_whose_thread_is_ending_is_not_boosted() {
        let (domain, slot) = (Domain::new(), Slot::new());
        assert!(slot.take() && slot.lock(&domain));
        slot.flags().ask();
        assert!(!slot.mark_boosted(), "it is not waited for");
        assert!(slot.count_on(0) && slot.mark_boosted());
        slot.leave(&domain);
        assert!(!slot.mark_boosted());
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads procfs")]
    fn thread_does_not_exit_while_another_one_names_it() {
        let (ready, is_ready) = std::sync::mpsc::channel();
        thread::while_named(|| {
            std::thread::spawn(move || {
                drop(crate::read());
                ready.send(thread::current()).unwrap();
            });
            let reader = is_ready.recv().unwrap();
            for _ in 0..100 {
                std::thread::yield_now();
                assert!(thread::name(reader).is_some());
            }
        });
    }
}
