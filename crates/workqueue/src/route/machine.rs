//! A registry's view of the machine, and the queues that follow its changes.

use std::collections::HashMap;

use base::internal::numbered::Numbered;
use base::internal::page::Record;
use base::internal::panics::{Foreign, discard, guarded};
use base::internal::params::Params;
use base::internal::wake::hotplug;
use item::internal::cleanups::Cleanup;
use sync::Mutex;
use sync::unmodelled::{Arc, Weak};
use topology::{AffinityScope, CpuQuota, CpuSet, Pods, ShardParams, Topology};

use super::attrs::Attrs;
use super::stats::QueueReport;
use crate::pools::manager::Manager;
use crate::pools::pool::{PoolAttrs, WorkerPool};

pub(crate) trait Follower: Send + Sync {
    fn follow(&self, machine: &Machine);

    /// Returns a report on the queue, unless the queue is hidden or has been destroyed.
    fn report(&self) -> Option<QueueReport>;

    /// Returns the record of the group, if this is one.
    fn group_record(&self) -> Option<Record> {
        None
    }
}

pub(crate) type Source = Box<dyn FnMut() -> Option<Topology> + Send>;

pub(crate) struct Machine {
    /// I
    pub(crate) params: Params,
    /// I
    pub(crate) manager: Arc<Manager>,
    view: Mutex<View>,
    /// The source; `None` while a thread calls it, so that it runs with no lock held.
    source: Mutex<Option<Foreign<Source>>>,
}

struct View {
    topology: Arc<Topology>,
    /// The CPUs on which workers of unbound queues may run; `None` for all CPUs.
    unbound: Option<CpuSet>,
    queues: Queues<dyn Follower>,
}

/// Notifies the watchers of a change to the online CPUs for which no thread could be started.
struct AbsentCpus;

impl Cleanup for AbsentCpus {
    fn run(self: Box<Self>) {
        hotplug::call_all();
    }
}

/// Queues in the order in which they were built. Finding a queue takes constant time.
pub(crate) struct Queues<T: ?Sized> {
    by_number: Numbered<Weak<T>>,
    numbers: HashMap<usize, u64>,
}

impl<T: ?Sized> Default for Queues<T> {
    fn default() -> Self {
        Self { by_number: Numbered::default(), numbers: HashMap::default() }
    }
}

impl<T: ?Sized> Queues<T> {
    pub(crate) fn add(&mut self, queue: Weak<T>) {
        let address = queue.as_ptr().addr();
        self.numbers.insert(address, self.by_number.add(queue));
    }

    /// Removes a queue. The pointer is only compared.
    pub(crate) fn remove(&mut self, queue: *const T) {
        let number = self.numbers.remove(&queue.addr());
        number.and_then(|number| self.by_number.remove(number));
    }

    /// Returns the queues that exist. Drop them with no lock held.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.by_number.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Machine {
    pub(crate) fn new(topology: Topology, params: Params, manager: Arc<Manager>) -> Self {
        let unbound = params.unbound_cpus.clone();
        Self {
            params,
            manager,
            view: Mutex::new(View {
                topology: Arc::new(topology),
                unbound,
                queues: Queues::default(),
            }),
            source: Mutex::new(None),
        }
    }

    pub(crate) fn set_source(&self, source: Source) {
        // FOREIGN(source-drop): the drop of the former source, on the caller, with no lock held; a
        // panic is contained.
        let before = self.source.lock().replace(Foreign::new(source));
        drop(before);
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.view.lock().topology.clone()
    }

    pub(crate) fn unbound_cpus(&self) -> Option<CpuSet> {
        self.view.lock().unbound.clone()
    }

    /// Divides the CPUs that a queue with `attrs` may use into pods.
    pub(crate) fn pods(&self, attrs: &Attrs) -> (Arc<Topology>, Pods) {
        let view = self.view.lock();
        let (topology, unbound) = (view.topology.clone(), view.unbound.clone());
        drop(view);
        let cpus = placed(attrs.cpus.as_ref(), unbound.as_ref(), topology.allowed());
        let pods = cut(&topology, &cpus, attrs.affinity, &self.params);
        (topology, pods)
    }

    pub(crate) fn add_queue(&self, queue: Weak<dyn Follower>) {
        self.view.lock().queues.add(queue);
    }

    /// Deregisters a queue. The pointer is only compared.
    pub(crate) fn remove_queue(&self, queue: *const dyn Follower) {
        self.view.lock().queues.remove(queue);
    }

    pub(crate) fn queues(&self) -> Vec<Arc<dyn Follower>> {
        self.view.lock().queues.all()
    }

    pub(crate) fn set_unbound_cpus(&self, cpus: Option<CpuSet>) {
        self.change(|view| view.unbound = cpus);
    }

    pub(crate) fn set_topology(&self, topology: Topology) {
        let online = topology.online().clone();
        self.change(|view| view.topology = Arc::new(topology));
        if !hotplug::notify_aside(&online) {
            self.manager.leave_to_reapers([AbsentCpus]);
        }
    }

