//! One slot: the word that records which thread holds it, its data, and its queued calls.
//!
//! # One word, three states
//!
//! ```text
//!              take: any thread                       bias: the owner
//!    FREE ───────────────────────► HELD ───────────────────────────────► OWNED
//!     ▲    ◄───────────────────────      ◄───────────────────────────────   │
//!     │      release: the holder           break: OnDemand, escalated       │
//!     └─────────────────────────────────────────────────────────────────────┘
//!       give up: the owner: parks, ends, or (OnDemand) was asked
//! ```
//!
//! - `HELD` is a lock: the thread that moved the word to `HELD` uses the data, and then moves the
//!   word to another state.
//! - `OWNED` is a lock that the owner keeps between operations. It never occurs in `EveryOp`.
//! - The data is used only in `HELD`, or by the owner in `OWNED`, so a `&mut` to it is exclusive.
//!
//! An operation of the owner takes and releases the slot in `EveryOp`, and does nothing in `Queue`.
//! In `OnDemand` it loads the word `want`, which counts the threads that ask for the slot, and
//! continues if the word is zero. This is correct because **`want` is zero only while the owner has
//! the bias, or is inside an operation**:
//!
//! - A thread that moves the word away from `OWNED` sets `AWAY` in `want`, before any other thread
//!   can leave it at zero.
//! - Only the owner clears `AWAY`, while it is inside an operation and about to move the word back
//!   to `OWNED`.
//!
//! In a breakable slot the owner also stores in `busy` that it is inside an operation. A remote
//! caller that has waited too long makes all threads pass a fence with `membarrier`. After that,
//! either the caller sees `busy`, or the owner will see `want`. `bias.rs` contains the steps.
//!
//! # No caller starves
//!
//! An owner that operates all the time leaves its slot free for only a few nanoseconds between two
//! operations, which a caller that sleeps between its polls never hits. A caller that begins to
//! sleep therefore announces itself: it stores the time at which its wait began in `eldest`, unless
//! the slot has an earlier time there.
//!
//! - While `eldest` is set, the owner begins no operation that takes the slot (`take_in_turn`), and
//!   no other caller takes the slot.
//! - The announced caller takes the slot at its next poll, and clears `eldest`, as a caller that
//!   gives up does.
//! - A sleeping caller announces itself at each poll, so the caller that waits longest is next. The
//!   owner may do one operation between two such callers.
//! - An owner that waits for its slot announces itself in the same way, and withdraws the
//!   announcement once it has the slot.
//!
//! A wait is therefore bounded by the spins before a sleep, one wake-up, one operation, and one
//! call for each caller that has waited longer (`backoff.rs`). `eldest` is a hint: a thread that
//! reads an old value may take the slot once when it is not its turn.
//!
//! # Handing over
//!
//! Threads sleep at the slot's `door`: an announced thread until the slot is free, and the caller
//! of a queued call until the call has run. These threads notify the door, after the transition
//! that the sleeper waits for:
//!
//! - an owner that finds an announced caller at the beginning of an operation (it then sleeps at
//!   the door itself, so that a caller on the same CPU can run);
//! - an owner that parks or ends;
//! - a caller that was announced, when its call has run or it gives up;
//! - any other caller that releases the slot and finds a thread announced;
//! - a thread that has run queued calls.
//!
//! A thread sleeps only while some thread is announced. If it finds none after it has prepared its
//! sleep, it announces itself again, because otherwise no thread would wake it.
//!
//! The third kind also wakes callers that are not next, and one of them then announces itself. Only
//! the fourth kind passes no fence between its release and its load of `eldest`, because each call
//! would pay for it, and may miss a thread that falls asleep at the same time. A sleep therefore
//! ends by itself after 50 µs. The caller of a busy owner must not depend on this alone, because
//! its next polls would find the slot held again (twin `percpu: hands over to no thread`).
//!
//! An announced caller runs no user code: a drain of many slots announces itself to one slot at a
//! time, and not while it is inside another one. Threads therefore never wait for `eldest` in a
//! cycle. The owner waits for a limited time, because the caller may be preempted.
//!
//! # Queued calls
//!
//! In `Queue`, a call on an owned slot stays in the slot's queue until the owner polls. A thread
//! that takes or releases a slot also runs the queued calls, so none stays in a `FREE` slot:
//!
//! ```text
//! release: word = FREE;  fence;  calls?         then take, run them, release again
//! post:    push a call;  fence;  word FREE?     then take, run it, release
//! ```
//!
//! If the releaser's fence comes first, the poster finds the word `FREE`. If the poster's fence
//! comes first, the releaser finds the call.
//!
//! Letters of fields: I fixed at creation, A atomic, H used by the thread that holds the slot.

