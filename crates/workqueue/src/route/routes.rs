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
//! Here it is harm: an item that comes late to the old link may be overtaken by one that the same thread queues on the
//! new link afterwards. So enqueuers of an ordered queue say that they are inside ([`EnqueueBarrier`]), and the changer
//! shuts the barrier, waits until nobody is inside, and publishes. After that nothing comes to the old link any more.
//! The new link is *plugged*: its items are adopted, and kept inactive. The old link names the new one its
//! *successor*, and when the last of its items has ended it pulls the plug. A further change waits for that.
//!
//! ```text
//! enqueuer: nr_inside += 1;  fence;  shut? then leave and wait;  table = current;  push;  nr_inside -= 1
//! changer:  shut = true;     fence;  wait for nr_inside = 0;     current = new table;     shut = false
//! ```

use std::{ops::Deref, ptr};

use sync::{
    Patience,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence},
    cell::UnsafeCell,
    cpu, thread, twin,
    unmodelled::Arc,
};
use topology::{CpuId, Pods, Topology};

use crate::{
    trace,
    workqueue::{item::head::Home, item::lane::Lane, pools::pwq::Pwq},
};

/// How often a changer looks whether enqueuers have left before it gives way. A guess: many time slices.
const SHUT_LOOKS: u32 = if cfg!(any(loom, shuttle)) {
    u32::MAX
} else {
    1000
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

/// The routes in force, and who is on his way by them.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// A: points into one of the tables that the queue keeps until it goes.
    current: AtomicPtr<Routes>,
    /// Of an ordered queue alone.
    barrier: Option<EnqueueBarrier>,
}

/// Counts the enqueuers that are between looking at the routes and pushing.
#[derive(Debug, Default)]
struct EnqueueBarrier {
    nr_inside: AtomicU32,
    shut: AtomicBool,
}

/// The barrier of an ordered queue, shut.
#[derive(Debug)]
pub(crate) struct Shut<'a>(&'a RouteTable);

/// The way to the link that an item goes to; while it is held, an ordered queue keeps its routes.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    link: &'a Pwq,
    /// The barrier that the thread is inside of, and the events that are emitted after it leaves.
    inside: Option<(&'a EnqueueBarrier, trace::Held)>,
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
    pub(crate) fn new(routes: &Arc<Routes>, ordered: bool) -> Self {
        Self {
            current: AtomicPtr::new(Arc::as_ptr(routes).cast_mut()),
            barrier: ordered.then(EnqueueBarrier::default),
        }
    }

    /// Returns the routes in force.
    #[inline]
    pub(crate) fn routes(&self) -> &Routes {
        // ORDER(routes): publish and consume, other end in `Shut::publish`.
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
    pub(crate) fn here(&self) -> Route<'_> {
        let inside = self.enter();
        Route {
            link: self.routes().here(),
            inside,
        }
    }

    /// Returns the link for an item that is queued on `cpu`.
    pub(crate) fn at_cpu(&self, cpu: CpuId) -> Route<'_> {
        let inside = self.enter();
        Route {
            link: self.routes().at_cpu(cpu),
            inside,
        }
    }

    /// Returns the link for an item that is queued in `node`.
    pub(crate) fn at_node(&self, node: u32) -> Route<'_> {
        let inside = self.enter();
        Route {
            link: self.routes().at_node(node),
            inside,
        }
    }

    /// Keeps enqueuers out, if the queue is ordered, until the answer is dropped. One thread at a time.
    ///
    /// # Blocking
    ///
    /// Enqueuers are waited for that are between two steps of theirs; `None` when that takes long: one of them may
    /// wait for something that the caller holds up.
    pub(crate) fn shut(&self) -> Option<Shut<'_>> {
        let shut = Shut(self);
        let is_empty = self.barrier.as_ref().is_none_or(EnqueueBarrier::shut);
        is_empty.then_some(shut)
    }

    #[inline]
    fn enter(&self) -> Option<(&EnqueueBarrier, trace::Held)> {
        let barrier = self.barrier.as_ref()?;
        let held = trace::hold();
        barrier.enter();
        Some((barrier, held))
    }
}

impl Shut<'_> {
    /// Points to `routes`, which must be kept for as long as this is.
    ///
    /// Where the queue is ordered, nothing comes by the old routes any more on return.
    pub(crate) fn publish(&self, routes: &Arc<Routes>) {
        // ORDER(routes): other end in `RouteTable::routes`.
        // Test: items_follow_the_routes_and_none_is_lost
        let order = twin::order("routes: relaxed publish", Ordering::Release);
        let routes = Arc::as_ptr(routes).cast_mut();
        self.0.current.store(routes, order);
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        if let Some(barrier) = &self.0.barrier {
            // Pairs with the Acquire loads in `enter`. If this store comes first, the enqueuer goes on and sees the new
            // routes. If its load comes first, it waits and loads again.
            barrier.shut.store(false, Ordering::Release);
        }
    }
}

impl EnqueueBarrier {
    fn enter(&self) {
        loop {
            self.nr_inside.fetch_add(1, Ordering::Relaxed);
            // ORDER(enqueue-barrier): store buffering, other end in `shut`.
            //   enter: nr_inside += 1;  fence;  is it shut?
            //   shut:  shut = true;     fence;  is anybody inside?
            // If our fence comes first, `shut` counts us and waits for us. If the other fence comes first, we find the
            // barrier shut, and wait for the new routes.
            // Test: an_ordered_queue_keeps_its_order_while_its_attributes_change
            if !twin::armed("enqueue barrier: no fence") {
                fence(Ordering::SeqCst);
            }
            if !self.shut.load(Ordering::Acquire) {
                return;
            }
            self.leave();
            let mut patience = Patience::new();
            while self.shut.load(Ordering::Acquire) {
                patience.pause();
            }
        }
    }

    fn leave(&self) {
        // Release pairs with the Acquire in `shut`: if that reads our count, it sees what we pushed.
        self.nr_inside.fetch_sub(1, Ordering::Release);
    }

    /// Lets no enqueuer in. Returns `true` if all that were inside have left.
    fn shut(&self) -> bool {
        self.shut.store(true, Ordering::Relaxed);
        // ORDER(enqueue-barrier): other end in `enter`. If our fence comes first, a later enqueuer finds the barrier shut. If the
        // enqueuer's fence comes first, we count it below.
        // Test: an_ordered_queue_keeps_its_order_while_its_attributes_change
        fence(Ordering::SeqCst);
        if twin::armed("enqueue barrier: no check of who is inside") {
            return true;
        }
        for _ in 0..SHUT_LOOKS {
            // Acquire pairs with `leave`: what those inside have pushed is seen.
            if self.nr_inside.load(Ordering::Acquire) == 0 {
                return true;
            }
            thread::yield_now();
        }
        false
    }
}

impl Route<'_> {
    /// Leads to the same link for the items of `lane`.
    #[inline]
    pub(crate) fn in_lane(mut self, lane: Lane) -> Self {
        self.link = self.link.in_lane(lane);
        self
    }
}

impl Deref for Route<'_> {
    type Target = Pwq;

    #[inline]
    fn deref(&self) -> &Pwq {
        self.link
    }
}

impl Drop for Route<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((barrier, _)) = &self.inside {
            barrier.leave();
        }
    }
}
