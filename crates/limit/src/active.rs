//! The limit on the number of threads that run items of one queue at once: `max_active`.
//!
//! A *seat* allows one thread to run items of one queue. A worker acquires a seat before the first
//! item of a batch and releases it after the last; a helper acquires one for the single item it
//! runs. The count is therefore the number of threads executing the queue's items, across all
//! pools, and one acquire and one release cover a whole batch.
//!
//! If a pool cannot acquire a seat, it moves the items to its pwq's own lists, and the pwq joins
//! the gate's wait queue. While the wait queue is not empty, a released seat is not freed; the
//! releasing thread transfers it to the first waiter. Pools therefore take turns, and a busy pool
//! cannot starve the others.
//!
//! If the pools span several NUMA nodes, each node has a share of the seats, which decides which
//! waiter is served next (`share.rs`). `Node::nr_active` counts the seats that a node holds. With a
//! single node there is no such counter.
//!
//! A queue has one gate for all of its pwqs. With a [`MaxActiveScope`] other than the default, it
//! has one gate for each node or for each pool.
//!
//! If a queue uses many CPUs, the CPUs cache seats while few seats are in use, as described below.
//!
//! Differs from Linux: there an item counts as active from the moment it is put on a worklist. Here
//! an item counts while a thread runs it.
//!
//! # Stocks
//!
//! Groups of CPUs cache seats between runs, so that threads rarely access the gate's word.
//!
//! A released seat goes to the *stock* of the current CPU, from which the next thread there takes
//! it. The gate counts a cached seat as in use, so at most `max_active` seats are used. Helpers are
//! counted in the stock in the same atomic update. The kernel's `memcg_stock` works in the same
//! way, and is drained when the limit is near.
//!
//! | operation | when open | when closed |
//! |---|---|---|
//! | acquire a seat | from the stock, otherwise from the gate | from the gate |
//! | release a seat | to the stock, or to the gate if the stock is full | to the gate |
//! | a helper starts | counts in the stock | counts in the current phase, at the gate |
//! | a helper ends | no notification | the last helper of the stock notifies |
//!
//! A helper's count is released where it was added: at the stock or at the gate.
//!
//! All stocks of a gate are opened and closed together, under the lock of the gate's wait queue.
//! The thread that closes them returns the cached seats to the gate. They stay closed while a pwq
//! waits for a seat, while a drain waits until no seat is in use, while a flush waits for helpers,
//! while the queue is paused, and while more than `max_active` seats are in use. *A waiter for a
//! seat, or for the release of one, therefore finds the gate as if it had no stock.* A thread that
//! acquires a seat when few are in use opens them again.
//!
//! One word holds the seats and the open flag. If a release to the stock comes before the close,
//! the close finds the seat. Otherwise the release finds the stock closed, and goes to the gate.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, cpu, twin};

use super::queue_core::QueueCore;
use super::share::{next_waiter, shares};

mod control;

/// bits 0..16 `nr_active` | bit 16 a thread waits for `nr_active` to become zero | bit 17 the wait
/// queue is not empty | bit 18 a flush waits for the helpers of the previous phase | bit 19 the
/// stocks stay closed | bits 24..32 the phase | bits 32..48 helpers of even phases | bits 48..64
/// helpers of odd phases
///
/// *Phases* distinguish helpers that started before a flush from helpers that started later. A
/// helper is counted in the current phase. A flush advances the phase as soon as the previous phase
/// has no helpers, and then waits until the phase it closed has none. Only two phases can be
/// distinguished at a time, so a flush that starts while another one waits for helpers may also
/// wait for helpers that started in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u64);

const ACTIVE_ONE: u64 = 1;
const ACTIVE_MASK: u64 = 0xffff;
const IDLE_WAITS: u64 = 1 << 16;
const HAS_WAITERS: u64 = 1 << 17;
const HELP_WAITS: u64 = 1 << 18;
const STAY_CLOSED: u64 = 1 << 19;
const PHASE_SHIFT: u32 = 24;
const PHASE_MASK: u64 = 0xff << PHASE_SHIFT;
const HELPER_BITS: u32 = 16;
const HELPER_SHIFT: u32 = 32;

