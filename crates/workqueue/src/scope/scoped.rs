//! Scopes: items that borrow from the caller.

use std::marker::PhantomData;
use std::ptr::NonNull;

use base::internal::panics::guarded_in_item;
use base::internal::wake::report;
use limit::internal::queue_core::QueueCore;
use sync::unmodelled::Arc;

use super::crew::{Crew, FirstPanic, Ticket, Tickets, whole};
use super::pending::{self, PendingItems, Rest, Started};
use crate::queues::queue::Workqueue;

/// A scope whose items may borrow data that outlives it; created by [`Workqueue::scope`].
///
/// Its own items can use it to spawn more items.
///
/// # Examples
///
/// ```
/// # use afterwork::workqueue::Workqueue;
/// let queue = Workqueue::builder("example").build()?;
/// let (mut left, mut right) = (vec![3, 1, 2], vec![6, 5, 4]);
/// queue.scope(|s| {
///     s.spawn(|| left.sort());
///     s.spawn(|| right.sort());
/// });
/// assert_eq!((left, right), (vec![1, 2, 3], vec![4, 5, 6]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Data that is dropped before the scope ends cannot be borrowed:
///
/// ```compile_fail,E0373
/// # use afterwork::workqueue::Workqueue;
/// # let queue = Workqueue::builder("example").build().unwrap();
/// queue.scope(|s| {
///     let short = vec![1];
///     s.spawn(|| drop(&short));
/// });
/// ```
///
/// The scope cannot be used after it has ended:
///
/// ```compile_fail,E0521
/// # use afterwork::workqueue::Workqueue;
/// # let queue = Workqueue::builder("example").build().unwrap();
/// let mut kept = None;
/// queue.scope(|s| kept = Some(s));
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    queue: &'env Workqueue,
    /// The state on the stack of `Workqueue::scope`, which waits for every thread that uses it.
    scope_state: NonNull<ScopeState>,
    crew: Arc<Crew>,
    tickets: Tickets,
    /// Makes the type invariant in both lifetimes: data borrowed for `'scope` is used until the
    /// scope ends.
    lifetimes: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

// SAFETY: the queue, the scope state, the crew and the tickets may be used by several threads.
unsafe impl Sync for Scope<'_, '_> {}

