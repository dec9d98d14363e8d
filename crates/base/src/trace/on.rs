//! The events. `off.rs` defines the same names.

use std::{cell::Cell, fmt};

use tracing::{
    Level, event,
    level_filters::{LevelFilter, STATIC_MAX_LEVEL},
};

use super::{
    Item,
    held::{Event, keep},
};
use crate::panics;

/// Returns `true` if a subscriber may accept events of `level`.
#[inline(always)]
fn is_on(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

sync::thread_local! {
    /// `true` while this thread runs a subscriber that the library has called.
    static IS_EMITTING: Cell<bool> = Cell::new(false)
}

/// Returns `true` if this thread runs a subscriber that the library has called. Other threads may
/// depend on its return, so it must not wait for a queue.
#[inline]
pub fn is_emitting() -> bool {
    IS_EMITTING.try_with(Cell::get).unwrap_or(false)
}

/// Passes an event to the subscriber, which is user code.
#[inline(always)]
pub(super) fn contained(event: impl FnOnce()) {
    let before = IS_EMITTING.try_with(|is_emitting| is_emitting.replace(true));
    // FOREIGN(subscriber): the subscriber, on the thread on which the event occurs. A panic is
    // caught.
    panics::contain(event);
    if let Ok(before) = before {
        let _ = IS_EMITTING.try_with(|is_emitting| is_emitting.set(before));
    }
}

/// Declares a function that reports one step of an item.
macro_rules! step {
    ($(#[$meta:meta])* $name:ident, $message:literal) => {
        $(#[$meta])*
        #[inline(always)]
        pub fn $name<'a>(item: impl FnOnce() -> Item<'a>) {
            #[cold]
            #[inline(never)]
            fn emit(item: Item<'_>) {
                let Item { address, func, queue, pool } = item;
                contained(|| {
                    event!(
                        name: stringify!($name),
                        target: "afterwork::workqueue",
                        Level::TRACE,
                        item = address,
                        func = func(),
                        queue,
                        pool,
                        $message
                    );
                });
            }
            if is_on(Level::TRACE) {
                let item = item();
                if !keep(emit, &item) {
                    emit(item);
                }
            }
        }
    };
}

step! {
    /// An item has become pending and is about to be pushed to its pool.
    queue_work, "a work item is queued"
}
step! {
    /// An item has a seat in its queue, and is in the local batch of the thread that will run it.
    activate_work, "a work item has a seat of its queue"
}
step! {
    /// An item's function is about to be called.
    execute_start, "a work item starts to run"
}
step! {
    /// The item's function has returned, or panicked.
    execute_end, "a work item has run"
}

/// The steps that were recorded under a lock.
#[derive(Debug, Default)]
pub struct Noted(Vec<Event>);

impl Noted {
    /// Records items that a worker has taken.
    #[inline(always)]
    pub fn activate<'a>(&mut self, items: impl FnOnce() -> Vec<Item<'a>>) {
        if is_on(Level::TRACE) {
            let emit = |item: Item<'_>| activate_work(|| item);
            self.0.extend(items().iter().map(|item| Event::new(emit, item)));
        }
    }

    /// Emits the recorded events. Must be called with no lock held.
    pub fn emit(self) {
        self.0.into_iter().for_each(Event::emit);
    }
}

/// A rescuer is called to a pool.
#[cold]
pub fn mayday(queue: &str, pool: usize) {
    contained(|| {
        event!(name: "mayday", target: "afterwork::workqueue", Level::DEBUG, queue, pool, "a rescuer is called");
    });
}

/// A rescuer has taken items.
#[cold]
pub fn rescue(queue: &str, pool: usize, nr_items: usize) {
    contained(|| {
        event!(name: "rescue", target: "afterwork::workqueue", Level::DEBUG, queue, pool, nr_items, "a rescuer has taken work items");
    });
}

/// Reports a problem.
#[cold]
pub fn report(kind: &'static str, queue: &str, text: &dyn fmt::Display) {
    contained(|| {
        event!(name: "report", target: "afterwork::workqueue", Level::WARN, kind, queue, "{text}");
    });
}

/// A grace period has begun.
#[inline(always)]
pub fn gp_start(flavor: &'static str, gp_seq: u64) {
    if is_on(Level::DEBUG) {
        contained(|| {
            event!(name: "gp_start", target: "afterwork::rcu", Level::DEBUG, flavor, gp_seq, "a grace period has begun");
        });
    }
}

/// A grace period has ended.
#[inline(always)]
pub fn gp_end(flavor: &'static str, gp_seq: u64) {
    if is_on(Level::DEBUG) {
        contained(|| {
            event!(name: "gp_end", target: "afterwork::rcu", Level::DEBUG, flavor, gp_seq, "a grace period has ended");
        });
    }
}

/// A reader delays a grace period.
#[cold]
pub fn rcu_stall(thread: u32, text: &dyn fmt::Display) {
    contained(|| {
        event!(name: "stall", target: "afterwork::rcu", Level::WARN, thread, "{text}");
    });
}
