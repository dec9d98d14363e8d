//! A queue's capacity: how many items may wait in it, and who waits until one more may.
//!
//! # The protocol
//!
//! An item that is counted has a *place* from before it is queued until it starts, or is cancelled. Who finds no place may
//! stand in *line*. Whoever gives a place back while somebody stands in line does not free it: the first in line gets it.
//! So places are had in the order of coming, and nobody who comes later takes one that is on its way.
//!
//! ```text
//! comer:   all taken?  line's lock: still all taken? then in_line = true (one step), and behind the others
//! giver:   in_line?    no: nr_taken -= 1 (one step)
//!                      yes: line's lock: the first one out, granted; empty? in_line = false     then wake him
//! leaver:  line's lock: granted? then give it back, else out of the line; empty? in_line = false
//! ```
//!
//! `in_line` and the count are one word. So either the giver sees the line, or the comer sees the place that he freed: the
//! comer's step fails, and he looks again. While `in_line` is set the count does not fall.
//!
//! What must never happen: somebody stands in line while a place is free (twins `room: no second look`, `room: a giver
//! overlooks the line`, `room: who leaves the line keeps what he was granted`), or more places are had than there are (twin
//! `room: frees what it hands over`).

use std::{
    cell::RefCell,
    collections::VecDeque,
    task::{Context, Waker},
    time::Duration,
};

use sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
    fork::Process,
    futex::Futex,
    time, twin,
    unmodelled::Arc,
};

use crate::{numbered::Numbered, panics::Foreign, wake::report, workqueue::errands};

/// In the word of a room: somebody stands in line. Below are the places that are taken.
const IN_LINE: u64 = 1 << 63;

/// The places of one queue.
pub(crate) struct Room {
    word: AtomicU64,
    /// I
    capacity: usize,
    /// I: in a child of `fork` nobody gives anything back.
    process: Process,
    /// Every change of `IN_LINE` is made under this lock, and says whether the line is empty. A leaf.
    line: Mutex<Line>,
}

/// Who waits, by the order of coming. Who leaves may stand anywhere.
struct Line {
    waiting: Numbered<Arc<Waiter>>,
}

sync::thread_local! {
    /// Whom this thread has granted places while it wakes somebody else who was. A waker may drop who stands behind and has got
    /// a place meanwhile, so places may go all along the line: by a loop, and not within each other.
    static TO_WAKE: RefCell<Option<VecDeque<Arc<Waiter>>>> = RefCell::new(None)
}

/// Who stands in line, or has got a place there.
pub(crate) struct Waiter {
    /// I
    ticket: u64,
    /// 1 once he has a place; written under the line's lock.
    granted: Futex,
    /// Of an async task. A leaf.
    task: Mutex<Option<Foreign<Waker>>>,
}

impl Room {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            word: AtomicU64::new(0),
            capacity,
            process: Process::this(),
            line: Mutex::new(Line {
                waiting: Numbered::new(),
            }),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns how many places are free now.
    pub(crate) fn nr_free(&self) -> usize {
        let nr_taken = self.word.load(Ordering::Relaxed) & !IN_LINE;
        self.capacity.saturating_sub(nr_taken as usize)
    }

    /// Returns the word with one more place taken, if there is one.
    fn admit(&self, word: u64) -> Option<u64> {
        ((word & !IN_LINE) < self.capacity as u64).then_some(word + 1)
    }

    /// Takes a place if one is free.
    pub(crate) fn try_take(&self) -> bool {
        // Places tell nothing of what is in them, so nothing is ordered by them.
        let (relaxed, admit) = (Ordering::Relaxed, |word| self.admit(word));
        self.word.fetch_update(relaxed, relaxed, admit).is_ok()
    }

