//! Workqueues as subjects: reusable items or one-shot closures, with different tunables.

use std::fmt;
use std::ops::Deref;

use afterwork::params::{Params, WakeMode};
use afterwork::workqueue::{
    BuildError, Builder, JoinHandle, MAX_ACTIVE, Registry, Work, Workqueue,
};
use top::exit::Stop;
use topology::{AffinityScope, Topology};

use super::batch::Item;
use super::completion::Completion;
use super::producers::Counts;
use super::subject::{Joins, OneShotPool, Subject};

/// One way to use a workqueue. Its `Display` output is the name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub scope: AffinityScope,
    pub wake: WakeMode,
    pub help: bool,
    pub spawn: bool,
}

impl Way {
    pub fn plain(scope: AffinityScope) -> Self {
        Self { scope, wake: WakeMode::Deferred, help: false, spawn: false }
    }

    pub fn under_lock(self) -> Self {
        Self { wake: WakeMode::UnderLock, ..self }
    }

    pub fn helped(self) -> Self {
        Self { help: true, ..self }
    }

    pub fn spawned(self) -> Self {
        Self { spawn: true, ..self }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_under_lock = self.wake == WakeMode::UnderLock;
        let suffix = |is_set, suffix| if is_set { suffix } else { "" };
        f.write_str(self.scope.as_str())?;
        f.write_str(suffix(is_under_lock, "+under_lock"))?;
        f.write_str(suffix(self.help, "+help"))?;
        f.write_str(suffix(self.spawn, "+spawn"))
    }
}

pub struct Ours {
    // The queue is declared before the pools, so that it is dropped before them.
    pub queue: Workqueue,
    pub pools: Pools,
}

/// Joins the workers when dropped, so that no worker runs during the next variant.
pub struct Pools(Option<Registry>);

impl Pools {
    pub fn start(topology: &Topology, params: Params) -> Result<Self, Stop> {
        let registry = Registry::new(topology.clone(), params);
        Ok(Self(Some(registry.map_err(Stop::because("cannot start our pools"))?)))
    }
}

impl Deref for Pools {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        self.0.as_ref().expect("taken only by drop")
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        let shut_down = self.0.take().map(Registry::shutdown);
        debug_assert!(matches!(shut_down, Some(Ok(()))), "the queues were dropped before");
    }
}

impl Ours {
    /// Starts a workqueue that runs up to `workers` items at once. If `lock_stat` is set, it
    /// records hold times of the pool lock, and idle workers park at once, so that each enqueue
    /// wakes one.
    pub fn start(
        topology: &Topology,
        way: Way,
        workers: usize,
        lock_stat: bool,
    ) -> Result<Self, Stop> {
        let mut params = Params { wake: way.wake, lock_stat, ..Params::default() };
        if lock_stat {
            params.worker_spin_limit = 0;
        }
        let max_active = u32::try_from(workers).unwrap_or(MAX_ACTIVE).min(MAX_ACTIVE);
        Self::build(topology, params, |builder| {
            builder.affinity(way.scope).help(way.help).max_active(max_active)
        })
    }

    pub fn build(
        topology: &Topology,
        params: Params,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Result<Self, Stop> {
        Self::build_with(topology, params, |_, builder| Ok(set(builder)))
    }

    /// Starts a workqueue with other parameters. `set` configures the queue with the registry.
    pub fn build_with(
        topology: &Topology,
        params: Params,
        set: impl FnOnce(&Registry, Builder) -> Result<Builder, BuildError>,
    ) -> Result<Self, Stop> {
        let pools = Pools::start(topology, params)?;
        let queue = set(&pools, Workqueue::builder("lab"))
            .and_then(|builder| builder.build_in(&pools))
            .map_err(Stop::because("cannot build our workqueue"))?;
        Ok(Self { queue, pools })
    }

    fn count(&self) -> Option<Counts> {
        Some(Counts {
            wakeups: self.pools.pool_stats().iter().map(|pool| pool.kicks).sum(),
            lock_wait_ns: self.pools.lock_wait_ns(),
        })
    }
}

impl OneShotPool for Workqueue {
    #[inline]
    fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.spawn_detached(work).unwrap();
    }
}

impl OneShotPool for Ours {
    #[inline]
    fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.queue.spawn_detached(work).unwrap();
    }

    fn counts(&self) -> Option<Counts> {
        self.count()
    }
}

impl Joins for Ours {
    type Handle = JoinHandle<()>;

    #[inline]
    fn submit_joined(&self) -> Self::Handle {
        self.queue.spawn(|| ())
    }

    #[inline]
    fn join(&self, handle: Self::Handle) {
        handle.join().expect("an empty closure does not panic");
    }
}

pub struct Reusable(pub Ours);

// If an item is rejected or panics, the bench ends here, because the case would wait forever.
impl Subject for Reusable {
    type Handle = ();

    fn lone(&self, _: &'static Completion) -> (impl FnMut(), impl FnMut(())) {
        let work = Work::new(|| ());
        let queued = work.clone();
        let queue = move || {
            assert!(self.0.queue.enqueue(&queued), "a flushed item is not pending");
        };
        (queue, move |()| _ = work.flush().expect("an empty item does not panic"))
    }

    fn load(&self, items: &'static [Item]) -> impl FnMut(usize) {
        let works = items.iter().map(|&item| Work::new(move || item.run()));
        let works: Vec<Work> = works.collect();
        move |index| {
            assert!(self.0.queue.enqueue(&works[index]), "an item that ran is not pending");
        }
    }

    fn counts(&self) -> Option<Counts> {
        self.0.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workqueue::subject::Joined;
    use crate::bench::workqueue::subject::tests::runs_lone_items_and_batches;

    #[test]
    fn every_way_runs_every_item() {
        let topology = Topology::detect().unwrap();
        for scope in AffinityScope::ALL {
            let plain = Way::plain(scope);
            for way in [plain, plain.under_lock(), plain.helped()] {
                let ours = Ours::start(&topology, way, 2, false).unwrap();
                runs_lone_items_and_batches(&Reusable(ours));
                let ours = Ours::start(&topology, way.spawned(), 2, false).unwrap();
                runs_lone_items_and_batches(&Joined(ours));
            }
        }
    }

    #[test]
    fn ways_have_different_names() {
        let plain = Way::plain(AffinityScope::CacheShard);
        let names = [plain, plain.under_lock(), plain.helped(), plain.helped().spawned()]
            .map(|way| way.to_string());
        let wanted =
            ["cache_shard", "cache_shard+under_lock", "cache_shard+help", "cache_shard+help+spawn"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn lock_holds_are_counted_when_asked_for() {
        let topology = Topology::detect().unwrap();
        let way = Way::plain(AffinityScope::System);
        let subject = Reusable(Ours::start(&topology, way, 2, true).unwrap());
        runs_lone_items_and_batches(&subject);
        assert!(subject.0.pools.lock_hold().count > 0);
    }
}