use base::internal::wake::EventCount;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::thread::{self, ThreadId};
use sync::{barrier, identity, twin, unmodelled};
use topology::CpuId;

use super::backoff::Turn;
use super::call_queue::{CallQueue, QueuedCall};
use super::choice::Kind;

pub(super) const FREE: u32 = 0;
pub(super) const HELD: u32 = 1;
/// The owner keeps the slot between operations.
pub(super) const OWNED: u32 = 2;

/// The thread that held the slot does not exist in this child of `fork`; see `fork.rs`.
pub(super) const LOST: u32 = 3;

/// bit 63: the owner has parked | bits 41..63: the kernel's ID of its thread | bits 0..41: the
/// `identity` of its thread | 0: no owner
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerWord(pub(super) u64);

impl OwnerWord {
    pub(super) const NONE: Self = Self(0);
    const PARKED: u64 = 1 << 63;
    /// Starting 2^41 threads takes months. The kernel's thread IDs have at most 22 bits.
    const THREAD_SHIFT: u32 = 41;
    const IDENTITY: u64 = (1 << Self::THREAD_SHIFT) - 1;

    pub(super) fn mine() -> Self {
        let identity = identity::mine().get() & Self::IDENTITY;
        Self(Self::PARKED | identity).of_thread(thread::current())
    }

    pub(super) fn of_thread(self, thread: ThreadId) -> Self {
        let others = self.0 & (Self::PARKED | Self::IDENTITY);
        Self(others | u64::from(thread.0) << Self::THREAD_SHIFT)
    }

    pub(super) fn parked(self) -> Self {
        Self(self.0 | Self::PARKED)
    }

    pub(super) fn unparked(self) -> Self {
        Self(self.0 & !Self::PARKED)
    }

    #[inline]
    pub(super) fn is_mine(self) -> bool {
        self.0 & Self::IDENTITY == identity::mine().get() & Self::IDENTITY
    }

    pub(super) fn is_parked(self) -> bool {
        self.0 & Self::PARKED != 0
    }

    pub(super) fn thread(self) -> ThreadId {
        ThreadId((self.unparked().0 >> Self::THREAD_SHIFT) as u32)
    }
}

/// bits 0..31: number of threads that ask | bit 31 `AWAY`: the owner does not have the bias
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Want(pub(super) u32);

impl Want {
    pub(super) const ONE: u32 = 1;
    pub(super) const AWAY: u32 = 1 << 31;