    /// Takes a place, or stands in line for one.
    pub(crate) fn take_or_queue(&self) -> Result<(), Arc<Waiter>> {
        if self.try_take() {
            return Ok(());
        }
        let mut line = self.line.lock();
        let second_look = !twin::armed("room: no second look");
        // A place may have come free since: only a line that is seen keeps the next one from being freed.
        let queue = |word| {
            let admitted = self.admit(word).filter(|_| second_look);
            Some(admitted.unwrap_or(word | IN_LINE))
        };
        let before = self
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, queue)
            .expect("each word has a next one");
        if second_look && self.admit(before).is_some() {
            return Ok(());
        }
        let waiter = Arc::new(Waiter {
            ticket: line.waiting.next(),
            granted: Futex::new(0),
            task: Mutex::new(None),
        });
        line.waiting.add(waiter.clone());
        Err(waiter)
    }

    /// Gives a place back: to the first in line, if there is one.
    ///
    /// # Blocking
    ///
    /// Never for long. It may wake a thread, or call the waker of a task, so no lock may be held.
    pub(crate) fn give_back(&self) {
        if twin::torn_down() || !self.process.is_this() {
            return;
        }
        loop {
            let free = |word| {
                let is_free =
                    word & IN_LINE == 0 || twin::armed("room: a giver overlooks the line");
                is_free.then(|| word - 1)
            };
            let freed = self
                .word
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, free);
            if freed.is_ok() {
                return;
            }
            if let Some(waiter) = self.grant() {
                if twin::armed("room: frees what it hands over") {
                    self.word.fetch_sub(1, Ordering::Relaxed);
                }
                return self.wake(waiter);
            }
            // The last in line has left.
        }
    }

    /// Gives the first in line, who leaves it, the place that the caller has.
    fn grant(&self) -> Option<Arc<Waiter>> {
        let mut line = self.line.lock();
        let waiter = line.waiting.pop_first()?;
        self.note_if_empty_locked(&line);
        waiter.granted.word().store(1, Ordering::Relaxed);
        Some(waiter)
    }

    /// Lets places be freed again if nobody stands in line.
    fn note_if_empty_locked(&self, line: &Line) {
        if line.waiting.is_empty() {
            self.word.fetch_and(!IN_LINE, Ordering::Relaxed);
        }
    }

    /// Wakes who has been granted a place, and who is granted one by that: a thread at once, for a waker further out may wait for
    /// what it does; tasks one after the other.
    fn wake(&self, waiter: Arc<Waiter>) {
        waiter.granted.wake(1);
        let mut next = Some(waiter);
        // A thread that ends may have no list any more: there they nest.
        let is_within = TO_WAKE.try_with(|list| match &mut *list.borrow_mut() {
            Some(list) => {
                list.extend(next.take());
                true
            }
            none => {
                *none = Some(VecDeque::new());
                false
            }
        });
        if is_within.unwrap_or(false) {
            return;
        }
        while let Some(waiter) = next {
            waiter.wake_task();
            let others = TO_WAKE.try_with(|list| list.borrow_mut().as_mut()?.pop_front());
            // In a child that the waker made they are the parent's.
            next = others.ok().flatten().filter(|_| self.process.is_this());
        }
        let _ = TO_WAKE.try_with(|list| list.take());
    }

    /// Takes `waiter`, who will not use a place, out of the line; gives the place back if he has got one.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        if twin::torn_down() || !self.process.is_this() {
            return;
        }
        let mut line = self.line.lock();
        let has_place = waiter.has_place();
        if !has_place {
            line.waiting.remove(waiter.ticket);
            self.note_if_empty_locked(&line);
        }
        drop(line);
        if has_place && !twin::armed("room: who leaves the line keeps what he was granted") {
            self.give_back();
        }
    }

    /// Sleeps until `waiter` has a place, or until `end_ns` by the clock; returns `true` if he has one. Else he has left the line.
    /// Models never time out.
    ///
    /// # Blocking
    ///
    /// Until then. Woken by [`give_back`](Self::give_back).
    pub(crate) fn wait(&self, waiter: &Arc<Waiter>, end_ns: Option<u64>) -> bool {
        report::while_asleep(|| {
            while !waiter.has_place() {
                let Some(end_ns) = end_ns else {
                    waiter.granted.wait(0);
                    continue;
                };
                let left_ns = end_ns.saturating_sub(time::now_ns());
                if left_ns == 0 {
                    return;
                }
                let left = Duration::from_nanos(left_ns);
                waiter.granted.wait_timeout(0, left);
            }
        });
        let has_place = waiter.has_place();
        if !has_place {
            self.leave(waiter);
        }
        has_place
    }
}

impl Waiter {
    pub(crate) fn has_place(&self) -> bool {
        self.granted.word().load(Ordering::Relaxed) != 0
    }

    /// Leaves the task's waker to be woken, and returns `true` if he has a place already.
    pub(crate) fn poll(&self, context: &Context<'_>) -> bool {
        if self.has_place() {
            return true;
        }
        // FOREIGN(waker-clone): the clone of a user's waker, on the thread that polls, under no lock; it may unwind to there.
        let waker = Foreign::new(context.waker().clone());
        // If our lock comes first, the giver finds the waker. If the giver's comes first, we see that he has granted a place.
        let before = self.task.lock().replace(waker);
        // Not under the lock: it may be the last that keeps somebody's future.
        drop(before);
        self.has_place()
    }

    /// Wakes the task, if it is one, that has been granted a place.
    fn wake_task(&self) {
        let waker = self.task.lock().take();
        if let Some(waker) = waker {
            errands::fire(waker);
        }
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room")
            .field("capacity", &self.capacity)
            .field("nr_free", &self.nr_free())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter")
            .field("has_place", &self.has_place())
            .finish_non_exhaustive()
    }
}