/// A phase of helpers, as a number that wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase(u8);

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

/// The seat and count that a thread holds while it runs items of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// A worker's seat.
    Seat,
    /// A helper's count in a phase, and a seat unless an outer run lends one.
    Help { phase: Phase, lent: bool },
    /// A helper's count in the stock of this index.
    HelpOfStock { at: u32, lent: bool },
}

impl Holds {
    /// Returns the part that is counted in the gate's word, as an amount to add.
    fn amount(self) -> u64 {
        match self {
            Self::Seat => ACTIVE_ONE,
            Self::Help { phase, lent } => (1 << phase.shift()) + u64::from(!lent) * ACTIVE_ONE,
            Self::HelpOfStock { lent, .. } => u64::from(!lent) * ACTIVE_ONE,
        }
    }

    fn has_seat(self) -> bool {
        !matches!(self, Self::Help { lent: true, .. } | Self::HelpOfStock { lent: true, .. })
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
    fn has_waiters(self) -> bool {
        self.0 & HAS_WAITERS != 0
    }
    fn help_waits(self) -> bool {
        self.0 & HELP_WAITS != 0
    }
    fn may_open(self) -> bool {
        self.0 & (IDLE_WAITS | HAS_WAITERS | STAY_CLOSED) == 0
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
    /// Acquires a seat if one is free. There are waiters only while all seats are in use.
    #[inline]
    fn admit(self, max: u32) -> Option<Word> {
        (self.nr_active() < max).then_some(Word(self.0 + ACTIVE_ONE))
    }
    /// Admits a helper if a seat is free or `lent`. Returns the count and the seat that it then
    /// holds.
    #[inline]
    fn admit_helper(self, max: u32, lent: bool) -> Option<(Word, Holds)> {
        let phase = self.phase();
        let has_seat = lent || self.nr_active() < max;
        let has_space = self.nr_helpers(phase) + 1 < 1 << HELPER_BITS;
        let holds = Holds::Help { phase, lent };
        (has_seat && has_space).then(|| (Word(self.0 + holds.amount()), holds))
    }
    /// Releases `holds`. Returns `true` if a drain or a flush must be notified.
    #[inline]
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
        (left, idle || flushed && !twin::armed("flush: the last helper does not notify"))
    }
    fn next_phase(self) -> Word {
        let next = u64::from(self.phase().next().0) << PHASE_SHIFT;
        Word(self.0 & !PHASE_MASK | next)
    }
}

/// The seats of one queue. `S` is the type of the waiters.
#[derive(Debug)]
pub struct Gate<S> {
    word: CachePadded<AtomicU64>,
    /// bits 0..31 `max_active` | bit 31 paused
    max: AtomicU32,
    /// I: the factor of the queue's limit: if the limit is per CPU, the number of CPUs of its pool.
    factor: u32,
    /// The NUMA nodes; empty if all pwqs are on one node.
    nodes: Box<[Node]>,
    /// The seat caches of the CPUs. The stocks of the first node come first, and also serve pools
    /// that span several nodes. An equal number of stocks for each other node follows. There are
    /// none if the word alone serves all CPUs.
    stocks: Box<[CachePadded<Stock>]>,
    /// I: the number of stocks of the first node. These stocks serve all CPUs.
    nr_stocks: u32,
    /// I: the number of stocks of each other node.
    nr_per_node: u32,
    /// I: the number of CPUs that share a stock.
    cpus_per_stock: Divisor,
    /// I: the divisor of the number of seats that yields the capacity of a stock.
    kept_of: Divisor,
    /// `HAS_WAITERS` is set if and only if the wait queue is not empty, and changes only under this
    /// lock. The stocks are opened and closed under it too. With stocks, `IDLE_WAITS` is set under
    /// it.
    wait_queue: Mutex<WaitQueue<S>>,
}

#[derive(Debug)]
struct WaitQueue<S> {
    entries: VecDeque<Entry<S>>,
    /// The turn of the entry that was served last.
    turn: u64,
    /// The addresses of all pwqs whose items need a seat here, so that an item's home can be
    /// compared without dereferencing it. With a vector, a gate would need a third pair of cache
    /// lines.
    homes: Box<[usize]>,
    is_open: bool,
    /// The number of [`Closed`] values; `STAY_CLOSED` is set while there are any.
    nr_closers: u32,
}

/// A gate whose stocks stay closed until this is dropped.
#[derive(Debug)]
pub struct Closed<S>(Arc<Gate<S>>);

/// The minimum number of seats for each stock. With a lower minimum, stocks are often empty; with a
/// higher one, too many CPUs share a stock's word. In a simulation of 512 CPUs and 256 seats,
/// values from 2 to 8 perform about equally, and 32 reaches only a fifth of that throughput. In
/// `system` scope, 72 CPUs perform best with 8.
const SEATS_PER_STOCK: u32 = if cfg!(any(test, loom, shuttle)) { 2 } else { 8 };

/// Returns the number of stocks for a limit of `max` seats: one per CPU, or as many as `max`
/// allows. Returns 0 if there would be only one.
fn nr_stocks(max: u32, nr_cpus: u32) -> u32 {
    let nr = (max / SEATS_PER_STOCK).min(nr_cpus);
    if nr < 2 { 0 } else { nr }
}

/// Returns the divisor that turns the number of seats into the capacity of each of `nr_stocks`
/// stocks. Together, the stocks keep at most half of the seats.
fn kept_of(nr_stocks: u32) -> Divisor {
    Divisor::new(2 * nr_stocks.max(1))
}

/// A divisor that is applied by multiplication. A run acquires and releases a seat, and each of
/// these operations would otherwise need three divisions.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    /// 2^32 divided by the divisor, rounded up.
    inverse: u64,
}

