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
//! A queue with one seat, such as every ordered queue, starts nothing while one of its items runs.
//! If that item waits for a later item of the same queue, neither ever ends. The waiter checks for
//! this before it sleeps, and returns an error instead:
//!
//! - The waiter compares the address of the item's home with the addresses of all pwqs whose gate
//!   has a single seat that this thread holds. It does not dereference the home, which may have
//!   been freed.
//! - Such an item can start only on the waiter's own thread. If joiners may help with the item, the
//!   waiter tries again to help.
//! - If the item is running, is being cancelled by a thread or has a deadline, it ends without the
//!   seat, so the waiter sleeps.
//! - A limit that is raised later, or a later cancel by another thread, is not considered, because
//!   the waiter cannot know of it.

use std::{
    fmt,
    ptr::{self, NonNull},
    time::Duration,
};

use base::internal::trace;
use sync::atomic::Ordering;

use super::{
    current::{has_seat_of, innermost_home},
    run, wait,
};
use crate::{
    item::head::Head,
    limit::queue_core::QueueCore,
    observe::report::Report,
    pools::{
        dispatch::{Dispatch, home_slot},
        manager::Manager,
        pwq::Pwq,
    },
};

/// Length of the sleep after which a waiter checks again whether it must help. The case is rare, so
/// this is a guess: a shorter sleep costs CPU time, a longer one delays the waiter.
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

/// If possible, runs the item on this thread, as [`run::help`] does, before the caller waits for
/// it. Returns `true` if the item has run.
///
/// # Errors
///
/// [`NeedsOurSeat`] if the caller would wait forever.
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
        // Another thread is queueing, cancelling or helping with the item, or runs it from another
        // queue. While this worker sleeps, it returns the items that it took and did not start,
        // because a canceller may wait for one of them.
        wait::until_turn_within(head, state.completion_seq() + 1, NAP);
    }
}

/// Returns `true` if an item that has not ended cannot start on another thread before this thread
/// releases a seat.
///
/// The answer `true` holds only as long as this thread stays in its current run.
pub fn needs_our_seat(head: &Head) -> bool {
    has_seat_of(|link| {
        let state = head.load();
        let has_to_start = match head.vtable().push {
            // A waiting future sets no flag, and needs a seat for its next poll.
            Some(_) => !state.is_running() && !state.has_ended(),
            None => state.is_pending() && !state.is_claimed(),
        };
        // If the item is queued elsewhere between these loads, its completion sequence number
        // changes.
        let home = head.home.load(Ordering::Relaxed).addr();
        has_to_start
            && link.gate.is_only_seat_for(home)
            && head.load().completion_seq() == state.completion_seq()
    })
}

/// Asks for who is about to wait for the end of an item.
pub fn before_waiting_for(head: &Head) {
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
