//! Changes the routes of a queue in use. The protocol is described in `routes.rs`.

use base::internal::trace;
use base::internal::wake::lane::Lane;

use super::queue::{Inner, Workqueue};
use crate::route::attrs::{Attrs, BuildError};
use crate::route::machine::{Follower, Machine};
use crate::route::stats::QueueReport;

impl Inner {
    /// Changes the attributes and publishes new routes. An ordered queue must be drained. Returns
    /// `false` if the queue was destroyed.
    pub(super) fn reroute(&self, machine: &Machine, change: &dyn Fn(&mut Attrs)) -> bool {
        let mut plan = self.plan.lock();
        if plan.dead {
            return false;
        }
        change(&mut plan.design.attrs);
        let before = self.route_table.routes();
        let routes = plan.draw(&self.core, machine);
        if std::ptr::eq(before, &*routes) {
            return true;
        }
        self.route_table.publish(&routes);
        for pwq in before.pwqs() {
            if !routes.has(pwq.as_home(), Lane::Ordinary) {
                pwq.pool.retire_pwq(pwq.slot);
            }
        }
        true
    }

    /// Returns `true` if the queue has these attributes, and routes for the current machine.
    fn is_routed(&self, machine: &Machine, change: &dyn Fn(&mut Attrs)) -> bool {
        let plan = self.plan.lock();
        let mut attrs = plan.design.attrs.clone();
        change(&mut attrs);
        let (topology, pods) = machine.pods(&attrs);
        attrs == plan.design.attrs && self.route_table.routes().is_of(&topology, &pods)
    }
}

impl Follower for Inner {
    fn follow(&self, machine: &Machine) {
        if !self.ordered {
            let _ = self.reroute(machine, &|_| ());
        }
    }

    fn report(&self) -> Option<QueueReport> {
        self.known()
    }
}

impl Workqueue {
    /// Changes the attributes of a queue, which may be in use. Only the attributes that `change`
    /// modifies are affected. [`report`](Self::report) returns the current ones.
    ///
    /// Items that are queued from now on go to the pools of the new attributes. Items that are
    /// already queued run on the pools where they wait. No item is lost.
    ///
    /// An ordered queue is drained first, as [`drain`](Self::drain) does: while the call waits,
    /// items of other threads are rejected and counted, so repeated changes leave producers little
    /// time. A call that changes nothing does not drain. If another thread queues an item while the
    /// call begins, that item may start after items that the thread queues later.
    ///
    /// Differs from Linux: an ordered queue does not automatically follow a change to the machine
    /// or to [`set_unbound_cpus`](crate::Registry::set_unbound_cpus). It follows when its
    /// attributes are set, even to the same values.
    ///
    /// # Blocking
    ///
    /// Briefly acquires pool locks. For an ordered queue it blocks and panics as
    /// [`drain`](Self::drain) does.
    ///
    /// # Cost
    ///
    /// A queue keeps all its former pwqs until it is destroyed, so memory grows with the number of
    /// *different* attributes. A pool without routes ends all its workers.
    ///
    /// # Errors
    ///
    /// Returns those errors of [`Builder::build`](crate::Builder::build) that the attributes can
    /// cause. Returns [`BuildError::OwnQueue`] for an ordered queue inside one of its items, and in
    /// a `tracing` subscriber. Returns [`BuildError::Bh`] for a bottom-half queue,
    /// [`BuildError::System`] for a process-wide queue, and [`BuildError::Destroyed`] for a
    /// destroyed queue. Nothing has changed in these cases.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{AffinityScope, Workqueue};
    /// let queue = Workqueue::builder("backup").build()?;
    /// queue.set_attrs(|attrs| {
    ///     attrs.nice = 10;
    ///     attrs.affinity = AffinityScope::Cpu;
    /// })?;
    /// assert_eq!(queue.report().attrs.nice, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("apply_workqueue_attrs", "workqueue_attrs"))]
    pub fn set_attrs(&self, change: impl FnOnce(&mut Attrs)) -> Result<(), BuildError> {
        let inner = &self.inner;
        inner.must_be_at_home();
        let before = inner.plan.lock().design.attrs.clone();
        let mut attrs = before.clone();
        // The caller's closure runs with no lock held. It may unwind, because nothing has changed.
        change(&mut attrs);
        inner.must_not_be_for_all()?;
        if inner.core.bh {
            return Err(BuildError::Bh);
        }
        attrs.check(inner.ordered)?;
        if inner.ordered {
            if trace::is_emitting() {
                return Err(BuildError::OwnQueue);
            }
            // Checked first, because the queue may be destroyed while one of its items runs.
            inner.may_wait().map_err(|_| BuildError::OwnQueue)?;
        }
        if inner.closed.is_destroyed() {
            return Err(BuildError::Destroyed);
        }
        let machine = self.registry().machine();
        // Another thread may change other attributes at the same time.
        let change = |it: &mut Attrs| it.change(&before, &attrs);
        if inner.ordered && inner.is_routed(machine, &change) {
            return Ok(());
        }
        let draining = inner.ordered.then(|| inner.closed.while_draining());
        if draining.is_some() {
            inner.drain();
        }
        inner.reroute(machine, &change).then_some(()).ok_or(BuildError::Destroyed)
    }
}
