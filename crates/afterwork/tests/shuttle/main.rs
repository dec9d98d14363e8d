//! Explores many random interleavings of larger cases. Every ordering is treated as `SeqCst`.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p afterwork --release --test shuttle`
#![cfg(shuttle)]

mod percpu;
mod rcu;
mod rcu_cell;
mod srcu;
mod task_work;
mod wake;
mod workqueue;
mod workqueue_group;
mod workqueue_strand;

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use afterwork::{
    mailbox::{Backlog, Closed, Mailbox},
    params::Params,
    percpu::{Escalate, PerCpu, Qpw},
    rcu::{
        Rcu, model,
        srcu::{Domain, OwnedGuard},
    },
    wake::{EventCount, Parker, Unparker, WakeQ},
    workqueue::{
        AffinityScope, Group, MAX_SHARES, Registry, Work, Workqueue,
        model::{Culler, Machine},
    },
};

use shuttle::{
    Config, Runner,
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

use sync::{
    Mutex,
    atomic::*,
    models,
    twin::{must_deadlock, must_fail},
};

use topology::{CpuId, Topology};

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
