//! The plan of a queue's routes, and all pwqs, tables and gates that the routes have ever used.

use base::internal::params::MaxActiveScope;
use base::internal::wake::lane::Lane;
use item::internal::head::{Home, Rules};
use limit::internal::active::Gate;
use limit::internal::queue_core::QueueCore;
use sync::OnceLock;
use sync::atomic::AtomicU32;
use sync::unmodelled::Arc;

use super::attrs::Attrs;
use super::machine::Machine;
use super::routes::Routes;
use crate::pools::mayday::MaydayQueue;
use crate::pools::pool::PoolAttrs;
use crate::pools::pwq::{Pwq, WaitingPwq};
use crate::pools::seats::GroupGate;

pub(crate) struct Design {
    pub(crate) attrs: Attrs,
    pub(crate) max_active: u32,
    /// I
    pub(crate) max_active_scope: MaxActiveScope,
    /// I: `true` if joiners help; `None` for the default.
    pub(crate) help: Option<bool>,
    /// I
    pub(crate) ordered: bool,
    /// I: the rescuer's queue of requests, if there is a rescuer.
    pub(crate) mayday_queue: Option<Arc<MaydayQueue>>,
    /// I: the gate of the queue's group, if it is in one.
    pub(crate) group: Option<GroupGate>,
}

pub(crate) struct Plan {
    pub(crate) design: Design,
    /// I: the NUMA nodes, in the order in which gates index them.
    nodes: Box<[u32]>,
    /// Every gate, with the index of its node.
    gates: Vec<(usize, Arc<Gate<WaitingPwq>>)>,
    /// Set from the time the queue is paused until it is resumed.
    pub(crate) paused: bool,
    stopped: bool,
    /// Set once the queue ignores pauses of its group, because it is being destroyed.
    pub(crate) ends: bool,
    /// Every table that has been published. Enqueuers may still read any of them.
    tables: Vec<Arc<Routes>>,
    /// Every pwq that is, or was, in a table. Items may still arrive on any of them.
    pub(crate) pwqs: Vec<Arc<Pwq>>,
    /// Set once the queue has been destroyed and its pwqs have been removed.
    pub(crate) dead: bool,
}

impl Plan {
    pub(crate) fn new(
        design: Design,
        core: &Arc<QueueCore>,
        machine: &Machine,
    ) -> (Self, Arc<Routes>) {
        let nodes = machine.topology().nodes().iter().map(|it| it.id).collect();
        let mut plan = Self {
            design,
            nodes,
            gates: Vec::new(),
            paused: false,
            stopped: false,
            ends: false,
            tables: Vec::new(),
            pwqs: Vec::new(),
            dead: false,
        };
        let routes = plan.draw(core, machine);
        (plan, routes)
    }

    pub(crate) fn end(&mut self) -> Vec<Arc<Pwq>> {
        self.dead = true;
        std::mem::take(&mut self.pwqs)
    }

    pub(crate) fn nr_active(&self) -> u32 {
        self.gates.iter().map(|(_, gate)| gate.nr_active()).sum()
    }

    /// Returns the number of items that helpers have run on seats from the gates' seat caches.
    pub(crate) fn nr_helped(&self) -> u64 {
        self.gates.iter().map(|(_, gate)| gate.nr_helped()).sum()
    }

    #[must_use = "the waiters that got seats must be notified"]
    pub(crate) fn set_max_active(&mut self, max_active: u32) -> Vec<WaitingPwq> {
        self.design.max_active = max_active;
        let gates = self.gates.iter();
        gates.flat_map(|(_, gate)| gate.set_max(max_active)).collect()
    }

    /// Withdraws all seats if the queue or its group is paused, and otherwise restores them.
    /// Returns the pwqs that get a seat.
    #[must_use = "the waiters that got seats must be notified"]
    pub(crate) fn apply_pauses(&mut self, by_group: bool) -> Vec<WaitingPwq> {
        let stopped = self.paused || by_group && !self.ends;
        self.stopped = stopped;
        let gates = self.gates.iter();
        gates.flat_map(|(_, gate)| gate.set_paused(stopped)).collect()
    }

    pub(crate) fn gates(&self) -> Vec<Arc<Gate<WaitingPwq>>> {
        self.gates.iter().map(|(_, gate)| gate.clone()).collect()
    }

