//! Waits for a work item: checks that a worker can run it, and sleeps on its state word.
//!
//! # Checks before a wait
//!
//! An item must not wait for itself, and an item with a rescuer must not depend on an item without
//! one. Items of a `with_rescuer` queue run even if no thread can be created; if one waits for an
//! item or a flush of a queue without a rescuer, it depends on a new thread after all. Such a wait
//! is reported once for each pair of waiter and item, as by the kernel's `check_flush_dependency`.
//!
//! A waiter holds a handle, which keeps the item alive but not its queue. Before the waiter reads
//! the item's home, the queue may have been destroyed. A flag of the item's state therefore records
//! whether the queue has a rescuer (`Rules::reclaim`). To name the queue, a report searches the
//! pools for the item's address.
//!
//! Differs from Linux: awaiting a handle is not checked, because it blocks no thread. A cancel is
//! not checked either, as in Linux.
//!
//! ## An item that needs its waiter's seat
//!
//! A queue with one seat starts nothing while one of its items runs. If that item waits for a later
//! item of the same queue, neither ever ends. The waiter checks for this first, and returns an
//! error:
//!
//! - The waiter compares the address of the item's home, which may have been freed, with those of
//!   all pwqs whose gate has a single seat, held by this thread.
//! - Such an item can start only on the waiter's own thread. If joiners may help with the item, the
//!   waiter tries again to help.
//! - If an item is running, is being cancelled or has a deadline, it ends without the seat.
//! - The same check applies to a closure of a strand that waits for a later one: the waiter
//!   compares the address of the strand with those of the items that its thread runs.
//! - A limit that is raised later, or a later cancel by another thread, is not considered.
//!
//! # Joins that are nested too deeply for one stack
//!
//! A joiner that helps runs an item on its own stack. If that item joins another one, and so on,
//! the stack bounds the chain. Beyond some depth, a joiner can no longer help on its own stack. It
//! must not simply wait either, because the outer runs hold seats that the item may need. Instead,
//! a new thread with its own stack continues the same runs, and the joiner waits for it.

use std::fmt;
use std::ptr::{self, NonNull};
use std::time::Duration;

use base::internal::panics::or_abort;
use base::internal::trace;
use base::internal::wake::{EventCount, poll_as_waiter, report, yield_as_waiter};
use item::internal::head::{Head, State};
use limit::internal::queue_core::QueueCore;
use sync::atomic::Ordering;
use sync::fork::{self, PerProcess};
use sync::unmodelled::Arc;
use sync::{Mutex, thread, time};

use super::run::{
    self, HelpRequest, depth, has_seat_of, innermost_home, is_bottom_half, is_current,
};
use crate::observe::report::Report;
use crate::pools::dispatch::{Dispatch, home_slot};
use crate::pools::manager::Manager;
use crate::pools::pwq::Pwq;

/// Set if this process has ever had a registry, and so may have workers.
static HAS_ANY: PerProcess<()> = PerProcess::new();

/// Records that this process has a registry, and may have workers.
pub(crate) fn note_workers() {
    HAS_ANY.get_or_set(());
}

/// Checks, before a wait, that the item can run. Panics in a child of `fork` without workers.
#[inline]
pub fn must_have_workers() {
    assert!(
        !fork::is_child() || HAS_ANY.get().is_some(),
        "the item was queued before the process was forked: no worker will run it here"
    );
}

/// Checks an item that this process may have inherited from its parent, before the item is used.
/// Panics if it was not idle when the process was forked.
#[inline]
#[track_caller]
pub(crate) fn must_not_be_lost(is_lost: bool) {
    assert!(
        !is_lost,
        "the item was in use before the process was forked, and stays in use here: create one in the child"
    );
}

