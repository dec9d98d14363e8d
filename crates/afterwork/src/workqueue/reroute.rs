//! Changing where a queue's items go, while it is used. The protocol stands in `routes.rs`.

use sync::{Patience, atomic::AtomicU32, twin, unmodelled::Arc};

use super::{
    active::Gate,
    attrs::{Attrs, BuildError},
    head::Home,
    link::Seeker,
    machine::Machine,
    mayday::MaydayQueue,
    pool::PoolAttrs,
    pwq::Pwq,
    queue::{Inner, Parts, Workqueue},
    queue_core::QueueCore,
    rescuer::Rescuer,
    routes::Routes,
    state::Rules,
};
use crate::params::MaxActiveScope;

/// What the routes of a queue are made from, and all that there ever were.
#[derive(Debug)]
pub(super) struct Plan {
    attrs: Attrs,
    max_active: u32,
    /// I
    max_active_scope: MaxActiveScope,
    /// I: the NUMA nodes, in the order in which gates count them.
    nodes: Box<[u32]>,
    /// Every gate, and the node that it is for.
    gates: Vec<(usize, Arc<Gate<Seeker>>)>,
    /// Nothing of the queue is started.
    paused: bool,
    /// I: where its rescuer is called, if it has one.
    mayday_queue: Option<Arc<MaydayQueue>>,
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
        parts: &Parts,
        core: &Arc<QueueCore>,
        machine: &Machine,
    ) -> (Self, Arc<Routes>) {
        let nodes = machine.topology().nodes().iter().map(|it| it.id).collect();
        let mut plan = Self {
            attrs: parts.attrs.clone(),
            max_active: parts.max_active,
            max_active_scope: parts.max_active_scope,
            nodes,
            gates: Vec::new(),
            paused: false,
            mayday_queue: parts.rescuer.as_ref().map(Rescuer::mayday_queue),
            help: parts.help,
            ordered: parts.ordered,
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

    /// Returns `true` if the queue has gone.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Marks the queue as gone, and returns its links.
    pub(super) fn end(&mut self) -> Vec<Arc<Pwq>> {
        self.dead = true;
        std::mem::take(&mut self.links)
    }

    /// Returns how many items may run at once, where that is meant for.
    pub(super) fn max_active(&self) -> u32 {
        self.max_active
    }

    /// Returns how many threads run items now.
    pub(super) fn nr_active(&self) -> u32 {
        self.gates.iter().map(|(_, gate)| gate.nr_active()).sum()
    }

    /// Changes how many items may run at once; returns the links that get a seat by that.
    #[must_use = "the seekers have been handed seats and must be told"]
    pub(super) fn set_max_active(&mut self, max_active: u32) -> Vec<Seeker> {
        self.max_active = max_active;
        let gates = self.gates.iter();
        gates
            .flat_map(|(_, gate)| gate.set_max(max_active))
            .collect()
    }

    /// Takes all seats away, or brings them back; returns `true` if that is a change, and returns the links that get a seat.
    #[must_use = "the seekers have been handed seats and must be told"]
    pub(super) fn set_paused(&mut self, paused: bool) -> (bool, Vec<Seeker>) {
        let changed = std::mem::replace(&mut self.paused, paused) != paused;
        let gates = self.gates.iter();
        let seekers = gates.flat_map(|(_, gate)| gate.set_paused(paused));
        (changed, seekers.collect())
    }

    /// Returns all gates.
    pub(super) fn gates(&self) -> Vec<Arc<Gate<Seeker>>> {
        self.gates.iter().map(|(_, gate)| gate.clone()).collect()
    }

    /// Returns the gate of a new link to a pool with so many CPUs.
    fn gate(&mut self, node: usize, nr_cpus: usize, cpus_by_node: &[u32]) -> Arc<Gate<Seeker>> {
        let found = match self.max_active_scope {
            MaxActiveScope::System => self.gates.first(),
            MaxActiveScope::Node => self.gates.iter().find(|(its, _)| *its == node),
            MaxActiveScope::Cpu => None,
        };
        if let Some((_, gate)) = found {
            return gate.clone();
        }
        let (factor, cpus_by_node) = match self.max_active_scope {
            MaxActiveScope::System => (1, cpus_by_node),
            MaxActiveScope::Node => (1, &[][..]),
            MaxActiveScope::Cpu => (nr_cpus as u32, &[][..]),
        };
        let gate = Arc::new(Gate::new(self.max_active, factor, cpus_by_node));
        if self.paused {
            // Nobody stands in line at a new gate.
            let _ = gate.set_paused(true);
        }
        self.gates.push((node, gate.clone()));
        gate
    }

    /// Makes the table for the attributes, with links that are made or taken up again; plugged ones, if they are not
    /// in use now.
    fn draw(&mut self, core: &Arc<QueueCore>, machine: &Machine, plug: bool) -> Arc<Routes> {
        let (topology, pods) = machine.pods(&self.attrs);
        let mut cpus_by_node = vec![0; self.nodes.len()];
        for cpu in pods.iter().flat_map(|pod| pod.cpus.iter()) {
            let node = topology.cpu(cpu).and_then(|cpu| cpu.node);
            if let Some(nr_cpus) = cpus_by_node.get_mut(self.node_at(node)) {
                *nr_cpus += 1;
            }
        }
        for (_, gate) in &self.gates {
            gate.set_cpus(&cpus_by_node);
        }
        let links = pods
            .iter()
            .map(|pod| {
                let attrs = PoolAttrs {
                    cpus: pod.cpus.clone(),
                    strict: self.attrs.strict,
                    nice: self.attrs.nice,
                    bh: core.bh,
                };
                let node = self.node_at(pod.node);
                self.link(attrs, node, &cpus_by_node, (core, machine, plug))
            })
            .collect();
        let routes = Routes::new(topology, pods, links);
        let known = self.tables.iter().find(|it| it.is_like(&routes));
        known.cloned().unwrap_or_else(|| Arc::new(routes))
    }

    /// Returns a node as gates count it. One that was not there at first, or none, is taken for the first.
    fn node_at(&self, node: Option<u32>) -> usize {
        let known = |node| self.nodes.iter().position(|&it| it == node);
        node.and_then(known).unwrap_or(0)
    }

    fn link(
        &mut self,
        attrs: PoolAttrs,
        node: usize,
        cpus_by_node: &[u32],
        (core, machine, plug): (&Arc<QueueCore>, &Machine, bool),
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
            reclaim: core.reclaim,
        };
        let mut link = Pwq {
            home: Home { slot: 0, rules },
            gate: self.gate(node, pool.attrs.cpus.len(), cpus_by_node),
            mayday_queue: self.mayday_queue.clone(),
            pool,
            core: core.clone(),
            node,
            nr_anchored: Arc::new(AtomicU32::new(0)),
            nr_cancelled: AtomicU32::new(0),
            probe: Arc::default(),
        };
        link.home.slot = link.pool.add_link(&link, plug);
        let link = Arc::new(link);
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
        let before = self.route_table.routes();
        if self.ordered && before.links()[0].is_plugged() {
            return Err(Wait::Plug);
        }
        let shut = self.route_table.shut().ok_or(Wait::Enqueuer)?;
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
            if !routes.has(link.as_home()) {
                link.pool.retire_link(link.slot);
            }
        }
        if plug && !routes.has(before.links()[0].as_home()) {
            before.links()[0].succeed(&routes.links()[0]);
        }
        Ok(())
    }

    /// Follows a change of the machine; false when it has to be asked again later.
    pub(super) fn follow(&self, machine: &Machine) -> bool {
        self.reroute(machine, |_| ()).is_ok()
    }

    fn is_settled(&self) -> bool {
        !self.ordered || !self.route_table.routes().links()[0].is_plugged()
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
    /// Those of [`Builder::build`](super::Builder::build) that the attributes can cause,
    /// [`BuildError::Unsettled`] inside an item of an ordered queue that would have to wait for itself, and
    /// [`BuildError::Bh`] for a bottom-half queue. Nothing is changed then.
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
        self.check(attrs)?;
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
        self.check(&attrs)?;
        self.change(change)
    }

    /// Says why the queue cannot have these attributes.
    fn check(&self, attrs: &Attrs) -> Result<(), BuildError> {
        if self.inner.core.bh {
            return Err(BuildError::Bh);
        }
        attrs.check(self.inner.ordered)
    }

    fn change(&self, change: impl Fn(&mut Attrs)) -> Result<(), BuildError> {
        let inner = &*self.inner;
        let mut patience = Patience::new();
        loop {
            match inner.reroute(self.registry().machine(), &change) {
                Ok(()) => return Ok(()),
                Err(Wait::Enqueuer) => patience.pause(),
                Err(Wait::Plug) if inner.runs_here() => return Err(BuildError::Unsettled),
                Err(Wait::Plug) => inner.core.settled.wait_until(|| inner.is_settled()),
            }
        }
    }
}
