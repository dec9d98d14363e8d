//! A value that its owner uses without a locked instruction, and that one other thread may take hold of meanwhile.
//!
//! The owner says when it is at the value. The other thread, the *looker*, asks first, passes a barrier that orders the
//! owner's steps too, and takes hold only if the owner is elsewhere and has not come since:
//!
//! ```text
//! owner:   busy = true;   light;  read ask, and withdraw what was asked;   use the value;   busy = false
//! looker:  ask = ASKED;   heavy;  busy?  if not, ASKED → TAKEN;            use the value;   ask = ASKED
//! ```
//!
//! | `ask` | means | moved on by |
//! |---|---|---|
//! | `FREE` | nobody wants it | looker → `ASKED` |
//! | `ASKED` | the looker wants it, or wants to know that it is used | owner, or who brings something → `FREE`; looker → `TAKEN` |
//! | `TAKEN` | the looker is at it, for a few instructions | looker → `ASKED` |
//!
//! What must never happen is that both are at it. Both leave `ASKED` by a read-modify-write, so one of them comes first: if the
//! owner, it goes on, and the looker goes away; if the looker, the owner waits for those few instructions.
//!
//! An ask may stand for hours. Whoever takes it back is the first to use the value since, and tells the looker.

use crossbeam_utils::CachePadded;
use sync::{
    Patience, asym,
    atomic::{AtomicBool, AtomicU32, Ordering},
    cell::UnsafeCell,
    twin,
};

const FREE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;

/// A value of one thread's.
#[derive(Debug)]
pub(crate) struct Biased<T> {
    /// A: one of the above. Hardly ever written, so that all may read it.
    ask: CachePadded<AtomicU32>,
    /// A: whether the owner is at the value. The owner writes it.
    is_busy: AtomicBool,
    /// Used by the owner while `is_busy`, and by the looker while `TAKEN`.
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time is at the value, and hands it on by `is_busy` or `ask`.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    /// Makes a place for `value` that nobody asks for.
    pub(crate) fn new(value: T) -> Self {
        Self {
            ask: CachePadded::new(AtomicU32::new(FREE)),
            is_busy: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Uses the value, as its owner; with `asked` first, if the looker wants it.
    ///
    /// # Safety
    ///
    /// 1. The caller is the one owner, and in no other call of this.
    /// 2. Neither function unwinds.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(
        &self,
        asked: impl FnOnce(&mut T),
        body: impl FnOnce(&mut T) -> R,
    ) -> R {
        self.is_busy.store(true, Ordering::Relaxed);
        // ORDER(biased): store buffering through the asymmetric barrier, other end in `try_take`.
        //   owner:  busy = true;    light;   read ask
        //   looker: ask = ASKED;    heavy;   read busy
        // If our light comes first, the looker reads that we are busy, and goes away. If the heavy one comes first, we read
        // ASKED, or what came after it.
        // Test: the_owner_and_the_looker_are_never_both_at_it
        asym::light();
        // ORDER(biased-back): the acquire end; see `try_take`.
        // If the looker's release comes first, we read what it left. If our load comes first, the looker sees that we are
        // busy or finds its ask taken back.
        // Test: what_the_looker_did_is_seen
        let order = twin::order("biased: relaxed read of the ask", Ordering::Acquire);
        if self.ask.load(order) != FREE {
            // SAFETY: (1), (2), and we are busy.
            unsafe { self.answer(asked) };
        }
        // SAFETY: (1), and the looker is not at it: what it asked was taken back, or it goes away, as we are busy.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // ORDER(biased-use): message passing, other end in `try_take`.
        //   owner:  uses the value;        busy = false   Release
        //   looker: read busy   Acquire;   uses the value
        // If our store comes first, the looker sees all that we did. If its load comes first, it goes away.
        // Test: what_the_owner_did_is_seen
        let order = twin::order("biased: relaxed leave", Ordering::Release);
        self.is_busy.store(false, order);
        result
    }

    /// As [`with`](Self::with), where the looker wants the value, or is at it.
    ///
    /// # Safety
    ///
    /// 1. As of [`with`](Self::with), in which the caller is.
    #[cold]
    #[inline(never)]
    unsafe fn answer(&self, asked: impl FnOnce(&mut T)) {
        if self.takes_back() {
            // SAFETY: (1), and the looker is not at it: what it asked was taken back.
            self.value.with_mut(|value| asked(unsafe { &mut *value }));
        }
    }

    /// Returns `true` if the looker wants to know that something was brought that it could take elsewhere, and is to be told.
    #[inline(always)]
    pub(crate) fn note_brought(&self) -> bool {
        // ORDER(biased-bring): store buffering through the asymmetric barrier, other end in `chunks::look`.
        //   who brings: a block on the list;   light;   read ask
        //   looker:     ask = ASKED;           heavy;   takes the list
        // If our light comes first, the looker takes what we brought. If the heavy one comes first, we read ASKED, and tell it.
        // Test: what_comes_home_is_taken_or_told
        if !twin::armed("biased: brings without a barrier") {
            asym::light();
        }
        let ask = self.ask.load(Ordering::Relaxed);
        // While the looker is at the value it may have been at what is brought before.
        let overlooks = ask == TAKEN && twin::armed("biased: brings in silence");
        ask != FREE && !overlooks && self.takes_back()
    }

    /// Takes back what was asked; returns `true` if this did. Waits while the looker is at the value.
    #[cold]
    fn takes_back(&self) -> bool {
        let mut patience = Patience::new();
        loop {
            // ORDER(biased-back): the acquire end, as in `with`. On one word with the looker's step from ASKED: if ours comes
            // first, the looker's fails; if the looker's comes first, ours fails, and we wait for what it stores next.
            // Test: what_the_looker_did_is_seen
            let order = twin::order("biased: relaxed read of the ask", Ordering::Acquire);
            match self.ask.compare_exchange(ASKED, FREE, order, order) {
                Ok(_) => return true,
                Err(FREE) => return false,
                Err(_) => patience.pause(),
            }
        }
    }

    /// Asks for the value. As the one looker.
    pub(crate) fn ask(&self) {
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.ask.compare_exchange(FREE, ASKED, order.0, order.1);
    }

    /// Uses the value, unless the owner is at it or has come since it was asked for. As the one looker, after [`ask`](Self::ask)
    /// and a heavy barrier. Goes on asking.
    pub(crate) fn try_take<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        // ORDER(biased): the other end; see `with`.
        //
        // ORDER(biased-use): the acquire end; see `with`.
        // Test: what_the_owner_did_is_seen
        let order = twin::order("biased: relaxed look", Ordering::Acquire);
        if self.is_busy.load(order) && !twin::armed("biased: overlooks the owner") {
            return None;
        }
        // On one word with `takes_back`, which see.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.ask.compare_exchange(ASKED, TAKEN, order.0, order.1);
        if taken.is_err() && !twin::armed("biased: overlooks what was taken back") {
            return None;
        }
        // SAFETY: the owner was elsewhere after it could see that we ask, and if it came since, it waits.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // ORDER(biased-back): message passing, other ends in `with` and `takes_back`.
        //   looker: uses the value;          ask = ASKED   Release
        //   owner:  read ask   Acquire;      uses the value
        // If our store comes first, the owner sees all that we did. If its load comes first, it saw TAKEN, and waits.
        // Test: what_the_looker_did_is_seen
        let order = twin::order("biased: relaxed give back", Ordering::Release);
        self.ask.store(ASKED, order);
        Some(result)
    }
}
