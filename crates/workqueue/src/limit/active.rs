//! How many workers of one queue run at once: `max_active`, for the whole process.
//!
//! A *seat* is the right to run items of one queue. A worker takes a seat before the first item of a batch and
//! gives it back after the last; a helper takes one for the item that it runs. So the count is of threads that
//! execute the queue's items, whatever pools they belong to, and one atomic step serves a whole batch.
//!
//! A pool that gets no seat sets the items aside (`inactive` of its pwq) and stands in line here. Whoever gives a
//! seat back while somebody stands in line does not free it: he hands it to the first in line. Pools thus take
//! turns, and a busy pool cannot keep the others out.
//!
//! Where the pools lie in several NUMA nodes, each node has a share of the seats (`share.rs`), which decides who is
//! first in line. The seats that a node has are counted beside the word, by whoever has them; on one node nothing is.
//!
//! A queue has one gate for all of its links, which is the meaning of `max_active`; with [`MaxActiveScope`] of another
//! value one for each node, or for each pool.
//!
//! Where a queue has many CPUs these keep seats between runs, as long as the limit is far: see `stock.rs`.
//!
//! Differs from Linux: there an item counts as active from the moment it is put on a worklist; here while a
//! thread runs it.

use std::{collections::VecDeque, ops::Deref};

use crossbeam_utils::CachePadded;
use sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering},
    cpu, twin,
    unmodelled::Arc,
};

use super::{
    queue_core::QueueCore,
    share::{next_in_line, shares},
    stock::{Refusal, Share, Stock},
};

/// bits 0..16 `nr_active` | bit 16 somebody waits for it to become zero | bit 17 somebody stands in line |
/// bit 18 somebody waits for the helpers of the phase before | bit 19 the stocks stay closed | bits 24..32 the phase |
/// bits 32..48 helpers of even phases | bits 48..64 helpers of odd phases
///
/// *Phases* tell the helpers that came before a flush from those that came later. A helper counts in the phase that he
/// finds. A flush begins the next phase, as soon as the phase before the present one has no helpers left, and waits
/// until the present one, which is then the one before, has none either. So two are told apart at a time: a flush
/// that begins while another waits for helpers may wait for some that came in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u64);

const ACTIVE_ONE: u64 = 1;
const ACTIVE_MASK: u64 = 0xffff;
const IDLE_WAITS: u64 = 1 << 16;
const IN_LINE: u64 = 1 << 17;
const HELP_WAITS: u64 = 1 << 18;
const STAY_CLOSED: u64 = 1 << 19;
const PHASE_SHIFT: u32 = 24;
const PHASE_MASK: u64 = 0xff << PHASE_SHIFT;
const HELPER_BITS: u32 = 16;
const HELPER_SHIFT: u32 = 32;

/// Which helpers a flush waits for; wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phase(u8);

impl Phase {
    fn shift(self) -> u32 {
        HELPER_SHIFT + HELPER_BITS * u32::from(self.0 & 1)
    }
    fn next(self) -> Phase {
        Phase(self.0.wrapping_add(1))
    }
    fn before(self) -> Phase {
        Phase(self.0.wrapping_sub(1))
    }
}

/// What a thread holds that runs items of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    /// A worker: a seat.
    Seat,
    /// A helper: a place in a phase, and a seat of its own or one that a run further out lends.
    Help { phase: Phase, lent: bool },
    /// A helper that counts in the stock of this number.
    HelpOfStock { at: u32, lent: bool },
}

impl Holds {
    /// Returns what of it the gate's word counts.
    fn amount(self) -> u64 {
        match self {
            Self::Seat => ACTIVE_ONE,
            Self::Help { phase, lent } => (1 << phase.shift()) + u64::from(!lent) * ACTIVE_ONE,
            Self::HelpOfStock { lent, .. } => u64::from(!lent) * ACTIVE_ONE,
        }
    }

    fn has_seat(self) -> bool {
        !matches!(
            self,
            Self::Help { lent: true, .. } | Self::HelpOfStock { lent: true, .. }
        )
    }