    /// Returns the gate for a new pwq that connects the queue to a pool with `nr_cpus` CPUs.
    fn gate(&mut self, node: usize, nr_cpus: usize, cpus_by_node: &[u32]) -> Arc<Gate<WaitingPwq>> {
        let found = match self.design.max_active_scope {
            MaxActiveScope::System => self.gates.first(),
            MaxActiveScope::Node => self.gates.iter().find(|(its, _)| *its == node),
            MaxActiveScope::Cpu => None,
        };
        if let Some((_, gate)) = found {
            return gate.clone();
        }
        // Loom's models of whole queues use no seat caches, which have smaller models of their own.
        let of_model = cfg!(loom).then_some(0);
        let all = cpus_by_node.iter().sum();
        let (factor, cpus_by_node, stocks_for) = match self.design.max_active_scope {
            MaxActiveScope::System => (1, cpus_by_node, all),
            MaxActiveScope::Node => (1, &[][..], cpus_by_node[node]),
            MaxActiveScope::Cpu => (nr_cpus as u32, &[][..], nr_cpus as u32),
        };
        let max = self.design.max_active;
        let stocks_for = of_model.unwrap_or(stocks_for);
        let gate = Arc::new(Gate::new(max, factor, cpus_by_node, stocks_for));
        if self.stopped {
            // A new gate has no waiters.
            let _ = gate.set_paused(true);
        }
        self.gates.push((node, gate.clone()));
        gate
    }

    /// Builds the table for the attributes, from new pwqs and reused former ones.
    pub(crate) fn draw(&mut self, core: &Arc<QueueCore>, machine: &Machine) -> Arc<Routes> {
        let (topology, pods) = machine.pods(&self.design.attrs);
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
        let pwqs = pods
            .iter()
            .map(|pod| {
                let attrs = PoolAttrs {
                    cpus: pod.cpus.clone(),
                    strict: self.design.attrs.strict,
                    nice: self.design.attrs.nice,
                    bh: core.bh,
                };
                let node = self.node_at(pod.node);
                self.pwq(attrs, node, &cpus_by_node, (core, machine))
            })
            .collect();
        let routes = Routes::new(topology, pods, pwqs);
        if let Some(known) = self.tables.iter().find(|it| it.is_like(&routes)) {
            return known.clone();
        }
        let routes = Arc::new(routes);
        // Keep the table, because enqueuers may read it as soon as it is published.
        self.tables.push(routes.clone());
        routes
    }

    /// Returns a node's index in the gates. A missing or unknown node counts as the first one.
    fn node_at(&self, node: Option<u32>) -> usize {
        let known = |node| self.nodes.iter().position(|&it| it == node);
        node.and_then(known).unwrap_or(0)
    }

    fn pwq(
        &mut self,
        attrs: PoolAttrs,
        node: usize,
        cpus_by_node: &[u32],
        (core, machine): (&Arc<QueueCore>, &Machine),
    ) -> Arc<Pwq> {
        // The pwq uses its pool, so no other pool has these attributes.
        if let Some(pwq) = self.pwqs.iter().find(|pwq| pwq.pool.attrs == attrs) {
            // The pwq may have been retired.
            pwq.pool.lock().lead(pwq.slot, true);
            return pwq.clone();
        }
        let pool = machine.pool(attrs);
        let rules = Rules {
            help: self.design.help.unwrap_or(!pool.attrs.strict) && !self.design.ordered,
            ordered: self.design.ordered,
            one_cpu: pool.has_one_cpu(),
            reclaim: core.reclaim,
        };
        let gate = self.gate(node, pool.attrs.cpus.len(), cpus_by_node);
        let pwq = pool.lock().add_pwq(|slot| {
            Arc::new(Pwq {
                home: Home { slot, lane: Lane::Ordinary, rules },
                pool: pool.clone(),
                core: core.clone(),
                gate,
                group: self.design.group.clone(),
                mayday_queue: self.design.mayday_queue.clone(),
                node: node as u32,
                anchors: OnceLock::new(),
                nr_cancelled: AtomicU32::new(0),
                urgent: OnceLock::new(),
                observed: OnceLock::new(),
            })
        });
        pwq.gate.add_home(pwq.as_home().addr());
        self.pwqs.push(pwq.clone());
        pwq
    }
}
