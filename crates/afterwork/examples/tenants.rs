//! Tenants of a service. Each one has shares of the CPU time, and one ceiling for all its queues.
//!
//! | promise | kept by |
//! |---|---|
//! | all queues of a tenant together run at most two items at once | `max_active` of its group |
//! | requests are answered during a flood; more queues get no more time | `shares` of the groups |
//! | a tenant is slowed down, paused and cancelled as a whole | `set_max_active`, `pause`, … |
//!
//! `cargo run --release --example tenants`. The shares matter only on fewer than six CPUs,
//! because the ceilings together allow six items.

use std::error::Error;
use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::workqueue::{BuildError, Group, JoinError, Workqueue, shutdown_in_order};

/// The name, the shares and the number of queues of each tenant. The last one floods the service.
const TENANTS: [(&str, u32, usize); 3] = [("gold", 600, 1), ("silver", 300, 2), ("free", 100, 4)];
/// The maximum number of items that a tenant runs at once.
const CEILING: u32 = 2;
/// The number of items that a flood keeps in its queues.
const FLOOD: usize = 256;
/// The duration of an item.
const ITEM: Duration = Duration::from_micros(50);
const PATIENCE: Duration = Duration::from_secs(60);

struct Tenant {
    group: Group,
    queues: Vec<Workqueue>,
    nr_running: AtomicU32,
    most: AtomicU32, // the highest value of `nr_running`
}

impl Tenant {
    fn new((name, shares, nr_queues): (&str, u32, usize)) -> Result<Arc<Self>, BuildError> {
        let group = Group::builder(name).max_active(CEILING).shares(shares).build()?;
        // A client that waits for an answer does not compute it on its own thread.
        let queue = |_| Workqueue::builder(name).group(&group).help(false).build();
        let queues = (0..nr_queues).map(queue).collect::<Result<_, _>>()?;
        let [nr_running, most] = Default::default();
        Ok(Arc::new(Self { group, queues, nr_running, most }))
    }

    /// Computes for the duration of an item. Only items of this tenant call this.
    fn compute(&self) {
        self.most.fetch_max(self.nr_running.fetch_add(1, Relaxed) + 1, Relaxed);
        let start = Instant::now();
        while start.elapsed() < ITEM {}
        self.nr_running.fetch_sub(1, Relaxed);
    }

    /// Makes requests, one after the other, and returns the median response time.
    fn ask(self: &Arc<Self>, nr_requests: usize) -> Result<Duration, JoinError> {
        let ask = |queue: &Workqueue| {
            let (tenant, start) = (self.clone(), Instant::now());
            queue.spawn(move || tenant.compute()).join().map(|()| start.elapsed())
        };
        let queues = self.queues.iter().cycle().take(nr_requests);
        let mut waits = queues.map(ask).collect::<Result<Vec<_>, _>>()?;
        waits.sort();
        Ok(waits[nr_requests / 2])
    }

    /// Queues `FLOOD` items. While `nr_more` is positive, each item that ends queues another one.
    fn flood(self: &Arc<Self>, nr_more: &Arc<AtomicI64>) {
        (0..FLOOD).for_each(|nth| self.clone().push(nth, nr_more.clone()));
    }

    fn push(self: Arc<Self>, nth: usize, nr_more: Arc<AtomicI64>) {
        let queue = self.queues[nth % self.queues.len()].clone();
        let item = move || {
            self.compute();
            if nr_more.fetch_sub(1, Relaxed) > 0 {
                self.push(nth + 1, nr_more);
            }
        };
        assert!(queue.spawn_detached(item).is_ok(), "a drain accepts items of its own group");
    }
}

/// Tests each promise. Each client makes `nr_requests` requests. Afterwards all tenants together
/// queue about `nr_items` more items.
pub fn run(nr_requests: usize, nr_items: i64) -> Result<(), Box<dyn Error>> {
    let tenants: Vec<_> = TENANTS.into_iter().map(Tenant::new).collect::<Result<_, _>>()?;
    let [clients @ .., free] = &tenants[..] else { unreachable!() };
    // The flood is endless, so a request that waited for its end would never be answered.
    let nr_more = Arc::new(AtomicI64::new(i64::MAX));
    free.flood(&nr_more);
    let answered: Result<_, JoinError> = thread::scope(|scope| {
        let ask = |tenant| (tenant, scope.spawn(move || Tenant::ask(tenant, nr_requests)));
        for (tenant, client) in clients.iter().map(ask).collect::<Vec<_>>() {
            let (name, median) = (tenant.group.name(), client.join().expect("no panic")?);
            println!("{name}: half of {nr_requests} answers came within {median:?}");
        }
        Ok(())
    });
    nr_more.store(nr_items, Relaxed);
    answered?;
    let used = |tenant: &Arc<Tenant>| tenant.group.stats().cpu_time_us;
    let before: Vec<_> = tenants.iter().map(used).collect();
    clients.iter().for_each(|tenant| tenant.flood(&nr_more));
    tenants.iter().try_for_each(|tenant| tenant.group.drain_timeout(PATIENCE))?;
    for ((name, shares, nr_queues), (tenant, before)) in zip(TENANTS, zip(&tenants, before)) {
        println!("{name}: {shares} shares, {nr_queues} queues, {} µs", used(tenant) - before);
    }
    assert!(tenants.iter().all(|tenant| tenant.most.load(Relaxed) <= CEILING));
    free.group.set_max_active(1)?;
    free.most.store(0, Relaxed);
    free.flood(&Arc::new(AtomicI64::new(0)));
    free.group.drain_timeout(PATIENCE)?;
    assert_eq!(free.most.load(Relaxed), 1, "slowed down");
    free.group.pause();
    free.flood(&nr_more);
    assert_eq!(free.group.cancel_all(), FLOOD);
    let queues: Vec<_> = tenants.iter().flat_map(|tenant| &tenant.queues).collect();
    assert!(shutdown_in_order(&queues, PATIENCE)?.is_empty());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(400, 5000)
}
