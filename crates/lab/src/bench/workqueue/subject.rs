//! The interface that the cases use to measure a pool.
//!
//! All calls in timed loops are static, because each case is compiled once for each subject.

use super::batch::Item;
use super::completion::{Completion, Waiting};
use super::producers::Counts;

/// A pool that is measured, in one particular way of using it.
pub trait Subject: Sync {
    type Handle;

    /// Prepares a single item on the producer's thread, before timing starts. Returns functions to
    /// queue it and to wait for it. `completion` is for pools that have no way to wait.
    fn lone(
        &self,
        completion: &'static Completion,
    ) -> (impl FnMut() -> Self::Handle, impl FnMut(Self::Handle));

    /// Prepares a batch before timing starts. Returns a function that queues the item at an index.
    fn load(&self, items: &'static [Item]) -> impl FnMut(usize);

    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// A pool that runs each closure once. All peers are such pools, and so are workqueues through
/// `spawn`.
pub trait OneShotPool: Sync {
    fn submit(&self, work: impl FnOnce() + Send + 'static);

    fn counts(&self) -> Option<Counts> {
        None
    }
}

pub trait Joins: OneShotPool {
    type Handle;

    fn submit_joined(&self) -> Self::Handle;

    fn join(&self, handle: Self::Handle);
}

/// A subject that uses one-shot closures on a pool, and waits for a common [`Completion`] in the
/// given way.
pub struct OneShot<P>(pub P, pub Waiting);

pub struct Joined<P>(pub P);

impl<P: OneShotPool> Subject for OneShot<P> {
    type Handle = ();

    fn lone(&self, completion: &'static Completion) -> (impl FnMut(), impl FnMut(())) {
        let queue = move || {
            completion.arm();
            self.0.submit(move || completion.complete());
        };
        (queue, move |()| completion.wait_by(self.1))
    }

    fn load(&self, items: &'static [Item]) -> impl FnMut(usize) {
        submitting(&self.0, items)
    }

    fn counts(&self) -> Option<Counts> {
        self.0.counts()
    }
}

impl<P: Joins> Subject for Joined<P> {
    type Handle = P::Handle;

    fn lone(&self, _: &'static Completion) -> (impl FnMut() -> P::Handle, impl FnMut(P::Handle)) {
        (|| self.0.submit_joined(), |handle| self.0.join(handle))
    }

    fn load(&self, items: &'static [Item]) -> impl FnMut(usize) {
        submitting(&self.0, items)
    }

    fn counts(&self) -> Option<Counts> {
        self.0.counts()
    }
}

fn submitting(pool: &impl OneShotPool, items: &'static [Item]) -> impl FnMut(usize) {
    move |index| {
        let item = items[index];
        pool.submit(move || item.run());
    }
}

#[cfg(test)]
pub(in crate::bench) mod tests {
    use super::*;
    use crate::bench::workqueue::batch::Batch;
    use crate::harness::latency::Latencies;

    pub(in crate::bench) fn runs_lone_items_and_batches(subject: &impl Subject) {
        let (mut queue, mut wait) = subject.lone(Box::leak(Box::default()));
        for _ in 0..100 {
            wait(queue());
        }
        let batch = Batch::leak(2500);
        let mut load = subject.load(batch.items());
        for _ in 0..2 {
            batch.queue_all(&mut load, || false, &mut Latencies::default());
            batch.wait();
        }
    }
}