impl Workqueue {
    /// Calls `body` with a scope whose items may borrow from the caller, and waits for all items.
    ///
    /// Items run on this queue's workers. After `body` has returned, the calling thread also runs
    /// the items that no worker has started.
    ///
    /// # Guarantees
    ///
    /// - When this returns or panics, no item of the scope is running, and none will run.
    /// - The caller runs only items of this scope while it waits. Code that it runs therefore needs
    ///   no lock that the caller holds, unless an item of the scope needs it.
    /// - The caller needs no worker and no seat. It also runs the remaining items if the queue is
    ///   full, paused, drained or destroyed, if the queue has no threads, or if the caller is
    ///   inside an item of the queue. Such runs count neither against `max_active` nor in the
    ///   queue's statistics. On a bottom-half queue the caller runs all items, so they may block.
    /// - Items start in the order in which they were spawned. On an ordered queue, each item also
    ///   ends before the next one starts. An item that the caller runs may overlap others.
    /// - If an item panics, the others still run. Afterwards the first panic is resumed on this
    ///   thread. Each other panic is reported to the queue's panic handler and dropped. A panic in
    ///   `body` takes precedence over panics in items.
    ///
    /// # Cost
    ///
    /// A scope takes one allocation. An item costs no allocation once memory can be reused, as for
    /// [`spawn`](Self::spawn). To the queue, a worker that runs items of the scope executes a
    /// single item, which lasts as long as the scope has items to start.
    ///
    /// # Blocking
    ///
    /// Blocks until all items have ended. If an item calls this, its pool can start another worker.
    ///
    /// # Panics
    ///
    /// Resumes a panic from `body` or from an item. Panics before calling `body` in a child of
    /// `fork` (see [`Workqueue`]), and inside an item of a bottom-half queue unless this is a
    /// bottom-half queue as well. A child forked inside `body` exits when `body` returns.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let mut squares = [1, 2, 3, 4, 5];
    /// let (left, right) = squares.split_at_mut(2);
    /// queue.scope(|s| {
    ///     for part in [left, right] {
    ///         s.spawn(|| part.iter_mut().for_each(|it| *it *= *it));
    ///     }
    /// });
    /// assert_eq!(squares, [1, 4, 9, 16, 25]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("thread::scope", "INIT_WORK_ONSTACK", "destroy_work_on_stack"))]
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        self.must_be_free_to_own();
        let home = self.here();
        let in_order = self.inner.ordered;
        let scope_state = ScopeState::new(self.inner.core.clone(), in_order, home.rules.one_cpu);
        // SAFETY: `scope_state` is not moved or dropped until `finish` has closed the crew
        // permanently.
        let crew = unsafe { Crew::new((&raw const scope_state).cast(), ScopeState::visit) };
        let scope = Scope {
            queue: self,
            scope_state: NonNull::from(&scope_state),
            crew,
            tickets: Tickets::new(home.gate.max()),
            lifetimes: PhantomData,
        };
        // FOREIGN(scope-run): the body, on the owner; a panic is contained, and resumed after all
        // items.
        let own = guarded_in_item(|| body(&scope));
        scope_state.finish(&scope.crew);
        scope.tickets.take_back();
        scope_state.first_panic.go_on(own)
    }

    /// Checks that this thread may become an owner. Panics in a child of `fork`, and inside an item
    /// of a bottom-half queue unless this is a bottom-half queue.
    pub(super) fn must_be_free_to_own(&self) {
        // The scope of a bottom-half queue has no guests, so its owner never waits.
        if !self.inner.core.bh {
            report::must_be_free_to_sleep();
        }
        self.inner.must_be_at_home();
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns `func`, which a worker or the owner of the scope runs once before the scope ends.
    /// Never waits for a worker: see [`Workqueue`].
    ///
    /// The item cannot be awaited or cancelled. It returns its result through data that it borrows.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let nr_leaves = AtomicU32::new(0);
    /// queue.scope(|s| {
    ///     s.spawn(|| {
    ///         for _ in 0..10 {
    ///             s.spawn(|| {
    ///                 nr_leaves.fetch_add(1, Ordering::Relaxed);
    ///             });
    ///         }
    ///     });
    /// });
    /// assert_eq!(nr_leaves.into_inner(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn spawn(&'scope self, func: impl FnOnce() + Send + 'scope) {
        // SAFETY: every thread that has `&Scope` runs inside the scope, and `finish` waits for all
        // of them before `scope_state` is dropped.
        let scope_state = unsafe { self.scope_state.as_ref() };
        if scope_state.pending.push(pending::item(func)) {
            self.crew.wake_owner();
        }
        self.tickets.send(self.queue, &self.crew);
    }
}

base::internal::impl_debug!(Scope<'_, '_>, it => queue: it.queue.name());

pub(super) struct ScopeState {
    pub(super) pending: PendingItems,
    pub(super) first_panic: FirstPanic,
    /// I: the queue whose workers are the guests.
    core: Arc<QueueCore>,
    /// I: set if those workers share one CPU.
    on_one_cpu: bool,
}

impl ScopeState {
    pub(super) fn new(core: Arc<QueueCore>, in_order: bool, on_one_cpu: bool) -> Self {
        Self {
            pending: PendingItems::new(in_order),
            first_panic: FirstPanic::default(),
            core,
            on_one_cpu,
        }
    }

    /// # Safety
    ///
    /// 1. `work` points to a `ScopeState` that is valid until this returns.
    pub(super) unsafe fn visit(work: *const (), ticket: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        this.serve();
        ticket.count_off();
        this.serve();
    }

    fn serve(&self) {
        while let Some(item) = self.pending.take() {
            self.run(item);
        }
    }

    fn run(&self, item: Started) {
        if let Err(payload) = self.pending.run(item) {
            self.first_panic.note(&self.core, payload);
        }
    }

    /// As the owner, runs pending items, waits for those of guests, and closes the crew for good.
    pub(super) fn finish(&self, crew: &Crew) {
        whole(|| {
            loop {
                self.serve();
                match self.pending.rest() {
                    Rest::Items => continue,
                    Rest::Marked => {
                        crew.sleep_while_empty(self.on_one_cpu, || !self.pending.is_marked())
                    }
                    Rest::Behind => crew.sleep_while_empty(self.on_one_cpu, || false),
                }
                if crew.try_close() {
                    // A guest may have entered, pushed an item and left since `rest`.
                    if self.pending.is_empty() {
                        return;
                    }
                    crew.reopen();
                }
            }
        });
    }
}
