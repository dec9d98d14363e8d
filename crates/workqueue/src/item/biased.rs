//! A value that its owner uses without a locked instruction, and that one other thread can use
//! while the owner does not.
//!
//! The owner sets a flag while it uses the value. The other thread, the *scanner*, first requests
//! the value and executes a barrier that also orders the owner's accesses. It takes the value only
//! if the owner is not using it and has not used it since:
//!
//! ```text
//! owner:   busy = true;    light;  read ask, and withdraw it;    use the value;  busy = false
//! scanner: ask = ASKED;    heavy;  busy?  if not, ASKED → TAKEN; use the value;  ask = ASKED
//! ```
//!
//! | `ask` | meaning | transitions |
//! |---|---|---|
//! | `FREE` | the value is not requested | scanner → `ASKED` |
//! | `ASKED` | the scanner requests the value | scanner → `TAKEN`; owner or returner → `FREE` |
//! | `TAKEN` | the scanner uses the value (a few instructions) | scanner → `ASKED` |
//!
//! The owner and the scanner must never use the value at the same time. Both leave `ASKED` by a
//! read-modify-write, so one of them comes first. If it is the owner, it continues and the scanner
//! gives up. If it is the scanner, the owner waits for those few instructions. A *returner* is a
//! thread that returns blocks to the owner.
//!
//! A request can stay pending for hours. The thread that withdraws it is the first to use the value
//! since, and notifies the scanner.

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

/// A value that belongs to one thread.
#[derive(Debug)]
pub(crate) struct Biased<T> {
    /// A: one of the above. Rarely written, so that reads of all threads are cheap.
    ask: CachePadded<AtomicU32>,
    /// A: set while the owner uses the value. Written by the owner.
    is_busy: AtomicBool,
    /// Used by the owner while `is_busy`, and by the scanner while `TAKEN`.
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value, and publishes its writes through `is_busy` or `ask`.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    /// Wraps `value`, which is not requested.
    pub(crate) fn new(value: T) -> Self {
        Self {
            ask: CachePadded::new(AtomicU32::new(FREE)),
            is_busy: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Uses the value as its owner. If the scanner requested the value, calls `asked` first.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only owner, and is not inside another call of this function.
    /// 2. Neither function unwinds.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(
        &self,
        asked: impl FnOnce(&mut T),
        body: impl FnOnce(&mut T) -> R,
    ) -> R {
        self.is_busy.store(true, Ordering::Relaxed);
        // ORDER(biased): store buffering through the asymmetric barrier, other end in `try_take`.
        //   owner:   busy = true;    light;   read ask
        //   scanner: ask = ASKED;    heavy;   read busy
        // If our light barrier comes first, the scanner reads that we are busy, and gives up. If
        // the heavy barrier comes first, we read ASKED or a later value.
        // Test: the_owner_and_the_looker_are_never_both_at_it
        asym::light();
        // ORDER(biased-back): the acquire end; see `try_take`. If the scanner's release comes
        // first, we read its writes. If our load comes first, the scanner finds that we are busy or
        // that its request was withdrawn.
        // Test: what_the_looker_did_is_seen
        let order = twin::order("biased: relaxed read of the ask", Ordering::Acquire);
        if self.ask.load(order) != FREE {
            // SAFETY: (1), (2), and we are busy.
            unsafe { self.answer(asked) };
        }
        // SAFETY: (1), and the scanner does not use the value: its request was withdrawn, or it
        // gives up because we are busy.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // ORDER(biased-use): message passing, other end in `try_take`.
        //   owner:   use the value;         busy = false   Release
        //   scanner: read busy   Acquire;   use the value
        // If our store comes first, the scanner sees our writes. If its load comes first, it gives
        // up.
        // Test: what_the_owner_did_is_seen
        let order = twin::order("biased: relaxed leave", Ordering::Release);
        self.is_busy.store(false, order);
        result
    }

    /// The part of [`with`](Self::with) for a value that the scanner requested or uses.
    ///
    /// # Safety
    ///
    /// 1. As [`with`](Self::with), which the caller is executing.
    #[cold]
    #[inline(never)]
    unsafe fn answer(&self, asked: impl FnOnce(&mut T)) {
        if self.takes_back() {
            // SAFETY: (1), and the scanner does not use the value: its request was withdrawn.
            self.value.with_mut(|value| asked(unsafe { &mut *value }));
        }
    }

    /// Called after a block was returned. Returns `true` if the scanner requested the value; the
    /// caller then notifies the scanner.
    #[inline(always)]
    pub(crate) fn note_brought(&self) -> bool {
        // ORDER(biased-bring): store buffering through the asymmetric barrier, other end in
        // `chunks::look`.
        //   returner: push a block on the list;   light;   read ask
        //   scanner:  ask = ASKED;                heavy;   take the list
        // If our light barrier comes first, the scanner takes our block. If the heavy barrier comes
        // first, we read ASKED and notify the scanner.
        // Test: what_comes_home_is_taken_or_told
        if !twin::armed("biased: brings without a barrier") {
            asym::light();
        }
        let ask = self.ask.load(Ordering::Relaxed);
        // While the scanner uses the value, it may already have taken the list.
        let overlooks = ask == TAKEN && twin::armed("biased: brings in silence");
        ask != FREE && !overlooks && self.takes_back()
    }

    /// Withdraws the request; returns `true` on success. Waits while the scanner uses the value.
    #[cold]
    fn takes_back(&self) -> bool {
        let mut patience = Patience::new();
        loop {
            // ORDER(biased-back): the acquire end, as in `with`. The scanner leaves ASKED by an
            // exchange of the same word. If ours comes first, the scanner's fails. If the scanner's
            // comes first, ours fails, and we wait for its next store.
            // Test: what_the_looker_did_is_seen
            let order = twin::order("biased: relaxed read of the ask", Ordering::Acquire);
            match self.ask.compare_exchange(ASKED, FREE, order, order) {
                Ok(_) => return true,
                Err(FREE) => return false,
                Err(_) => patience.pause(),
            }
        }
    }

    /// Requests the value. Only for the scanner.
    pub(crate) fn ask(&self) {
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.ask.compare_exchange(FREE, ASKED, order.0, order.1);
    }

    /// Uses the value, unless the owner uses it or has used it since the request. Only for the
    /// scanner, after [`ask`](Self::ask) and a heavy barrier. The request stays pending.
    pub(crate) fn try_take<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        // ORDER(biased): the other end; see `with`.
        //
        // ORDER(biased-use): the acquire end; see `with`.
        // Test: what_the_owner_did_is_seen
        let order = twin::order("biased: relaxed look", Ordering::Acquire);
        if self.is_busy.load(order) && !twin::armed("biased: overlooks the owner") {
            return None;
        }
        // This exchange and the one in `takes_back` use the same word; see there.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.ask.compare_exchange(ASKED, TAKEN, order.0, order.1);
        if taken.is_err() && !twin::armed("biased: overlooks what was taken back") {
            return None;
        }
        // SAFETY: the owner was not using the value when it could already see our request. If it
        // has come since, it waits.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // ORDER(biased-back): message passing, other ends in `with` and `takes_back`.
        //   scanner: use the value;          ask = ASKED   Release
        //   owner:   read ask   Acquire;     use the value
        // If our store comes first, the owner sees all our writes. If its load comes first, it
        // reads TAKEN, and waits.
        // Test: what_the_looker_did_is_seen
        let order = twin::order("biased: relaxed give back", Ordering::Release);
        self.ask.store(ASKED, order);
        Some(result)
    }
}
