//! Puts items that are in a local batch back into the pool's lists.

use std::ptr;

use sync::unmodelled::Arc;

use super::{
    dispatch::Enlisted,
    pool::{PoolGuard, WorkerPool},
};
use crate::item::head::Head;

impl WorkerPool {
    /// If `item` is in a worker's local batch, puts all items that the worker has not started back
    /// into the list. `item` is only compared.
    pub(crate) fn recall(self: &Arc<Self>, item: *const Head) {
        self.add_work(|guard| guard.recall(item));
    }
}

impl PoolGuard<'_> {
    fn recall(&mut self, item: *const Head) {
        let holds = |it: &&Enlisted| {
            it.worker.has_items() && it.worker.unfinished().any(|held| ptr::eq(held, item))
        };
        let holder = self.workers().find(holds).map(|it| it.worker.clone());
        if let Some(holder) = holder {
            self.retire(&holder);
            self.reclaim(&holder);
        }
    }
}
