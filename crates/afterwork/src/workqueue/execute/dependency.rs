//! Waits of items that should not be: for themselves, and such by which a queue with a rescuer loses what that is for.
//!
//! Items of a `mem_reclaim` queue run although no thread can be had. One that waits for an item, or a flush, of a queue
//! without a rescuer does not: that waits for a thread. So whoever is about to wait asks here first, and such a wait is
//! reported, once for each pair. The kernel's `check_flush_dependency`.
//!
//! # How the queue of an item is found
//!
//! Whoever waits for an item holds a handle, which keeps the item and not its queue: by the time that the home is looked
//! at the run may have ended, and the queue gone with it. So the answer to "has it a rescuer?" is a flag of the item's
//! state (`Rules::reclaim`), and only to name the queue, in a report, the item is searched in the pools, where it is
//! compared and not looked at.
//!
//! Differs from Linux: a cancel is not asked for, as there; nor is a handle that is awaited, for that blocks nobody.
//!
//! # An item that needs the seat of its waiter
//!
//! A queue that has one seat, as each ordered one, starts nothing while an item of it runs. If that
//! item waits for a later item of the same queue, neither ever ends. The waiter looks for that
//! before it sleeps, and gets an error instead:
//!
//! - It compares the address of the item's home with those of all links of the gates of which this
//!   thread has the one seat. So it does not look into the home, which may be gone.
//! - Such an item can start only on the waiter's own thread: an item that joiners may help with is
//!   left to the waiter's next attempt to help.
//! - An item that runs, that a thread cancels, or that has a deadline ends without the seat: the
//!   waiter sleeps.
//! - A limit that is raised later, or a cancel by another thread, does not count: the waiter cannot
//!   know of them.

use std::{
    fmt,
    ptr::{self, NonNull},
    time::Duration,
};

use sync::atomic::Ordering;

use super::{
    current::{has_seat_of, innermost_home},
    run, wait,
};
use crate::{
    trace,
    workqueue::{
        item::head::Head,
        limit::queue_core::QueueCore,
        observe::report::Report,
        pools::dispatch::{Dispatch, home_slot},
        pools::manager::Manager,
        pools::pwq::Pwq,
    },
};

/// How long a waiter naps that may have to help after that. Rare, so a guess: shorter costs CPU
/// time, longer delays the waiter.
const NAP: Duration = Duration::from_millis(1);

/// The error of a wait for an item that cannot start before the waiter itself has ended.
pub(crate) struct NeedsOurSeat;

/// Reports `error`, that an item was about to wait for itself, and returns it.
#[cold]
pub(crate) fn reported<E: fmt::Display>(error: E) -> E {
    innermost_home(
        |_| true,
        |home| trace::report("own_wait", &home.core.name, &error),
    );
    error
}

/// Runs the item on the spot if it can, as [`run::help`] does, before the caller waits for it;
/// returns `true` if it did.
///
/// # Errors
///
/// [`NeedsOurSeat`] if the caller would wait for ever.
pub(crate) fn help_or_refuse(item: NonNull<Head>) -> Result<bool, NeedsOurSeat> {
    // SAFETY: the caller holds a handle, which keeps the item alive.
    let head = unsafe { item.as_ref() };
    loop {
        if run::help(item) {
            return Ok(true);
        }
        let state = head.load();
        if needs_our_seat(head) {
            if !state.lets_help() {
                return Err(NeedsOurSeat);
            }
        } else if !state.is_claimed() || !has_seat_of(|link| link.gate.max() == 1) {
            return Ok(false);
        }
        // Another thread is about to queue, cancel or help, or runs the item from another queue.
        // While it naps, this worker returns the items that it took and did not start: a canceller
        // may wait for one of them.
        wait::until_turn_within(head, state.completion_seq() + 1, NAP);
    }
}

/// Returns `true` if an item that has not ended cannot start on another thread before this one
/// gives a seat back.
///
/// The answer is true only as long as this thread stays in the run that it is in.
pub(crate) fn needs_our_seat(head: &Head) -> bool {
    has_seat_of(|link| {
        let state = head.load();
        let has_to_start = match head.vtable().push {
            // A future that waits has no flag, and needs a seat for its next poll.
            Some(_) => !state.is_running() && !state.has_ended(),
            None => state.is_pending() && !state.is_claimed(),
        };
        // An item that was queued elsewhere in between had another turn by then.
        let home = head.home.load(Ordering::Relaxed).addr();
        has_to_start
            && link.gate.is_only_seat_for(home)
            && head.load().completion_seq() == state.completion_seq()
    })
}

/// Asks for who is about to wait for the end of an item.
pub(crate) fn before_waiting_for(head: &Head) {
    reclaiming(|home| {
        // Not before: a model would try every moment of this load.
        let state = head.load();
        let func = (head.vtable().name)();
        let depends = !state.is_idle() && !state.has_rescuer();
        if depends && home.core.is_first_wait_for(func) {
            tell(home, home.pool.manager.queue_of(head), Some(func));
        }
    });
}

/// Asks for who is about to wait for all that a queue has.
pub(crate) fn before_flushing(core: &QueueCore) {
    if core.reclaim {
        return;
    }
    reclaiming(|home| {
        if home.core.is_first_wait_for(&core.name) {
            tell(home, Some(core.name.to_string()), None);
        }
    });
}

/// Calls `body` with the link from which this thread runs an item of a queue with a rescuer, if it does.
fn reclaiming(body: impl FnOnce(&Pwq)) {
    innermost_home(|home| home.core.reclaim, body);
}

#[cold]
fn tell(home: &Pwq, queue: Option<String>, func: Option<&'static str>) {
    home.pool.manager.tell(&[Report::FlushDependency {
        waiter: home.core.name.to_string(),
        queue,
        func,
    }]);
}

impl Manager {
    /// Returns the queue of an item, which is only compared, if it is in a pool of this manager's.
    fn queue_of(&self, item: *const Head) -> Option<String> {
        let pools = self.pools();
        let mut names = pools.iter().filter_map(|pool| {
            let mut dispatch = pool.lock();
            dispatch.adopt(&pool.injector);
            dispatch.queue_of(item).map(|core| core.name.to_string())
        });
        names.next()
    }
}

impl Dispatch {
    fn queue_of(&self, item: *const Head) -> Option<&QueueCore> {
        let mut workers = self.workers();
        let holder = workers.find(|it| it.worker.in_hand().any(|held| ptr::eq(held, item)));
        if let Some(holder) = holder {
            return Some(&self.link(holder.seat?).core);
        }
        if let Some(found) = self.pending.find(item) {
            return Some(&self.link(home_slot(found)).core);
        }
        let link = self
            .links()
            .find(|link| link.waiting().any(|it| ptr::eq(it.as_ptr(), item)))?;
        Some(&link.core)
    }
}