    pub(super) fn is_away(self) -> bool {
        self.0 & Self::AWAY != 0
    }
    pub(super) fn has_askers(self) -> bool {
        self.0 & !Self::AWAY != 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The caller now holds the slot.
    Taken,
    /// A thread is inside the slot.
    Held,
    /// The owner has the bias.
    Owned,
    /// The slot can never be taken; see [`LOST`].
    Lost,
}

/// One CPU's slot. The fields that every operation of the owner uses are adjacent.
#[repr(C, align(128))]
pub(super) struct Slot<T> {
    /// A: see the top of the file.
    pub(super) word: AtomicU32,
    /// A: a [`Want`].
    pub(super) want: AtomicU32,
    /// A: 1 while the owner is inside an operation of a breakable slot. Written by the owner.
    pub(super) busy: AtomicU32,
    /// A: the time at which the next caller or owner began to wait, by [`Turn`], or 0 if none has
    /// announced itself.
    pub(super) eldest: AtomicU32,
    /// A: the number of the thread that is inside the slot through a call or runs queued calls, or
    /// 0, to detect a wait for itself.
    caller: unmodelled::AtomicU64,
    pub(super) data: UnsafeCell<T>,
    pub(super) far: Far<T>,
}

/// The fields that operations of the owner do not use.
#[repr(align(128))]
pub(super) struct Far<T> {
    cpu: CpuId,
    kind: Kind,
    /// A: an [`OwnerWord`].
    pub(super) owner: AtomicU64,
    pub(super) door: EventCount,
    /// A: the queued calls. A slot that does not queue has only calls that its own calls queued.
    pub(super) call_queue: CallQueue<T>,
    /// The thread that is inside the slot, to detect bugs of this crate.
    #[cfg(debug_assertions)]
    inside: unmodelled::AtomicU64,
}

// SAFETY: `word` ensures that one thread at a time accesses the data, so it suffices that the data
// is `Send`. Queued calls are `Send`. The other fields are atomic or fixed.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(super) fn new(cpu: CpuId, kind: Kind, data: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            want: AtomicU32::new(Want::AWAY),
            busy: AtomicU32::new(0),
            eldest: AtomicU32::new(0),
            caller: unmodelled::AtomicU64::new(0),
            data: UnsafeCell::new(data),
            far: Far {
                cpu,
                kind,
                owner: AtomicU64::new(0),
                door: EventCount::new(),
                call_queue: CallQueue::new(),
                #[cfg(debug_assertions)]
                inside: unmodelled::AtomicU64::new(0),
            },
        }
    }

    pub(super) fn cpu(&self) -> CpuId {
        self.far.cpu
    }

    pub(super) fn kind(&self) -> Kind {
        self.far.kind
    }

    #[inline]
    pub(super) fn owner(&self) -> OwnerWord {
        OwnerWord(self.far.owner.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn check_and_take(&self) -> Found {
        // The load comes first, because an exchange acquires the cache line even if it fails.
        // Models omit it, because their loads may stay stale.
        let mut word = FREE;
        if !cfg!(any(loom, shuttle)) {
            word = self.word.load(Ordering::Relaxed);
        }
        if word == FREE {
            // ORDER(percpu-word): publish and consume, other end in `release_order`.
            //   release: the data;   word = FREE (or OWNED)   Release
            //   take:    word = HELD  Acquire;                the data
            // If the release comes first, our exchange succeeds, and we see all earlier changes to
            // the data. If our exchange comes first, it fails, and we find the state of the slot.
            // Test: sections_of_owner_and_remotes_never_overlap
            match self.word.compare_exchange(FREE, HELD, take_order(), Ordering::Relaxed) {
                Ok(_) => return Found::Taken,
                Err(now) => word = now,
            }
        }
        match word {
            OWNED => Found::Owned,
            LOST => Found::Lost,
            _ => Found::Held,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.word.load(Ordering::Relaxed) == LOST
    }

    /// Panics if the slot is lost, so that a wait for it cannot end.
    pub(super) fn must_not_be_lost(&self) {
        assert!(
            !self.is_lost(),
            "the slot of CPU {} was in use when the process was forked, by a thread that is not in the child",
            self.cpu()
        );
    }

    pub(super) fn inherit(&self) {
        let owner = self.owner();
        let is_mine = owner.is_mine();
        let word = self.word.load(Ordering::Relaxed);
        // The waiting callers do not exist in the child.
        self.eldest.store(0, Ordering::Relaxed);
        self.far.door.forget();
        let is_had = word == HELD || word == OWNED && !is_mine;
        self.far.call_queue.forget(word == FREE);
        if is_had {
            self.word.store(LOST, Ordering::Relaxed);
        }
        // The thread's ID differs from that in the parent.
        let owner = match is_mine {
            true if owner.is_parked() => OwnerWord::mine(),
            true => OwnerWord::mine().unparked(),
            false if is_had => owner,
            false => OwnerWord::NONE,
        };
        self.far.owner.store(owner.0, Ordering::Relaxed);
    }

    /// Takes the slot if it is free and no other caller is next. `since` is the time that the
    /// caller has announced, or 0.
    #[inline]
    pub(super) fn check_and_take_in_turn(&self, since: u32) -> Found {
        let eldest = self.eldest.load(Ordering::Relaxed);
        if eldest != 0 && eldest != since && !twin::armed("percpu: a caller overtakes the eldest") {
            return Found::Held;
        }
        self.check_and_take()
    }

    /// Announces a caller that sleeps, unless another caller has waited longer.
    pub(super) fn announce(&self, since: u32) {
        let eldest = self.eldest.load(Ordering::Relaxed);
        // The times wrap around.
        if eldest == 0 || (since.wrapping_sub(eldest) as i32) < 0 {
            // After a failure, the next poll decides.
            let _ =
                self.eldest.compare_exchange(eldest, since, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Withdraws the announcement of `turn`. Returns `true` if there was one.
    #[inline]
    pub(super) fn withdraw(&self, turn: &mut Turn) -> bool {
        let since = turn.withdraw();
        if since != 0 {
            let _ = self.eldest.compare_exchange(since, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        since != 0
    }

    /// Wakes the threads that sleep for a transition that the caller has just made.
    #[cold]
    pub(super) fn hand_over(&self) {
        if !twin::armed("percpu: hands over to no thread") {
            self.far.door.notify_all();
        }
    }

    /// Returns `false` if a thread that has announced `since` may sleep: another thread is next, or
    /// holds the slot and will find an announcement, so that it wakes this one.
    pub(super) fn may_be_taken(&self, since: u32) -> bool {
        let eldest = self.eldest.load(Ordering::Relaxed);
        eldest == 0 || eldest == since && self.is_free()
    }

    pub(super) fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) == FREE
    }

    #[inline]
    pub(super) fn try_take(&self) -> bool {
        self.check_and_take() == Found::Taken
    }

    /// Releases a held slot, and runs calls that were queued since it was taken.
    #[inline]
    pub(super) fn release(&self) {
        if self.kind() != Kind::Queue {
            self.run_own_calls();
        }
        self.word.store(FREE, release_order());
        if self.kind() == Kind::Queue && !twin::armed("percpu: releases and forgets the calls") {
            self.recheck_calls();
        }
        if self.eldest.load(Ordering::Relaxed) != 0 {
            self.hand_over();
        }
    }

    /// Runs the queued calls of a held slot that does not queue, including any that they queue.
    #[inline]
    pub(super) fn run_own_calls(&self) {
        while !self.far.call_queue.is_empty() && !twin::armed("percpu: leaves its own calls") {
            self.run_all_calls();
        }
    }

    /// Runs the calls that were queued before the caller stored `FREE`.
    fn recheck_calls(&self) {
        loop {
            // ORDER(percpu-queue): store buffering, other end in `post`; see the top of the file.
            // If our fence comes first, the poster finds the word FREE and runs its call. If the
            // poster's fence comes first, we find the call here.
            // Test: no_queued_call_stays_in_a_free_slot
            twin::fence("percpu: no fence when releasing");
            if self.far.call_queue.is_empty() || !self.try_take() {
                return;
            }
            self.run_queued_calls();
            self.word.store(FREE, release_order());
        }
    }

    /// Adds a call for the owner. Runs it here if the slot is free.
    pub(super) fn post(&self, call: QueuedCall<T>) {
        self.must_not_be_lost();
        self.far.call_queue.push(call);
        // ORDER(percpu-queue): the other end; see `recheck_calls`. The push is a read-modify-write.
        // Test: no_queued_call_stays_in_a_free_slot
        if !twin::armed("percpu: no fence after posting") {
            barrier::after_rmw();
        }
        self.help();
    }

    pub(super) fn help(&self) {
        if self.try_take() {
            self.run_queued_calls();
            self.release();
        }
    }

    /// The caller holds the slot.
    #[inline]
    pub(super) fn run_queued_calls(&self) {
        if !self.far.call_queue.is_empty() {
            self.run_all_calls();
        }
    }

    #[cold]
    fn run_all_calls(&self) {
        self.far.call_queue.run_all(|call| {
            // FOREIGN(percpu-queued-call): queued work or a queued call, on the thread that holds
            // the slot. A panic is contained in the call.
            // SAFETY: our caller holds the slot.
            unsafe { self.touch_as_caller(call) }
        });
        // The callers of these calls may be asleep.
        self.hand_over();
    }

    /// Calls `f` with the data, and records that this thread is inside the slot.
    ///
    /// # Safety
    ///
    /// 1. The same as [`touch`](Self::touch).
    pub(super) unsafe fn touch_as_caller<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.caller.store(identity::mine().get(), Ordering::Relaxed);
        let _caller = Marked(&self.caller);
        // SAFETY: (1).
        unsafe { self.touch(f) }
    }

    /// Returns `true` if this thread is inside the slot through a call or runs queued calls.
    #[inline]
    pub(super) fn is_called_here(&self) -> bool {
        self.caller.load(Ordering::Relaxed) == identity::mine().get()
    }

    #[inline]
    pub(super) fn check_not_called_here(&self) {
        if self.is_called_here() {
            self.refuse_inside();
        }
    }

    #[cold]
    fn refuse_inside(&self) -> ! {
        panic!("a call on CPU {}'s slot calls the same slot: it would wait for itself", self.cpu());
    }

    /// # Safety
    ///
    /// 1. The caller moved the word to `HELD`, or is the owner and has the bias. It is not inside
    ///    the slot already.
    #[inline(always)]
    pub(super) unsafe fn touch<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(debug_assertions)]
        let _inside = {
            let before = self.far.inside.swap(identity::mine().get(), Ordering::Relaxed);
            assert_eq!(before, 0, "two threads are inside the slot of CPU {}", self.cpu());
            Marked(&self.far.inside)
        };
        // SAFETY: (1): no other thread accesses the data until `f` returns.
        self.data.with_mut(|data| f(unsafe { &mut *data }))
    }
}

pub(super) fn take_order() -> Ordering {
    // ORDER(percpu-word): the acquire end; see `check_and_take`.
    twin::order("percpu: relaxed take", Ordering::Acquire)
}

pub(super) fn release_order() -> Ordering {
    // ORDER(percpu-word): the release end; see `check_and_take`.
    // Test: sections_of_owner_and_remotes_never_overlap
    twin::order("percpu: relaxed release", Ordering::Release)
}

struct Marked<'s>(&'s unmodelled::AtomicU64);

impl Drop for Marked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
