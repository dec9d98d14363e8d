//! Pools with a limited number of waiting items. A producer waits when it reaches the limit.

use std::sync::Arc;

use afterwork::params::Params;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use top::exit::Stop;
use topology::Topology;

use crate::bench::workqueue::ours::Ours;
use crate::bench::workqueue::peers::{Peer, Tokio};
use crate::bench::workqueue::subject::OneShotPool;

/// The maximum number of items that have not started.
pub const ROOM: usize = 1000;

pub struct Bounded(Ours);

/// A tokio runtime with a semaphore. Each task holds a permit until it starts.
pub struct Permits {
    runtime: Runtime,
    permits: Arc<Semaphore>,
}

impl Bounded {
    pub fn start(topology: &Topology, workers: usize) -> Result<Self, Stop> {
        let max_active = u32::try_from(workers).unwrap_or(1);
        let set = |it: afterwork::workqueue::Builder| it.capacity(ROOM).max_active(max_active);
        Ours::build(topology, Params::default(), set).map(Self)
    }
}

impl OneShotPool for Bounded {
    #[inline]
    fn submit(&self, work: impl FnOnce() + Send + 'static) {
        let queued = self.0.queue.task().wait_for_capacity().try_spawn(work);
        assert!(queued.is_ok(), "the queue is open, and this thread runs no item of it");
    }
}

impl Permits {
    pub fn start(workers: usize) -> Result<Self, Stop> {
        let permits = Arc::new(Semaphore::new(ROOM));
        Ok(Self { runtime: Tokio::start(workers)?.0, permits })
    }
}

impl OneShotPool for Permits {
    #[inline]
    fn submit(&self, work: impl FnOnce() + Send + 'static) {
        // The runtime is entered only if there is no free permit.
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.unwrap_or_else(|_| {
            let permit = self.permits.clone().acquire_owned();
            self.runtime.block_on(permit).expect("it is never closed")
        });
        self.runtime.spawn(async move {
            drop(permit);
            work();
        });
    }
}
