//! Tasks that sleep until their time: a waker each in the wheel.
//!
//! # The protocol
//!
//! A sleep owns its timer, which holds the waker to fire, and all is decided under the wheel's
//! lock:
//!
//! ```text
//! poll:     no timer yet?  lock: put one in, with the waker     then wake the manager, if it is first
//!           a timer?       lock: replace the waker; without one the timer has expired
//! drop:     lock: take the timer out
//! manager:  lock: take out what has expired;  then fire the wakers
//! ```
//!
//! So a poll finds the timer with a waker, and the manager finds that poll's waker; or the timer
//! has expired, and the poll is ready: no wake-up is lost. Wakers are cloned before the lock and
//! dropped after it. The twins are `sleep: a poll keeps the first waker`, `sleep: a drop leaves the
//! timer` and `sleep: the first wakes no thread`.
//!
//! # Who fires
//!
//! A waker is users' code, and the manager runs none. It fires by itself the wakers that it knows: of a future of a queue's,
//! which is an enqueue, of a dedicated worker's, which is a post, and of a thread in `block_on`. All others it leaves to reapers
//! (`errands.rs`), each by itself, for one may wait for what the next one does.

use std::{mem, ptr::NonNull, task::Waker};

use base::internal::{
    panics::{Foreign, contain},
    wake::{is_harmless, unpark},
};
use sync::twin;

use super::{
    future,
    timers::{Expiry, Guard, Kind, Node, Timers},
};
use crate::{
    errands::{self, Errand},
    item::handles::Dead,
};

/// The timer of a sleep, which owns it until [`end_sleep`](Timers::end_sleep).
#[derive(Debug)]
pub(crate) struct SleepTimer(NonNull<Sleeper>);

// SAFETY: the timer is used under the lock of one wheel, and its waker is `Send`.
unsafe impl Send for SleepTimer {}
// SAFETY: as above.
unsafe impl Sync for SleepTimer {}

/// A timer in a wheel, guarded by the lock of that.
#[repr(C)]
struct Sleeper {
    node: Node,
    /// None once it has expired.
    waker: Option<Foreign<Waker>>,
}

// As `Sleep` says.
const _: () = assert!(size_of::<Sleeper>() <= 48);

/// The kind of a sleep's timer.
static SLEEP: Kind = Kind(expire_sleep);

/// Expires the timer of a sleep.
///
/// # Safety
///
/// 1. `node` is that of a [`Sleeper`], and was just taken out of `wheel`.
unsafe fn expire_sleep<'a>(
    node: NonNull<Node>,
    wheel: Guard<'a>,
    expired: &mut Vec<Expiry>,
) -> Option<Guard<'a>> {
    // SAFETY: (1), and the lock of the wheel is held.
    let waker = unsafe { (*node.as_ptr().cast::<Sleeper>()).waker.take() };
    expired.extend(waker.map(Expiry::Task));
    Some(wheel)
}

impl Timers {
    /// Queues the items, and wakes the tasks, whose time has come. What runs users' code by that is left to reapers.
    pub(crate) fn fire(&self, now_ns: u64) {
        let mut late = self.late.lock();
        let again = late.extract_if(.., |it| it.0 <= now_ns);
        let mut expired: Vec<_> = again.map(|(_, due)| Expiry::Item(due)).collect();
        drop(late);
        let mut wheel = self.wheel.lock();
        while let Some(node) = wheel.pop(now_ns) {
            // SAFETY: it was in the wheel, and is there as long as we hold the lock.
            let Kind(expire) = unsafe { node.as_ref() }.kind;
            // SAFETY: of this kind, and just taken out.
            let rest = unsafe { expire(node, wheel, &mut expired) };
            wheel = rest.unwrap_or_else(|| self.wheel.lock());
        }
        drop(wheel);
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

    /// Has `waker` fired at `at_ns`, by `timer`, which is made if it is none; returns `false` if
    /// that has expired.
    pub(crate) fn sleep(&self, timer: &mut Option<SleepTimer>, at_ns: u64, waker: &Waker) -> bool {
        let there = timer.as_ref().map(|timer| timer.0.as_ptr());
        if let Some(there) = there {
            let _wheel = self.wheel.lock();
            // SAFETY: the timer is the sleep's, and guarded by the lock of the wheel.
            match unsafe { &(*there).waker } {
                Some(there) if there.will_wake(waker) => return true,
                Some(_) if twin::armed("sleep: a poll keeps the first waker") => return true,
                Some(_) => {}
                None => return false,
            }
        }
        // FOREIGN(waker-clone): the clone of a user's waker, on the thread that polls, under no lock; it may unwind to there.
        let mut ours = Foreign::new(waker.clone());
        let Some(there) = there else {
            let sleeper = Box::new(Sleeper {
                node: Node::new(&SLEEP),
                waker: Some(ours),
            });
            let sleeper = NonNull::from(Box::leak(sleeper));
            // SAFETY: new, and it stays until `end_sleep` has taken it out.
            let is_first = unsafe { self.wheel.lock().insert(sleeper.cast(), at_ns) };
            *timer = Some(SleepTimer(sleeper));
            if is_first && !twin::armed("sleep: the first wakes no thread") {
                self.manager.wake();
            }
            return true;
        };
        let wheel = self.wheel.lock();
        // The time may have come while the waker was cloned.
        // SAFETY: as above.
        let waits = match unsafe { &mut (*there).waker } {
            Some(there) => {
                mem::swap(there, &mut ours);
                true
            }
            None => false,
        };
        // With no lock held, because the drop may drop a future of a user's.
        drop(wheel);
        // FOREIGN(sleep-drop): as in `end_sleep`, on the thread that polls.
        drop(ours);
        waits
    }

    /// Ends a sleep, and takes its timer out if it has not expired.
    pub(crate) fn end_sleep(&self, timer: SleepTimer) {
        if twin::armed("sleep: a drop leaves the timer") {
            return;
        }
        let sleeper = timer.0;
        let mut wheel = self.wheel.lock();
        // SAFETY: the timer is the sleep's, and guarded by the lock of the wheel.
        if unsafe { sleeper.as_ref() }.node.is_linked() {
            // SAFETY: as above.
            unsafe { wheel.remove(sleeper.cast()) };
        }
        drop(wheel);
        // FOREIGN(sleep-drop): the drop of a waker, on the thread that ends the sleep, under no lock; contained by `Foreign`.
        // SAFETY: made from a box, and in no wheel any more.
        drop(unsafe { Box::from_raw(sleeper.as_ptr()) });
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
