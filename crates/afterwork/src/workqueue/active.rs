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
//! Differs from Linux: there an item counts as active from the moment it is put on a worklist; here while a
//! thread runs it.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;
use sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
    twin,
    unmodelled::Arc,
};

use super::{
    pool::WorkerPool,
    pwq::QueueCore,
    share::{next_in_line, shares},
};

/// bits 0..30 `nr_active` | bit 30 somebody waits for it to become zero | bit 31 somebody stands in line
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u32);

const IN_LINE: u32 = 1 << 31;
const IDLE_WAITS: u32 = 1 << 30;

impl Word {
    fn nr_active(self) -> u32 {
        self.0 & !(IN_LINE | IDLE_WAITS)
    }
    fn idle_waits(self) -> bool {
        self.0 & IDLE_WAITS != 0
    }
    fn has_line(self) -> bool {
        self.0 & IN_LINE != 0
    }
    /// Takes a seat if there is one. A line does not matter: it forms only when all are taken.
    fn admit(self, max: u32) -> Option<Word> {
        (self.nr_active() < max).then_some(Word(self.0 + 1))
    }
}

/// Counts the seats of one queue.
#[derive(Debug)]
pub(crate) struct Gate {
    word: CachePadded<AtomicU32>,
    max: AtomicU32,
    /// I: by how much a queue's limit is multiplied: the CPUs of its pool, where the limit is meant for each CPU.
    factor: u32,
    /// By node; none where all links lie in one.
    nodes: Box<[Node]>,
    /// Every change of `IN_LINE` is made under this lock, and says whether the line is empty.
    line: Mutex<VecDeque<Seeker>>,
}

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

/// A pool's link to a queue that waits for a seat.
#[derive(Clone, Debug)]
pub(crate) struct Seeker {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) slot: usize,
    /// Where the pool lies.
    pub(crate) node: usize,
}

/// Whom somebody who left must tell.
#[derive(Debug)]
pub(crate) struct Left {
    /// To whom the seat passes.
    pub(crate) seeker: Option<Seeker>,
    /// The queue, when its last seat became free and somebody waits for that.
    pub(crate) idle: Option<Arc<QueueCore>>,
}

impl Left {
    /// Tells them. Call it with no pool locked.
    pub(crate) fn tell(self) {
        if let Some(core) = self.idle {
            core.drained.notify_all();
        }
        if let Some(seeker) = self.seeker {
            seeker.pool.take_seat(seeker.slot);
        }
    }
}

