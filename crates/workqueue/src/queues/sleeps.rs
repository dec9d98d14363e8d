//! Tasks that sleep until their time: a waker each in the wheel.
//!
//! # The protocol
//!
//! A sleep has no state but the name of its timer. The waker to fire is the timer's, and all is decided under the wheel's lock:
//!
//! ```text
//! poll:     no timer yet?  lock: put one in, with the waker     then wake the manager, if it is first
//!           else           lock: is it there?  replace the waker;  gone?  the time has come
//! drop:     lock: take the timer out
//! manager:  lock: take out what has expired;  then fire the wakers
//! ```
//!
//! So who polls finds the timer, and the manager will find that poll's waker; or the timer has gone, and the poll is ready: no
//! wake-up is lost. A name is used once, so a sleep whose timer has expired does not reach that of another one. Wakers are
//! cloned before the lock and dropped after it. Twins `sleep: a poll keeps the first waker`, `sleep: a drop leaves the timer`,
//! `sleep: the first wakes nobody`, `wheel: a key without a generation`.
//!
//! # Who fires
//!
//! A waker is users' code, and the manager runs none. It fires by itself the wakers that it knows: of a future of a queue's,
//! which is an enqueue, of a dedicated worker's, which is a post, and of a thread in `block_on`. All others it leaves to reapers
//! (`errands.rs`), each by itself, for one may wait for what the next one does.

use std::{mem, task::Waker};

use sync::twin;

use super::{
    future,
    timers::{Expiry, Timers},
    wheel::TimerKey,
};
use crate::{
    panics::{Foreign, contain},
    wake::{is_harmless, unpark},
    workqueue::{
        errands::{self, Errand},
        item::handles::Dead,
    },
};

impl Timers {
    /// Queues the items, and wakes the tasks, whose time has come. What runs users' code by that is left to reapers.
    pub(crate) fn fire(&self, now_ns: u64) {
        let expired = self.wheel.lock().advance(now_ns);
        let fire = |expiry| match expiry {
            Expiry::Item(due) => due.fire(self, now_ns).map(Left::Item),
            Expiry::Task(waker) => wake(waker.into_inner()),
        };
        self.manager
            .leave_to_reapers(expired.into_iter().filter_map(fire));
    }

    /// Wakes the tasks whose wakers the manager has put aside since this was called last.
    pub(crate) fn fire_put_aside(&self) {
        self.leave_wakers(errands::wakers_put_aside());
    }

    /// Wakes tasks. Wakers that are user code are fired by errands.
    pub(crate) fn leave_wakers(&self, wakers: Vec<Foreign<Waker>>) {
        let wake = |waker: Foreign<Waker>| wake(waker.into_inner());
        self.manager
            .leave_to_reapers(wakers.into_iter().filter_map(wake));
    }

    /// Has `waker` fired at `at_ns`, by the timer `key`, which is made if it is none; returns `false` if that has expired.
    pub(crate) fn sleep(&self, key: &mut Option<TimerKey>, at_ns: u64, waker: &Waker) -> bool {
        if let Some(key) = *key {
            match self.wheel.lock().get_mut(key) {
                Some(Expiry::Task(there)) => {
                    if there.will_wake(waker) || twin::armed("sleep: a poll keeps the first waker")
                    {
                        return true;
                    }
                }
                _ => return false,
            }
        }
        // FOREIGN(waker-clone): the clone of a user's waker, on the thread that polls, under no lock; it may unwind to there.
        let ours = Expiry::Task(Foreign::new(waker.clone()));
        let mut wheel = self.wheel.lock();
        if let Some(key) = *key {
            let mut other = ours;
            // The time may have come while the waker was cloned.
            let there = wheel.get_mut(key);
            let waits = there.map(|there| mem::swap(there, &mut other)).is_some();
            // Not under the lock: either waker may be the last that keeps somebody's future.
            drop(wheel);
            // FOREIGN(sleep-drop): as in `end_sleep`, on the thread that polls.
            drop(other);
            return waits;
        }
        let (made, is_first) = wheel.insert(at_ns, None, ours);
        drop(wheel);
        *key = Some(made);
        if is_first && !twin::armed("sleep: the first wakes nobody") {
            self.manager.wake();
        }
        true
    }

    /// Takes a sleep's timer out, if it has not expired.
    pub(crate) fn end_sleep(&self, key: TimerKey) {
        if twin::armed("sleep: a drop leaves the timer") {
            return;
        }
        let expiry = self.wheel.lock().remove(key);
        // FOREIGN(sleep-drop): the drop of a waker, on the thread that ends the sleep, under no lock; contained by `Foreign`.
        drop(expiry);
    }
}

/// What a timer that has fired leaves to a thread that may wait.
enum Left {
    /// An item that nobody has any more.
    Item(Dead),
    /// A waker that is users' code.
    Waker(Foreign<Waker>),
}

impl Errand for Left {
    fn run(self: Box<Self>) {
        match *self {
            Self::Item(dead) => drop(dead),
            Self::Waker(waker) => {
                // FOREIGN(sleep-wake): a task's waker, on a reaper, with no lock held; contained.
                contain(|| waker.into_inner().wake());
            }
        }
    }
}

/// Fires a waker that runs no users' code; returns what is to be done by another thread.
fn wake(waker: Waker) -> Option<Left> {
    let waker = unpark(waker)?;
    if is_harmless(&waker) {
        waker.wake();
        return None;
    }
    match future::wake_ours(waker) {
        Ok(dead) => dead.map(Left::Item),
        // FOREIGN(sleep-wake): it is fired, or dropped, where errands are done.
        Err(waker) => Some(Left::Waker(Foreign::new(waker))),
    }
}
