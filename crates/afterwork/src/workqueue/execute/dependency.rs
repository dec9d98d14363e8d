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

use std::{fmt, ptr};

use super::current::innermost_home;
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

/// Reports `error`, that an item was about to wait for itself, and returns it.
#[cold]
pub(crate) fn reported<E: fmt::Display>(error: E) -> E {
    innermost_home(
        |_| true,
        |home| trace::report("own_wait", &home.core.name, &error),
    );
    error
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
