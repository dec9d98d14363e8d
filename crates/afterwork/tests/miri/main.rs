//! User operations of all kinds, small enough for Miri to check their memory accesses.
//!
//! `xtask/src/test/miri.rs` documents how Miri runs them. They also pass on the real machine.

mod ends;
mod percpu;
mod rcu;
mod workqueue;

use std::{
    cell::RefCell,
    future::{pending, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, OnceLock, atomic::*},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use afterwork::{
    params::Params,
    percpu::{Builder, PerCpu, Qpw},
    rcu::{Flavor, Rcu, qsbr, srcu::Domain},
    workqueue::{DelayedWork, RcuWork, Registry, TaskSet, Work, Workqueue},
};

use topology::{CpuId, Topology};

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}
