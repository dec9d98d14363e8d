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
    task::{Context, Wake, Waker},
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
