//! Checks before a wait: an item must not wait for itself, and an item with a rescuer must not
//! depend on an item without one.
//!
//! Items of a `mem_reclaim` queue run even if no thread can be created. If such an item waits for
//! an item or a flush of a queue without a rescuer, it depends on a new thread after all. A waiter
//! is therefore checked here first, and such a wait is reported, once for each pair. The kernel's
//! `check_flush_dependency`.
//!
//! # How the queue of an item is found
//!
//! A waiter holds a handle, which keeps the item alive but not its queue. Before the waiter reads
//! the item's home, the run may have ended and the queue may have been destroyed. A flag of the
//! item's state therefore records whether the queue has a rescuer (`Rules::reclaim`). A report also
//! names the queue: it searches the pools for the item, and compares addresses without
//! dereferencing the item.
//!
//! Differs from Linux: awaiting a handle is not checked, because it blocks no thread. A cancel is
//! not checked either, as in Linux.
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

/// Reports the `error` of an item that was about to wait for itself, and returns it.
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

/// Returns `true` if an unfinished item cannot start elsewhere before this thread releases a seat.
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
        // If the item is queued elsewhere between the loads, its sequence number changes.
        let home = head.home.load(Ordering::Relaxed).addr();
        has_to_start
            && link.gate.is_only_seat_for(home)
            && head.load().completion_seq() == state.completion_seq()
    })
}

/// Checks this thread before it waits for the end of an item.
pub fn before_waiting_for(head: &Head) {
    reclaiming(|home| {
        // Loaded only here, because a model would explore every moment of this load.
        let state = head.load();
        let func = (head.vtable().name)();
        let depends = !state.is_idle() && !state.has_rescuer();
        if depends && home.core.is_first_wait_for(func) {
            tell(home, home.pool.manager.queue_of(head), Some(func));
        }
    });
}

/// Checks this thread before it waits for all items of a queue.
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

/// Calls `body` with the pwq from which this thread runs an item with a rescuer, if any.
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
    /// Returns the name of an item's queue if this manager has it. Compares only addresses.
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
