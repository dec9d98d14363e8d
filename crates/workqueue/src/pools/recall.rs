//! Getting items back that a worker has in hand and has not come to.

use std::ptr;

use sync::unmodelled::Arc;

use super::{
    dispatch::Enlisted,
    pool::{PoolGuard, WorkerPool},
};
use crate::item::head::Head;

impl WorkerPool {
    /// Has whoever has `item`, which is only compared, in hand put all that he has not started back into the list.
    pub(crate) fn recall(self: &Arc<Self>, item: *const Head) {
        self.add_work(|guard| guard.recall(item));
    }
}

impl PoolGuard<'_> {
    fn recall(&mut self, item: *const Head) {
        let holds = |it: &&Enlisted| {
            it.worker.has_items() && it.worker.in_hand().any(|held| ptr::eq(held, item))
        };
        let holder = self.workers().find(holds).map(|it| it.worker.clone());
        if let Some(holder) = holder {
            self.retire(&holder);
            self.reclaim(&holder);
        }
    }
}
