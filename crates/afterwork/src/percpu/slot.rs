//! One slot: the word that says who holds it, the data, and its mail; taking and releasing it, by anybody.
//!
//! The page with the states is the module's. Here is who does which step, and why the next one may rely on it.
//!
//! Fields carry a letter: I fixed at creation, A atomic, H touched by whoever holds the slot.

use std::fmt;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::{barrier, identity, twin, unmodelled};
use topology::CpuId;

use super::choice::Kind;
use super::mail::{Letter, Mail};

/// Nobody holds the slot.
pub(super) const FREE: u32 = 0;
/// Somebody is inside.
pub(super) const HELD: u32 = 1;
/// The owner keeps it between operations.
pub(super) const OWNED: u32 = 2;

/// Whoever has it is not in this process, a child of `fork`; see `fork.rs`.
pub(super) const LOST: u32 = 3;

/// In `Far::owner`: the owner has parked.
pub(super) const PARKED: u64 = 1 << 63;

/// bits 0..31 how many ask | bit 31 the owner does not have the bias
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

/// What a look at the word found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It was free, and is the caller's now.
    Taken,
    /// Somebody is inside.
    Held,
    /// The owner has the bias.
    Owned,
    /// It cannot be had.
    Lost,
}

/// One CPU's data and everything about it. What the owner touches by each operation lies together.
#[repr(C, align(128))]
pub(super) struct Slot<T> {
    /// A: see the module's page.
    pub(super) word: AtomicU32,
    /// A: a [`Want`].
    pub(super) want: AtomicU32,
    /// A, written by the owner: whether it is inside an operation. Used by breakable slots only.
    pub(super) busy: AtomicU32,
    /// A: the thread that is inside by a call, or runs mail; 0 if none is, or it is the owner by an operation. Written
    /// inside; each thread asks for itself only, whether it would wait for itself.
    caller: unmodelled::AtomicU64,
    /// H.
    data: UnsafeCell<T>,
    pub(super) far: Far<T>,
}

/// What an owner does not touch by its operations.
#[repr(align(128))]
pub(super) struct Far<T> {
    /// I.
    cpu: CpuId,
    /// I.
    kind: Kind,
    /// A: the owner's thread, with `PARKED` while it has parked; 0 without one.
    pub(super) owner: AtomicU64,
    /// A: in slots that do not queue, what a section left that queued work onto its own slot.
    mail: Mail<T>,
    /// Who is inside, to catch a bug of ours.
    #[cfg(debug_assertions)]
    inside: AtomicU64,
}

