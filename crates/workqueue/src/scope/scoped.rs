//! Scopes: items that borrow from the caller.

use std::{fmt, marker::PhantomData, ptr::NonNull};

use base::internal::{panics::guarded_in_item, wake::report};
use sync::unmodelled::Arc;

use super::{
    crew::{Crew, Tickets},
    line,
    stand::Stand,
};
use crate::queues::queue::Workqueue;

/// Takes items that may borrow what outlives the scope; made by [`Workqueue::scope`].
///
/// It can be shared with its own items, which may bring more.
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
/// What goes before the scope does cannot be borrowed:
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
/// and the scope is no longer there when it is over:
///
/// ```compile_fail,E0521
/// # use afterwork::workqueue::Workqueue;
/// # let queue = Workqueue::builder("example").build().unwrap();
/// let mut kept = None;
/// queue.scope(|s| kept = Some(s));
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    queue: &'env Workqueue,
    /// On the stack of `Workqueue::scope`, which waits for all that use this.
    stand: NonNull<Stand>,
    crew: Arc<Crew>,
    tickets: Tickets,
    /// Neither may be shortened or extended: what is borrowed for `'scope` is used until its very end.
    lifetimes: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

// SAFETY: all that is reached through a shared scope may be used by several threads.
unsafe impl Sync for Scope<'_, '_> {}

/// What may come to a queue from one thread.
pub(super) struct Reach {
    /// How many of the queue's items may run at once where this thread queues them.
    pub(super) max_active: u32,
    /// How many workers run there at once.
    pub(super) nr_workers: u32,
    /// They share one CPU.
    pub(super) on_one_cpu: bool,
}

impl Workqueue {
    /// Calls `body` with a scope whose items may borrow from the caller, and waits until all of them have ended.
    ///
    /// Items run on this queue's workers, and on the calling thread once `body` has returned: it runs what no worker has
    /// started.
    ///
    /// # Guarantees
    ///
    /// - When this returns, or goes on with a panic, no item of the scope runs or is going to.
    /// - The caller runs items of this very scope while it waits, and nothing else: so no lock that it holds is wanted by
    ///   what it runs, unless an item of its own wants it. It needs no worker and no seat: what has not started when `body`
    ///   returns is run also where the queue is full, paused, drained or destroyed, gets no threads, or where the caller is
    ///   inside an item of the queue. Such runs count neither against `max_active` nor in the
    ///   queue's statistics. The caller runs all items of a bottom-half queue's scope, so that they
    ///   may wait.
    /// - Items start in the order in which they were brought. On an ordered queue each ends before the next one starts, too;
    ///   one that the caller runs may run beside other items of that queue.
    /// - If items panic, the others run all the same. Then the first panic goes on here; each of the others is told to the
    ///   queue's handler of panics and dropped. A panic of `body` comes before theirs.
    ///
    /// # Cost
    ///
    /// An allocation for the scope, and none for an item in the long run, as of [`spawn`](Self::spawn). To the queue the
    /// visit of a worker is one item, in which it runs items of the scope as long as there are any.
    ///
    /// # Blocking
    ///
    /// Until all items have ended. Called from a work item it lets the pool get another worker meanwhile.
    ///
    /// # Panics
    ///
    /// With the panic of `body` or of an item. Before `body` is called: inside an item of a
    /// bottom-half queue, unless this is a bottom-half queue as well, and in a child of `fork` (see
    /// [`Workqueue`]). A child that returns from `body` ends.
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
    #[doc(alias = "thread::scope")]
    #[doc(alias("INIT_WORK_ONSTACK", "destroy_work_on_stack"))]
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        self.must_be_free_to_own();
        let reach = self.reach();
        let in_order = self.inner.ordered;
        let stand = Stand::new(self.inner.core.clone(), in_order, reach.on_one_cpu);
        // SAFETY: the stand stays where it is until `finish` has closed the crew for good.
        let crew = unsafe { Crew::new((&raw const stand).cast(), Stand::visit) };
        let scope = Scope {
            queue: self,
            stand: NonNull::from(&stand),
            crew,
            tickets: Tickets::new(reach.max_active),
            lifetimes: PhantomData,
        };
        // FOREIGN(scope-run): the body, on the owner; contained, and gone on with when all items have ended.
        let own = guarded_in_item(|| body(&scope));
        stand.finish(&scope.crew);
        scope.tickets.take_back();
        stand.go_on(own)
    }

    /// Before this thread becomes an owner.
    ///
    /// # Panics
    ///
    /// Inside an item of a bottom-half queue, unless this is a bottom-half queue, and in a child of
    /// `fork`.
    pub(super) fn must_be_free_to_own(&self) {
        // The scope of a bottom-half queue has no guests, so its owner never waits.
        if !self.inner.core.bh {
            report::must_be_free_to_sleep();
        }
        self.inner.must_be_at_home();
    }

    pub(super) fn reach(&self) -> Reach {
        let home = self.here();
        Reach {
            max_active: home.gate.max(),
            nr_workers: home.pool.target(),
            on_one_cpu: home.rules.one_cpu,
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Brings `func`, to be run once before the scope ends, by a worker or by the owner of the scope.
    ///
    /// Nobody can wait for it or cancel it: what it comes to it leaves in what it borrows.
    ///
    /// # Blocking
    ///
    /// Never waits for a worker: see [`Workqueue`].
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
        // SAFETY: whoever has a reference to the scope is waited for before the stand goes.
        let stand = unsafe { self.stand.as_ref() };
        if stand.line.push(line::item(func)) {
            self.crew.rouse();
        }
        self.tickets.send(self.queue, &self.crew);
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope").field(&self.crew).finish()
    }
}