    fn without_seat(self) -> Option<Holds> {
        match self {
            Self::Seat | Self::HelpOfStock { .. } => None,
            Self::Help { phase, .. } => Some(Self::Help { phase, lent: true }),
        }
    }
}

impl Word {
    fn nr_active(self) -> u32 {
        (self.0 & ACTIVE_MASK) as u32
    }
    fn idle_waits(self) -> bool {
        self.0 & IDLE_WAITS != 0
    }
    fn has_line(self) -> bool {
        self.0 & IN_LINE != 0
    }
    fn help_waits(self) -> bool {
        self.0 & HELP_WAITS != 0
    }
    /// Nobody wants the stocks closed.
    fn may_open(self) -> bool {
        self.0 & (IDLE_WAITS | IN_LINE | STAY_CLOSED) == 0
    }
    fn phase(self) -> Phase {
        Phase(((self.0 & PHASE_MASK) >> PHASE_SHIFT) as u8)
    }
    fn nr_helpers(self, phase: Phase) -> u64 {
        (self.0 >> phase.shift()) & ((1 << HELPER_BITS) - 1)
    }
    fn with(self, flag: u64) -> Word {
        Word(self.0 | flag)
    }
    fn without(self, flag: u64) -> Word {
        Word(self.0 & !flag)
    }
    /// Takes a seat if there is one. A line does not matter: it forms only when all are taken.
    fn admit(self, max: u32) -> Option<Word> {
        (self.nr_active() < max).then_some(Word(self.0 + ACTIVE_ONE))
    }
    /// Lets a helper in if there is a seat for him, or one is lent; says what he then holds.
    fn admit_helper(self, max: u32, lent: bool) -> Option<(Word, Holds)> {
        let phase = self.phase();
        let has_seat = lent || self.nr_active() < max;
        let has_place = self.nr_helpers(phase) + 1 < 1 << HELPER_BITS;
        let holds = Holds::Help { phase, lent };
        (has_seat && has_place).then(|| (Word(self.0 + holds.amount()), holds))
    }
    /// Lets somebody out; returns `true` if those must be told who wait for nobody to be seated, or for helpers.
    fn leave(self, holds: Holds) -> (Word, bool) {
        let mut left = Word(self.0 - holds.amount());
        let idle = left.nr_active() == 0 && left.idle_waits();
        let flushed = left.help_waits() && left.nr_helpers(left.phase().before()) == 0;
        if idle {
            left = left.without(IDLE_WAITS);
        }
        if flushed {
            left = left.without(HELP_WAITS);
        }
        (
            left,
            idle || flushed && !twin::armed("flush: the last helper tells nobody"),
        )
    }
    /// Begins the next phase.
    fn next_phase(self) -> Word {
        let next = u64::from(self.phase().next().0) << PHASE_SHIFT;
        Word(self.0 & !PHASE_MASK | next)
    }
}

/// Counts the seats of one queue; `S` is what stands in line for them.
#[derive(Debug)]
pub(crate) struct Gate<S> {
    word: CachePadded<AtomicU64>,
    /// bits 0..31 `max_active` | bit 31 paused
    max: AtomicU32,
    /// I: by how much a queue's limit is multiplied: the CPUs of its pool, where the limit is meant for each CPU.
    factor: u32,
    /// By node; none where all links lie in one.
    nodes: Box<[Node]>,
    /// What CPUs keep: first those of the first node, for which also pools count that span several; then as many for each
    /// other node. None where one word serves all.
    stocks: Box<[CachePadded<Stock>]>,
    /// I: how many stocks the first node has: for all CPUs.
    nr_stocks: u32,
    /// I: how many each other node has.
    nr_per_node: u32,
    /// I: how many CPUs share one.
    cpus_per_stock: Divisor,
    /// I: of the seats, what one stock keeps at most.
    kept_of: Divisor,
    /// Every change of `IN_LINE` is made under this lock, and says whether the line is empty. So is every opening and closing
    /// of the stocks, and with stocks every setting of `IDLE_WAITS`.
    line: Mutex<Line<S>>,
}