impl Gate {
    /// Makes the seats for a limit of `max`, times `factor`, of a queue that uses so many CPUs of each node.
    pub(crate) fn new(max: u32, factor: u32, nr_cpus: &[u32]) -> Self {
        let nr_cpus = if nr_cpus.len() > 1 { nr_cpus } else { &[] };
        let node = |&nr_cpus| Node {
            nr_active: CachePadded::new(AtomicU32::new(0)),
            share: AtomicU32::new(0),
            nr_cpus: AtomicU32::new(nr_cpus),
        };
        let gate = Self {
            word: CachePadded::new(AtomicU32::new(0)),
            max: AtomicU32::new(max * factor),
            factor,
            nodes: nr_cpus.iter().map(node).collect(),
            line: Mutex::new(VecDeque::new()),
        };
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

    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn nr_active(&self) -> u32 {
        self.load().nr_active()
    }

    /// Says whether who has a seat may keep it for more: not while somebody stands in line, or too many are seated
    /// because `max` was lowered.
    pub(crate) fn may_stay(&self) -> bool {
        let word = self.load();
        !word.has_line() && word.nr_active() <= self.max()
    }

    /// Takes a seat for a thread of `node`, or none.
    pub(crate) fn try_enter(&self, node: usize) -> bool {
        let mut from = self.load();
        while let Some(to) = from.admit(self.max()) {
            match self.step(from, to) {
                Ok(()) => {
                    self.seat_in(node);
                    return true;
                }
                Err(now) => from = now,
            }
        }
        false
    }

    #[inline]
    fn seat_in(&self, node: usize) {
        if let Some(node) = self.nodes.get(node) {
            node.nr_active.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a seat, or stands in line for one. Call it with the seeker's pool locked.
    pub(crate) fn enter_or_queue(&self, node: usize, seeker: impl FnOnce() -> Seeker) -> bool {
        if self.try_enter(node) {
            return true;
        }
        let mut line = self.line.lock();
        let mut from = self.load();
        loop {
            // A seat may have come free since: only a line that is seen keeps the next one from being freed.
            let admitted = if twin::armed("active: no second look") {
                None
            } else {
                from.admit(self.max())
            };
            match self.step(from, admitted.unwrap_or(Word(from.0 | IN_LINE))) {
                Ok(()) if admitted.is_some() => {
                    self.seat_in(node);
                    return true;
                }
                Ok(()) => break,
                Err(now) => from = now,
            }
        }
        line.push_back(seeker());
        false
    }

    /// Gives a seat of the queue `core` back, at `gate`, that a thread of `node` had. Tell whom the answer names, with no pool locked.
    ///
    /// After it the queue may be gone, unless the caller holds something else that keeps it.
    #[must_use = "somebody may have to be told"]
    pub(crate) fn leave(gate: &Arc<Gate>, core: &Arc<QueueCore>, node: usize) -> Left {
        // Before the step: nothing holds the gate after it.
        if let Some(node) = gate.nodes.get(node) {
            node.nr_active.fetch_sub(1, Ordering::Relaxed);
        }
        let mut from = gate.load();
        while !from.has_line() {
            let left = Word(from.0 - 1);
            // Cloned before the step: nothing holds the queue after it.
            let waits = left.nr_active() == 0 && left.idle_waits();
            let idle = waits.then(|| core.clone());
            let left = if waits { Word(0) } else { left };
            match gate.step(from, left) {
                Ok(()) => return Left { seeker: None, idle },
                Err(now) => from = now,
            }
        }
        Self::pass_on(gate, core)
    }

    /// Says whether nobody is seated; if somebody is, the last to leave will tell `core.drained`.
    pub(crate) fn is_idle(&self) -> bool {
        // ORDER(seated): publish and consume, other end in `step`, by which who was seated leaves.
        //   leave: the run;  step Release
        //   here:  nobody is seated, Acquire;  the queue goes
        // Test: a_queue_does_not_go_before_its_items_have_run
        let order = if twin::armed("drain: relaxed look at the seats") {
            Ordering::Relaxed
        } else {
            Ordering::Acquire
        };
        loop {
            let from = Word(self.word.load(order));
            if from.nr_active() == 0 {
                return true;
            }
            if self.step(from, Word(from.0 | IDLE_WAITS)).is_ok() {
                return false;
            }
        }
    }

    /// Changes how many seats there are; returns the seekers who get one by that.
    #[must_use = "the seekers have been handed seats and must be told"]
    pub(crate) fn set_max(&self, max: u32) -> Vec<Seeker> {
        let mut line = self.line.lock();
        self.max.store(max * self.factor, Ordering::Relaxed);
        self.share_out();
        let mut admitted = Vec::new();
        while let Some(at) = self.next(&line)
            && self.try_enter(line[at].node)
        {
            admitted.extend(line.remove(at));
        }
        self.note_line(&line);
        admitted
    }

    #[cold]
    fn pass_on(gate: &Arc<Gate>, core: &Arc<QueueCore>) -> Left {
        // Of its own: when the line is found empty nothing holds the queue after the seat has gone.
        let (gate, core) = (gate.clone(), core.clone());
        let mut line = gate.line.lock();
        // Too many are seated after `max` was lowered: the seat goes.
        let seeker = if gate.load().nr_active() > gate.max() {
            None
        } else {
            gate.next(&line).and_then(|at| line.remove(at))
        };
        let mut idle = None;
        if let Some(seeker) = &seeker {
            gate.seat_in(seeker.node);
        }
        let twice = seeker.is_some() && twin::armed("active: a seat given twice");
        if twice || seeker.is_none() && !twin::armed("active: a seat that leaks") {
            let left = Word(gate.word.fetch_sub(1, Ordering::AcqRel) - 1);
            if left.nr_active() == 0 && left.idle_waits() {
                idle = Some(core.clone());
            }
        }
        gate.note_line(&line);
        drop(line);
        Left { seeker, idle }
    }

    /// Returns whose turn it is.
    fn next(&self, line: &VecDeque<Seeker>) -> Option<usize> {
        next_in_line(line.iter().map(|seeker| {
            let node = self.nodes.get(seeker.node);
            node.is_some_and(|node| {
                node.nr_active.load(Ordering::Relaxed) < node.share.load(Ordering::Relaxed)
            })
        }))
    }

    fn note_line(&self, line: &VecDeque<Seeker>) {
        if line.is_empty() {
            self.word.fetch_and(!IN_LINE, Ordering::AcqRel);
        }
    }

    fn load(&self) -> Word {
        // Acquire: who sees that nobody is seated sees all that the last one did.
        Word(self.word.load(Ordering::Acquire))
    }

    fn step(&self, from: Word, to: Word) -> Result<(), Word> {
        // One word holds both the seats and the line, so who leaves and who lines up meet in one order.
        // ORDER(seated): other end in `is_idle`.
        // Test: a_queue_does_not_go_before_its_items_have_run
        self.word
            .compare_exchange_weak(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(Word)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
