//! Changing where a queue's items go, while it is used. The protocol stands in `routes.rs`.

use sync::{Patience, twin, unmodelled::Arc};

use super::queue::{Inner, Workqueue};
use crate::{
    trace,
    workqueue::{
        item::lane::Lane,
        pools::pwq::Pwq,
        route::attrs::{Attrs, BuildError},
        route::machine::{Follower, Machine},
        route::stats::QueueReport,
    },
};
/// What a change of an ordered queue has to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// Its former link has items.
    Plug,
    /// An enqueuer is between two steps.
    Enqueuer,
}

impl Inner {
    /// Changes the attributes, and where items go from now on.
    fn reroute(&self, machine: &Machine, change: &dyn Fn(&mut Attrs)) -> Result<(), Wait> {
        let mut plan = self.plan.lock();
        if plan.is_dead() {
            return Ok(());
        }
        let before = self.route_table.routes();
        if self.ordered && before.links()[0].is_plugged() {
            return Err(Wait::Plug);
        }
        let shut = self.route_table.shut().ok_or(Wait::Enqueuer)?;
        change(plan.attrs_mut());
        let plug = self.ordered && !twin::armed("reroute: forgets the plug");
        let routes = plan.draw(&self.core, machine, plug);
        if std::ptr::eq(before, Arc::as_ptr(&routes)) {
            return Ok(());
        }
        shut.publish(&routes);
        drop(shut);
        for link in before.links() {
            if !routes.has(link.as_home(), Lane::Ordinary) {
                link.pool.retire_link(link.slot);
            }
        }
        let mut settled = false;
        if plug && !routes.has(before.links()[0].as_home(), Lane::Ordinary) {
            settled = before.links()[0].succeed(&routes.links()[0]);
        }
        drop(plan);
        if settled {
            self.core.settled.notify_all();
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        !self.ordered || !self.route_table.routes().links()[0].is_plugged()
    }
}

impl Follower for Inner {
    fn follow(&self, machine: &Machine) -> bool {
        self.reroute(machine, &|_| ()).is_ok()
    }

    fn report(&self) -> Option<QueueReport> {
        self.known()
    }
}

impl Pwq {
    fn is_plugged(&self) -> bool {
        self.pool.lock().link(self.slot).plugged
    }

    /// Unplugs `heir` when the last item of this link has ended; returns `true` if it has already.
    fn succeed(&self, heir: &Arc<Pwq>) -> bool {
        let is_spent = self.pool.is_spent(self.slot, heir);
        if is_spent {
            heir.pool.unplug(heir.slot);
        }
        is_spent
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
    /// Items that are queued from now on go to the pools of the new attributes; those that are queued already run where
    /// they are. Nothing is lost. Items of an ordered queue keep their order: the first new one waits until the last
    /// old one has ended.
    ///
    /// # Blocking
    ///
    /// Takes the locks of the pools concerned for a moment. For an ordered queue of which the last change has not
    /// taken effect it waits for that: until the items have ended that were queued before.
    ///
    /// # Cost
    ///
    /// A queue keeps what it ever linked to until it goes, so memory grows with the number of *different* attributes.
    /// Pools that nobody routes to any more let all of their workers go.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::build`](crate::workqueue::Builder::build) that the attributes can cause;
    /// [`BuildError::Unsettled`] inside an item of an ordered queue if the call would wait for that
    /// item, and in a `tracing` subscriber if the call would have to wait; [`BuildError::Bh`] for a
    /// bottom-half queue; [`BuildError::System`] for a process-wide queue. Nothing has changed
    /// then.
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
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_scope(&self, scope: topology::AffinityScope) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.scope = scope)
    }

    /// Changes whether workers never leave their pods; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_strict(&self, strict: bool) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.strict = strict)
    }

    /// Changes the CPUs to which workers keep; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_cpus(&self, cpus: Option<topology::CpuSet>) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.cpus.clone_from(&cpus))
    }

    /// Changes the nice value of the workers; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_nice(&self, nice: i8) -> Result<(), BuildError> {
        self.set_one(&|attrs| attrs.nice = nice)
    }

    fn set_one(&self, change: &dyn Fn(&mut Attrs)) -> Result<(), BuildError> {
        let mut attrs = self.attrs();
        change(&mut attrs);
        self.check(&attrs)?;
        self.change(change)
    }

    /// Checks that the queue can have these attributes.
    fn check(&self, attrs: &Attrs) -> Result<(), BuildError> {
        self.inner.must_not_be_for_all()?;
        if self.inner.core.bh {
            return Err(BuildError::Bh);
        }
        attrs.check(self.inner.ordered)
    }

    fn change(&self, change: &dyn Fn(&mut Attrs)) -> Result<(), BuildError> {
        let inner = &*self.inner;
        let mut patience = Patience::new();
        loop {
            match inner.reroute(self.registry().machine(), change) {
                Ok(()) => return Ok(()),
                Err(Wait::Enqueuer) => patience.pause(),
                Err(Wait::Plug) if inner.runs_here() || trace::is_telling() => {
                    return Err(BuildError::Unsettled);
                }
                Err(Wait::Plug) => inner.core.settled.wait_until(|| inner.is_settled()),
            }
        }
    }
}