/// Who stands in line for a seat.
#[derive(Debug)]
struct Line<S> {
    places: VecDeque<Place<S>>,
    /// The addresses of all pwqs whose items need a seat here, so that an item's home can be
    /// compared without dereferencing it.
    homes: Vec<usize>,
    /// The stocks are open.
    is_open: bool,
    /// How many want them closed, see [`Closed`]; `STAY_CLOSED` says whether there are any.
    nr_closers: u32,
}

/// A gate whose stocks stay closed until this is dropped.
#[derive(Debug)]
pub(crate) struct Closed<S>(Arc<Gate<S>>);

/// So many seats there are for each stock, at least: with few a stock often has none left, with many its word is shared by many
/// CPUs. Simulated, 512 CPUs and 256 seats do about as well with 2 to 8, and run a third of the items with 32; 72 CPUs do best with 8.
const SEATS_PER_STOCK: u32 = if cfg!(any(test, loom, shuttle)) { 2 } else { 8 };

/// Returns how many stocks there are for a limit of `max` seats and so many CPUs: one a CPU, or as many as `max` allows; none for
/// one CPU.
fn nr_stocks(max: u32, nr_cpus: u32) -> u32 {
    let nr = (max / SEATS_PER_STOCK).min(nr_cpus);
    if nr < 2 { 0 } else { nr }
}

/// Returns what to divide all seats by for what each of so many stocks, which serve all CPUs, keeps at most: all together half of them.
fn kept_of(nr_stocks: u32) -> Divisor {
    Divisor::new(2 * nr_stocks.max(1))
}

/// A number to divide others by, by a multiplication: a run takes a seat and gives it back, and each would divide three times.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    /// 2^32 by the number, rounded up.
    inverse: u64,
}

impl Divisor {
    fn new(by: u32) -> Self {
        Self {
            inverse: (1_u64 << 32).div_ceil(u64::from(by)),
        }
    }

    /// Returns the whole part of `number` by this. Their product is below 2^32: else it may be one more.
    #[inline]
    fn divide(self, number: u32) -> u32 {
        ((u64::from(number) * self.inverse) >> 32) as u32
    }
}

/// The bit of `Gate::max` that says so.
const PAUSED: u32 = 1 << 31;

/// What one NUMA node has of the seats.
#[derive(Debug)]
struct Node {
    /// A: changed by who has the seat.
    nr_active: CachePadded<AtomicU32>,
    /// Written under the line's lock.
    share: AtomicU32,
    /// CPUs that the queue uses; written under the line's lock.
    nr_cpus: AtomicU32,
}

/// A place in line for a seat.
#[derive(Debug)]
struct Place<S> {
    seeker: S,
    /// Where it lies.
    node: usize,
}

/// Whom somebody who left must tell, with no pool locked.
#[derive(Debug)]
pub(crate) struct Left<S> {
    /// To whom the seat passes.
    pub(crate) seeker: Option<S>,
    /// The queue, when somebody waits for what ended by this.
    pub(crate) settled: Option<Arc<QueueCore>>,
}

impl<S> Deref for Closed<S> {
    type Target = Gate<S>;

    fn deref(&self) -> &Gate<S> {
        &self.0
    }
}

impl<S> Drop for Closed<S> {
    fn drop(&mut self) {
        if !self.0.stocks.is_empty() && !twin::torn_down() {
            let mut line = self.0.line.lock();
            line.nr_closers -= 1;
            if line.nr_closers == 0 {
                self.0.word.fetch_and(!STAY_CLOSED, Ordering::Relaxed);
            }
        }
    }
}