impl Divisor {
    fn new(by: u32) -> Self {
        Self { inverse: (1_u64 << 32).div_ceil(u64::from(by)) }
    }

    /// Returns the quotient, rounded down. The product of `number` and the divisor must be below
    /// 2^32. Otherwise the result may be one too large.
    #[inline]
    fn divide(self, number: u32) -> u32 {
        ((u64::from(number) * self.inverse) >> 32) as u32
    }
}

/// Set in `Gate::max` while the queue is paused.
const PAUSED: u32 = 1 << 31;

#[derive(Debug)]
struct Node {
    /// A: the number of seats that the node holds.
    nr_active: CachePadded<AtomicU32>,
    /// The node's share, written under the lock of the wait queue.
    share: AtomicU32,
    /// The number of CPUs that the queue uses, written under the lock of the wait queue.
    nr_cpus: AtomicU32,
}

#[derive(Debug)]
struct Entry<S> {
    waiter: S,
    node: usize,
    /// Entries are sorted by this turn; 0 at the gate of a queue.
    turn: u64,
}

/// The effects of a release. The releasing thread applies them with no pool locked.
#[derive(Debug)]
pub struct ReleaseEffects<S> {
    pub waiter: Option<S>,
    /// The queue, if its `settled` must be notified.
    pub settled: Option<Arc<QueueCore>>,
}