/// Sleeps until the item's completion sequence number has reached `seq`, for at most `timeout`, if
/// any. Returns `true` if it has. The end of the run or a cancel wakes it. Models never time out.
pub(crate) fn until_completed(head: &Head, seq: u64, timeout: Option<Duration>) -> bool {
    // If the end time saturates, it is more than five hundred years away, so the wait has no limit.
    let end_ns = timeout.map(time::ns_after);
    if timeout == Some(Duration::ZERO) || polling_pays_off(head, seq) {
        return head.load().has_reached(seq);
    }
    must_have_workers();
    report::while_asleep(|| {
        // The flag and the end of the run are transitions of one word: either the end finds the
        // flag, or this one finds the end. Twin `item: completion forgets its sleepers`.
        while let Some((_, state)) =
            head.update(|state| (!state.has_reached(seq)).then(|| State::wait(state)))
        {
            let Some(end_ns) = end_ns else {
                head.state.wait(state.0);
                continue;
            };
            let left_ns = end_ns.saturating_sub(time::now_ns());
            if left_ns == 0 {
                return false;
            }
            head.state.wait_timeout(state.0, Duration::from_nanos(left_ns));
        }
        true
    })
}

/// Busy-polls for a short time. Returns `true` if the item has reached `seq`.
fn polling_pays_off(head: &Head, seq: u64) -> bool {
    let ended = || head.load().has_reached(seq);
    if head.load().is_on_one_cpu() { yield_as_waiter(ended) } else { poll_as_waiter(ended) }
}

/// The sleep after which a waiter checks again whether it must help. The value is a guess, because
/// the case is rare: a shorter sleep costs CPU time, and a longer one delays the waiter.
const NAP: Duration = Duration::from_millis(1);

/// The error returned by a wait for an item that cannot start before the waiter itself has ended.
pub(crate) struct NeedsOurSeat;

/// Reports that an item was about to wait for itself, and returns `error`.
#[cold]
pub(crate) fn reported<E: fmt::Display>(error: E) -> E {
    innermost_home(|_| true, |home| trace::report("own_wait", &home.core.name, &error));
    error
}

/// If possible, runs the item on this thread, as [`run::help`] does. Returns `true` if it has run,
/// or an error if the caller would wait forever.
pub(crate) fn help_or_refuse(item: NonNull<Head>) -> Result<bool, NeedsOurSeat> {
    // SAFETY: the caller holds a handle, which keeps the item alive.
    let head = unsafe { item.as_ref() };
    loop {
        if run::help(item) {
            return Ok(true);
        }
        let state = head.load();
        if needs_our_seat(item) {
            if !state.lets_help() {
                return Err(NeedsOurSeat);
            }
        } else if !state.is_claimed() || !has_seat_of(|pwq| pwq.gate.max() == 1) {
            return Ok(false);
        }
        // Another thread is queueing, cancelling or helping with the item, or runs it from another
        // queue. Before this worker sleeps, it returns the items that it took and did not start,
        // because a canceller may wait for one of them.
        until_completed(head, state.completion_seq() + 1, Some(NAP));
    }
}

/// Returns `true` if an unfinished item cannot start elsewhere before this thread releases a seat.
///
/// The answer `true` is valid only while this thread stays in its current run.
pub fn needs_our_seat(item: NonNull<Head>) -> bool {
    // SAFETY: the caller holds a handle, which keeps the item alive.
    let head = unsafe { item.as_ref() };
    is_of_our_strand(item)
        || has_seat_of(|pwq| {
            let state = head.load();
            let has_to_start = match head.vtable().push {
                // A waiting future sets no flag, and needs a seat for its next poll.
                Some(_) => !state.is_running() && !state.has_ended(),
                None => state.is_pending() && !state.is_claimed(),
            };
            // If the item is queued elsewhere between the loads, its sequence number changes.
            let home = head.home.load(Ordering::Relaxed).addr();
            has_to_start
                && pwq.gate.is_only_seat_for(home)
                && head.load().completion_seq() == state.completion_seq()
        })
}

/// Returns `true` if the item is a closure that has to wait for the strand that this thread runs.
fn is_of_our_strand(item: NonNull<Head>) -> bool {
    // SAFETY: the caller holds a handle, which keeps the item alive.
    let head = unsafe { item.as_ref() };
    let Some(strand) = head.vtable().handle.as_ref().and_then(|it| it.strand) else {
        return false;
    };
    // SAFETY: the caller holds a handle, and the table belongs to the item.
    let strand = unsafe { strand(item) }.item;
    let state = head.load();
    let has_to_start = state.is_pending() && !state.is_claimed();
    has_to_start && NonNull::new(strand.cast_mut()).is_some_and(is_current)
}