impl<S> Gate<S> {
    /// Makes the seats for a limit of `max`, times `factor`, of a queue that uses so many CPUs of each node, with stocks for
    /// `stocks_for` CPUs.
    pub(crate) fn new(max: u32, factor: u32, nr_cpus: &[u32], stocks_for: u32) -> Self {
        let nr_cpus = if nr_cpus.len() > 1 { nr_cpus } else { &[] };
        let nr_stocks = nr_stocks(max * factor, stocks_for);
        let nr_nodes = nr_cpus.len().max(1) as u32;
        let nr_per_node = nr_stocks.div_ceil(nr_nodes);
        let node = |&nr_cpus| Node {
            nr_active: CachePadded::new(AtomicU32::new(0)),
            share: AtomicU32::new(0),
            nr_cpus: AtomicU32::new(nr_cpus),
        };
        let kept_of = kept_of(nr_stocks);
        let is_open = kept_of.divide(max * factor) > 0;
        let gate = Self {
            word: CachePadded::new(AtomicU64::new(0)),
            max: AtomicU32::new(max * factor),
            factor,
            nodes: nr_cpus.iter().map(node).collect(),
            stocks: (0..nr_stocks + nr_per_node * (nr_nodes - 1))
                .map(|_| CachePadded::default())
                .collect(),
            nr_stocks,
            nr_per_node,
            cpus_per_stock: Divisor::new(stocks_for.div_ceil(nr_stocks.max(1)).max(1)),
            kept_of,
            line: Mutex::new(Line {
                places: VecDeque::new(),
                homes: Vec::new(),
                is_open,
                nr_closers: 0,
            }),
        };
        if is_open {
            gate.stocks.iter().for_each(|stock| stock.open());
        }
        gate.share_out();
        gate
    }

    /// Takes note of how many CPUs of each node the queue uses now.
    pub(crate) fn set_cpus(&self, nr_cpus: &[u32]) {
        let _line = self.line.lock();
        for (node, &nr_cpus) in self.nodes.iter().zip(nr_cpus) {
            node.nr_cpus.store(nr_cpus, Ordering::Relaxed);
        }
        self.share_out();
    }

    fn share_out(&self) {
        let nr_cpus = |node: &Node| node.nr_cpus.load(Ordering::Relaxed);
        let nr_cpus: Vec<_> = self.nodes.iter().map(nr_cpus).collect();
        for (node, share) in self.nodes.iter().zip(shares(self.max(), &nr_cpus)) {
            node.share.store(share, Ordering::Relaxed);
        }
    }

    /// Records that the items of the pwq at `home` need a seat here. The pwq stays at that address
    /// as long as this gate is used.
    pub(crate) fn add_home(&self, home: usize) {
        self.line.lock().homes.push(home);
    }

    /// Returns `true` if the items of the pwq at `home` need a seat here, the gate has a single
    /// seat, and no second thread has a seat.
    ///
    /// Called by the thread that has the only seat: no other thread starts such an item before that
    /// thread releases it.
    /// thread releases it.
    pub(crate) fn is_only_seat_for(&self, home: usize) -> bool {
        self.max() == 1 && self.nr_active() <= 1 && self.line.lock().homes.contains(&home)
    }