impl<S> Gate<S> {
    /// Creates a gate with `max` times `factor` seats. `nr_cpus` is the number of CPUs that the
    /// queue uses on each node, and `stocks_for` the number of CPUs that need stocks.
    pub fn new(max: u32, factor: u32, nr_cpus: &[u32], stocks_for: u32) -> Self {
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
            wait_queue: Mutex::new(WaitQueue {
                entries: VecDeque::new(),
                turn: 0,
                homes: Box::default(),
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

    fn share_out(&self) {
        let nr_cpus = |node: &Node| node.nr_cpus.load(Ordering::Relaxed);
        let nr_cpus: Vec<_> = self.nodes.iter().map(nr_cpus).collect();
        for (node, share) in self.nodes.iter().zip(shares(self.max(), &nr_cpus)) {
            node.share.store(share, Ordering::Relaxed);
        }
    }

    /// Records that the items of the pwq at `home` need a seat here. The pwq stays at that address
    /// for as long as this gate is used.
    pub fn add_home(&self, home: usize) {
        let mut wait_queue = self.wait_queue.lock();
        let homes = wait_queue.homes.iter().copied();
        wait_queue.homes = homes.chain([home]).collect();
    }

    /// Returns `true` if the items of the pwq at `home` need a seat here, the gate has a single
    /// seat, and no second thread has a seat.
    ///
    /// The holder of the only seat calls this. If the result is `true`, the items of that pwq start
    /// only after the caller has released the seat.
    pub fn is_only_seat_for(&self, home: usize) -> bool {
        self.max() == 1 && self.nr_active() <= 1 && self.wait_queue.lock().homes.contains(&home)
    }

    /// Returns the number of seats while the queue is not paused.
    pub fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed) & !PAUSED
    }

    /// Returns the current number of seats, which is 0 while the queue is paused.
    fn nr_seats(&self) -> u32 {
        let max = self.max.load(Ordering::Relaxed);
        if max & PAUSED != 0 { 0 } else { max }
    }

    /// Returns the number of threads that hold a seat.
    pub fn nr_active(&self) -> u32 {
        let nr_kept = self.stocks.iter().map(|stock| stock.nr_kept()).sum();
        self.load().nr_active().saturating_sub(nr_kept)
    }

    #[inline]
    fn stock_here(&self, node: usize) -> Option<usize> {
        if self.nr_stocks == 0 {
            return None;
        }
        let (first, nr) = match node as u32 {
            n if n == 0 || self.nodes.is_empty() => (0, self.nr_stocks),
            n => (self.nr_stocks + (n - 1) * self.nr_per_node, self.nr_per_node),
        };
        let at = self.cpus_per_stock.divide(cpu::current().as_u32());
        let at = if at < nr { at } else { at % nr };
        Some((first + at) as usize)
    }

    fn node_of(&self, stock: usize) -> usize {
        match stock.checked_sub(self.nr_stocks as usize) {
            Some(behind) => 1 + behind / self.nr_per_node as usize,
            None => 0,
        }
    }

    #[inline]
    fn keep(&self) -> u32 {
        self.kept_of.divide(self.nr_seats())
    }

    /// Opens the stocks if no waiter requires them closed and at least half of the seats are free,
    /// because together they can keep half of the seats. Does nothing if the wait queue is locked.
    #[cold]
    fn open(&self) {
        let is_far = || {
            let word = self.load();
            word.may_open() && word.nr_active() <= self.nr_seats() / 2
        };
        if !is_far() || self.keep() == 0 {
            return;
        }
        let Some(mut wait_queue) = self.wait_queue.try_lock() else {
            return;
        };
        if !wait_queue.is_open && is_far() && self.keep() > 0 {
            wait_queue.is_open = true;
            self.stocks.iter().for_each(|stock| stock.open());
        }
    }

    /// Closes the stocks, and moves their cached seats back to the word.
    fn close(&self, wait_queue: &mut WaitQueue<S>) {
        if !std::mem::take(&mut wait_queue.is_open) {
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
        // While the stocks were open, the wait queue was empty and no drain waited for the seats,
        // so there is no waiter to notify. Acquire and release as in `transition`.
        self.word.fetch_sub(u64::from(nr_kept) * ACTIVE_ONE, Ordering::AcqRel);
    }

    /// Returns `true` if the holder of a seat may keep it for more items. It must release the seat
    /// if a waiter is queued, or if more than `max` seats are in use because `max` was lowered.
    pub fn may_stay(&self) -> bool {
        let word = self.load();
        !word.has_waiters() && word.nr_active() <= self.nr_seats()
    }

    /// Returns `true` if the receiver of a transferred seat may start an item. It must not start
    /// one if the queue is paused, or if more than `max` seats are in use because `max` was
    /// lowered. `pass_on` makes the same check.
    pub fn may_start(&self) -> bool {
        self.load().nr_active() <= self.nr_seats()
    }

    /// Returns `true` if at least `count` seats are neither in use nor cached.
    pub fn has_free(&self, count: u32) -> bool {
        self.load().nr_active() + count <= self.nr_seats()
    }

    /// Acquires a seat for a thread of `node`, if one is free.
    #[inline]
    pub fn try_enter(&self, node: usize) -> bool {
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

    #[inline]
    fn try_enter_here(&self, node: usize) -> bool {
        let has_seat = self.update(|from| Some((from.admit(self.nr_seats())?, ()))).is_some();
        if has_seat {
            self.seat_in(node);
        }
        has_seat
    }

    /// Admits a helper of `node` if a seat is free or `lent`.
    ///
    /// A helper enters before it takes its item, because the item may not be counted anywhere else.
    #[inline]
    pub fn try_help(&self, node: usize, lent: bool) -> Option<Holds> {
        let Some(at) = self.stock_here(node) else {
            return self.try_help_here(node, lent);
        };
        match self.stocks[at].take(Share::Help { lent }) {
            Ok(()) => Some(Holds::HelpOfStock { at: at as u32, lent }),
            Err(Refusal::Empty) => self.try_help_here(node, lent),
            Err(Refusal::Closed) => {
                let holds = self.try_help_here(node, lent);
                self.open();
                holds
            }
        }
    }

    #[inline]
    fn try_help_here(&self, node: usize, lent: bool) -> Option<Holds> {
        let holds = self.update(|from| from.admit_helper(self.nr_seats(), lent))?;
        if !lent {
            self.seat_in(node);
        }
        Some(holds)
    }

    #[inline]
    pub fn note_helped(&self, core: &QueueCore, holds: Holds) {
        let count = match holds {
            Holds::HelpOfStock { at, .. } => &self.stocks[at as usize].nr_helped,
            _ => &core.nr_helped,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of items run by helpers that were counted in stocks.
    pub fn nr_helped(&self) -> u64 {
        let nr_helped = |stock: &CachePadded<Stock>| stock.nr_helped.load(Ordering::Relaxed);
        self.stocks.iter().map(nr_helped).sum()
    }

    pub fn nr_helpers(&self) -> usize {
        let word = self.load();
        let phase = word.phase();
        let of_stocks = self.stocks.iter().map(|stock| stock.nr_helpers());
        (word.nr_helpers(phase) + word.nr_helpers(phase.before())) as usize
            + of_stocks.sum::<usize>()
    }

    /// Returns the current phase. A helper is counted in this phase, in the previous one or in a
    /// stock.
    pub fn phase(&self) -> Phase {
        self.load().phase()
    }

    #[inline]
    fn seat_in(&self, node: usize) {
        if let Some(node) = self.nodes.get(node) {
            node.nr_active.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Acquires a seat, or joins the wait queue for one. The caller must have locked the waiter's
    /// pool.
    pub fn enter_or_queue(&self, node: usize, waiter: impl FnOnce() -> S) -> bool {
        self.enter_or_queue_at(node, None, waiter)
    }

    /// Does the same as [`enter_or_queue`](Self::enter_or_queue). If `queue`, the waiter's queue,
    /// is given, queues take turns (`control.rs`).
    fn enter_or_queue_at(
        &self,
        node: usize,
        queue: Option<&QueueCore>,
        waiter: impl FnOnce() -> S,
    ) -> bool {
        if self.try_enter(node) {
            return true;
        }
        let mut wait_queue = self.wait_queue.lock();
        if !twin::armed("stock: a wait queue leaves it open") {
            self.close(&mut wait_queue);
        }
        let mut from = self.load();
        loop {
            // A seat may have been released since then, because only a release that sees
            // `HAS_WAITERS` transfers its seat.
            let admitted = if twin::armed("active: no second check") {
                None
            } else {
                from.admit(self.nr_seats())
            };
            match Self::transition(&self.word, from, admitted.unwrap_or(from.with(HAS_WAITERS))) {
                // A seat was released before `HAS_WAITERS` was set, and we acquired it.
                Ok(()) if admitted.is_some() => {
                    self.seat_in(node);
                    return true;
                }
                // All seats are in use. A later release sees `HAS_WAITERS` and transfers its seat.
                Ok(()) => break,
                Err(now) => from = now,
            }
        }
        wait_queue.add(waiter(), node, queue);
        false
    }

    /// Releases `holds`, which a thread of `node` holds at `gate` of the queue `core`. Apply the
    /// returned effects with no pool locked.
    #[must_use = "the returned effects must be applied"]
    #[inline]
    pub fn leave(
        gate: &Arc<Self>,
        core: &Arc<QueueCore>,
        node: usize,
        holds: Holds,
    ) -> ReleaseEffects<S> {
        // SAFETY: (1): both references outlive this call.
        unsafe { Self::leave_last(gate, core, node, holds) }
    }

    /// Does the same as [`leave`](Self::leave). Nothing but the seat keeps the queue alive, so the
    /// queue may be destroyed before this returns.
    ///
    /// The arguments are pointers, because a reference argument must stay valid until the return.
    ///
    /// # Safety
    ///
    /// 1. Both pointers are valid until `holds` has been released.
    #[must_use = "the returned effects must be applied"]
    #[inline]
    pub unsafe fn leave_last(
        gate: *const Arc<Self>,
        core: *const Arc<QueueCore>,
        node: usize,
        holds: Holds,
    ) -> ReleaseEffects<S> {
        // SAFETY: (1): both pointers are valid until the seat is released; neither reference is
        // used after the releasing compare-exchange.
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
                    // Release the helper's count first, because the seat keeps the queue alive.
                    settled = gate.give_up(Holds::Help { phase, lent: true }).then(|| core.clone());
                    (at, Share::Seat)
                })
            }
        };
        if let Some((at, share)) = share {
            let released = gate.stocks[at].give(share, gate.keep());
            if released.is_kept {
                // The stock now has the seat, so nothing keeps the gate alive.
                return ReleaseEffects { waiter: None, settled };
            }
            // The helper's count is released. The helper's own seat, or the lent one, still keeps
            // the queue alive.
            if released.must_notify {
                settled = Some(core.clone());
            }
            if !share.has_seat() {
                return ReleaseEffects { waiter: None, settled };
            }
            holds = Holds::Seat;
        }
        // Decrement before the release, after which nothing keeps the gate alive.
        if let (true, Some(node)) = (holds.has_seat(), gate.nodes.get(node)) {
            node.nr_active.fetch_sub(1, Ordering::Relaxed);
        }
        let mut from = gate.load();
        while !(holds.has_seat() && from.has_waiters()) {
            let (left, notifies) = from.leave(holds);
            // Clone before the release, after which nothing keeps the queue alive.
            if notifies && settled.is_none() {
                settled = Some(core.clone());
            }
            match Self::transition(&gate.word, from, left) {
                // The wait queue was empty, so any thread can acquire the seat.
                Ok(()) => {
                    return ReleaseEffects { waiter: None, settled };
                }
                Err(now) => from = now,
            }
        }
        // Pass clones: if the wait queue is empty, nothing keeps the queue alive after the release.
        let left = Self::pass_on(gate.clone(), core.clone(), holds);
        ReleaseEffects { settled: left.settled.or(settled), ..left }
    }

    /// Returns `true` if no seat is in use. Otherwise the last release notifies `core.settled`.
    pub fn is_idle(&self) -> bool {
        // ORDER(seated): publish and consume, other end in `transition`, which releases a seat.
        //   leave: the run;  step Release
        //   here:  no seat is in use, Acquire;  the queue is destroyed
        // If the last `transition` comes first, our load sees everything that the runs wrote. If
        // our load comes first, it reads a seat in use, and we wait.
        // Test: queue_is_not_destroyed_before_its_items_have_run
        let order = twin::order("drain: relaxed read of the seats", Ordering::Acquire);
        // The lock is held until `IDLE_WAITS` is set, so that the stocks are not opened before
        // that.
        let _line = (!self.stocks.is_empty()).then(|| {
            let mut wait_queue = self.wait_queue.lock();
            if !twin::armed("stock: a drain leaves it open") {
                self.close(&mut wait_queue);
            }
            wait_queue
        });
        loop {
            let from = Word(self.word.load(order));
            if from.nr_active() == 0 {
                return true;
            }
            if Self::transition(&self.word, from, from.with(IDLE_WAITS)).is_ok() {
                return false;
            }
        }
    }

    /// Releases `holds`. Returns `true` if waiters must be notified. The caller keeps the gate
    /// alive.
    fn give_up(&self, holds: Holds) -> bool {
        self.update(|from| Some(from.leave(holds))) == Some(true)
    }

    #[cold]
    fn pass_on(gate: Arc<Self>, core: Arc<QueueCore>, holds: Holds) -> ReleaseEffects<S> {
        let mut wait_queue = gate.wait_queue.lock();
        // If more than `max` seats are in use because `max` was lowered, the seat is freed.
        let next = gate.may_start().then(|| gate.next(&wait_queue)).flatten();
        let waiter = next.and_then(|at| wait_queue.serve(at));
        let waiter = waiter.map(|entry| {
            gate.seat_in(entry.node);
            entry.waiter
        });
        let twice = twin::armed("active: a seat given twice");
        let leaks = waiter.is_none() && twin::armed("active: a seat that leaks");
        // A transferred seat stays in use.
        let released =
            if leaks || waiter.is_some() && !twice { holds.without_seat() } else { Some(holds) };
        let notifies = released.is_some_and(|released| gate.give_up(released));
        gate.note_waiters(&wait_queue);
        drop(wait_queue);
        let settled = notifies.then(|| core.clone());
        ReleaseEffects { waiter, settled }
    }

    fn next(&self, wait_queue: &WaitQueue<S>) -> Option<usize> {
        next_waiter(wait_queue.entries.iter().map(|entry| {
            let node = self.nodes.get(entry.node);
            node.is_some_and(|node| {
                node.nr_active.load(Ordering::Relaxed) < node.share.load(Ordering::Relaxed)
            })
        }))
    }

    fn note_waiters(&self, wait_queue: &WaitQueue<S>) {
        if wait_queue.entries.is_empty() {
            // The seats and `HAS_WAITERS` share one word, so this operation and every `transition`
            // have one order.
            self.word.fetch_and(!HAS_WAITERS, Ordering::AcqRel);
        }
    }

    fn load(&self) -> Word {
        // Acquire pairs with `transition`: if no seat is in use, we see all writes by the last
        // holder.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Retries until a transition succeeds, and returns the second part of its plan. Returns `None`
    /// once `plan` does. The caller keeps the gate alive.
    #[inline]
    fn update<R>(&self, plan: impl Fn(Word) -> Option<(Word, R)>) -> Option<R> {
        let mut from = self.load();
        loop {
            let (to, result) = plan(from)?;
            match Self::transition(&self.word, from, to) {
                Ok(()) => return Some(result),
                Err(now) => from = now,
            }
        }
    }

    /// Accesses only the word, because the gate may be destroyed once a release takes effect.
    fn transition(word: &AtomicU64, from: Word, to: Word) -> Result<(), Word> {
        // The seats and `HAS_WAITERS` share one word, so releases and new waiters have one order.
        // ORDER(seated): other end in `is_idle`.
        // Test: queue_is_not_destroyed_before_its_items_have_run
        word.compare_exchange_weak(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(Word)
    }
}

/// bits 0..16 seats that are kept | bits 16..32 helpers | bit 32 open
///
/// Contains only atomics, because it may be destroyed while a thread releases a seat to it.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    word: AtomicU64,
    pub nr_helped: AtomicU64,
}

const STOCK_SEAT: u64 = 1;
const STOCK_HELPER: u64 = 1 << 16;
const STOCK_OPEN: u64 = 1 << 32;
const STOCK_MASK: u64 = 0xffff;

/// The seat and count that a thread takes from a stock or returns to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// A worker's seat.
    Seat,
    /// A helper's count, and a seat unless it is lent.
    Help { lent: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Closed,
    Empty,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReleaseResult {
    /// `true` if the stock keeps the seat. Otherwise the caller still has it.
    pub(crate) is_kept: bool,
    /// `true` if the stock has no helper left and a flush may be waiting for that.
    pub(crate) must_notify: bool,
}

impl Share {
    fn helpers(self) -> u64 {
        match self {
            Self::Seat => 0,
            Self::Help { .. } => STOCK_HELPER,
        }
    }

    pub fn has_seat(self) -> bool {
        !matches!(self, Self::Help { lent: true })
    }
}

impl Stock {
    #[inline]
    pub fn take(&self, share: Share) -> Result<(), Refusal> {
        let mut from = self.word.load(Ordering::Relaxed);
        loop {
            if from & STOCK_OPEN == 0 {
                return Err(Refusal::Closed);
            }
            let has_seat = !share.has_seat() || from & STOCK_MASK > 0;
            let has_space = (from / STOCK_HELPER) & STOCK_MASK < STOCK_MASK;
            if !has_seat || !has_space {
                return Err(Refusal::Empty);
            }
            let to = from + share.helpers() - u64::from(share.has_seat()) * STOCK_SEAT;
            match Self::transition(&self.word, from, to) {
                Ok(()) => return Ok(()),
                Err(now) => from = now,
            }
        }
    }

    /// Returns `share` to the stock, which keeps up to `keep` seats. If it keeps the seat, `self`
    /// may be destroyed before this returns.
    #[inline]
    pub(crate) fn give(&self, share: Share, keep: u32) -> ReleaseResult {
        let mut from = self.word.load(Ordering::Relaxed);
        loop {
            let is_open = from & STOCK_OPEN != 0;
            let has_room = from & STOCK_MASK < u64::from(keep);
            let is_kept = share.has_seat() && is_open && has_room;
            let to = from - share.helpers() + u64::from(is_kept) * STOCK_SEAT;
            let notifies = !is_open && share.helpers() > 0 && (to / STOCK_HELPER) & STOCK_MASK == 0;
            let released = ReleaseResult {
                is_kept,
                must_notify: notifies && !twin::armed("stock: the last helper does not notify"),
            };
            if to == from {
                return released;
            }
            match Self::transition(&self.word, from, to) {
                Ok(()) => return released,
                Err(now) => from = now,
            }
        }
    }

    /// Returns `true` if the stock is open and keeps fewer than `keep` seats.
    pub(crate) fn has_room(&self, keep: u32) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & STOCK_OPEN != 0 && word & STOCK_MASK < u64::from(keep)
    }

    pub fn open(&self) {
        // Relaxed suffices, because the flag publishes no other data.
        self.word.fetch_or(STOCK_OPEN, Ordering::Relaxed);
    }

    /// Closes the stock. Returns the number of seats that it kept, which now belong to the caller.
    pub fn close(&self) -> u32 {
        let mut from = self.word.load(Ordering::Relaxed);
        while let Err(now) = Self::transition(&self.word, from, from & !(STOCK_OPEN | STOCK_MASK)) {
            from = now;
        }
        (from & STOCK_MASK) as u32
    }

    pub(crate) fn nr_kept(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) & STOCK_MASK) as u32
    }

    pub fn nr_helpers(&self) -> usize {
        // ORDER(stock): publish and consume, other end in `transition`, which ends a helper.
        //   give: the run;  step Release
        //   here: no helper is left, Acquire;  the flush ends
        // If our load comes first, we find a helper, and the last one notifies. If the step comes
        // first, we see everything that its run wrote.
        // Test: flush_sees_writes_of_helpers_counted_in_stocks
        let order = twin::order("stock: relaxed read of the helpers", Ordering::Acquire);
        ((self.word.load(order) / STOCK_HELPER) & STOCK_MASK) as usize
    }

    fn transition(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
        // ORDER(stock): both ends on this line, and another in `nr_helpers`.
        //   give:  the run;  step Release
        //   close: step Acquire finds the seat;  the gate's word has no seat in use;  the queue is
        //   destroyed
        // If the close comes first, the releasing thread finds the stock closed and goes to the
        // gate. If the release comes first, the close sees everything that the run wrote.
        // Test: drain_sees_writes_of_holders_of_cached_seats
        let order = twin::order("stock: relaxed transitions", Ordering::AcqRel);
        word.compare_exchange_weak(from, to, order, Ordering::Relaxed).map(drop)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