// SAFETY: the data is reached by one thread at a time, in the order that `word` makes, so it needs to be `Send`; mail
// is. The rest is atomic or fixed.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(super) fn new(cpu: CpuId, kind: Kind, data: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            want: AtomicU32::new(Want::AWAY),
            busy: AtomicU32::new(0),
            caller: unmodelled::AtomicU64::new(0),
            data: UnsafeCell::new(data),
            far: Far {
                cpu,
                kind,
                owner: AtomicU64::new(0),
                mail: Mail::new(),
                #[cfg(debug_assertions)]
                inside: AtomicU64::new(0),
            },
        }
    }

    pub(super) fn cpu(&self) -> CpuId {
        self.far.cpu
    }

    pub(super) fn kind(&self) -> Kind {
        self.far.kind
    }

    pub(super) fn into_data(self) -> T {
        self.data.into_inner()
    }

    /// Takes the slot if nobody has it; says so, or who has it.
    #[inline]
    pub(super) fn look_and_take(&self) -> Found {
        // The load first: to try costs the line. A model's loads may be stale for ever.
        let mut word = FREE;
        if !cfg!(any(loom, shuttle)) {
            word = self.word.load(Ordering::Relaxed);
        }
        if word == FREE {
            // ORDER(percpu-word): publish and consume, other end in `release_order` and its callers.
            //   release: the data;   word = FREE (or OWNED)   Release
            //   take:    word = HELD  Acquire;                the data
            // Test: sections_of_owner_and_remotes_never_overlap, taking_needs_its_acquire
            match self
                .word
                .compare_exchange(FREE, HELD, take_order(), Ordering::Relaxed)
            {
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

    /// Before a wait for the slot goes on.
    ///
    /// # Panics
    ///
    /// If the slot is lost.
    pub(super) fn must_not_be_lost(&self) {
        assert_ne!(
            self.word.load(Ordering::Relaxed),
            LOST,
            "the slot of CPU {} was in use when the process was forked, by a thread that is not in the child",
            self.cpu()
        );
    }

    /// Makes the slot as it is where no other thread was ever there, in a child of `fork`.
    pub(super) fn inherit(&self) {
        let owner = self.far.owner.load(Ordering::Relaxed);
        let is_mine = owner & !PARKED == identity::mine().get();
        let word = self.word.load(Ordering::Relaxed);
        let is_had = word == HELD || word == OWNED && !is_mine;
        self.far.mail.forget(word == FREE);
        if is_had {
            self.word.store(LOST, Ordering::Relaxed);
        } else if !is_mine {
            self.far.owner.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a free slot; returns `true` if it was.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        self.look_and_take() == Found::Taken
    }

    /// Releases a held slot, and sees to mail that came meanwhile.
    #[inline]
    pub(super) fn release(&self) {
        if self.kind() != Kind::Queue {
            self.run_own_mail();
        }
        self.word.store(FREE, release_order());
        if self.kind() == Kind::Queue && !twin::armed("percpu: releases and forgets the mail") {
            self.look_after_mail();
        }
    }

    /// Runs what sections of the caller left for after them, and what that leaves. The caller holds the slot, which does
    /// not queue: nobody else mails.
    #[inline]
    pub(super) fn run_own_mail(&self) {
        while !self.far.mail.is_empty() && !twin::armed("percpu: leaves its own mail") {
            self.run_letters();
        }
    }

    /// Runs what was mailed while the slot was held, or before its owner left. The word was just made `FREE`.
    fn look_after_mail(&self) {
        loop {
            // ORDER(percpu-mail): store buffering, other end in `post`: see the module's page.
            // Test: no_letter_stays_in_a_free_slot, releasing_needs_its_fence
            twin::fence("percpu: no fence when releasing");
            if self.far.mail.is_empty() || !self.try_take() {
                return;
            }
            self.run_mail();
            self.word.store(FREE, release_order());
        }
    }

    /// Adds a letter for the owner. If there is none after all, runs it.
    pub(super) fn post(&self, letter: Letter<T>) {
        self.must_not_be_lost();
        self.far.mail.push(letter);
        // ORDER(percpu-mail): the other end; see `look_after_mail`. The push is a read-modify-write.
        // Test: no_letter_stays_in_a_free_slot, posting_mail_needs_its_fence
        if !twin::armed("percpu: no fence after posting") {
            barrier::after_rmw();
        }
        self.help();
    }

    /// Runs the mail of a free slot.
    pub(super) fn help(&self) {
        if self.try_take() {
            self.run_mail();
            self.release();
        }
    }

    /// Runs what was mailed. The caller holds the slot, as its owner or by taking it.
    #[inline]
    pub(super) fn run_mail(&self) {
        if !self.far.mail.is_empty() {
            self.run_letters();
        }
    }

    #[cold]
    fn run_letters(&self) {
        self.far.mail.run_all(|letter| {
            // FOREIGN(percpu-letter): queued work or a mailed call, on whoever holds the slot; contained in the letter.
            // SAFETY: our caller holds the slot.
            unsafe { self.touch_as_caller(letter) }
        });
    }

    pub(super) fn mail(&self) -> &Mail<T> {
        &self.far.mail
    }

    /// Works on the data for somebody who is found to be inside meanwhile.
    ///
    /// # Safety
    ///
    /// 1. As [`touch`](Self::touch).
    pub(super) unsafe fn touch_as_caller<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _caller = Caller::enter(&self.caller);
        // SAFETY: (1).
        unsafe { self.touch(f) }
    }

    /// Returns `true` if the calling thread is inside by a call, or runs mail: it would wait for itself.
    #[inline]
    pub(super) fn is_called_here(&self) -> bool {
        self.caller.load(Ordering::Relaxed) == identity::mine().get()
    }

    /// Panics if the calling thread is inside by a call, or runs mail.
    #[inline]
    pub(super) fn check_not_called_here(&self) {
        if self.is_called_here() {
            self.refuse_inside();
        }
    }

    #[cold]
    fn refuse_inside(&self) -> ! {
        panic!(
            "a section of CPU {}'s slot asks for that slot: it would wait for itself",
            self.cpu()
        );
    }

    /// Works on the data.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the slot: it moved the word to `HELD`, or it is the owner and has the bias; and it is not
    ///    inside already.
    #[inline(always)]
    pub(super) unsafe fn touch<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(debug_assertions)]
        let _inside = Inside::enter(self);
        // SAFETY: (1): nobody else reaches the data until we are back.
        self.data.with_mut(|data| f(unsafe { &mut *data }))
    }
}

pub(super) fn take_order() -> Ordering {
    twin::order("percpu: relaxed take", Ordering::Acquire)
}

pub(super) fn release_order() -> Ordering {
    // ORDER(percpu-word): the release end; see `try_take`.
    // Test: sections_of_owner_and_remotes_never_overlap, releasing_needs_its_release
    twin::order("percpu: relaxed release", Ordering::Release)
}

/// The thread that is inside by a call, until dropped.
struct Caller<'s>(&'s unmodelled::AtomicU64);

impl<'s> Caller<'s> {
    #[inline]
    fn enter(caller: &'s unmodelled::AtomicU64) -> Self {
        caller.store(identity::mine().get(), Ordering::Relaxed);
        Self(caller)
    }
}

impl Drop for Caller<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Checks that one thread is inside at a time.
#[cfg(debug_assertions)]
struct Inside<'s>(&'s AtomicU64);

#[cfg(debug_assertions)]
impl<'s> Inside<'s> {
    fn enter<T>(slot: &'s Slot<T>) -> Self {
        let before = slot
            .far
            .inside
            .swap(identity::mine().get(), Ordering::Relaxed);
        assert_eq!(before, 0, "two are inside the slot of CPU {}", slot.cpu());
        Self(&slot.far.inside)
    }
}

#[cfg(debug_assertions)]
impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.word.load(Ordering::Relaxed) {
            FREE => "free",
            HELD => "held",
            LOST => "lost",
            _ => "owned",
        };
        f.debug_struct("Slot")
            .field("cpu", &self.cpu())
            .field("kind", &self.kind())
            .field("word", &word)
            .finish_non_exhaustive()
    }
}