    /// Returns how many seats there are when the queue is not paused.
    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed) & !PAUSED
    }

    /// Returns how many seats there are now.
    fn nr_seats(&self) -> u32 {
        let max = self.max.load(Ordering::Relaxed);
        if max & PAUSED != 0 { 0 } else { max }
    }

    /// Returns how many seats are used.
    pub(crate) fn nr_active(&self) -> u32 {
        let nr_kept = self.stocks.iter().map(|stock| stock.nr_kept()).sum();
        self.load().nr_active().saturating_sub(nr_kept)
    }

    /// Returns the stock of the CPUs around, for a seat of `node`.
    #[inline]
    fn stock_here(&self, node: usize) -> Option<usize> {
        if self.nr_stocks == 0 {
            return None;
        }
        let (first, nr) = match node as u32 {
            n if n == 0 || self.nodes.is_empty() => (0, self.nr_stocks),
            n => (
                self.nr_stocks + (n - 1) * self.nr_per_node,
                self.nr_per_node,
            ),
        };
        let at = self.cpus_per_stock.divide(cpu::current().as_u32());
        let at = if at < nr { at } else { at % nr };
        Some((first + at) as usize)
    }

    /// Returns whose seats a stock keeps.
    fn node_of(&self, stock: usize) -> usize {
        match stock.checked_sub(self.nr_stocks as usize) {
            Some(behind) => 1 + behind / self.nr_per_node as usize,
            None => 0,
        }
    }

    /// Returns how many seats a stock keeps at most.
    #[inline]
    fn keep(&self) -> u32 {
        self.kept_of.divide(self.nr_seats())
    }

    /// Opens the stocks if half of the seats are free, which is as many as they keep, and nobody wants them closed. They stay
    /// closed if the line is in use.
    #[cold]
    fn open(&self) {
        let is_far = || {
            let word = self.load();
            word.may_open() && word.nr_active() <= self.nr_seats() / 2
        };
        if !is_far() || self.keep() == 0 {
            return;
        }
        let Some(mut line) = self.line.try_lock() else {
            return;
        };
        if !line.is_open && is_far() && self.keep() > 0 {
            line.is_open = true;
            self.stocks.iter().for_each(|stock| stock.open());
        }
    }

    /// Closes the stocks, and gives the seats that they kept back to the word.
    fn close(&self, line: &mut Line<S>) {
        if !std::mem::take(&mut line.is_open) {
            return;
        }
        let mut nr_kept = 0;
        for (at, stock) in self.stocks.iter().enumerate() {
            let kept = stock.close();
            if let Some(node) = self.nodes.get(self.node_of(at)) {
                node.nr_active.fetch_sub(kept, Ordering::Relaxed);
            }
            nr_kept += kept;
        }
        // Nobody stood in line while they were open, nor waited for nobody to be seated, so nobody is told. Acquire and release
        // as in `step`.
        self.word
            .fetch_sub(u64::from(nr_kept) * ACTIVE_ONE, Ordering::AcqRel);
    }

    /// Closes the stocks until the answer is dropped: all who help from then on count in a phase.
    pub(crate) fn closed(gate: Arc<Self>) -> Closed<S> {
        if !gate.stocks.is_empty() {
            let mut line = gate.line.lock();
            line.nr_closers += 1;
            // Relaxed, as below: read under the line's lock.
            gate.word.fetch_or(STAY_CLOSED, Ordering::Relaxed);
            if !twin::armed("stock: a flush leaves it open") {
                gate.close(&mut line);
            }
        }
        Closed(gate)
    }

    /// Returns `true` if who has a seat may keep it for more: not while somebody stands in line, or too many are seated
    /// because `max` was lowered.
    pub(crate) fn may_stay(&self) -> bool {
        let word = self.load();
        !word.has_line() && word.nr_active() <= self.nr_seats()
    }

    /// Returns `true` if who was handed a seat may start something: not while the queue is paused, or too many are seated
    /// because `max` was lowered. As in `pass_on`.
    pub(crate) fn may_start(&self) -> bool {
        self.load().nr_active() <= self.nr_seats()
    }

    /// Takes a seat for a thread of `node`, or none.
    #[inline]
    pub(crate) fn try_enter(&self, node: usize) -> bool {
        let Some(at) = self.stock_here(node) else {
            return self.try_enter_here(node);
        };
        match self.stocks[at].take(Share::Seat) {
            Ok(()) => true,
            Err(Refusal::Empty) => self.try_enter_here(node),
            Err(Refusal::Closed) => {
                let has_seat = self.try_enter_here(node);
                self.open();
                has_seat
            }
        }
    }

    /// Takes a seat of the word.
    #[inline]
    fn try_enter_here(&self, node: usize) -> bool {
        let mut from = self.load();
        while let Some(to) = from.admit(self.nr_seats()) {
            match Self::step(&self.word, from, to) {
                Ok(()) => {
                    self.seat_in(node);
                    return true;
                }
                Err(now) => from = now,
            }
        }
        false
    }

    /// Lets a helper of `node` in, on a seat of his own or on one that is `lent` to him, if it can be.
    ///
    /// A helper's item may be counted nowhere else, so he comes in before he takes it.
    #[inline]
    pub(crate) fn try_help(&self, node: usize, lent: bool) -> Option<Holds> {
        let Some(at) = self.stock_here(node) else {
            return self.try_help_here(node, lent);
        };
        match self.stocks[at].take(Share::Help { lent }) {
            Ok(()) => Some(Holds::HelpOfStock {
                at: at as u32,
                lent,
            }),
            Err(Refusal::Empty) => self.try_help_here(node, lent),
            Err(Refusal::Closed) => {
                let holds = self.try_help_here(node, lent);
                self.open();
                holds
            }
        }
    }

    /// Lets a helper in at the word.
    #[inline]
    fn try_help_here(&self, node: usize, lent: bool) -> Option<Holds> {
        let mut from = self.load();
        while let Some((to, holds)) = from.admit_helper(self.nr_seats(), lent) {
            match Self::step(&self.word, from, to) {
                Ok(()) => {
                    if !lent {
                        self.seat_in(node);
                    }
                    return Some(holds);
                }
                Err(now) => from = now,
            }
        }
        None
    }

    /// Counts an item that a helper runs.
    #[inline]
    pub(crate) fn note_helped(&self, core: &QueueCore, holds: Holds) {
        let count = match holds {
            Holds::HelpOfStock { at, .. } => &self.stocks[at as usize].nr_helped,
            _ => &core.nr_helped,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many items helpers have run who counted in stocks.
    pub(crate) fn nr_helped(&self) -> u64 {
        let nr_helped = |stock: &CachePadded<Stock>| stock.nr_helped.load(Ordering::Relaxed);
        self.stocks.iter().map(nr_helped).sum()
    }

    /// Returns how many help now.
    pub(crate) fn nr_helpers(&self) -> usize {
        let word = self.load();
        let phase = word.phase();
        let of_stocks = self.stocks.iter().map(|stock| stock.nr_helpers());
        (word.nr_helpers(phase) + word.nr_helpers(phase.before())) as usize
            + of_stocks.sum::<usize>()
    }

    /// Returns the phase in which whoever helps now counts, or in the one before it.
    pub(crate) fn phase(&self) -> Phase {
        self.load().phase()
    }

    /// Returns `true` if nobody helps any more who did when `phase` was the present one; else the last of them will tell
    /// `core.settled`. Call it while the stocks are [`closed`](Self::closed): who counts in one came before that.
    ///
    /// The phase wraps: a flush that sleeps through 256 others may take it for the one that it began in, and waits
    /// for helpers that do not concern it. It never ends too early by that.
    pub(crate) fn has_helped(&self, phase: Phase) -> bool {
        let of_stocks = self.stocks.iter().any(|stock| stock.nr_helpers() > 0);
        let mut from = self.load();
        loop {
            let present = from.phase();
            let is_empty = from.nr_helpers(present.before()) == 0;
            let to = if present == phase && from.nr_helpers(present) == 0 && is_empty && !of_stocks
            {
                return true;
            } else if present == phase && is_empty {
                // Also where a stock counts the last of them: else who comes later would count in the same phase.
                from.next_phase()
            } else if present != phase && (present != phase.next() || is_empty) {
                return !of_stocks;
            } else {
                from.with(HELP_WAITS)
            };
            match Self::step(&self.word, from, to) {
                Ok(()) if to.phase() == present => return false,
                // The phase that has begun is looked at, too. Loaded, for a failed step acquires nothing of what the
                // helpers did.
                Ok(()) | Err(_) => from = self.load(),
            }
        }
    }

    #[inline]
    fn seat_in(&self, node: usize) {
        if let Some(node) = self.nodes.get(node) {
            node.nr_active.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a seat, or stands in line for one. Call it with the seeker's pool locked.
    pub(crate) fn enter_or_queue(&self, node: usize, seeker: impl FnOnce() -> S) -> bool {
        if self.try_enter(node) {
            return true;
        }
        let mut line = self.line.lock();
        if !twin::armed("stock: a line leaves it open") {
            self.close(&mut line);
        }
        let mut from = self.load();
        loop {
            // A seat may have come free since: only a line that is seen keeps the next one from being freed.
            let admitted = if twin::armed("active: no second look") {
                None
            } else {
                from.admit(self.nr_seats())
            };
            match Self::step(&self.word, from, admitted.unwrap_or(from.with(IN_LINE))) {
                // A seat came free before the line was seen: it is ours.
                Ok(()) if admitted.is_some() => {
                    self.seat_in(node);
                    return true;
                }
                // All were taken, and who leaves from here on sees the line: he comes for its lock, and hands his seat over.
                Ok(()) => break,
                // Somebody came or left.
                Err(now) => from = now,
            }
        }
        let seeker = seeker();
        line.places.push_back(Place { seeker, node });
        false
    }

    /// Gives back what a thread of `node` holds at `gate`, of the queue `core`. Tell whom the answer names, with no pool
    /// locked.
    #[must_use = "somebody may have to be told"]
    #[inline]
    pub(crate) fn leave(
        gate: &Arc<Self>,
        core: &Arc<QueueCore>,
        node: usize,
        holds: Holds,
    ) -> Left<S> {
        // SAFETY: borrowed for longer than this call.
        unsafe { Self::leave_last(gate, core, node, holds) }
    }

    /// Gives it back where nothing else keeps the queue, which may be gone before this returns.
    ///
    /// A reference that is an argument would claim that it is not.
    ///
    /// # Safety
    ///
    /// 1. Both pointers are good until what is held has been given back.
    #[must_use = "somebody may have to be told"]
    #[inline]
    pub(crate) unsafe fn leave_last(
        gate: *const Arc<Self>,
        core: *const Arc<QueueCore>,
        node: usize,
        holds: Holds,
    ) -> Left<S> {
        // SAFETY: (1), and neither is looked at after the step.
        let (gate, core) = unsafe { (&*gate, &*core) };
        let (mut holds, mut settled) = (holds, None);
        let share = match holds {
            Holds::Seat => gate.stock_here(node).map(|at| (at, Share::Seat)),
            Holds::HelpOfStock { at, lent } => Some((at as usize, Share::Help { lent })),
            Holds::Help { lent: true, .. } => None,
            Holds::Help { phase, .. } => {
                let at = gate.stock_here(node);
                let at = at.filter(|&at| gate.stocks[at].has_room(gate.keep()));
                at.map(|at| {
                    // The count first: the seat keeps the queue.
                    settled = gate
                        .give_up(Holds::Help { phase, lent: true })
                        .then(|| core.clone());
                    (at, Share::Seat)
                })
            }
        };
        if let Some((at, share)) = share {
            let given = gate.stocks[at].give(share, gate.keep());
            if given.is_kept {
                // Nothing holds the gate after that step.
                return Left {
                    seeker: None,
                    settled,
                };
            }
            // The helper's count has gone. The seat, or the one that was lent, still keeps the queue.
            if given.told {
                settled = Some(core.clone());
            }
            if !share.has_seat() {
                return Left {
                    seeker: None,
                    settled,
                };
            }
            holds = Holds::Seat;
        }
        // Before the step: nothing holds the gate after it.
        if let (true, Some(node)) = (holds.has_seat(), gate.nodes.get(node)) {
            node.nr_active.fetch_sub(1, Ordering::Relaxed);
        }
        let mut from = gate.load();
        while !(holds.has_seat() && from.has_line()) {
            let (left, told) = from.leave(holds);
            // Cloned before the step: nothing holds the queue after it.
            if told && settled.is_none() {
                settled = Some(core.clone());
            }
            match Self::step(&gate.word, from, left) {
                // Nobody stood in line: the seat is free for whoever comes, also for one who is about to line up.
                Ok(()) => {
                    return Left {
                        seeker: None,
                        settled,
                    };
                }
                Err(now) => from = now,
            }
        }
        // Of its own: when the line is found empty nothing holds the queue after the seat has gone.
        let left = Self::pass_on(gate.clone(), core.clone(), holds);
        Left {
            settled: left.settled.or(settled),
            ..left
        }
    }

    /// Returns `true` if nobody is seated; if somebody is, the last to leave will tell `core.settled`.
    pub(crate) fn is_idle(&self) -> bool {
        // ORDER(seated): publish and consume, other end in `step`, by which who was seated leaves.
        //   leave: the run;  step Release
        //   here:  nobody is seated, Acquire;  the queue goes
        // Test: a_queue_does_not_go_before_its_items_have_run
        let order = twin::order("drain: relaxed look at the seats", Ordering::Acquire);
        // Until the flag is seen: else the stocks may be opened before that.
        let _line = (!self.stocks.is_empty()).then(|| {
            let mut line = self.line.lock();
            if !twin::armed("stock: a drain leaves it open") {
                self.close(&mut line);
            }
            line
        });
        loop {
            let from = Word(self.word.load(order));
            if from.nr_active() == 0 {
                return true;
            }
            if Self::step(&self.word, from, from.with(IDLE_WAITS)).is_ok() {
                return false;
            }
        }
    }

    /// Changes how many seats there are; returns the seekers who get one by that.
    #[must_use = "the seekers have been handed seats and must be told"]
    pub(crate) fn set_max(&self, max: u32) -> Vec<S> {
        let mut line = self.line.lock();
        self.close(&mut line);
        let paused = self.max.load(Ordering::Relaxed) & PAUSED;
        self.max
            .store((max * self.factor) | paused, Ordering::Relaxed);
        self.share_out();
        self.admit_from(&mut line)
    }

    /// Takes all seats away, or brings them back; returns the seekers who get one by that.
    #[must_use = "the seekers have been handed seats and must be told"]
    pub(crate) fn set_paused(&self, paused: bool) -> Vec<S> {
        let mut line = self.line.lock();
        self.close(&mut line);
        let max = self.max() | if paused { PAUSED } else { 0 };
        self.max.store(max, Ordering::Relaxed);
        self.admit_from(&mut line)
    }

    fn admit_from(&self, line: &mut Line<S>) -> Vec<S> {
        let mut admitted = Vec::new();
        while let Some(at) = self.next(line)
            && self.try_enter_here(line.places[at].node)
        {
            admitted.extend(line.places.remove(at).map(|place| place.seeker));
        }
        self.note_line(line);
        admitted
    }

    /// Takes what is held from the word; returns `true` if those must be told who wait for that. The caller keeps the gate.
    fn give_up(&self, holds: Holds) -> bool {
        let mut from = self.load();
        loop {
            let (left, told) = from.leave(holds);
            match Self::step(&self.word, from, left) {
                Ok(()) => return told,
                Err(now) => from = now,
            }
        }
    }

    #[cold]
    fn pass_on(gate: Arc<Self>, core: Arc<QueueCore>, holds: Holds) -> Left<S> {
        let mut line = gate.line.lock();
        // Too many are seated after `max` was lowered: the seat goes.
        let next = gate.may_start().then(|| gate.next(&line)).flatten();
        let seeker = next.and_then(|at| line.places.remove(at));
        let seeker = seeker.map(|place| {
            gate.seat_in(place.node);
            place.seeker
        });
        let twice = twin::armed("active: a seat given twice");
        let leaks = seeker.is_none() && twin::armed("active: a seat that leaks");
        // A seat that is handed over stays taken.
        let given = if leaks || seeker.is_some() && !twice {
            holds.without_seat()
        } else {
            Some(holds)
        };
        let told = given.is_some_and(|given| gate.give_up(given));
        gate.note_line(&line);
        drop(line);
        let settled = told.then(|| core.clone());
        Left { seeker, settled }
    }

    /// Returns whose turn it is.
    fn next(&self, line: &Line<S>) -> Option<usize> {
        next_in_line(line.places.iter().map(|place| {
            let node = self.nodes.get(place.node);
            node.is_some_and(|node| {
                node.nr_active.load(Ordering::Relaxed) < node.share.load(Ordering::Relaxed)
            })
        }))
    }

    fn note_line(&self, line: &Line<S>) {
        if line.places.is_empty() {
            // One word holds the seats and the line, so this and each `step` have one order.
            self.word.fetch_and(!IN_LINE, Ordering::AcqRel);
        }
    }

    fn load(&self) -> Word {
        // Acquire pairs with `step`: a thread that finds no seat taken sees all that the last holder did.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Takes the word alone, for with the step of who leaves the gate may go.
    fn step(word: &AtomicU64, from: Word, to: Word) -> Result<(), Word> {
        // One word holds both the seats and the line, so who leaves and who lines up meet in one order.
        // ORDER(seated): other end in `is_idle`.
        // Test: a_queue_does_not_go_before_its_items_have_run
        word.compare_exchange_weak(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(Word)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
