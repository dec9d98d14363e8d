//! Changing where a queue's items go, while it is used. The protocol stands in `routes.rs`.

use sync::{atomic::AtomicU32, thread, twin, unmodelled::Arc};

use super::{
    attrs::{Attrs, BuildError},
    machine::Machine,
    pool::PoolAttrs,
    pwq::{Pwq, QueueCore},
    queue::{Inner, Workqueue},
    routes::Routes,
    state::Rules,
};

/// What the routes of a queue are made from, and all that there ever were.
#[derive(Debug)]
pub(super) struct Plan {
    attrs: Attrs,
    /// I
    help: Option<bool>,
    /// I
    ordered: bool,
    /// Every table that was ever published; enqueuers may still look at any of them.
    tables: Vec<Arc<Routes>>,
    /// Every link that is, or was, in a table; items may still come by any of them.
    links: Vec<Arc<Pwq>>,
    /// The queue has gone: links are no longer linked.
    dead: bool,
}

/// What a change of an ordered queue has to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// Its former link has items.
    Plug,
    /// An enqueuer is between two steps.
    Enqueuer,
}

impl Plan {
    /// Makes the first table of a queue.
    pub(super) fn new(
        attrs: Attrs,
        help: Option<bool>,
        ordered: bool,
        core: &Arc<QueueCore>,
        machine: &Machine,
    ) -> (Self, Arc<Routes>) {
        let mut plan = Self {
            attrs,
            help,
            ordered,
            tables: Vec::new(),
            links: Vec::new(),
            dead: false,
        };
        let routes = plan.draw(core, machine, false);
        plan.tables.push(routes.clone());
        (plan, routes)
    }

    pub(super) fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    pub(super) fn links(&self) -> &[Arc<Pwq>] {
        &self.links
    }

    /// Marks the queue as gone, and returns its links.
    pub(super) fn end(&mut self) -> Vec<Arc<Pwq>> {
        self.dead = true;
        self.links.clone()
    }

    /// Makes the table for the attributes, with links that are made or taken up again; plugged ones, if they are not
    /// in use now.
    fn draw(&mut self, core: &Arc<QueueCore>, machine: &Machine, plug: bool) -> Arc<Routes> {
        let (topology, pods) = machine.pods(&self.attrs);
        let links = pods
            .iter()
            .map(|pod| {
                let attrs = PoolAttrs {
                    cpus: pod.cpus.clone(),
                    strict: self.attrs.strict,
                    nice: self.attrs.nice,
                    bh: core.bh,
                };
                self.link(attrs, core, machine, plug)
            })
            .collect();
        let routes = Routes::new(topology, pods, links);
        let known = self.tables.iter().find(|it| it.is_like(&routes));
        known.cloned().unwrap_or_else(|| Arc::new(routes))
    }

    fn link(
        &mut self,
        attrs: PoolAttrs,
        core: &Arc<QueueCore>,
        machine: &Machine,
        plug: bool,
    ) -> Arc<Pwq> {
        // A link has its pool in use, so there is no other pool with these attributes.
        if let Some(link) = self.links.iter().find(|link| link.pool.attrs == attrs) {
            link.pool.take_up_link(link.slot, plug);
            return link.clone();
        }
        let pool = machine.pool(attrs);
        let rules = Rules {
            help: self.help.unwrap_or(!pool.attrs.strict) && !self.ordered,
            ordered: self.ordered,
            one_cpu: pool.has_one_cpu(),
        };
        let nr_anchored = Arc::new(AtomicU32::new(0));
        let slot = pool.add_link(core.clone(), nr_anchored.clone(), plug);
        let link = Arc::new(Pwq {
            pool,
            slot,
            core: core.clone(),
            nr_anchored,
            rules,
        });
        self.links.push(link.clone());
        link
    }
}

