//! Functions for the other crates of afterwork. Programs must not use them, because they may change
//! in any version.
//!
//! The items of `crates/raw` have a layout that C prescribes. That crate calls these functions to
//! queue such an item, to remove it from a list, and to run it.

use std::ptr::{self, NonNull};

pub use item::internal::deferred_drops::DeferredDrops;
use item::internal::head::Enqueue;
pub use item::internal::head::raw::Start;
pub use item::internal::head::{Ending, Head, Popped, State, VTable};
use sync::atomic::Ordering;
use sync::unmodelled::Arc;
use topology::CpuId;

use crate::execute::cancel_cut;
pub use crate::execute::run::depth;
use crate::execute::run::{self, with_current, with_events};
pub use crate::execute::wait::{before_waiting_for, must_have_workers, needs_our_seat};
use crate::pools::pwq::Pwq;
use crate::queues::queue::{Inner, Workqueue};
#[cfg(not(any(loom, shuttle)))]
use crate::queues::registry::Registry;
#[cfg(not(any(loom, shuttle)))]
pub use crate::{
    queues::timers::{Due, Guard, Kind, Node, Timers, Wheel},
    route::attrs::RegistryError,
};

/// The pwq on which an item is to be queued.
#[derive(Clone, Copy)]
pub struct Place<'a>(&'a Pwq);

/// The pwq on which an item was last queued; its queue may have been destroyed.
#[derive(Clone, Copy, Debug)]
pub struct Origin(*const Pwq);

/// A queue whose memory stays valid even after the queue has been destroyed.
pub struct Held(Arc<Inner>);

/// Returns `true` if the queue accepts items from the caller. If it does not, counts the rejection.
#[inline]
pub fn admits(queue: &Workqueue) -> bool {
    queue.admits()
}

/// Returns `true` if the queue was created in this process, and not in a parent process.
pub fn is_at_home(queue: &Workqueue) -> bool {
    queue.inner.is_at_home()
}

/// Waits until the timers that have expired for the queue have pushed their items.
pub fn outlast_visitors(queue: &Workqueue) {
    queue.inner.outlast_visitors();
}

impl<'a> Place<'a> {
    /// Returns the place in `queue` for an item that this thread queues.
    #[inline]
    pub fn here(queue: &'a Workqueue) -> Self {
        Self(queue.here())
    }

    /// Returns the place in `queue` for an item that is queued on a CPU.
    #[inline]
    pub fn at_cpu(queue: &'a Workqueue, cpu: CpuId) -> Self {
        Self(queue.inner.route_table.routes().at_cpu(cpu))
    }

    /// Returns the place in `queue` for an item that is queued on a NUMA node.
    pub fn at_node(queue: &'a Workqueue, node: u32) -> Self {
        let routes = queue.inner.route_table.routes();
        Self(routes.at_cpu(routes.cpu_in(node)))
    }

    /// Makes an item pending here. The item must not have a tombstone in any list. Returns `true`
    /// if the caller must [`push`](Self::push) it.
    #[inline]
    pub fn enqueue(self, head: &Head) -> bool {
        match head.enqueue(self.0, |_| false, false, None) {
            Enqueue::Push(_) => true,
            Enqueue::Claim(_) => {
                self.set_home(head);
                head.update(|state| Some(state.publish()));
                true
            }
            Enqueue::Pending | Enqueue::Disabled => false,
            Enqueue::Revive(_) | Enqueue::Elsewhere(_) => {
                unreachable!("a canceller cuts the item's link out")
            }
        }
    }

    /// Writes the home of an item that the caller has claimed.
    #[inline]
    pub fn set_home(self, head: &Head) {
        head.home.store(self.0.as_home(), Ordering::Relaxed);
    }

    /// Returns the state of an item after it has been queued here. `state` is its state while it is
    /// armed, or while it is claimed and in no list.
    #[inline]
    pub fn fire(self, state: State) -> State {
        state.fire(self.0.rules)
    }

    /// Pushes an item, which the caller has made pending here, to the pool.
    #[inline]
    pub fn push(self, item: NonNull<Head>) {
        self.0.push(item);
    }
}

impl Origin {
    /// Returns the place where the item was last queued.
    #[inline]
    pub fn of(head: &Head) -> Self {
        Self(Pwq::of(head.home.load(Ordering::Relaxed)))
    }

