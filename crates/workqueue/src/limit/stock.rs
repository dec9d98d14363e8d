//! Seats that groups of CPUs cache between runs, so that they rarely access the gate's word.
//!
//! A released seat goes to the *stock* of the current CPU, and the next thread there takes it from
//! the stock. The gate counts it as in use all the time, so at most `max_active` seats are used.
//! Helpers are counted in the stock in the same atomic update. The kernel's `memcg_stock` works
//! alike: it is drained when the limit is near.
//!
//! | operation | when open | when closed |
//! |---|---|---|
//! | acquire a seat | from the stock, otherwise from the gate | from the gate |
//! | release a seat | to the stock, or to the gate if the stock is full | to the gate |
//! | a helper starts | counts in the stock | counts in the current phase, at the gate |
//! | a helper ends | no notification | the last helper of the stock notifies |
//!
//! A helper ends where it started.
//!
//! All stocks of a gate are opened and closed together, under the lock of the gate's wait queue.
//! The thread that closes them returns the cached seats to the gate. They stay closed while a pwq
//! waits for a seat, a drain waits until no seat is in use, a flush waits for helpers, the queue is
//! paused, or more seats are in use than there are. *A waiter for a seat, or for the release of
//! one, therefore finds the gate as if it had no stock.* A thread that acquires a seat when few are
//! in use opens them again.
//!
//! One word holds the seats and the open flag. If a release to the stock comes before the close,
//! the close finds the seat. Otherwise the release finds the stock closed, and goes to the gate.

use sync::{
    atomic::{AtomicU64, Ordering},
    twin,
};

/// bits 0..16 seats that are kept | bits 16..32 helpers | bit 32 open
///
/// Contains only atomics, because it may be destroyed while a thread releases a seat to it.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    word: AtomicU64,
    /// The number of items run by helpers that were counted here.
    pub(crate) nr_helped: AtomicU64,
}

const SEAT: u64 = 1;
const HELPER: u64 = 1 << 16;
const OPEN: u64 = 1 << 32;
const MASK: u64 = 0xffff;

/// A share that a thread takes from a stock or returns to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// A worker's seat.
    Seat,
    /// A helper's count, and a seat unless it is lent.
    Help { lent: bool },
}

/// The reason why a stock returns no share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Closed,
    Empty,
}

/// The result of returning a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    /// `true` if the stock keeps the seat. Otherwise the caller still has it.
    pub(crate) is_kept: bool,
    /// `true` if the stock has no helper left, and a flush may wait for that.
    pub(crate) told: bool,
}

impl Share {
    fn helpers(self) -> u64 {
        match self {
            Self::Seat => 0,
            Self::Help { .. } => HELPER,
        }
    }

    pub(crate) fn has_seat(self) -> bool {
        !matches!(self, Self::Help { lent: true })
    }
}

impl Stock {
    /// Takes a share from the stock.
    #[inline]
    pub(crate) fn take(&self, share: Share) -> Result<(), Refusal> {
        let mut from = self.word.load(Ordering::Relaxed);
        loop {
            if from & OPEN == 0 {
                return Err(Refusal::Closed);
            }
            let has_seat = !share.has_seat() || from & MASK > 0;
            let has_place = (from / HELPER) & MASK < MASK;
            if !has_seat || !has_place {
                return Err(Refusal::Empty);
            }
            let to = from + share.helpers() - u64::from(share.has_seat()) * SEAT;
            match Self::step(&self.word, from, to) {
                Ok(()) => return Ok(()),
                Err(now) => from = now,
            }
        }
    }

    /// Returns a share to the stock, which keeps up to `keep` seats. If it keeps the seat, `self`
    /// may be destroyed before this returns.
    #[inline]
    pub(crate) fn give(&self, share: Share, keep: u32) -> Given {
        let mut from = self.word.load(Ordering::Relaxed);
        loop {
            let is_open = from & OPEN != 0;
            let has_room = from & MASK < u64::from(keep);
            let is_kept = share.has_seat() && is_open && has_room;
            let to = from - share.helpers() + u64::from(is_kept) * SEAT;
            let told = !is_open && share.helpers() > 0 && (to / HELPER) & MASK == 0;
            let given = Given {
                is_kept,
                told: told && !twin::armed("stock: the last helper tells nobody"),
            };
            if to == from {
                return given;
            }
            match Self::step(&self.word, from, to) {
                Ok(()) => return given,
                Err(now) => from = now,
            }
        }
    }

    /// Returns `true` if the stock is open and keeps fewer than `keep` seats.
    pub(crate) fn has_room(&self, keep: u32) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & OPEN != 0 && word & MASK < u64::from(keep)
    }

    /// Allows the stock to keep seats.
    pub(crate) fn open(&self) {
        // Relaxed: the flag publishes no other data.
        self.word.fetch_or(OPEN, Ordering::Relaxed);
    }

    /// Closes the stock. Returns the number of seats that it kept, which now belong to the caller.
    pub(crate) fn close(&self) -> u32 {
        let mut from = self.word.load(Ordering::Relaxed);
        while let Err(now) = Self::step(&self.word, from, from & !(OPEN | MASK)) {
            from = now;
        }
        (from & MASK) as u32
    }

    pub(crate) fn nr_kept(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) & MASK) as u32
    }

    /// Returns the number of current helpers that are counted here.
    pub(crate) fn nr_helpers(&self) -> usize {
        // ORDER(stock): publish and consume, other end in `step`, which ends a helper.
        //   give: the run;  step Release
        //   here: no helper is left, Acquire;  the flush ends
        // If our load comes first, we find a helper, and the last one notifies. If the step comes
        // first, we see everything that its run wrote.
        // Test: a_flush_sees_what_helpers_did_whom_a_stock_counted
        let order = twin::order("stock: relaxed look at the helpers", Ordering::Acquire);
        ((self.word.load(order) / HELPER) & MASK) as usize
    }

    fn step(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
        // ORDER(stock): both ends on this line, and another in `nr_helpers`.
        //   give:  the run;  step Release
        //   close: step Acquire finds the seat;  the gate's word has no seat in use;  the queue is
        //   destroyed
        // If the close comes first, the releasing thread finds the stock closed and goes to the
        // gate. If the seat comes first, the close sees everything that the run wrote.
        // Test: a_drain_sees_what_those_did_whose_seats_are_kept
        let order = twin::order("stock: relaxed steps", Ordering::AcqRel);
        word.compare_exchange_weak(from, to, order, Ordering::Relaxed)
            .map(drop)
    }
}
