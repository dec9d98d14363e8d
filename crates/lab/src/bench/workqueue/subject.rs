//! What is measured: a pool, seen through the two things that the cases ask of it.
//!
//! Every call in a timed loop is static: a case is compiled once for each subject.

use super::batch::Item;
use super::completion::{Completion, Waiting};

/// A pool under measurement, in one of the ways in which it can be used.
pub trait Subject: Sync {
    /// What a producer needs to queue one item and wait for it.
    type Lone<'s>: Lone
    where
        Self: 's;

    /// What a producer needs to queue a batch of items.
    type Load<'s>: Load
    where
        Self: 's;

    /// Prepares a producer's single item, on the producer's thread, before any timing.
    ///
    /// `completion` is for a pool that has no way of its own to wait for an item.
    fn lone(&self, completion: &'static Completion) -> Self::Lone<'_>;

    /// Prepares a producer's batch, on the producer's thread, before any timing.
    fn load(&self, items: &'static [Item]) -> Self::Load<'_>;

    /// Returns how many workers the pool has woken so far, where it counts that.
    fn wakeups(&self) -> Option<u64> {
        None
    }
}

/// One item at a time.
pub trait Lone {
    /// Queues the item.
    fn queue(&mut self);

    /// Waits until it ran; called once after each [`queue`](Self::queue).
    fn wait(&mut self);
}

/// Many items, waited for by their own means.
pub trait Load {
    /// Queues the item at `index`.
    fn queue(&mut self, index: usize);
}

/// A pool that takes closures and runs each once: every peer, and ours by `spawn`.
pub trait OneShotPool: Sync {
    /// Hands `work` to the workers and returns.
    fn submit(&self, work: impl FnOnce() + Send + 'static);

    /// Returns how many workers the pool has woken so far, where it counts that.
    fn wakeups(&self) -> Option<u64> {
        None
    }
}

/// A pool that can be waited for in a way of its own.
pub trait Joins: OneShotPool {
    /// What is waited by.
    type Handle;

    /// Hands an empty item to the workers, for one to wait for.
    fn submit_joined(&self) -> Self::Handle;

    /// Waits for it.
    fn join(&self, handle: Self::Handle);
}

/// Measures a pool by one-shot closures and the common [`Completion`], which producers wait for in this way.
#[derive(Debug)]
pub struct OneShot<P>(pub P, pub Waiting);

/// Measures a pool by one-shot closures, each waited for in the pool's own way.
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
        OneShotLone {
            pool: &self.0,
            completion,
            waiting: self.1,
        }
    }

    fn load(&self, items: &'static [Item]) -> OneShotLoad<'_, P> {
        OneShotLoad {
            pool: &self.0,
            items,
        }
    }

    fn wakeups(&self) -> Option<u64> {
        self.0.wakeups()
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
        JoinedLone {
            pool: &self.0,
            handle: None,
        }
    }

    fn load(&self, items: &'static [Item]) -> OneShotLoad<'_, P> {
        OneShotLoad {
            pool: &self.0,
            items,
        }
    }

    fn wakeups(&self) -> Option<u64> {
        self.0.wakeups()
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

/// Puts a subject through what the cases ask of it; hangs if an item does not run.
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