    /// Runs an item that was queued at this place: calls `func`, then `before_end`. `helps` is set
    /// if a joiner runs the item after removing it from the queue. `func` may free the item,
    /// because only the item's address is used afterwards.
    ///
    /// # Safety
    ///
    /// 1. The pwq stays alive until `before_end` is called. If `before_end` releases the seat that
    ///    keeps the pwq alive, it calls `forget_seats`.
    #[inline]
    pub unsafe fn run(
        self,
        item: NonNull<Head>,
        vtable: &VTable,
        helps: bool,
        func: impl FnOnce(),
        before_end: impl FnOnce(),
    ) {
        let call = || {
            // SAFETY: (1).
            unsafe { with_events(item.as_ptr(), vtable, self.0, helps, func) };
            before_end();
        };
        // SAFETY: (1). The frame does not refer to the item, whose function may free it.
        unsafe { with_current(ptr::null(), self.0, call) };
    }
}

impl Held {
    /// Keeps the memory of `queue` valid.
    pub fn of(queue: &Workqueue) -> Self {
        Self(queue.inner.clone())
    }

    /// Calls `body` with the place of a CPU, or with `None` if the queue was destroyed. The
    /// destruction of the queue waits for `body`.
    pub fn visit<R>(&self, cpu: CpuId, body: impl FnOnce(Option<Place<'_>>) -> R) -> R {
        let visit = self.0.visit().filter(|queue| !queue.closed.is_destroyed());
        let queue = visit.as_deref();
        body(queue.map(|queue| Place(queue.route_table.routes().at_cpu(cpu))))
    }
}

/// Removes an item from its list, or takes it back from the local batch of a worker or from a run.
///
/// # Safety
///
/// 1. The item was pending. The caller has claimed it, and keeps it alive.
pub unsafe fn cut_out(item: NonNull<Head>) {
    // SAFETY: (1).
    let head = unsafe { item.as_ref() };
    // SAFETY: (1). The item is linked, and its in-flight count keeps the home pwq alive until the
    // claim ends.
    let home: &Pwq = unsafe { &*Origin::of(head).0 };
    // The newest item of the injector is not counted yet, and is removed without walking the list.
    if home.pool.injector.take_back(item) {
        head.update(|state| Some(state.unlink()));
    } else {
        drop(run::cut_out(item));
    }
}

/// Puts an item back at the front of its pwq's list.
///
/// # Safety
///
/// 1. The item is linked, is in no list, and is counted in flight.
pub unsafe fn put_back(item: NonNull<Head>) {
    // SAFETY: (1): the item and its home pwq stay alive until it is in a list.
    let home: &Pwq = unsafe { &*Origin::of(item.as_ref()).0 };
    let pool = home.pool.clone();
    if let Some(cancelled) = cancel_cut::put_back(&pool, item, None) {
        cancelled.run();
    }
}

/// Calls `run` to run a pending item on this thread if the queue allows helping and has a free
/// seat, no worker has taken the item, and `is_free` returns `true`. Returns `true` if the item
/// ran. `run` receives the place from which the item runs, and a function to call before the end of
/// the run.
///
/// This function leaves no tombstone.
///
/// # Safety
///
/// 1. The caller keeps the item alive, and `run` starts and ends a run of it.
pub unsafe fn help(
    item: NonNull<Head>,
    is_free: impl FnOnce() -> bool,
    run: impl FnOnce(Origin, &mut dyn FnMut()),
) -> bool {
    let begin = |home: &Pwq, _| is_free() && home.pool.injector.take_back(item);
    // SAFETY: (1). An item in its user's memory is not a `Revivable`.
    unsafe { run::help_from(item, false, begin, |home, before_end| run(Origin(home), before_end)) }
}

/// Returns the timers of the process-wide registry. The errors are those of [`Registry::global`].
#[cfg(not(any(loom, shuttle)))]
pub fn timers() -> Result<&'static Timers, RegistryError> {
    Registry::global().map(|registry| &**registry.timers())
}

#[cfg(not(any(loom, shuttle)))]
impl Timers {
    /// Locks the wheel.
    pub fn lock(&self) -> Guard<'_> {
        self.wheel.lock()
    }

    /// Wakes the manager, because a new timer is the first to expire.
    pub fn wake_manager(&self) {
        self.manager.wake();
    }
}