    /// Asks the source for a change of the machine, and applies it. Returns `true` if it changed.
    pub(crate) fn refresh(&self) -> bool {
        let Some(mut source) = self.source.lock().take() else {
            return false;
        };
        // FOREIGN(source): a registry's source, on its manager or the calling thread; a panic is
        // contained, and counts as no change.
        let seen = guarded(&mut *source).unwrap_or_else(|payload| {
            discard(payload);
            None
        });
        let mut place = self.source.lock();
        // If another source was set during the call, it stays, and this one is dropped below.
        let left = if place.is_some() { Some(source) } else { place.replace(source) };
        drop(place);
        drop(left);
        let changed = seen.is_some();
        if let Some(topology) = seen {
            self.set_topology(topology);
        }
        changed
    }

    fn change(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.lock();
        change(&mut view);
        let (topology, queues) = (view.topology.clone(), view.queues.all());
        drop(view);
        let quota = self.quota(&topology);
        for pool in self.pools() {
            pool.confine(topology.allowed());
            pool.set_quota(quota);
        }
        for queue in queues {
            queue.follow(self);
        }
    }

    pub(crate) fn pools(&self) -> Vec<Arc<WorkerPool>> {
        self.manager.pools()
    }

    /// Returns the pool with these attributes, which may be new, and increments its count of users.
    pub(crate) fn pool(&self, attrs: PoolAttrs) -> Arc<WorkerPool> {
        let topology = self.topology();
        let confined = attrs.cpus != *topology.allowed();
        let mut roster = self.manager.roster.lock();
        if let Some((pool, nr_users)) = roster.iter_mut().find(|(pool, _)| pool.attrs == attrs) {
            *nr_users += 1;
            return pool.clone();
        }
        let number = (0..)
            .find(|number| roster.iter().all(|(pool, _)| pool.number != *number))
            .expect("fewer pools than numbers");
        let pool = Arc::new(WorkerPool::new(
            number,
            attrs,
            confined,
            self.quota(&topology),
            self.params.without_hooks(),
            self.manager.clone(),
        ));
        roster.push((pool.clone(), 1));
        drop(roster);
        // The machine may have changed before the pool was registered.
        pool.set_quota(self.quota(&self.topology()));
        pool
    }

    /// Returns the number of CPUs that the process may use, or the quota if that is less.
    pub(crate) fn millicpus(&self) -> u64 {
        let topology = self.topology();
        let all = topology.allowed().len() as u64 * 1000;
        let quota = self.quota(&topology).map(CpuQuota::millicpus);
        quota.map_or(all, |quota| quota.min(all))
    }

    fn quota(&self, topology: &Topology) -> Option<CpuQuota> {
        topology.quota().filter(|_| self.params.cpu_quota)
    }

    /// Decrements a pool's count of users. If no user is left, the pool is destroyed.
    pub(crate) fn release(&self, pool: &Arc<WorkerPool>) {
        let mut roster = self.manager.roster.lock();
        let at =
            roster.iter().position(|(other, _)| Arc::ptr_eq(pool, other)).expect("a pool in use");
        roster[at].1 -= 1;
        if roster[at].1 == 0 {
            let (pool, _) = roster.swap_remove(at);
            drop(roster);
            pool.kill();
        }
    }
}

fn cut(topology: &Topology, cpus: &CpuSet, scope: AffinityScope, params: &Params) -> Pods {
    let shards = ShardParams { cache_shard_size: params.cache_shard_size };
    match topology.restricted_to(cpus) {
        Ok(part) => part.pods(scope, &shards),
        Err(_) => topology.pods(scope, &shards),
    }
}

/// Returns the CPUs that workers of a queue may use: the intersection of the arguments. `unbound`
/// is ignored if it contains no allowed CPU, and `wish` if it contains none of the remaining CPUs.
pub(crate) fn placed(wish: Option<&CpuSet>, unbound: Option<&CpuSet>, allowed: &CpuSet) -> CpuSet {
    let within = |cpus: CpuSet, bound: Option<&CpuSet>| {
        let both = bound.map(|bound| cpus.intersection(bound));
        both.filter(|both| !both.is_empty()).unwrap_or(cpus)
    };
    within(within(allowed.clone(), unbound), wish)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn workers_use_requested_common_and_allowed_cpus() {
        let placed = |wish: Option<&str>, unbound: Option<&str>| {
            let (wish, unbound) = (wish.map(set), unbound.map(set));
            super::placed(wish.as_ref(), unbound.as_ref(), &set("0-7")).to_string()
        };
        assert_eq!(placed(None, None), "0-7");
        assert_eq!(placed(Some("2-9"), None), "2-7");
        assert_eq!(placed(None, Some("4-9")), "4-7");
        assert_eq!(placed(Some("0-5"), Some("4-9")), "4-5");
    }

    #[test]
    fn queue_mask_without_a_cpu_yields_to_the_common_mask() {
        let placed = |wish, unbound| {
            super::placed(Some(&set(wish)), Some(&set(unbound)), &set("0-7")).to_string()
        };
        assert_eq!(placed("0-1", "4-5"), "4-5");
        assert_eq!(placed("0-1", "8-9"), "0-1");
        assert_eq!(placed("9", "8-9"), "0-7");
    }
}
