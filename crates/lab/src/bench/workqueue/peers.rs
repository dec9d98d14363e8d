//! The pools with which afterwork is compared. Each is used as its documentation recommends.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use top::exit::Stop;

use super::subject::{Joins, OneShotPool};

pub trait Peer: OneShotPool + Sized + 'static {
    const NAME: &str;

    fn start(workers: usize) -> Result<Self, Stop>;
}

pub const NAMES: [&str; 4] = [Tokio::NAME, Rayon::NAME, ThreadPool::NAME, Crossbeam::NAME];

pub struct Tokio(pub tokio::runtime::Runtime);

pub struct SpawnBlocking(tokio::runtime::Runtime);

pub struct Rayon(pub rayon::ThreadPool);

pub struct ThreadPool(threadpool::ThreadPool);

type Job = Box<dyn FnOnce() + Send>;

/// A typical hand-written pool, which receives boxed closures through an unbounded channel.
pub struct Crossbeam {
    /// `None` only during `drop`.
    sender: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
}

/// Implements [`Peer`] for a pool. `$start` starts it, and `$submit` submits a closure to it.
macro_rules! peer {
    ($pool:ident, $name:literal, |$workers:ident| $start:expr, |$it:ident, $work:ident| $submit:expr) => {
        impl Peer for $pool {
            const NAME: &str = $name;

            fn start($workers: usize) -> Result<Self, Stop> {
                $start
            }
        }

        impl OneShotPool for $pool {
            #[inline]
            fn submit(&self, $work: impl FnOnce() + Send + 'static) {
                let $it = self;
                $submit;
            }
        }
    };
}

peer! {
    Tokio, "tokio", |workers| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build();
        runtime.map(Self).map_err(Stop::because("cannot start tokio"))
    }, |it, work| it.0.spawn(async move { work() })
}

peer! {
    SpawnBlocking, "spawn_blocking", |most| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(most).build();
        runtime.map(Self).map_err(Stop::because("cannot start tokio"))
    }, |it, work| it.0.spawn_blocking(work)
}

peer! {
    Rayon, "rayon", |workers| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        pool.map(Self).map_err(Stop::because("cannot start rayon"))
    }, |it, work| it.0.spawn(work)
}

peer! {
    ThreadPool, "threadpool", |workers| Ok(Self(threadpool::ThreadPool::new(workers))),
    |it, work| it.0.execute(work)
}

peer! {
    Crossbeam, "crossbeam", |workers| Self::with(workers, unbounded()), |it, work| {
        let sender = it.sender.as_ref().expect("taken only by drop");
        // This fails only if all workers have exited. The waiter would then hang.
        sender.send(Box::new(work)).expect("workers live as long as the sender");
    }
}

impl Joins for Tokio {
    type Handle = tokio::task::JoinHandle<()>;

    #[inline]
    fn submit_joined(&self) -> Self::Handle {
        self.0.spawn(async {})
    }

    #[inline]
    fn join(&self, handle: Self::Handle) {
        let joined = self.0.block_on(handle);
        joined.expect("an empty task does not panic");
    }
}

impl Joins for Rayon {
    type Handle = ();

    /// Does nothing, because `join` submits the item and waits for it in one call.
    #[inline]
    fn submit_joined(&self) {}

    #[inline]
    fn join(&self, (): ()) {
        self.0.install(|| ());
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // The crate does not join its threads, which would then exit during the next variant.
        self.0.join();
        self.0.set_num_threads(1);
    }
}

impl Crossbeam {
    pub fn start_bounded(workers: usize, room: usize) -> Result<Self, Stop> {
        Self::with(workers, bounded(room))
    }

    fn with(
        workers: usize,
        (sender, receiver): (Sender<Job>, Receiver<Job>),
    ) -> Result<Self, Stop> {
        let mut pool = Self { sender: Some(sender), workers: Vec::with_capacity(workers) };
        for _ in 0..workers {
            let receiver = receiver.clone();
            let worker = thread::Builder::new()
                .name("crossbeam-pool".into())
                .spawn(move || receiver.iter().for_each(|job| job()))
                .map_err(Stop::because("cannot start the crossbeam pool"))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }
}

impl Joins for Crossbeam {
    type Handle = Receiver<()>;

    /// Returns the result through a channel, as programs usually do.
    #[inline]
    fn submit_joined(&self) -> Self::Handle {
        let (answer, answered) = bounded(1);
        // Sending fails if the waiter has dropped the receiver.
        self.submit(move || _ = answer.send(()));
        answered
    }

    #[inline]
    fn join(&self, handle: Self::Handle) {
        handle.recv().expect("every item runs");
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        self.sender = None;
        for worker in self.workers.drain(..) {
            // A panic in a worker has already been printed.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workqueue::completion::Waiting;
    use crate::bench::workqueue::subject::tests::runs_lone_items_and_batches;
    use crate::bench::workqueue::subject::{Joined, OneShot};

    fn runs<P: Peer>() {
        for waiting in Waiting::ALL {
            runs_lone_items_and_batches(&OneShot(P::start(2).unwrap(), waiting));
        }
    }

    #[test]
    fn each_pool_runs_every_item() {
        runs::<Tokio>();
        runs::<Rayon>();
        runs::<ThreadPool>();
        runs::<Crossbeam>();
        runs_lone_items_and_batches(&Joined(Tokio::start(2).unwrap()));
        runs_lone_items_and_batches(&Joined(Rayon::start(2).unwrap()));
        runs_lone_items_and_batches(&Joined(Crossbeam::start(2).unwrap()));
    }
}