impl Inner {
    /// Changes the attributes, and where items go from now on.
    fn reroute(&self, machine: &Machine, change: impl FnOnce(&mut Attrs)) -> Result<(), Wait> {
        let mut plan = self.plan.lock();
        if plan.dead {
            return Ok(());
        }
        let before = self.signpost.routes();
        if self.ordered && before.links()[0].is_plugged() {
            return Err(Wait::Plug);
        }
        let shut = self.signpost.shut().ok_or(Wait::Enqueuer)?;
        change(&mut plan.attrs);
        let plug = self.ordered && !twin::armed("reroute: forgets the plug");
        let routes = plan.draw(&self.core, machine, plug);
        if std::ptr::eq(before, Arc::as_ptr(&routes)) {
            return Ok(());
        }
        if !plan.tables.iter().any(|it| Arc::ptr_eq(it, &routes)) {
            plan.tables.push(routes.clone());
        }
        shut.publish(&routes);
        drop(shut);
        for link in before.links() {
            if !routes.has(Arc::as_ptr(link)) {
                link.pool.retire_link(link.slot);
            }
        }
        if plug && !routes.has(Arc::as_ptr(&before.links()[0])) {
            before.links()[0].succeed(&routes.links()[0]);
        }
        Ok(())
    }

    /// Follows a change of the machine; false when it has to be asked again later.
    pub(super) fn follow(&self, machine: &Machine) -> bool {
        self.reroute(machine, |_| ()).is_ok()
    }

    fn is_settled(&self) -> bool {
        !self.ordered || !self.signpost.routes().links()[0].is_plugged()
    }
}

impl Pwq {
    fn is_plugged(&self) -> bool {
        self.pool.lock().link(self.slot).plugged
    }

    /// Unplugs `heir` when the last item of this link has ended.
    fn succeed(&self, heir: &Arc<Pwq>) {
        if self.pool.is_spent(self.slot, heir) {
            heir.pool.unplug(heir.slot);
        }
    }
}

impl Workqueue {
    /// Returns the attributes.
    pub fn attrs(&self) -> Attrs {
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
    /// Those of [`Builder::build`](super::Builder::build) that the attributes can cause, and
    /// [`BuildError::Unsettled`] inside an item of an ordered queue that would have to wait for itself. Nothing
    /// is changed then.
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
    pub fn set_attrs(&self, attrs: &Attrs) -> Result<(), BuildError> {
        attrs.check(self.inner.ordered)?;
        self.change(|it| it.clone_from(attrs))
    }

    /// Changes which CPUs share a worker pool; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_scope(&self, scope: topology::AffinityScope) -> Result<(), BuildError> {
        self.set_one(|attrs| attrs.scope = scope)
    }

    /// Changes whether workers never leave their pods; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_strict(&self, strict: bool) -> Result<(), BuildError> {
        self.set_one(|attrs| attrs.strict = strict)
    }

    /// Changes the CPUs to which workers keep; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_cpus(&self, cpus: Option<topology::CpuSet>) -> Result<(), BuildError> {
        self.set_one(|attrs| attrs.cpus.clone_from(&cpus))
    }

    /// Changes the nice value of the workers; see [`set_attrs`](Self::set_attrs).
    ///
    /// # Errors
    ///
    /// As of [`set_attrs`](Self::set_attrs).
    pub fn set_nice(&self, nice: i8) -> Result<(), BuildError> {
        self.set_one(|attrs| attrs.nice = nice)
    }

    fn set_one(&self, change: impl Fn(&mut Attrs)) -> Result<(), BuildError> {
        let mut attrs = self.attrs();
        change(&mut attrs);
        attrs.check(self.inner.ordered)?;
        self.change(change)
    }

    fn change(&self, change: impl Fn(&mut Attrs)) -> Result<(), BuildError> {
        let inner = &*self.inner;
        loop {
            match inner.reroute(self.registry().machine(), &change) {
                Ok(()) => return Ok(()),
                Err(Wait::Enqueuer) => thread::yield_now(),
                Err(Wait::Plug) if inner.runs_here() => return Err(BuildError::Unsettled),
                Err(Wait::Plug) => inner.core.drained.wait_until(|| inner.is_settled()),
            }
        }
    }
}
