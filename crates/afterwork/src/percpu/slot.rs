//! One slot: the word that says who holds it, the word that says who asks, the data, and its mail.
//!
//! The page with the states is the module's. Here is who does which step, and why the next one may rely on it.
//!
//! Fields carry a letter: I fixed at creation, A atomic, H touched by whoever holds the slot.

use std::fmt;

use sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use sync::cell::UnsafeCell;
use sync::{asym, barrier, hint, identity, twin};
use topology::CpuId;

use super::choice::Kind;
use super::mail::{Letter, Mail};
use super::patience::Patience;

/// Nobody holds the slot.
const FREE: u32 = 0;
/// Somebody is inside.
const HELD: u32 = 1;
/// The owner keeps it between operations.
const OWNED: u32 = 2;

/// In `Far::owner`: the owner has parked.
const PARKED: u64 = 1 << 63;

/// How often an owner that was asked looks whether the asker has come, before it goes on: about a microsecond, several
/// times what the word takes from one CPU to another. An asker that is late finds the slot free between operations.
const NR_COURTESY_LOOKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// bits 0..31 how many ask | bit 31 the owner does not have the bias
#[derive(Clone, Copy, PartialEq, Eq)]
struct Want(u32);

impl Want {
    const ONE: u32 = 1;
    const AWAY: u32 = 1 << 31;

    fn is_away(self) -> bool {
        self.0 & Self::AWAY != 0
    }
    fn has_askers(self) -> bool {
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
}

/// One CPU's data and everything about it. What the owner touches by each operation lies together.
#[repr(C, align(128))]
pub(super) struct Slot<T> {
    /// A: see the module's page.
    word: AtomicU32,
    /// A: a [`Want`].
    want: AtomicU32,
    /// A, written by the owner: whether it is inside an operation. Used by breakable slots only.
    busy: AtomicU32,
    /// H.
    data: UnsafeCell<T>,
    far: Far<T>,
}

/// What an owner does not touch by its operations.
#[repr(align(128))]
struct Far<T> {
    /// I.
    cpu: CpuId,
    /// I.
    kind: Kind,
    /// A: the owner's thread, with `PARKED` while it has parked; 0 without one.
    owner: AtomicU64,
    /// A: used by slots that queue only.
    mail: Mail<T>,
    /// Who is inside, to catch a bug of ours, or somebody who waits for himself.
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

    // Taking and releasing: anybody.

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
        if word == OWNED {
            Found::Owned
        } else {
            Found::Held
        }
    }

