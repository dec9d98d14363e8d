//! Explores many random interleavings of larger cases. Every ordering is treated as `SeqCst`.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p afterwork --release --test shuttle`
#![cfg(shuttle)]

#[path = "../support/passed.rs"]
mod passed;
mod percpu;
mod rcu;
mod rcu_cell;
mod srcu;
mod task_work;
#[path = "../torture/rcu_versions.rs"]
mod versions;
mod wake;
mod workqueue;
mod workqueue_group;
mod workqueue_strand;

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use afterwork::mailbox::{Backlog, Closed, Mailbox};
use afterwork::params::Params;
use afterwork::percpu::{Escalate, PerCpu, Qpw};
use afterwork::rcu::srcu::{Domain, OwnedGuard};
use afterwork::rcu::{Rcu, model};
use afterwork::wake::{EventCount, Parker, Unparker, WakeQ};
use afterwork::workqueue::model::{Culler, Machine};
use afterwork::workqueue::{AffinityScope, Group, MAX_SHARES, Registry, Work, Workqueue};
use passed::Passed;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use sync::atomic::*;
use sync::twin::must_fail;
use sync::{Mutex, models};
use topology::{CpuId, Topology};
use versions::{Seen, Versions};

/// Runs `model` under `nr_runs` random schedules, and then under `nr_runs` schedules with few
/// thread switches.
///
/// Prints the seed; `AFTERWORK_SEED` sets it.
fn explore(nr_runs: usize, model: fn()) -> Passed<impl Fn()> {
    let seed = std::env::var("AFTERWORK_SEED").map_or_else(
        |_| RandomState::new().hash_one(nr_runs),
        |seed| seed.parse().expect("AFTERWORK_SEED is a number"),
    );
    println!("AFTERWORK_SEED={seed}");
    let mut config = Config::new();
    // Workers run items in frames that are deeper than shuttle expects.
    config.stack_size = 128 * 1024;
    Passed::run(move || {
        Runner::new(RandomScheduler::new_from_seed(seed, nr_runs), config.clone()).run(model);
        Runner::new(PctScheduler::new_from_seed(seed, 3, nr_runs), config.clone()).run(model);
    })
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

fn adder(count: &Arc<AtomicU32>) -> impl Fn() + Send + use<> {
    let count = count.clone();
    move || _ = count.fetch_add(1, Ordering::Relaxed)
}

/// Starts `nr` threads, which call `body` with their numbers.
fn spawn_each<R: Send + 'static>(
    nr: usize,
    body: impl Fn(usize) -> R + Clone + Send + 'static,
) -> Vec<thread::JoinHandle<R>> {
    let bodies = std::iter::repeat_n(body, nr).enumerate();
    bodies.map(|(number, body)| thread::spawn(move || body(number))).collect()
}

fn join_all<R>(threads: Vec<thread::JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}
