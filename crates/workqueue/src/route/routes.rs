//! Which pools the items of a queue go to, and how that changes while the queue is used.
//!
//! # The protocol
//!
//! The *routes* of a queue are a table from CPU to link, never changed once it is published. Who changes the
//! attributes of a queue makes a new table and publishes it by one store; enqueuers load the table and push to a
//! link of it, without a lock and without telling anybody.
//!
//! ```text
//! enqueuer: table = current;  link = table[cpu];  push to link's pool
//! changer:  links of the new table are there;  current = new table;  retire links that are in no table
//! ```
//!
//! So an enqueuer may push to a link that was retired meanwhile, however late. That is no harm, for a *retired* link
//! is still a link: its pool has workers when something comes, and only lets all of them go when it idles. Tables
//! and links stay until the queue goes, and are taken up again when the attributes come back; so there are as
//! many as a queue has ever had different ones.
//!
//! # Ordered queues
//!
//! An item that arrives late on the former link of an ordered queue may start after items that its thread queues on the
//! new link. So [`set_attrs`](crate::Workqueue::set_attrs) drains such a queue before it publishes, and an
//! ordered queue does not follow a change of the machine. All links of an ordered queue share one gate with one seat,
//! so two of its items never run at the same time.

use std::ptr;

use sync::{
    atomic::{AtomicPtr, Ordering},
    cell::UnsafeCell,
    cpu, twin,
    unmodelled::Arc,
};
use topology::{CpuId, Pods, Topology};

use crate::{
    item::{head::Home, lane::Lane},
    pools::pwq::Pwq,
};

/// Which link an item that is queued on some CPU goes to.
#[derive(Debug)]
pub(crate) struct Routes {
    /// I: the machine for which it was made.
    topology: Arc<Topology>,
    /// I
    pods: Pods,
    /// I: one link a pod, in the order of the pods.
    links: Box<[Arc<Pwq>]>,
    /// Nothing; a model checks that who looks at the table comes after who made it.
    made: UnsafeCell<()>,
}

// SAFETY: all but the cell is never changed; the cell is never written once it is made, and holds nothing.
unsafe impl Sync for Routes {}

/// The routes in force.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// A: points into one of the tables that the queue keeps until it goes.
    current: AtomicPtr<Routes>,
}

impl Routes {
    pub(crate) fn new(topology: Arc<Topology>, pods: Pods, links: Box<[Arc<Pwq>]>) -> Self {
        debug_assert_eq!(pods.len(), links.len());
        Self {
            topology,
            pods,
            links,
            made: UnsafeCell::new(()),
        }
    }

    pub(crate) fn links(&self) -> &[Arc<Pwq>] {
        &self.links
    }

    /// Returns the CPUs that have a link of their own, or share one.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = CpuId> {
        self.pods.iter().flat_map(|pod| pod.cpus.iter())
    }

    /// Returns `true` if both lead everywhere to the same link.
    pub(crate) fn is_like(&self, other: &Routes) -> bool {
        self.pods == other.pods
            && self.topology == other.topology
            && self
                .links
                .iter()
                .map(Arc::as_ptr)
                .eq(other.links.iter().map(Arc::as_ptr))
    }

    /// Returns `true` if `link`, which is only compared, is one of these, in `lane`.
    pub(crate) fn has(&self, link: *const Home, lane: Lane) -> bool {
        let mut lanes = self.links.iter().flat_map(|it| it.lanes());
        lanes.any(|it| ptr::eq(it.as_home(), link) && it.lane == lane)
    }

    /// Returns the link to the pool of the pod that this thread runs in.
    #[inline]
    fn here(&self) -> &Pwq {
        match &*self.links {
            [only] => only,
            _ => self.at_cpu(cpu::current()),
        }
    }

    /// Returns the link to the pool of a CPU's pod.
    #[inline]
    fn at_cpu(&self, cpu: CpuId) -> &Pwq {
        // A thread that was let run outside the allowed CPUs uses the first pod.
        &self.links[self.pods.pod_of(cpu).unwrap_or(0)]
    }

    fn at_node(&self, node: u32) -> &Pwq {
        let Some(node) = self.topology.nodes().iter().find(|it| it.id == node) else {
            return &self.links[0];
        };
        let here = cpu::current();
        let usable = |cpu: &CpuId| self.pods.pod_of(*cpu).is_some();
        let cpu = if node.cpus.contains(here) {
            Some(here)
        } else {
            node.cpus.iter().find(usable)
        };
        cpu.map_or(&self.links[0], |cpu| self.at_cpu(cpu))
    }
}

impl RouteTable {
    /// Makes the table of `routes`.
    pub(crate) fn new(routes: &Arc<Routes>) -> Self {
        Self {
            current: AtomicPtr::new(Arc::as_ptr(routes).cast_mut()),
        }
    }

    /// Returns the routes in force.
    #[inline]
    pub(crate) fn routes(&self) -> &Routes {
        // ORDER(routes): publish and consume, other end in `publish`.
        //   change:  makes table and links;  current = table, Release
        //   enqueue: table = current, Acquire;  looks at the link
        // Test: items_follow_the_routes_and_none_is_lost
        // SAFETY: the queue keeps every table that was published until it goes, and it has this one.
        let routes = unsafe { &*self.current.load(Ordering::Acquire) };
        routes.made.with(|_| ());
        routes
    }

    /// Returns the link for an item that is queued here.
    #[inline]
    pub(crate) fn here(&self) -> &Pwq {
        self.routes().here()
    }

    /// Returns the link for an item that is queued on `cpu`.
    pub(crate) fn at_cpu(&self, cpu: CpuId) -> &Pwq {
        self.routes().at_cpu(cpu)
    }

    /// Returns the link for an item that is queued in `node`.
    pub(crate) fn at_node(&self, node: u32) -> &Pwq {
        self.routes().at_node(node)
    }

    /// Points to `routes`, which must be kept for as long as this is.
    pub(crate) fn publish(&self, routes: &Arc<Routes>) {
        // ORDER(routes): other end in `RouteTable::routes`.
        // Test: items_follow_the_routes_and_none_is_lost
        let order = twin::order("routes: relaxed publish", Ordering::Release);
        let routes = Arc::as_ptr(routes).cast_mut();
        self.current.store(routes, order);
    }
}