/// If an item with a rescuer is about to wait for an item without one, reports this.
pub fn before_waiting_for(head: &Head) {
    reclaiming(|home| {
        // The state is loaded only here, because a model explores every timing of this load.
        let state = head.load();
        let func = (head.vtable().name)();
        let depends = !state.is_idle() && !state.has_rescuer();
        if depends && home.core.is_first_wait_for(func) {
            report(home, home.pool.manager.queue_of(head), Some(func));
        }
    });
}

/// If an item with a rescuer is about to wait for all items of a queue without one, reports this.
pub(crate) fn before_flushing(core: &QueueCore) {
    if core.reclaim {
        return;
    }
    reclaiming(|home| {
        if home.core.is_first_wait_for(&core.name) {
            report(home, Some(core.name.to_string()), None);
        }
    });
}

/// If this thread runs an item of a queue with a rescuer, calls `body` with that item's pwq.
fn reclaiming(body: impl FnOnce(&Pwq)) {
    innermost_home(|home| home.core.reclaim, body);
}

#[cold]
fn report(home: &Pwq, queue: Option<String>, func: Option<&'static str>) {
    home.pool.manager.report(&[Report::FlushDependency {
        waiter: home.core.name.to_string(),
        queue,
        func,
    }]);
}

impl Manager {
    /// Returns the name of an item's queue if it belongs to this manager. Only compares addresses.
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
        let holder = workers.find(|it| it.worker.unfinished().any(|held| ptr::eq(held, item)));
        let slot = holder.map_or_else(
            || {
                let waiting = self.pwqs().flat_map(|pwq| pwq.waiting());
                let mut listed = self.pending.iter().chain(waiting);
                listed.find(|it| ptr::eq(it.as_ptr(), item)).map(home_slot)
            },
            |holder| holder.seat,
        );
        Some(&self.pwq(slot?).core)
    }
}

/// The maximum number of runs on one stack. The value is a guess: on a default stack of 2 MiB, each
/// run may use 16 KiB. A larger value may overflow a stack. A smaller one starts more threads.
const MAX_DEPTH: u32 = if cfg!(miri) { 2 } else { 128 };
const RUN_BYTES: usize = (2 << 20) / 128;

/// The number of runs that fit even on the smallest stack. Most joins skip the size query.
const FEW: u32 = if cfg!(miri) { 2 } else { 4 };

/// Calls `help` for `item`, for which the caller has a handle, on another thread if this thread's
/// stack already contains many runs and a thread can be started.
#[inline]
pub(crate) fn within_a_stack(item: NonNull<Head>, help: fn(NonNull<Head>) -> bool) -> bool {
    if depth() < FEW {
        return help(item);
    }
    on_a_deep_stack(item, help)
}

#[cold]
fn on_a_deep_stack(item: NonNull<Head>, help: fn(NonNull<Head>) -> bool) -> bool {
    let nr_runs = thread::stack_size() / RUN_BYTES;
    if depth() < MAX_DEPTH.min(nr_runs as u32) {
        return help(item);
    }
    // An item of a bottom half must not wait, not even for the other thread.
    if is_bottom_half() {
        return help(item);
    }
    let request = HelpRequest::new(item);
    let ours = Arc::new((Mutex::new(None), EventCount::default()));
    let theirs = ours.clone();
    let started = thread::spawn("aw/deep", move || {
        or_abort("a helper of a nested join panicked", || {
            let (answer, given) = &*theirs;
            // SAFETY: the creator of the request has a handle, and waits below for the answer.
            *answer.lock() = Some(unsafe { request.answer(help) });
            given.notify_all();
        });
    });
    if started.is_err() {
        return help(item);
    }
    let mut helped = None;
    let (answer, given) = &*ours;
    given.wait_until(|| {
        helped = *answer.lock();
        helped.is_some()
    });
    helped.is_some_and(|helped| helped)
}
