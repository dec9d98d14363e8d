//! The interface that the cases use to measure a pool.
//!
//! All calls in timed loops are static, because each case is compiled once for each subject.

use super::batch::Item;
use super::completion::{Completion, Waiting};
use super::producers::Counts;

/// A pool that is measured, in one particular way of using it.
pub trait Subject: Sync {
    /// The state of a producer that queues one item and waits for it.
    type Lone<'s>: Lone
    where
        Self: 's;

    /// The state of a producer that queues a batch of items.
    type Load<'s>: Load
    where
        Self: 's;

    /// Prepares a single item on the producer's thread, before timing starts.
    ///
    /// `completion` is for pools that have no way to wait for an item.
    fn lone(&self, completion: &'static Completion) -> Self::Lone<'_>;

    /// Prepares a batch on the producer's thread, before timing starts.
    fn load(&self, items: &'static [Item]) -> Self::Load<'_>;

    /// Returns the counts of the pool, if it has any.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// A single item that is queued repeatedly.
pub trait Lone {
    /// Queues the item.
    fn queue(&mut self);

    /// Waits until the item has run. It is called once after each [`queue`](Self::queue).
    fn wait(&mut self);
}

/// A batch of items. The items themselves signal their completion.
pub trait Load {
    /// Queues the item at `index`.
    fn queue(&mut self, index: usize);
}

/// A pool that runs each closure once. All peers are such pools, and so are workqueues through
/// `spawn`.
pub trait OneShotPool: Sync {
    /// Submits `work` to the workers and returns.
    fn submit(&self, work: impl FnOnce() + Send + 'static);

    /// Returns the counts of the pool, if it has any.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// A pool with its own way to wait for an item.
pub trait Joins: OneShotPool {
    /// A handle with which to wait for an item.
    type Handle;

    /// Submits an empty item that can be waited for.
    fn submit_joined(&self) -> Self::Handle;

    /// Waits for the item of `handle`.
    fn join(&self, handle: Self::Handle);
}

/// A subject that uses one-shot closures on a pool, and waits for a common [`Completion`] in the
/// given way.
#[derive(Debug)]
pub struct OneShot<P>(pub P, pub Waiting);

/// A subject that uses one-shot closures on a pool, and waits for each with the pool's own handle.
#[derive(Debug)]
pub struct Joined<P>(pub P);

/// See [`Joined`].
#[derive(Debug)]
pub struct JoinedLone<'s, P: Joins> {
    pool: &'s P,
    handle: Option<P::Handle>,
}

/// See [`OneShot`].
#[derive(Debug)]
pub struct OneShotLone<'s, P> {
    pool: &'s P,
    completion: &'static Completion,
    waiting: Waiting,
}

/// See [`OneShot`].
#[derive(Debug)]
pub struct OneShotLoad<'s, P> {
    pool: &'s P,
    items: &'static [Item],
}

impl<P: OneShotPool> Subject for OneShot<P> {
    type Lone<'s>
        = OneShotLone<'s, P>
    where
        P: 's;
    type Load<'s>
        = OneShotLoad<'s, P>
    where
        P: 's;

    fn lone(&self, completion: &'static Completion) -> OneShotLone<'_, P> {
        OneShotLone { pool: &self.0, completion, waiting: self.1 }
    }

    fn load(&self, items: &'static [Item]) -> OneShotLoad<'_, P> {
        OneShotLoad { pool: &self.0, items }
    }

    fn counts(&self) -> Option<Counts> {
        self.0.counts()
    }
}

impl<P: OneShotPool> Lone for OneShotLone<'_, P> {
    #[inline]
    fn queue(&mut self) {
        let completion = self.completion;
        completion.arm();
        self.pool.submit(move || completion.complete());
    }

    #[inline]
    fn wait(&mut self) {
        self.completion.wait_by(self.waiting);
    }
}

impl<P: Joins> Subject for Joined<P> {
    type Lone<'s>
        = JoinedLone<'s, P>
    where
        P: 's;
    type Load<'s>
        = OneShotLoad<'s, P>
    where
        P: 's;

    fn lone(&self, _: &'static Completion) -> JoinedLone<'_, P> {
        JoinedLone { pool: &self.0, handle: None }
    }

    fn load(&self, items: &'static [Item]) -> OneShotLoad<'_, P> {
        OneShotLoad { pool: &self.0, items }
    }

    fn counts(&self) -> Option<Counts> {
        self.0.counts()
    }
}

impl<P: Joins> Lone for JoinedLone<'_, P> {
    #[inline]
    fn queue(&mut self) {
        self.handle = Some(self.pool.submit_joined());
    }

    #[inline]
    fn wait(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.pool.join(handle);
        }
    }
}

impl<P: OneShotPool> Load for OneShotLoad<'_, P> {
    #[inline]
    fn queue(&mut self, index: usize) {
        let item = self.items[index];
        self.pool.submit(move || item.run());
    }
}

/// Runs lone items and batches on a subject. It hangs if an item does not run.
#[cfg(test)]
pub(in crate::bench) fn runs_lone_items_and_batches(subject: &impl Subject) {
    use super::batch::Batch;
    use crate::harness::latency::Latencies;

    let mut lone = subject.lone(Box::leak(Box::default()));
    for _ in 0..100 {
        lone.queue();
        lone.wait();
    }
    let batch = Batch::leak(2500);
    let mut load = subject.load(batch.items());
    for _ in 0..2 {
        let queue = |index| load.queue(index);
        batch.queue_all(queue, || false, &mut Latencies::default());
        batch.wait();
    }
}
