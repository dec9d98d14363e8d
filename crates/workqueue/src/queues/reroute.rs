//! Changing the routes of a queue in use. The protocol is described in `routes.rs`.

use base::internal::trace;

use super::queue::{Inner, Workqueue};
use crate::{
    item::lane::Lane,
    route::{
        attrs::{Attrs, BuildError},
        machine::{Follower, Machine},
        stats::QueueReport,
    },
};

impl Inner {
    /// Changes the attributes and publishes new routes. An ordered queue must be drained.
    pub(super) fn reroute(&self, machine: &Machine, change: &dyn Fn(&mut Attrs)) {
        let mut plan = self.plan.lock();
        if plan.is_dead() {
            return;
        }
        change(plan.attrs_mut());
        let before = self.route_table.routes();
        let routes = plan.draw(&self.core, machine);
        if std::ptr::eq(before, &*routes) {
            return;
        }
        self.route_table.publish(&routes);
        for pwq in before.pwqs() {
            if !routes.has(pwq.as_home(), Lane::Ordinary) {
                pwq.pool.retire_pwq(pwq.slot);
            }
        }
    }
}

impl Follower for Inner {
    fn follow(&self, machine: &Machine) {
        if !self.ordered {
            self.reroute(machine, &|_| ());
        }
    }

    fn report(&self) -> Option<QueueReport> {
        self.known()
    }
}

impl Workqueue {
    /// Returns the attributes.
    #[doc(alias = "workqueue_attrs")]
    pub fn attrs(&self) -> Attrs {
        self.inner.must_be_at_home();
        self.inner.plan.lock().attrs().clone()
    }

    /// Changes the attributes of a queue that may be in use.
    ///
    /// Items that are queued from now on go to the pools of the new attributes. Items that are
    /// queued already run where they are. No item is lost.
    ///
    /// An ordered queue is drained first, as [`drain`](Self::drain) does: while the call waits,
    /// items of other threads are rejected and counted. If another thread queues an item while the
    /// call begins, that item may start after items that the thread queues later.
    ///
    /// Differs from Linux: an ordered queue does not automatically follow a change of the machine
    /// or of [`set_unbound_cpus`](crate::Registry::set_unbound_cpus). It follows when
    /// its attributes are set, even to the same values.
    ///
    /// # Blocking
    ///
    /// Briefly acquires pool locks. For an ordered queue it blocks as [`drain`](Self::drain).
    ///
    /// # Cost
    ///
    /// A queue keeps all its former pwqs until it is destroyed, so memory grows with the number of
    /// *different* attributes. A pool without routes ends all its workers.
    ///
    /// # Panics
    ///
    /// For an ordered queue as [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// Those of [`Builder::build`](crate::Builder::build) that the attributes can cause;
    /// [`BuildError::OwnQueue`] for an ordered queue inside one of its items, and in a `tracing`
    /// subscriber; [`BuildError::Bh`] for a bottom-half queue; [`BuildError::System`] for a
    /// process-wide queue. Nothing has changed in these cases.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{AffinityScope, Attrs, Workqueue};
    /// let queue = Workqueue::builder("backup").build()?;
    /// queue.set_attrs(&Attrs { nice: 10, ..queue.attrs() })?;
    /// queue.set_scope(AffinityScope::Cpu)?;
    /// assert_eq!((queue.attrs().nice, queue.attrs().scope), (10, AffinityScope::Cpu));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "apply_workqueue_attrs")]
    pub fn set_attrs(&self, attrs: &Attrs) -> Result<(), BuildError> {
        self.inner.must_be_at_home();
        self.check(attrs)?;
        self.change(&|it| it.clone_from(attrs))
    }

    /// Changes which CPUs share a worker pool; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As [`set_attrs`](Self::set_attrs).
    pub fn set_scope(&self, scope: topology::AffinityScope) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.scope = scope)
    }

    /// Changes whether workers never leave their pods; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As [`set_attrs`](Self::set_attrs).
    pub fn set_strict(&self, strict: bool) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.strict = strict)
    }

    /// Changes the CPUs on which workers run; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As [`set_attrs`](Self::set_attrs).
    pub fn set_cpus(&self, cpus: Option<topology::CpuSet>) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.cpus.clone_from(&cpus))
    }

    /// Changes the nice value of the workers; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As [`set_attrs`](Self::set_attrs).
    pub fn set_nice(&self, nice: i8) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.nice = nice)
    }

    fn set_one(&self, change: &dyn Fn(&mut Attrs)) -> Result<(), BuildError> {
        let mut attrs = self.attrs();
        change(&mut attrs);
        self.check(&attrs)?;
        self.change(change)
    }

    fn check(&self, attrs: &Attrs) -> Result<(), BuildError> {
        self.inner.must_not_be_for_all()?;
        if self.inner.core.bh {
            return Err(BuildError::Bh);
        }
        attrs.check(self.inner.ordered)
    }

    fn change(&self, change: &dyn Fn(&mut Attrs)) -> Result<(), BuildError> {
        let machine = self.registry().machine();
        if !self.inner.ordered {
            self.inner.reroute(machine, change);
            return Ok(());
        }
        if trace::is_emitting() {
            return Err(BuildError::OwnQueue);
        }
        self.inner.may_wait().map_err(|_| BuildError::OwnQueue)?;
        let _draining = self.inner.closed.while_draining();
        self.inner.drain();
        self.inner.reroute(machine, change);
        Ok(())
    }
}