    /// Takes a free slot; says whether it was.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        self.look_and_take() == Found::Taken
    }

    /// Takes the slot for its owner, waiting for whoever is inside.
    #[cold]
    fn take(&self) {
        let mut patience = Patience::of_owner();
        while !self.try_take() {
            patience.pass_time();
        }
    }

    /// Releases a held slot, and sees to mail that came meanwhile.
    #[inline]
    pub(super) fn release(&self) {
        self.word.store(FREE, release_order());
        if self.kind() == Kind::Queue && !twin::armed("percpu: releases and forgets the mail") {
            self.look_after_mail();
        }
    }

    /// Runs what was mailed while the slot was held, or before its owner left. The word was just made `FREE`.
    fn look_after_mail(&self) {
        loop {
            // ORDER(percpu-mail): store buffering, other end in `post`: see the module's page.
            // Test: no_letter_stays_in_a_free_slot, releasing_needs_its_fence
            if !twin::armed("percpu: no fence when releasing") {
                fence(Ordering::SeqCst);
            }
            if self.far.mail.is_empty() || !self.try_take() {
                return;
            }
            self.run_mail();
            self.word.store(FREE, release_order());
        }
    }

    /// Adds a letter for the owner. If there is none after all, runs it.
    pub(super) fn post(&self, letter: Letter<T>) {
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
            // SAFETY: our caller holds the slot.
            unsafe { self.touch(letter) }
        });
    }

    pub(super) fn mail(&self) -> &Mail<T> {
        &self.far.mail
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

    // The owner's thread.

    /// Becomes the owner; says whether there was none. The slot is given up still.
    pub(super) fn claim(&self) -> bool {
        let mine = identity::mine().get() | PARKED;
        // Acquire and release: the next owner's loads of `want` come after what the last one did to it.
        self.far
            .owner
            .compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends being the owner. The slot was given up before.
    pub(super) fn disclaim(&self) {
        self.far.owner.store(0, Ordering::Release);
    }

    /// Says whether the calling thread owns the slot, and has not parked.
    pub(super) fn is_mine(&self) -> bool {
        self.far.owner.load(Ordering::Relaxed) == identity::mine().get()
    }

    /// Gives the slot up until `take_back`: the owner parks, or ends.
    pub(super) fn give_up(&self) {
        let owner = self.far.owner.load(Ordering::Relaxed);
        self.far.owner.store(owner | PARKED, Ordering::Relaxed);
        match self.kind() {
            Kind::Queue => {
                self.run_mail();
                self.release();
            }
            Kind::OnDemand | Kind::Breakable => self.unbias(),
            Kind::EveryOp => {}
        }
    }

    /// Takes the slot back after `give_up`, where the owner keeps it between operations.
    ///
    /// One that is handed over on demand comes back by the next operation.
    pub(super) fn take_back(&self) {
        if self.kind() == Kind::Queue {
            self.take();
            self.run_mail();
            // No release: nobody but us moves the word on from `OWNED`.
            self.word.store(OWNED, Ordering::Relaxed);
        }
        let owner = self.far.owner.load(Ordering::Relaxed);
        self.far.owner.store(owner & !PARKED, Ordering::Relaxed);
    }

    /// Begins an operation of the owner's; says whether it must end by `exit_asked`.
    #[inline(always)]
    pub(super) fn enter(&self, kind: Kind) -> bool {
        match kind {
            Kind::Queue => false,
            Kind::OnDemand => {
                // Relaxed: while `want` is zero the owner has had the slot since it last was inside.
                self.want.load(Ordering::Relaxed) != 0 && self.enter_asked()
            }
            Kind::EveryOp => {
                // A swap, which is cheaper than a compare-exchange while stores miss the caches; `HELD` over
                // `HELD` changes nothing. Loom would let the other's release come before that swap all the same,
                // and be lost, so models compare first.
                let free = if cfg!(loom) {
                    self.try_take()
                } else {
                    self.word.swap(HELD, take_order()) == FREE
                };
                if !free {
                    self.take();
                }
                false
            }
            Kind::Breakable => {
                // ORDER(percpu-bias): store buffering, other end in `try_break`.
                //   here:  busy = 1;    light;  load want
                //   break: want += 1;   heavy;  load busy
                // Either the breaker sees that we are inside, or we see that somebody asks.
                // Test: a_broken_bias_never_lets_two_inside, entering_needs_its_light_fence
                self.busy.store(1, Ordering::Relaxed);
                if !twin::armed("percpu: no light fence") {
                    asym::light();
                }
                self.want.load(Ordering::Relaxed) != 0 && self.enter_asked()
            }
        }
    }

    /// Ends an operation that began by `enter`, which returned `asked`.
    #[inline(always)]
    pub(super) fn exit(&self, kind: Kind, asked: bool) {
        if asked {
            return self.exit_asked();
        }
        match kind {
            Kind::Queue | Kind::OnDemand => {}
            Kind::EveryOp => self.word.store(FREE, release_order()),
            Kind::Breakable => {
                // ORDER(percpu-busy): publish and consume, other end in `try_break`.
                //   here:  the data;        busy = 0   Release
                //   break: busy: 0 Acquire; the data
                // Test: a_broken_bias_never_lets_two_inside, leaving_needs_its_release
                let order = if twin::armed("percpu: relaxed exit") {
                    Ordering::Relaxed
                } else {
                    Ordering::Release
                };
                self.busy.store(0, order);
            }
        }
    }

    /// Hands the slot over to whoever asks, and takes it as everybody does; always true.
    #[cold]
    #[inline(never)]
    fn enter_asked(&self) -> bool {
        self.busy.store(0, Ordering::Release);
        if !Want(self.want.load(Ordering::Relaxed)).is_away() {
            self.unbias();
            for _ in 0..NR_COURTESY_LOOKS {
                let asked = Want(self.want.load(Ordering::Relaxed)).has_askers();
                if !asked || self.word.load(Ordering::Relaxed) != FREE {
                    break;
                }
                hint::spin_loop();
            }
        }
        if !self.try_take() {
            self.take();
        }
        true
    }

    /// Ends an operation that began by `enter_asked`: keeps the slot, if nobody asks any more.
    #[cold]
    #[inline(never)]
    fn exit_asked(&self) {
        // While we are inside nobody can break a bias. With the word at `OWNED` first, one could, and be through with it
        // before the exchange, which would then find `want` as if nothing had been.
        if twin::armed("percpu: keeps the slot before it says so") {
            self.word.store(OWNED, release_order());
        }
        let nobody_asks = self
            .want
            .compare_exchange(Want::AWAY, 0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        // If somebody asks, `AWAY` stays: the next operation takes the slot as this one did.
        let next = if nobody_asks { OWNED } else { FREE };
        self.word.store(next, release_order());
    }

    /// Gives the bias up. It may be broken by now, or given up long ago.
    fn unbias(&self) {
        // The order of these two is only for the reader: both words are read in pairs by this thread alone.
        if !twin::armed("percpu: gives way and does not say so") {
            self.want.fetch_or(Want::AWAY, Ordering::Relaxed);
        }
        // Fails if it was broken, and is right to.
        let _ = self
            .word
            .compare_exchange(OWNED, FREE, release_order(), Ordering::Relaxed);
    }

    // Who asks.

    /// Makes the owner hand the slot over by its next operation, until `unask`.
    pub(super) fn ask(&self) {
        self.want.fetch_add(Want::ONE, Ordering::Relaxed);
    }

    /// Takes the wish back.
    pub(super) fn unask(&self) {
        self.want.fetch_sub(Want::ONE, Ordering::Relaxed);
    }

    /// Takes the slot from an owner that has the bias and is not inside; says whether it did.
    ///
    /// The caller asks, and after that made every thread pass a fence.
    pub(super) fn try_break(&self) -> bool {
        // ORDER(percpu-busy): the acquire end; see `exit`.
        // ORDER(percpu-bias): the other end; see `enter`. The fence is `heavy`, in the caller.
        // Test: a_broken_bias_never_lets_two_inside, breaking_needs_a_look_at_busy
        let inside = self.busy.load(Ordering::Acquire) != 0;
        if inside && !twin::armed("percpu: breaks without a look") {
            return false;
        }
        let broken = self
            .word
            .compare_exchange(OWNED, HELD, take_order(), Ordering::Relaxed)
            .is_ok();
        if broken && !twin::armed("percpu: breaks and does not say so") {
            // Before our wish is taken back: `want` must not fall to zero.
            self.want.fetch_or(Want::AWAY, Ordering::Relaxed);
        }
        broken
    }
}

fn take_order() -> Ordering {
    if twin::armed("percpu: relaxed take") {
        Ordering::Relaxed
    } else {
        Ordering::Acquire
    }
}

fn release_order() -> Ordering {
    // ORDER(percpu-word): the release end; see `try_take`.
    // Test: sections_of_owner_and_remotes_never_overlap, releasing_needs_its_release
    if twin::armed("percpu: relaxed release") {
        Ordering::Relaxed
    } else {
        Ordering::Release
    }
}

/// Checks that one thread is inside at a time, and that none waits for itself.
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

impl<T> Slot<T> {
    /// Panics in debug builds if this thread is inside already: it would wait for itself.
    #[inline]
    pub(super) fn debug_check_not_inside(&self) {
        #[cfg(debug_assertions)]
        assert_ne!(
            self.far.inside.load(Ordering::Relaxed),
            identity::mine().get(),
            "a section of CPU {}'s slot asks for that slot: it would wait for itself",
            self.cpu()
        );
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.word.load(Ordering::Relaxed) {
            FREE => "free",
            HELD => "held",
            _ => "owned",
        };
        f.debug_struct("Slot")
            .field("cpu", &self.cpu())
            .field("kind", &self.kind())
            .field("word", &word)
            .finish_non_exhaustive()
    }
}
