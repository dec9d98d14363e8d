//! Seats that some CPUs keep between runs, so that these leave the gate's word alone while its limit is far.
//!
//! A seat that is given back goes to the *stock* of the CPUs around, and the next thread there takes it from the stock. The gate
//! counts it as taken all the time, so no more than `max_active` are ever used. Helpers count in the stock as well, by the
//! same step. As the memory controller's `memcg_stock`, which is drained when the limit is near.
//!
//! | step | when open | when closed |
//! |---|---|---|
//! | take a seat | from the stock, else from the gate | from the gate |
//! | give a seat back | to the stock, or to the gate if it keeps enough | to the gate |
//! | a helper begins | counts in the stock | counts in the present phase, at the gate |
//! | a helper ends | where it began; the last one tells nobody | where it began; the last one in the stock tells |
//!
//! All stocks of a gate are opened and closed together, under the lock of the gate's line. Who closes them gets what they keep, and
//! gives it back to the gate. They are closed as long as somebody stands in line, a drain waits for nobody to be seated, a
//! flush waits for helpers, the queue is paused, or more are seated than may be. *So whoever waits for a seat, or for its end,
//! finds the gate as if there were no stock.* They are opened again by a thread that takes a seat when few are taken.
//!
//! One word holds the seats and whether it is open: who gives a seat to the stock comes before the close, which finds the seat, or
//! finds it closed, and goes to the gate.

use sync::{
    atomic::{AtomicU64, Ordering},
    twin,
};

/// bits 0..16 seats that are kept | bits 16..32 helpers | bit 32 open
///
/// Of atomics alone: who gives a seat back names it while it may go.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    word: AtomicU64,
    /// How many items helpers have run who counted here.
    pub(crate) nr_helped: AtomicU64,
}

const SEAT: u64 = 1;
const HELPER: u64 = 1 << 16;
const OPEN: u64 = 1 << 32;
const MASK: u64 = 0xffff;

/// What a thread takes of a stock, or gives back to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// A worker's: a seat.
    Seat,
    /// A helper's: its count, and a seat if it has one of its own.
    Help { lent: bool },
}

/// Why a stock gives nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Closed,
    Empty,
}

/// What became of what was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    /// The seat is in the stock; else it is still the caller's.
    pub(crate) is_kept: bool,
    /// Nobody helps any more from this stock, and somebody may wait for that.
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
    /// Takes a share of it.
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

    /// Gives a share back; the stock keeps up to `keep` seats. It may be gone when this returns, if it keeps the seat.
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

    /// Returns `true` if it is open and keeps less than `keep`.
    pub(crate) fn has_room(&self, keep: u32) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & OPEN != 0 && word & MASK < u64::from(keep)
    }

    /// Lets it keep seats.
    pub(crate) fn open(&self) {
        // Relaxed: it changes nothing that others read by it.
        self.word.fetch_or(OPEN, Ordering::Relaxed);
    }

    /// Closes it; returns how many seats it kept, which are the caller's.
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

    /// Returns how many help now who count here.
    pub(crate) fn nr_helpers(&self) -> usize {
        // ORDER(stock): publish and consume, other end in `step`, by which a helper ends.
        //   give: the run;  step Release
        //   here: nobody helps, Acquire;  the flush ends
        // If our load comes first, we find a helper, and the last one tells. If the step comes first, we see what its run did.
        // Test: a_flush_sees_what_helpers_did_whom_a_stock_counted
        let order = twin::order("stock: relaxed look at the helpers", Ordering::Acquire);
        ((self.word.load(order) / HELPER) & MASK) as usize
    }

    fn step(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
        // ORDER(stock): both ends on this line, and another in `nr_helpers`.
        //   give:  the run;  step Release
        //   close: step Acquire finds the seat;  the gate's word says that nobody is seated;  the queue goes
        // If the close comes first, who gives finds it closed and goes to the gate. If the seat comes first, the close sees the run.
        // Test: a_drain_sees_what_those_did_whose_seats_are_kept
        let order = twin::order("stock: relaxed steps", Ordering::AcqRel);
        word.compare_exchange_weak(from, to, order, Ordering::Relaxed)
            .map(drop)
    }
}
