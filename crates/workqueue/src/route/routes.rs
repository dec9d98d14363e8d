//! A queue's map from CPU to pool, and how it changes while the queue is in use.
//!
//! # The protocol
//!
//! The *routes* of a queue are a table from CPU to pwq, which is immutable once it is published. A
//! thread that changes the attributes of a queue builds a new table and publishes it with one
//! store. Enqueuers load the table and push to one of its pwqs without a lock.
//!
//! ```text
//! enqueuer: table = current;  pwq = table[cpu];  push to the pwq's pool
//! changer:  create the pwqs of the new table;  current = new table;  retire pwqs not in it
//! ```
//!
//! A pwq that is in the former table and not in the new one is *retired*. An enqueuer may push to
//! it at any later time. This is harmless: the pool of a retired pwq still starts workers when
//! items arrive, and ends the last of them only when it is idle. Tables and pwqs are kept until the
//! queue is destroyed, and are reused if the attributes return to former values. A queue has one
//! table for each set of attributes that it has had.
//!
//! # Ordered queues
//!
//! An item that arrives late on the former pwq of an ordered queue may start after items that its
//! thread queues on the new pwq. Therefore [`set_attrs`](crate::Workqueue::set_attrs) drains such a
//! queue before it publishes, and an ordered queue does not follow a change to the machine. All
//! pwqs of an ordered queue share one gate with one seat, so its runs never overlap.

use std::ptr;

use base::internal::wake::lane::Lane;
use item::internal::head::Home;
use sync::atomic::{AtomicPtr, Ordering};
use sync::cell::UnsafeCell;
use sync::unmodelled::Arc;
use sync::{cpu, twin};
use topology::{CpuId, CpuSet, Pods, Topology};

use crate::pools::pwq::Pwq;

pub(crate) struct Routes {
    /// I: the topology for which the table was built.
    topology: Arc<Topology>,
    /// I
    pods: Pods,
    /// I: one pwq for each pod, in the order of the pods.
    pwqs: Box<[Arc<Pwq>]>,
    /// An empty cell, with which a model checks that the table is read only after its creation.
    made: UnsafeCell<()>,
}

// SAFETY: all fields are immutable after creation, and the cell is empty.
unsafe impl Sync for Routes {}

pub(crate) struct RouteTable {
    /// A: points to one of the tables that the queue keeps until it is destroyed.
    current: AtomicPtr<Routes>,
}

impl Routes {
    pub(crate) fn new(topology: Arc<Topology>, pods: Pods, pwqs: Box<[Arc<Pwq>]>) -> Self {
        debug_assert_eq!(pods.len(), pwqs.len());
        Self { topology, pods, pwqs, made: UnsafeCell::new(()) }
    }

    pub(crate) fn pwqs(&self) -> &[Arc<Pwq>] {
        &self.pwqs
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = CpuId> {
        self.pods.iter().flat_map(|pod| pod.cpus.iter())
    }

    pub(crate) fn is_of(&self, topology: &Topology, pods: &Pods) -> bool {
        self.pods == *pods && *self.topology == *topology
    }

    pub(crate) fn is_like(&self, other: &Routes) -> bool {
        self.pods == other.pods
            && self.topology == other.topology
            && self.pwqs.iter().map(Arc::as_ptr).eq(other.pwqs.iter().map(Arc::as_ptr))
    }

    /// Returns `true` if `pwq`, which is only compared, is one of these pwqs and in `lane`.
    pub(crate) fn has(&self, pwq: *const Home, lane: Lane) -> bool {
        let mut lanes = self.pwqs.iter().flat_map(|it| it.lanes());
        lanes.any(|it| ptr::eq(it.as_home(), pwq) && it.lane == lane)
    }

    #[inline]
    pub(crate) fn here(&self) -> &Pwq {
        match &*self.pwqs {
            [only] => only,
            _ => self.at_cpu(cpu::current()),
        }
    }

    #[inline]
    pub(crate) fn at_cpu(&self, cpu: CpuId) -> &Pwq {
        // A thread that runs on none of the allowed CPUs uses the first pod.
        &self.pwqs[self.pods.pod_of(cpu).unwrap_or(0)]
    }

    /// Returns the current CPU if it is in the NUMA node `node`, otherwise the node's first CPU
    /// that the queue uses. If the queue uses none there, returns a CPU of the first pod.
    pub(crate) fn cpu_in(&self, node: u32) -> CpuId {
        let node = self.topology.nodes().iter().find(|it| it.id == node);
        let cpus = node.map(|it| &it.cpus);
        let here = cpu::current();
        if cpus.is_some_and(|cpus| cpus.contains(here)) {
            return here;
        }
        let usable = |cpu: &CpuId| self.pods.pod_of(*cpu).is_some();
        let mut cpus = cpus.into_iter().flat_map(CpuSet::iter);
        cpus.find(usable).unwrap_or_else(|| {
            let first = self.pods.pod(0).cpus.first();
            first.expect("a pod has a CPU")
        })
    }
}

impl RouteTable {
    pub(crate) fn new(routes: &Arc<Routes>) -> Self {
        Self { current: AtomicPtr::new(Arc::as_ptr(routes).cast_mut()) }
    }

    #[inline]
    pub(crate) fn routes(&self) -> &Routes {
        // ORDER(routes): publish and consume, other end in `publish`.
        //   change:  create table and pwqs;  current = table, Release
        //   enqueue: table = current, Acquire;  read the pwq
        // If we load the new table, we see its content. If we load a former table, the queue still
        // keeps it.
        // Test: items_follow_the_routes_and_none_is_lost
        // SAFETY: `current` is a published table, and the queue keeps those until it is destroyed.
        let routes = unsafe { &*self.current.load(Ordering::Acquire) };
        routes.made.with(|_| ());
        routes
    }

    /// Publishes `routes`, which must be kept alive for as long as `self`.
    pub(crate) fn publish(&self, routes: &Arc<Routes>) {
        // ORDER(routes): other end in `RouteTable::routes`.
        // Test: items_follow_the_routes_and_none_is_lost
        let order = twin::order("routes: relaxed publish", Ordering::Release);
        let routes = Arc::as_ptr(routes).cast_mut();
        self.current.store(routes, order);
    }
}
