//! Tasks that sleep until a deadline: one waker each in the wheel.
//!
//! # The protocol
//!
//! A sleep owns its timer, which holds the waker. The wheel's lock guards all decisions:
//!
//! ```text
//! poll:     no timer yet?  lock: insert one with the waker;  if it is the first, wake the manager
//!           a timer?       lock: replace the waker; without a waker the timer has expired
//! drop:     lock: remove the timer
//! manager:  lock: remove the expired timers;  then fire the wakers
//! ```
//!
//! A poll either finds the timer with a waker and replaces it, so that the manager fires the new
//! waker, or it finds that the timer has expired and is ready. No wake-up is lost. Wakers are
//! cloned before the lock is acquired and dropped after it is released. The twins are
//! `sleep: a poll keeps the first waker`, `sleep: a drop leaves the timer` and
//! `sleep: the first wakes no thread`.
//!
//! # Which thread fires
//!
//! A waker is user code, which the manager does not run. It fires only wakers of known types: of a
//! queue's future (an enqueue), of a dedicated worker (a post), and of a thread in `block_on`. It
//! hands all others over to reapers (`cleanups.rs`), one errand for each, because one waker may wait
//! for what the next one does.

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
    cleanups::{self, Cleanup},
    item::head::Dead,
};

/// The timer of a sleep, owned until [`end_sleep`](Timers::end_sleep).
#[derive(Debug)]
pub(crate) struct SleepTimer(NonNull<Sleeper>);

// SAFETY: the timer is accessed only under the lock of its wheel, and its waker is `Send`.
unsafe impl Send for SleepTimer {}
// SAFETY: as above.
unsafe impl Sync for SleepTimer {}

/// A timer in a wheel, guarded by the wheel's lock.
#[repr(C)]
struct Sleeper {
    node: Node,
    /// `None` once the timer has expired.
    waker: Option<Foreign<Waker>>,
}

// `Sleep` documents this size.
const _: () = assert!(size_of::<Sleeper>() <= 48);

static SLEEP: Kind = Kind(expire_sleep);

/// Expires the timer of a sleep.
///
/// # Safety
///
/// 1. `node` is the first field of a [`Sleeper`], and was just removed from `wheel`.
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
    /// Queues the items and wakes the tasks whose time has come. Reapers run user code.
    pub(crate) fn fire(&self, now_ns: u64) {
        let mut late = self.late.lock();
        let again = late.extract_if(.., |it| it.0 <= now_ns);
        let mut expired: Vec<_> = again.map(|(_, due)| Expiry::Item(due)).collect();
        drop(late);
        let mut wheel = self.wheel.lock();
        while let Some(node) = wheel.pop(now_ns) {
            // SAFETY: the node was in the wheel, and stays valid while we hold the lock.
            let Kind(expire) = unsafe { node.as_ref() }.kind;
            // SAFETY: the node has this kind, and was just removed.
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

    /// Wakes the tasks whose wakers the manager has put aside since the last call.
    pub(crate) fn fire_put_aside(&self) {
        self.leave_wakers(cleanups::wakers_put_aside());
    }

    /// Wakes tasks. Reapers fire the wakers that are user code.
    pub(crate) fn leave_wakers(&self, wakers: Vec<Foreign<Waker>>) {
        let wake = |waker: Foreign<Waker>| wake(waker.into_inner());
        self.manager
            .leave_to_reapers(wakers.into_iter().filter_map(wake));
    }

    /// Arranges for `waker` to be fired at `at_ns`, by `timer`, which is created if it is `None`.
    /// Returns `false` if the timer has expired.
    pub(crate) fn sleep(&self, timer: &mut Option<SleepTimer>, at_ns: u64, waker: &Waker) -> bool {
        let there = timer.as_ref().map(|timer| timer.0.as_ptr());
        if let Some(there) = there {
            let _wheel = self.wheel.lock();
            // SAFETY: the sleep owns the timer, and the lock of the wheel guards it.
            match unsafe { &(*there).waker } {
                Some(there) if there.will_wake(waker) => return true,
                Some(_) if twin::armed("sleep: a poll keeps the first waker") => return true,
                Some(_) => {}
                None => return false,
            }
        }
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, under no lock;
        // a panic unwinds to the caller.
        let mut ours = Foreign::new(waker.clone());
        let Some(there) = there else {
            let sleeper = Box::new(Sleeper {
                node: Node::new(&SLEEP),
                waker: Some(ours),
            });
            let sleeper = NonNull::from(Box::leak(sleeper));
            // SAFETY: the timer is new, and stays allocated until `end_sleep` has removed it.
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
        // Dropped with no lock held, because the drop may drop a user's future.
        drop(wheel);
        // FOREIGN(sleep-drop): as in `end_sleep`, on the polling thread.
        drop(ours);
        waits
    }

    /// Ends a sleep, and removes its timer if it has not expired.
    pub(crate) fn end_sleep(&self, timer: SleepTimer) {
        if twin::armed("sleep: a drop leaves the timer") {
            return;
        }
        let sleeper = timer.0;
        let mut wheel = self.wheel.lock();
        // SAFETY: the sleep owns the timer, and the lock of the wheel guards it.
        if unsafe { sleeper.as_ref() }.node.is_linked() {
            // SAFETY: as above.
            unsafe { wheel.remove(sleeper.cast()) };
        }
        drop(wheel);
        // FOREIGN(sleep-drop): the drop of a waker, on the thread that ends the sleep, under no
        // lock; contained by `Foreign`.
        // SAFETY: it was created from a box, and is in no wheel.
        drop(unsafe { Box::from_raw(sleeper.as_ptr()) });
    }
}

/// The cleanup of a fired timer, which may block.
enum Left {
    Item(Dead),
    Waker(Foreign<Waker>),
}

impl Cleanup for Left {
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

/// Fires a waker that runs no user code. Returns the work that another thread must do.
fn wake(waker: Waker) -> Option<Left> {
    let waker = unpark(waker)?;
    if is_harmless(&waker) {
        waker.wake();
        return None;
    }
    match future::wake_ours(waker) {
        Ok(dead) => dead.map(Left::Item),
        // FOREIGN(sleep-wake): a reaper fires or drops it.
        Err(waker) => Some(Left::Waker(Foreign::new(waker))),
    }
}
